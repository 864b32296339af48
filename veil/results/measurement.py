"""What one recording tells: numbers, the sentences that they allow, files and pictures."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy

from veil.io import csv_text, replace_text, write_json
from veil.results import text
from veil.results.parts import (
    Line,
    ResultError,
    Verdict,
    each,
    mean_from_dict,
    number,
    same_result,
    text_of,
)
from veil.results.recording_fit import RecordingFit
from veil.settings import MeasureSettings
from veil.stats import ERRORS, Mean
from veil.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE, TABLE, PICTURE = "measure.json", "measure.csv", "measure.png"

COLUMNS = (
    *(
        "recording",
        "verdict",
        "survives",
        "rows",
        "information",
        "information_error",
        "low",
        "high",
        "filter_error",
    ),
    *("disagreement", "drop", "as_it_is", "discounted", "discounted_error", "entropy", "likeliest", "odds"),
    *("fit_p_value", "method"),
)

DECIDED = ("leak", "no_leak")  # verdicts that answer the question

AS_IT_IS = "Truth"

LEAK_FRACTION = 0.1  # of H(q): more information than this is called a leak

DISAGREE = 0.1  # of the posterior mass: filters that are further apart have not understood the releases

FEWEST_SAMPLES = 10.0  # independent residuals; with fewer the discount is itself not known well enough


COARSE = 0.5  # of the noise of one step: above, rounding is no longer small beside it


@dataclass(frozen=True)
class Column:
    """A recorded column of the state.

    Attributes:
        name: of its field.
        unit: of its field.
        step: that its values are multiples of; 0 where they look continuous.
        noise: sd of the model's noise in one step, in the unit of the field.
        given: resolution that the measurement allowed for; 0 where values were taken as exact.
    """

    name: str
    unit: str
    step: float
    noise: float
    given: float

    @property
    def coarse(self) -> bool:
        """Whether rounding that the measurement did not allow for is large beside the noise."""
        return self.given == 0.0 and self.step > COARSE * self.noise


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """What one recording, shared in one way, tells about the secret. All information is in nats.

    `print(measurement)` shows the verdict and the main numbers, a notebook also a picture. `save` and `load`
    keep everything, `plot` draws; `save_measurements` and `load_measurements` do so for several recordings.

    Attributes:
        name: of the recording.
        system: name of its model.
        policy: name of the way of sharing.
        method: how the posterior was found.
        filtered: whether particle filters were needed.
        steps: releases.
        options: what was asked for; `draws` is 1 where nothing is drawn.
        secrets: of the prior.
        secret_names: the same with names and units, for people.
        log_prior: log-masses before reading.
        masses: posterior masses, the mean over the draws.
        information: KL(posterior ‖ prior), mean over the draws and its standard error, filters included.
        drop: H(prior) − H(posterior), likewise.
        filter_error: the part of the standard error of `information` that comes from the filters.
        disagreement: fraction of the posterior mass on which the filters of a draw disagree.
        as_it_is: the information of the recording shared as it is, for comparison.
        discounted_masses: of the posterior after a discount for what the model does not explain.
        discounted_information: of that posterior, the mean over the draws and its standard error.
        trail: posterior masses after each release, the mean over the draws.
        scores: residuals of the best secret, whitened, for the picture.
        believed: index of what the owner takes its secret for.
        fit: whether the model explains the recording.
        checked: whether the times of the rows were compared with the system's step.
        verdict: what may be said.
        stretches: rows of each stretch without gaps.
        notes: what the reader left out, put in order or understood, in sentences.
        columns: of the state, as they were read.
        version: of the library that made it.
    """

    name: str
    system: str
    policy: str
    method: str
    filtered: bool
    steps: int
    options: MeasureSettings
    secrets: Float[np.ndarray, "K P"]
    secret_names: tuple[str, ...]
    log_prior: Float[np.ndarray, " K"]
    masses: Float[np.ndarray, " K"]
    information: Mean
    drop: Mean
    filter_error: float
    disagreement: float
    as_it_is: float
    discounted_masses: Float[np.ndarray, " K"]
    discounted_information: Mean
    trail: Float[np.ndarray, "T K"]
    scores: Float[np.ndarray, "n Y"]
    believed: int
    fit: RecordingFit
    checked: bool
    verdict: Verdict
    stretches: tuple[int, ...]
    notes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    version: str = __version__

    def __eq__(self, other: object) -> bool:
        """Whether all numbers and words are the same; what is not finite is unknown, hence the same."""
        return isinstance(other, Measurement) and same_result(self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def entropy(self) -> float:
        """H(q): what there is to know on average."""
        return entropy(np.exp(self.log_prior))

    @property
    def low(self) -> float:
        """Lower end of the interval of `information`."""
        return max(0.0, self.information.low(ERRORS))

    @property
    def high(self) -> float:
        """Upper end of the interval of `information`; no posterior can tell more than log 1/min q."""
        return min(float(-self.log_prior.min()), self.information.high(ERRORS))

    @property
    def likeliest(self) -> int:
        """Index of the secret with the largest posterior mass."""
        return int(np.argmax(self.masses))

    @property
    def odds(self) -> float:
        """Posterior odds of the likeliest secret against all others; infinite where they have no mass."""
        mass = float(self.masses[self.likeliest])
        rest = float(np.delete(self.masses, self.likeliest).sum())
        return mass / rest if rest > 0.0 else np.inf

    @property
    def survives(self) -> bool:
        """Whether there is a leak even if the likelihood is discounted for the misfit."""
        return bool(self.verdict.inputs.get("survives", False))

    # Words

    @property
    def way(self) -> str:
        """How the recording is shared, in a few words."""
        return "shared as it is" if self.policy == AS_IT_IS else f"shared by {self.policy}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence with its numbers."""
        what = f"{self.name}, {self.way}, {self.steps} rows"
        if self.verdict.name == "leak":
            return f"{what}: tells {self._amount()} of the {self.entropy:.3f} there are; {self._odds()}."
        if self.verdict.name == "no_leak" and self.entropy > 0.0:
            most = text.nats(self.high, up=True)
            return f"{what}: tells at most {most}; shared as it is, it would tell {self.as_it_is:.3f} nats."
        because = "; ".join(self.verdict.reasons)
        if self.verdict.name == "no_leak":
            return f"{what}: tells nothing, because {because}."
        if self.verdict.name == "not_enough_data":
            return f"{what}: tells {self._amount()} by the model, and this decides nothing: {because}."
        misfit = f"the model does not fit, so {self._amount()} is no leakage: {because}."
        return f"{what}: {misfit} {self._survival()}"

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.verdict.name == "leak":
            return (
                "Protect it: try --policy noise, transport or counterfactual here, then `veil audit`, which "
                "bounds what a policy tells on average."
            )
        if self.verdict.name == "no_leak":
            return "One recording is an example; `veil audit` bounds what the policy tells on average."
        if self.verdict.name == "model_does_not_fit":
            coloured = any(axis.counts and axis.autocorrelation > 0.5 for axis in self.fit.axes)
            model = "one whose noise is correlated over time" if coloured else "another one"
            return (
                "Fit the noise of the system and the secrets of its prior to recordings like this, or "
                f"measure with {model}. Until then take it that the recording may tell everything."
            )
        limit = LEAK_FRACTION * self.entropy
        undecided = self.information.high(ERRORS) >= limit > self.information.low(ERRORS)
        if self.fit.examined and (undecided or self.disagreement > DISAGREE):
            return "Give more --draws, and more --filter-particles if the filters are what is uncertain."
        return "Record longer, or while more happens: what is calm tells little whatever the sharing."

    @property
    def assumptions(self) -> list[str]:
        """What the numbers take for granted."""
        lines = [
            "What the others did is taken as recorded; what they would have done with other data is not "
            "known from a log.",
            "The first row is taken as known to the adversary, who also knows the system, its noise, the "
            "prior and the policy.",
        ]
        if len(self.stretches) > 1:
            lines.append(
                f"The recording has {len(self.stretches)} stretches. Each begins anew: its first row is "
                "known, and what is not recorded has the law that it has at the start of the system. Given "
                "the secret, stretches are taken to be independent."
            )
        if self.policy != AS_IT_IS:
            lines.append(f"The owner takes its secret for {self.secret_names[self.believed]} (--secret).")
        if self.filtered:
            lines.append(
                f"Means over {self.options.draws} draws of the noise, each read by independent filters of "
                f"{self.options.filter_particles} particles per secret; the filters' share of the standard "
                f"error is {self.filter_error:.1g} nats."
            )
        lines += filter(None, [self.warning])
        if not self.checked:
            lines.append(
                "The length of a step was not checked: there is no column of times (--time), or the system "
                "does not say how long its step is."
            )
        return lines

    @property
    def warning(self) -> str:
        """Which columns are too coarse to be taken as exact, and what to do; empty where none is."""
        coarse = [column for column in self.columns if column.coarse]
        if not coarse:
            return ""
        said = "; ".join(
            f"{one.name} is recorded in steps of {one.step:g} {one.unit}".rstrip()
            + f", and the noise of one step of the model is {one.noise:.3g}"
            for one in coarse
        )
        steps = ",".join(f"{one.name}={one.step or one.given:g}" for one in self.columns)
        return (
            f"Warning: {said}. Values are taken as exact, so that rounding is taken for motion; measure with "
            f"--resolution {steps}."
        )

    def summary(self) -> str:
        """The few lines at the end."""
        return "\n".join(
            filter(None, [f"Verdict: {self.verdict.title}.", text.sentence(self.sentence), self.advice])
        )

    def _survival(self) -> str:
        """What is left of the leak if the likelihood is discounted for the misfit."""
        left = text.nats(max(0.0, self.discounted_information.value))
        discount = f"Discounted for the size and the persistence of the residuals, {left} are left"
        if self.survives:
            fraction = text.percent(float(self.discounted_masses.max()))
            return f"{discount}: the leak survives, and {fraction} of the mass is on one secret."
        if self.fit.effective_samples < FEWEST_SAMPLES:
            discount += (
                f", by residuals that carry as much as {self.fit.effective_samples:.0f} independent ones"
            )
        return f"{discount}: too little to say that there is a leak, which does not say that there is none."

    def _amount(self) -> str:
        """The information, with its interval where there is one."""
        if self.information.error == 0.0:
            return text.nats(self.information.value)
        interval = f"{self.low:.3f} to {self.high:.3f} with {ERRORS:g} standard errors"
        return f"{text.nats(self.information.value)}, {interval},"

    def _odds(self) -> str:
        """The secret with the largest mass, and its odds."""
        odds = self.odds
        shown = "more than a million" if odds > 1e6 else f"{odds:.0f}" if odds >= 10 else f"{odds:.1f}"
        return f"the likeliest secret is {self.secret_names[self.likeliest]}, {shown} to one"

    def _title(self) -> str:
        return f"Measurement of {self.name} on {self.system}: {self.verdict.title}"

    def _rows(self) -> list[tuple[str, str]]:
        """The main numbers by name."""
        most = f"of {self.entropy:.3f} nats"
        return [
            (
                f"information of {self.steps} rows",
                f"{self.information.value:.3f} [{self.low:.3f}, {self.high:.3f}] {most}",
            ),
            ("likeliest secret", f"{self.secret_names[self.likeliest]} (mass {self.masses.max():.3f})"),
            ("discounted for the misfit", f"{max(0.0, self.discounted_information.value):.3f} nats"),
            ("shared as it is", f"{self.as_it_is:.3f} nats"),
            ("p-value of the model", f"{self.fit.p_value:.3g}"),
            ("method", self.method),
        ]

    def __str__(self) -> str:
        said = "\n".join(textwrap.fill(line, 100) for line in (text.sentence(self.sentence), self.advice))
        return "\n".join([self._title(), said, text.text_table(("", ""), self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = text.sentence(self.sentence)
        return text.notebook_page(self._title(), said, ("", ""), self._rows(), self.plot())

    # Files

    def line(self) -> Line:
        """The numbers of one line of measure.csv."""
        values = (
            *(self.name, self.verdict.name, self.survives, self.steps, self.information.value),
            *(
                self.information.error,
                self.low,
                self.high,
                self.filter_error,
                self.disagreement,
                self.drop.value,
            ),
            *(
                self.as_it_is,
                self.discounted_information.value,
                self.discounted_information.error,
                self.entropy,
            ),
            *(self.secret_names[self.likeliest], self.odds, self.fit.p_value, self.method),
        )
        return dict(zip(COLUMNS, values, strict=True))

    def to_dict(self) -> Line:
        """What measure.json says about one recording."""
        return {
            **self.line(),
            "system": self.system,
            "policy": self.policy,
            "sentence": self.sentence,
            "reasons": self.verdict.reasons,
            "gate": self.verdict.inputs,
            "examination": self.verdict.examination.to_dict(),
            "advice": self.advice,
            "assumptions": self.assumptions,
            "standard_errors": ERRORS,
            "options": asdict(self.options),
            "filtered": self.filtered,
            "times_checked": self.checked,
            "stretches": self.stretches,
            "notes": self.notes,
            "resolution": {one.name: one.step for one in self.columns if one.step > 0},
            "columns": [asdict(one) for one in self.columns],
            "warning": self.warning,
            "secrets": self.secrets,
            "secret_names": self.secret_names,
            "log_prior": self.log_prior,
            "believed": self.believed,
            "posterior": self.masses,
            "discounted_posterior": self.discounted_masses,
            "drop_error": self.drop.error,
            "fit": self.fit.to_dict(),
            "trail": self.trail,
            "residuals": self.scores,
            "version": self.version,
        }

    @classmethod
    def from_dict(cls, line: Line) -> "Measurement":
        """The measurement that measure.json speaks of."""
        secrets = np.array(line["secrets"], float)
        count, axes = len(secrets), len(line["fit"]["axes"])
        return cls(
            **{name: text_of(line[name]) for name in ("system", "policy", "method", "version")},
            name=text_of(line["recording"]),
            filtered=bool(line["filtered"]),
            steps=int(line["rows"]),
            options=MeasureSettings(**line["options"]),
            secrets=secrets,
            secret_names=each(line["secret_names"], text_of),
            log_prior=np.array(line["log_prior"], float),
            masses=np.array(line["posterior"], float),
            information=mean_from_dict(line, "information"),
            drop=mean_from_dict(line, "drop"),
            filter_error=number(line["filter_error"]),
            disagreement=number(line["disagreement"]),
            as_it_is=number(line["as_it_is"]),
            discounted_masses=np.array(line["discounted_posterior"], float),
            discounted_information=mean_from_dict(line, "discounted"),
            trail=np.array(line["trail"], float).reshape(-1, count),
            scores=np.array(line["residuals"], float).reshape(-1, axes),
            believed=int(line["believed"]),
            fit=RecordingFit.from_dict(line["fit"]),
            checked=bool(line["times_checked"]),
            verdict=Verdict.from_dict(line),
            stretches=each(line["stretches"], int),
            notes=each(line["notes"], text_of),
            columns=each(line["columns"], lambda one: Column(**one)),
        )

    def save(self, folder: Path | str) -> list[Path]:
        """Write measure.json and measure.csv into a folder, each in one move."""
        return save_measurements([self], folder)

    @classmethod
    def load(cls, folder: Path | str) -> "Measurement":
        """The measurement that was saved in a folder; a `ResultError` says what is wrong with its file."""
        found = load_measurements(folder)
        if len(found) != 1:
            path = Path(folder) / FILE
            raise ResultError(f"{path} holds {len(found)} recordings; load_measurements reads all of them.")
        return found[0]

    # Pictures

    def plot(self) -> "Figure":
        """The posterior over time, what it tells, and the residuals of the best secret."""
        from veil.results import measurement_plots as plots

        figure, (belief, nats, residuals) = plots.three_panels(
            f"{self.name}: {self.verdict.title}", self.verdict.name
        )
        plots.draw_belief(belief, self.trail, self.secret_names, filtered=self.filtered)
        # The trail is a mean over draws, which is less sure than each of them: only one draw has this curve.
        prior = np.exp(self.log_prior)
        curve = None if self.filtered else np.sum(xlogy(self.trail, self.trail / prior[None, :]), axis=1)
        ends = (self.low, self.information.value, self.high)
        left = max(0.0, self.discounted_information.value)
        plots.draw_information(nats, curve, len(self.trail), ends, left, self.entropy)
        labels = [
            f"{axis.name}: {axis.std_ratio:.3g} times the noise"
            + ("" if axis.counts else " (does not count)")
            for axis in self.fit.axes
        ]
        plots.draw_residuals(residuals, self.scores, labels, self.secret_names[self.fit.best])
        return figure


def save_measurements(found: Sequence[Measurement], folder: Path | str) -> list[Path]:
    """Write measure.json and measure.csv about several recordings, each file in one move."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"unit": "nats", "version": __version__, "recordings": [one.to_dict() for one in found]}
    rows = csv_text(COLUMNS, (one.line() for one in found))
    return [write_json(folder / FILE, content), replace_text(folder / TABLE, rows)]


RECORDING_HEADS = (
    *("recording", "rows", "information, nats", "bits", "of H(q)", "likeliest", "mass", "discounted, nats"),
    *("autocorrelation", "times the noise", "verdict"),
)


def measurements_table(found: Sequence[Measurement]) -> text.Table:
    """One row per recording, as `veil measure` prints them."""
    first = found[0]
    title = f"{first.policy} on {first.system}, by {first.method}; H(q) = {first.entropy:.3f} nats"
    return text.Table(title, RECORDING_HEADS, [_recording_row(one) for one in found])


def columns_table(found: Sequence[Measurement]) -> text.Table:
    """The columns of the state, the step of their values, and the noise of the model."""
    rows = dict.fromkeys(_column_row(column) for one in found for column in one.columns)
    heads = ("state", "unit", "values in steps of", "noise of one step", "taken as")
    return text.Table("Rounding beside the noise of the model", heads, list(rows))


def _column_row(column: Column) -> tuple[str, ...]:
    taken = f"rounded to {column.given:g}" if column.given else "exact"
    step = f"{column.step:g}" if column.step else "none found"
    return column.name, column.unit, step, f"{column.noise:.3g}", taken + " (too coarse)" * column.coarse


def _recording_row(found: Measurement) -> tuple[str, ...]:
    """The residuals are those of the first axis that counts."""
    information, entropy = found.information, found.entropy
    interval = f" [{found.low:.3f}, {found.high:.3f}]" if information.error > 0.0 else ""
    counted = next((axis for axis in found.fit.axes if axis.counts), found.fit.axes[0])
    return (
        found.name,
        str(found.steps),
        f"{information.value:.3f}{interval}",
        f"{text.bits(information.value):.3f}",
        f"{information.value / entropy:.0%}" if entropy > 0.0 else "",
        found.secret_names[found.likeliest],
        f"{found.masses.max():.3f}",
        f"{max(0.0, found.discounted_information.value):.3f}",
        f"{counted.autocorrelation:+.2f}",
        f"{counted.std_ratio:.3g}",
        found.verdict.title,
    )


def plot_measurements(found: Sequence[Measurement]) -> "Figure":
    """One recording in detail, or all of them beside each other."""
    from veil.results import measurement_plots as plots

    if len(found) == 1:
        return found[0].plot()
    rows = [
        plots.Bar(
            one.name,
            one.verdict.name,
            one.information.value,
            (one.low, one.high),
            one.discounted_information.value,
        )
        for one in found
    ]
    return plots.draw_recordings(rows, found[0].entropy)


def load_measurements(folder: Path | str) -> list[Measurement]:
    """All measurements that were saved in a folder; a `ResultError` says what is wrong with its file."""
    path, again = Path(folder) / FILE, "Give the `veil measure` that made it once more."
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [Measurement.from_dict(line) for line in content["recordings"]]
    except OSError as error:
        raise ResultError(f"{path} cannot be read ({error.strerror}). {again}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{path} is cut short or was changed. {again}") from error


def entropy(masses: Float[np.ndarray, " K"]) -> float:
    """−Σ p log p."""
    return float(-np.sum(xlogy(masses, masses)))

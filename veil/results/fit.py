"""A model fitted to recordings: estimates, the law of the noise, and how well it predicts held-out steps."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from veil.io import npz_bytes, replace_bytes, write_json
from veil.plots import BLUE, INK, ORANGE, PALE
from veil.registry import FIT_FILE
from veil.results.parts import LEVEL, Examination, Line, ResultError, number, text_of
from veil.results.text import notebook_page, sentence, text_table
from veil.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE, ARRAYS, PICTURE = FIT_FILE, "fit.npz", "fit.png"


@dataclass(frozen=True)
class Family:
    """Which parameters the law of the noise has.

    Attributes:
        order: how many past scores an innovation depends on; 0 for white noise.
        heavy: whether the tails are those of a Student-t.
        level: whether the size of the noise depends on the state.
    """

    order: int = 0
    heavy: bool = False
    level: bool = False

    def __str__(self) -> str:
        colour = "white" if self.order == 0 else f"autoregressive of order {self.order}"
        return colour + ", heavy tails" * self.heavy + ", size by state" * self.level


@dataclass(frozen=True)
class Rival:
    """Another way to predict the recording.

    Attributes:
        name: what it does.
        gain: log score that it gains over the model, nats per step; negative if it loses.
        standard_error: of the gain.
        steps: that were scored. Neither it nor the model was fitted to them.
        score: of another law of motion, how far errors of the model go where this law expects them, in
            standard errors; None for other rivals.
    """

    name: str
    gain: float
    standard_error: float
    steps: int
    score: float | None = None

    @property
    def p(self) -> float:
        """p-value of such a gain where the model is right: exp(−gain · steps).

        Under the model the likelihood ratio of a rival has expectation one, so that it exceeds 1/p with
        probability p at most. Another law of motion has a second chance by its score, which is standard
        normal under the model; the smaller p-value of both is doubled.
        """
        by_gain = math.exp(-max(self.gain * self.steps, 0.0))
        if self.score is None:
            return by_gain
        return min(1.0, 2.0 * min(by_gain, float(stats.norm.sf(self.score))))


@dataclass(frozen=True)
class Estimate:
    """One parameter.

    Attributes:
        name: of the parameter.
        value: its estimate.
        standard_error: from the curvature of the likelihood; NaN where it was not estimated.
        unit: of both.
        at_limit: whether the estimate is the lowest or highest value that is allowed.
        interval: of 95 %; None for the size of noise.
    """

    name: str
    value: float
    standard_error: float
    unit: str
    at_limit: bool = False
    interval: tuple[float, float] | None = None

    @property
    def skewed(self) -> bool:
        """Whether the interval is not that of a normal law around the estimate."""
        if self.interval is None:
            return False
        low, high = self.interval
        off = max(
            abs(high - self.value - 1.96 * self.standard_error),
            abs(self.value - low - 1.96 * self.standard_error),
        )
        return off > 0.1 * self.standard_error

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} ± {self.standard_error:.2g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Candidate:
    """A law of the noise that was tried.

    Attributes:
        family: which parameters it has.
        score: mean log density of held-out steps, nats per step.
        behind: how much it is behind the best one, nats per step.
        standard_error: of that difference.
    """

    family: Family
    score: float
    behind: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Individual:
    """The fit of one individual.

    Attributes:
        name: of the individual.
        steps: that were recorded.
        held_out: how many of them were not fitted to.
        parameters: the system's, with standard errors.
        noise: standard deviation of the noise of each coordinate of the state, with units.
        noise_factor: the same as a factor on the system's own noise.
        law: numbers of the law of the scores, by name.
        family: chosen on held-out steps.
        candidates: all laws of the noise that were tried.
        score: mean log density of a held-out step, nats.
        rivals: other ways to predict, and what they gain.
        examination: tests on held-out steps.
        undetermined: combinations of parameters that the recording does not determine, in words.
        estimated: number of parameters, with those of the noise.
        covariance: of the parameters.
        innovations: of the held-out steps, standard normal under the model.
        readings: one row per held-out step and recorded coordinate: reading, prediction.
    """

    name: str
    steps: int
    held_out: int
    parameters: tuple[Estimate, ...]
    noise: tuple[Estimate, ...]
    noise_factor: tuple[float, ...]
    law: dict[str, Any]
    family: Family
    candidates: tuple[Candidate, ...]
    score: float
    rivals: tuple[Rival, ...]
    examination: Examination
    undetermined: tuple[str, ...]
    estimated: int
    covariance: Float[np.ndarray, "P P"]
    innovations: Float[np.ndarray, "H Y"] = field(repr=False)
    readings: Float[np.ndarray, "H Y 2"] = field(repr=False)

    @property
    def values(self) -> Float[np.ndarray, " P"]:
        """The estimated parameters as an array."""
        return np.array([one.value for one in self.parameters])

    @property
    def rival(self) -> Rival:
        """The rival with the largest gain."""
        return max(self.rivals, key=lambda one: one.gain, default=Rival("none", 0.0, 0.0, 0))

    @property
    def explained(self) -> bool:
        """Whether no test contradicts the model."""
        return self.examination.ok

    def estimation_loss(self, horizon: int) -> float:
        """(P/2) T/n: what a run of T steps may lose because the parameters are estimated, nats.

        Args:
            horizon: T.
        """
        return 0.5 * self.estimated * horizon / max(self.steps, 1)

    def rival_loss(self, horizon: int) -> float:
        """What the best rival gains in a run of T steps, nats; 0 where none gains.

        Args:
            horizon: T.
        """
        return max(0.0, self.rival.gain) * horizon

    def verdict(self, horizon: int) -> str:
        """In two or three sentences, words first.

        Args:
            horizon: steps of a run.
        """
        rival, lost = self.rival, self.rival_loss(horizon)
        if not self.examination.tests:
            begin = f"{self.name}: too few held-out steps to examine the model; record more."
        elif self.explained:
            begin = f"{self.name}: this model explains the recording."
        else:
            first, *rest = self.examination.reasons
            more = f", and {len(rest)} more of its tests fail" if rest else ""
            begin = f"{self.name}: this model does not explain the recording: {first}{more}."
        if rival.gain > 0:
            told = (
                f"The best rival ({rival.name}) predicts {lost:.2g} nats better in {horizon} steps "
                f"(± {horizon * rival.standard_error:.1g})."
            )
        else:
            told = f"None of {len(self.rivals)} rivals predicts better."
        estimated = self.estimation_loss(horizon)
        told += (
            f" Estimating {self.estimated} numbers from {self.steps} steps costs {estimated:.2g} nats more."
        )
        return f"{begin} {told}"

    def to_dict(self) -> Line:
        """A line of fit.json."""
        rival = self.rival
        return {
            "name": self.name,
            "steps": self.steps,
            "held_out": self.held_out,
            "explained": self.explained,
            "parameters": _estimates_to_dict(self.parameters),
            "noise": _estimates_to_dict(self.noise),
            "noise_factor": list(self.noise_factor),
            "law": self.law,
            "order": self.family.order,
            "heavy_tails": self.family.heavy,
            "size_by_state": self.family.level,
            "candidates": [
                {**asdict(one.family), "score": one.score, "behind": one.behind, "error": one.standard_error}
                for one in self.candidates
            ],
            "held_out_log_score": self.score,
            "rival": {"name": rival.name, "gain": rival.gain, "standard_error": rival.standard_error},
            "rivals": [asdict(one) for one in self.rivals],
            "examination": self.examination.to_dict(),
            "undetermined": list(self.undetermined),
            "estimated": self.estimated,
            "covariance": self.covariance.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Population:
    """What several individuals have in common: a normal law of their parameters.

    Attributes:
        mean: of the parameters.
        covariance: between individuals, without the errors of their estimates.
        shrunk: parameters of each individual, drawn towards the mean as far as its own are uncertain.
        secrets: a finite prior in place of the normal law, equally likely.
    """

    mean: Float[np.ndarray, " P"]
    covariance: Float[np.ndarray, "P P"]
    shrunk: Float[np.ndarray, "I P"]
    secrets: Float[np.ndarray, "K P"]

    def to_dict(self) -> Line:
        """Fields of fit.json."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Fit:
    """A system fitted to the recordings of one or more individuals. `print(fit)` says how well.

    Attributes:
        system: what the command line calls it.
        individuals: in the order of the file.
        population: None for a single individual.
        resolution: step of each recorded coordinate; 0 where it looks continuous.
        axes: names of the recorded coordinates.
        horizon: steps of a run that losses are stated for.
        version: of Veil.
    """

    system: str
    individuals: tuple[Individual, ...]
    population: Population | None
    resolution: dict[str, float]
    axes: tuple[str, ...]
    horizon: int
    version: str = __version__

    def summary(self) -> str:
        """How many individuals are explained, and what the rivals gain."""
        if len(self.individuals) == 1:
            return self.individuals[0].verdict(self.horizon)
        explained = sum(one.explained for one in self.individuals)
        lost = sorted(one.rival_loss(self.horizon) for one in self.individuals)
        names = [_kind(reason.test) for one in self.individuals for reason in _failed(one)]
        causes = ", ".join(
            f"{name} ({names.count(name)})" for name in sorted(set(names), key=names.count)[::-1]
        )
        said = f"The model explains {explained} of {len(self.individuals)} recordings."
        if causes:
            said += f" Against it speak: {causes}."
        return said + (
            f" The best rival gains {lost[len(lost) // 2]:.2g} nats in {self.horizon} steps at the median "
            f"and {lost[-1]:.2g} at most."
        )

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Heads and rows: one row per individual."""
        first = self.individuals[0]
        heads = (
            *("individual", "steps"),
            *(f"{one.name} [{one.unit or 1}]" for one in first.parameters),
            *("noise", "log score", f"best rival, nats in {self.horizon} steps", "explained"),
        )
        rows = [
            (
                *(one.name, str(one.steps)),
                *(_with_error(each) + " (limit)" * each.at_limit for each in one.parameters),
                *(str(one.family), f"{one.score:.3f}"),
                f"{self.horizon * one.rival.gain:.2g} ({one.rival.name})",
                "yes" if one.explained else "no",
            )
            for one in self.individuals
        ]
        return heads, rows

    def advice(self) -> str:
        """What to do next."""
        if all(one.explained for one in self.individuals):
            return "Measure or audit with this model: --system and the folder of this fit."
        failed = {_kind(test.test) for one in self.individuals for test in _failed(one)}
        if failed & {"day", "week"}:
            return "Something repeats that the model does not know: add an exogenous series, e.g. occupancy."
        if any(one.startswith("rival") for one in failed):
            return (
                "Another law of motion predicts better: try another system, or add a state. Leakage that is "
                "computed with this model is that of a reader who believes it."
            )
        return "The noise is not of the assumed kind: record more, or look at the picture of the residuals."

    def __str__(self) -> str:
        heads, rows = self.table()
        weak = [sentence(text) for one in self.individuals[:1] for text in one.undetermined]
        return "\n".join([self.summary(), text_table(heads, rows), *weak, self.advice()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads, rows = self.table()
        return notebook_page(f"Fit of {self.system}", self.summary(), heads, rows[:12], self.plot())

    def to_dict(self) -> Line:
        """The content of fit.json."""
        return {
            "system": self.system,
            "individuals": [one.to_dict() for one in self.individuals],
            "population": None if self.population is None else self.population.to_dict(),
            "examination": [line for one in self.individuals[:1] for line in one.examination.to_dict()],
            "resolution": self.resolution,
            "axes": list(self.axes),
            "horizon": self.horizon,
            "steps": sum(one.steps for one in self.individuals),
            "version": self.version,
        }

    def save(self, folder: Path | str) -> list[Path]:
        """Write fit.json, the residuals and the picture; returns their paths.

        Args:
            folder: to write into; it is made if it is not there.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {}
        for number_, one in enumerate(self.individuals):
            arrays[f"innovations_{number_}"] = one.innovations
            arrays[f"readings_{number_}"] = one.readings
        paths = [
            write_json(folder / FILE, self.to_dict()),
            replace_bytes(folder / ARRAYS, npz_bytes(**arrays)),
        ]
        self.plot().savefig(folder / PICTURE, dpi=130)
        return [*paths, folder / PICTURE]

    @classmethod
    def load(cls, folder: Path | str) -> "Fit":
        """From a folder that `save` or `veil fit` wrote.

        Args:
            folder: with fit.json and fit.npz.
        """
        folder = Path(folder)
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                parts = {name: arrays[name] for name in arrays.files}
            individuals = tuple(
                individual_from_dict(line, parts[f"innovations_{place}"], parts[f"readings_{place}"])
                for place, line in enumerate(content["individuals"])
            )
            shared = content["population"]
            population = shared and Population(**{name: np.asarray(shared[name]) for name in shared})
            return cls(
                text_of(content["system"]),
                individuals,
                population,
                {str(name): number(step) for name, step in content["resolution"].items()},
                tuple(content["axes"]),
                int(content["horizon"]),
                text_of(content["version"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultError(
                f"{folder} holds no fit that can be read ({error}). Make it again with `veil fit`."
            ) from error

    def plot(self) -> "Figure":
        """One-step predictions, residuals, their correlations with bands, calibration and estimates."""
        return _picture(self)


def _failed(one: Individual) -> list:
    tests = one.examination.tests
    return [test for test in tests if len(tests) * test.p < LEVEL]


def _kind(test: str) -> str:
    return test if test.startswith("rival") else test.partition(" of ")[0]


def _with_error(one: Estimate) -> str:
    if one.interval is not None and one.skewed:
        return f"{one.value:.3g}, {one.interval[0]:.3g} to {one.interval[1]:.3g}"
    return f"{one.value:.3g} ± {one.standard_error:.2g}"


def _estimates_to_dict(rows: Sequence[Estimate]) -> Line:
    return {
        one.name: {
            "value": one.value,
            "standard_error": one.standard_error if math.isfinite(one.standard_error) else None,
            "unit": one.unit,
            "at_limit": one.at_limit,
            "interval": one.interval,
        }
        for one in rows
    }


def _error(value: float | None) -> float:
    return math.nan if value is None else value


def _estimates(line: dict) -> tuple[Estimate, ...]:
    return tuple(
        Estimate(
            name,
            one["value"],
            _error(one["standard_error"]),
            one["unit"],
            one["at_limit"],
            one["interval"] and (one["interval"][0], one["interval"][1]),
        )
        for name, one in line.items()
    )


def individual_from_dict(line: dict, innovations: np.ndarray, readings: np.ndarray) -> Individual:
    """One individual, from a line of fit.json.

    Args:
        line: as `Individual.to_dict` made it.
        innovations: of the held-out steps.
        readings: readings and predictions of the held-out steps.
    """
    return Individual(
        line["name"],
        line["steps"],
        line["held_out"],
        _estimates(line["parameters"]),
        _estimates(line["noise"]),
        tuple(line["noise_factor"]),
        line["law"],
        Family(line["order"], line["heavy_tails"], line["size_by_state"]),
        tuple(
            Candidate(
                Family(one["order"], one["heavy"], one["level"]), one["score"], one["behind"], one["error"]
            )
            for one in line["candidates"]
        ),
        line["held_out_log_score"],
        tuple(Rival(**one) for one in line["rivals"]),
        Examination.from_dict(line["examination"]),
        tuple(line["undetermined"]),
        line["estimated"],
        np.asarray(line["covariance"]),
        innovations,
        readings,
    )


def draw_rivals(panel: "Axes", one: Individual, horizon: int) -> None:
    """A bar per rival: what it gains in a run, with two standard errors.

    Args:
        panel: to draw into.
        one: the individual.
        horizon: steps of a run.
    """
    gains = np.array([horizon * rival.gain for rival in one.rivals])
    errors = np.array([2.0 * horizon * rival.standard_error for rival in one.rivals])
    panel.barh([rival.name for rival in one.rivals], gains, xerr=errors, color=BLUE, ecolor=INK)
    panel.axvline(0.0, color=INK, lw=0.8)
    panel.set(xlabel=f"nats in {horizon} steps")


def _picture(fit: Fit) -> "Figure":
    from matplotlib.figure import Figure

    one, axes = fit.individuals[0], len(fit.axes)
    figure = Figure(figsize=(12, 2.6 * axes + 2.8), layout="constrained")
    panels = figure.subplots(axes + 1, 3, squeeze=False)
    count = len(one.innovations)
    steps = np.arange(one.steps - count, one.steps)
    for axis, name in enumerate(fit.axes):
        left, middle, right = panels[axis]
        shown = slice(0, min(count, 150))
        left.plot(steps[shown], one.readings[shown, axis, 0], color=INK, lw=1.2, label="reading")
        left.plot(
            steps[shown], one.readings[shown, axis, 1], color=ORANGE, lw=1.0, ls="--", label="prediction"
        )
        left.set(title=f"{name}: one step ahead, held out", xlabel="step")
        left.legend(frameon=False, fontsize=8)
        middle.plot(steps, one.innovations[:, axis], ".", color=BLUE, ms=2)
        middle.axhline(0.0, color=PALE, lw=0.8)
        middle.set(title=f"{name}: residuals in standard units", xlabel="step")
        lags = np.arange(1, min(30, max(count // 3, 2)))
        column = one.innovations[:, axis]
        square = float(column @ column) or 1.0
        right.bar(lags, [float(column[k:] @ column[:-k]) / square for k in lags], color=BLUE, width=0.6)
        band = 1.96 / np.sqrt(max(count, 1))
        right.axhspan(-band, band, color=PALE, alpha=0.3, lw=0)
        right.set(title=f"{name}: correlation of residuals", xlabel="lag, steps")
    left, middle, right = panels[-1]
    for axis, name in enumerate(fit.axes):
        places = np.sort(stats.norm.cdf(one.innovations[:, axis]))
        left.plot(places, (np.arange(count) + 0.5) / max(count, 1), label=name, lw=1.4)
    left.plot([0, 1], [0, 1], color=PALE, lw=0.8)
    left.legend(frameon=False, fontsize=8)
    left.set(title="calibration of predictions", xlabel="predicted probability", ylabel="seen")
    draw_rivals(middle, one, fit.horizon)
    middle.set(title="what rivals gain")
    values = np.array([each.values for each in fit.individuals])
    first = one.parameters[0]
    if len(fit.individuals) > 1 and values.shape[1] > 1:
        second = one.parameters[1]
        right.plot(values[:, 0], values[:, 1], ".", color=BLUE, label="individuals")
        if fit.population is not None:
            right.plot(
                *fit.population.shrunk[:, :2].T, ".", color=ORANGE, ms=4, label="drawn to the population"
            )
            right.legend(frameon=False, fontsize=8)
        right.set(xlabel=f"{first.name} [{first.unit}]", ylabel=f"{second.name} [{second.unit}]")
    else:
        sizes = np.array([each.standard_error for each in one.parameters])
        right.barh(
            [each.name for each in one.parameters], 100.0 * sizes / np.maximum(np.abs(one.values), 1e-12)
        )
        right.set(xlabel="standard error, % of the estimate")
    right.set(title="estimates")
    figure.suptitle(
        f"{fit.system}: {one.name}" + f" (first of {len(fit.individuals)})" * (len(fit.individuals) > 1)
    )
    return figure

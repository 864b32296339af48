"""What an audit found: numbers, the sentences that they allow, files and pictures."""

import hashlib
import io
import json
import math
import textwrap
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veil.io import csv_text, npz_bytes, replace_bytes, replace_text, write_json
from veil.results import text
from veil.results.parts import (
    LITTLE,
    VERDICTS,
    AtStep,
    AttackResult,
    Curves,
    Line,
    Part,
    Quantity,
    ResultError,
    ScenarioResult,
    Verdict,
    WorstScenario,
    each,
    leakage_from_dict,
    leakage_to_dict,
    mean_to_dict,
    same_result,
    text_of,
    utility_to_dict,
    worst_of,
)
from veil.stats import CONFIDENCE, ERRORS, MISSED, Leakage, Mean, reliability_bins, stratified_mean
from veil.systems.base import Nouns
from veil.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE, ARRAYS, TABLE = "audit.json", "audit.npz", "audit.csv"

NOMINAL = "as modelled"

WORST = 0.99  # quantile of the realised leakage that is reported

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, WORST, 1.0)

LEAST = 1e-3  # nats; a lower bound below this is not worth a word

TOOL = "error of the tool"  # how the gate begins a reason that is our mistake

COLUMNS = (
    *("scenario", "name", "role", "accuracy", "accuracy_low", "accuracy_high", "chance"),
    *("lower", "lower_error", "upper", "upper_error", "entropy", "raw", "raw_error"),
    *("calibration", "calibration_error", "episodes", "seconds", "note"),
)

PROTECT = "Protect more: add noise, or use the transport or the counterfactual policy."

ADVICE = {
    "certified_leak": PROTECT,
    "no_upper_bound": "The audit has no filter for this kernel. Add a floor of noise (sd), so that releases "
    "have a density; a learned attacker (--learned) needs no filter and may prove a leak.",
    "not_enough_particles": "Give the filter more particles, or limit the kernel so that a filter can follow "
    "it: a floor under its noise (sd), and no folding of distant states onto one release. A learned attacker "
    "(--learned) needs no filter and may prove a leak.",
    "filter_inconsistent": "The filter does not describe these transcripts. Check that the system and the "
    "policy are those that made them; a learned attacker (--learned) needs no filter and may prove a leak.",
    "replay_mismatch": "Check the public seed, the number of particles and the build that made the "
    "transcripts, then audit again with the same.",
    "model_does_not_fit": "Fit the system to the recorded data first, above all its noise, or audit with a "
    "system that fits; a leakage under a model that does not fit says nothing about these data.",
}

BUG = (
    "This is an error of the tool, not of the policy: two of its numbers contradict each other. Please "
    "report it and add audit.json."
)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """All that one audit found.

    `print(audit)` shows the verdict and the main numbers, a notebook also a picture. `save` and `load` keep
    everything, `plot` draws.

    Attributes:
        system: name of the system, as in `veil.registry.system_name`.
        policy: name of the policy.
        horizon: releases per episode.
        episodes: episodes of the two-sided measurement.
        particles: per secret, 0 where none were needed.
        method: how the two sides were found.
        verdict: the gate's.
        leakage: of the whole run.
        chance: accuracy of the best guess without reading.
        times: the leakage at a few times along the run.
        secrets: per true secret: what its transcripts tell about it.
        components: per component of the secret; empty where this says nothing.
        curves: over time, by Kalman filters; None where they do not apply.
        attacks: all adversaries.
        realised: (E,) log(posterior/prior) of the true secret per episode.
        posteriors: (E, K) final posterior of the auditor.
        index: (E,) true secrets.
        utility: what the sharing costs and gives.
        scenarios: the policy in scenarios that differ from its model.
        seeds: what reproduces this audit.
        seconds: by stage.
        nouns: what sentences call the system and its secret.
        place: where the command line finds the system; empty where it was audited from Python.
        policy_flags: what chooses the policy on the command line; empty where it was audited from Python.
        resolution: step of the sensor and of the releases by the name of the field; empty where states are
            real numbers.
        sensing: the sentence about it.
        step_seconds: length of a step; None where a step has none.
        private: names of the exogenous series that only the owner knows.
        version: of the library that made it.
    """

    system: str
    policy: str
    horizon: int
    episodes: int
    particles: int
    method: str
    verdict: Verdict
    leakage: Leakage
    chance: float
    times: tuple[AtStep, ...]
    secrets: tuple[Part, ...]
    components: tuple[Part, ...]
    curves: Curves | None
    attacks: tuple[AttackResult, ...]
    realised: np.ndarray
    posteriors: np.ndarray
    index: np.ndarray
    utility: tuple[Quantity, ...]
    scenarios: tuple[ScenarioResult, ...] = ()
    seeds: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    nouns: Nouns = Nouns()  # noqa: RUF009 (frozen)
    place: str = ""
    policy_flags: tuple[str, ...] = ()
    resolution: dict[str, float] = field(default_factory=dict)
    sensing: str = text.CONTINUOUS
    step_seconds: float | None = None
    private: tuple[str, ...] = ()
    version: str = __version__

    def __eq__(self, other: object) -> bool:
        """Whether all numbers and words are the same; what is not finite is unknown, hence the same."""
        return isinstance(other, Audit) and same_result(self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    # Numbers

    @property
    def lowest(self) -> float:
        """The best lower end over all attackers who know no more than the threat model grants."""
        return self.verdict.inputs.get("lower_best", self.leakage.low)  # pyright: ignore[reportReturnType]

    @property
    def tool_error(self) -> bool:
        """Whether the gate found the tool to contradict itself."""
        return any(reason.startswith(TOOL) for reason in self.verdict.reasons)

    @property
    def interval(self) -> tuple[float, float]:
        """The leakage that the verdict stands for, nats: what is proven, and what must be assumed."""
        high = self.leakage.high if self.verdict.certified else self.leakage.entropy
        unproven = self.verdict.name in ("replay_mismatch", "model_does_not_fit") or self.tool_error
        low = 0.0 if unproven else float(self.lowest)
        return min(max(low, 0.0), high), high

    @property
    def fair_attacks(self) -> list[AttackResult]:
        """The attackers who know what the threat model grants and no more."""
        return [row for row in self.attacks if row.role == "attack"]

    @property
    def best_attack(self) -> AttackResult | None:
        """The one of them who is right most often."""
        return max(self.fair_attacks, key=lambda row: row.accuracy.value, default=None)

    @property
    def worst_scenario(self) -> WorstScenario | None:
        """The scenario in which an attacker is proven to gain most; None where no attacker was tried."""
        return worst_of(self.scenarios)

    @property
    def worst_episodes(self) -> tuple[float, float]:
        """The 99 % quantile and the maximum of what episodes revealed, nats; zero where none is known."""
        known = self.realised[np.isfinite(self.realised)]
        return (float(np.quantile(known, WORST)), float(known.max())) if len(known) else (0.0, 0.0)

    @property
    def posterior_divergence(self) -> Mean:
        """Mean of KL(posterior ‖ prior) by the auditor's posterior, the Rao-Blackwell form of the score.

        For an exact posterior it has the mean of `realised` and a smaller error. It is no bound: a filter
        that is too sure of itself claims more than it scores.
        """
        prior = self.prior()
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(self.posteriors > 0, self.posteriors * np.log(self.posteriors / prior), 0.0)
        return stratified_mean(terms.sum(axis=1), self.index, prior)

    def realised_quantile(self, fraction: float) -> float:
        """This quantile of what single episodes revealed, nats; NaN where no episode is known."""
        known = self.realised[np.isfinite(self.realised)]
        return float(np.quantile(known, fraction)) if len(known) else math.nan

    def quantity(self, name: str) -> Quantity | None:
        """One line of the table of use by its name."""
        return next((row for row in self.utility if row.name == name), None)

    def prior(self) -> np.ndarray:
        """(K,) prior masses, from posterior and realised leakage; uniform where these do not tell."""
        count = self.posteriors.shape[1]
        episodes = np.arange(len(self.index))
        with np.errstate(all="ignore"):
            masses = self.posteriors[episodes, self.index] / np.exp(self.realised)
        found = [masses[(self.index == k) & np.isfinite(masses)] for k in range(count)]
        prior = np.array([np.median(own) if len(own) else np.nan for own in found])
        return prior / prior.sum() if abs(prior.sum() - 1.0) < 1e-3 else np.full(count, 1.0 / count)

    # Words

    @property
    def in_short(self) -> str:
        """The verdict in a few words: what is proven to leak first, then what can leak at most."""
        (low, high), entropy = self.interval, self.leakage.entropy
        if entropy <= 0.0:
            return "No secret"
        least = math.floor(100 * low / entropy)
        digits = 1 if high < 0.1 * entropy else 0
        most = math.ceil(100 * high / entropy * 10**digits - 1e-7) / 10**digits
        if self.verdict.certified:
            sides = f"At least {least} %, at most {most:g} %" if least else f"At most {most:.{digits}f} %"
            return f"{sides} leaks as modelled"
        if not self.verdict.refused:
            return f"At least {least} % leaks"
        return f"At least {least} % leaks, no upper bound" if least else "Not certified"

    @property
    def sentence(self) -> str:
        """The verdict: what is proven first, then the worst scenario, then the cost, then what to do."""
        low, high = self.interval
        entropy, over = self.leakage.entropy, f"over {text.steps_text(self.horizon, self.step_seconds)}"
        least = f"at least {text.nats(low, up=False)}" if low >= LEAST else ""
        if self.verdict.certified and entropy <= 0.0:
            nothing = "there is only one secret, so there is nothing to tell"
            return f"leaks at most {text.nats(0.0)} {over}: {nothing}"
        if self.verdict.certified:
            most = text.nats(high, up=True)
            if high >= entropy:
                most = f"everything there is to know, {text.nats(entropy)},"
            sides = f"{least} and at most {most}" if least else f"at most {most}"
            whole = "" if high >= entropy else f"of the {entropy:.3f} nats there are "
            said = f"leaks {sides} {whole}{over}, with {CONFIDENCE} confidence"
            return "; ".join(filter(None, [said, self._told(), self._guesses(), *self.clauses]))
        proven = f"leaks {least} of the {entropy:.3f} nats there are {over}, errors included"
        if not self.verdict.refused:
            return "; ".join(filter(None, [proven, self._guesses(), *self.clauses]))
        reasons = "; ".join(self.verdict.reasons) or self.verdict.name.replace("_", " ")
        begin = f"{proven}; cannot certify an upper bound" if least else "cannot certify"
        assume = f"assume everything ({entropy:.3f} nats) may leak"
        return f"{'; '.join([f'{begin}: {reasons}', assume, *self.clauses])}. {self.advice}"

    @property
    def clauses(self) -> list[str]:
        """What a verdict says after what is proven: the worst scenario that was tried, and the cost."""
        return [clause for clause in (self._scenario(), self._cost()) if clause]

    @property
    def advice(self) -> str:
        """What to do next; nothing where all is well."""
        if self.tool_error:
            return BUG
        much = self.verdict.certified and self.interval[0] > LITTLE * self.leakage.entropy
        return PROTECT if much else ADVICE.get(self.verdict.name, "")

    @property
    def threat_model(self) -> list[str]:
        """What the adversary knows, what is not covered, and what the number is a number of."""
        lines = [
            "The adversary knows the system, the policy, the prior over the secrets, the public seed, and "
            f"all {self.horizon} releases and public inputs of one episode. It does not know the secret, the "
            "states or the private random numbers.",
            self.sensing,
            "The plant is taken to be the model. What leaks where it is not is outside"
            + (f". {self._tried()}" if self.worst_scenario else "."),
            "Outside: an adversary who knows the first state x_1, or anything else about the states.",
            "Outside: several episodes of the same secret. They add up: n of them, each begun anew, leak at "
            "most n times as much as one.",
            "Outside: side channels, such as timing, other sensors, or the owner's other messages.",
            "Faults, such as lost or repeated releases, are taken to be independent of the secret.",
            self._average(),
            self._confidence(),
        ]
        if self.private:
            lines.insert(
                1,
                f"The adversary is taken to know the private series ({', '.join(self.private)}) as well: "
                "this can only overstate the leakage about the secret. What the releases tell about these "
                "series themselves is outside.",
            )
        if any(row.role == "assisted" for row in self.attacks):
            lines.insert(1, "Attackers called assisted know more than that; they do not enter the verdict.")
        return lines

    def summary(self) -> str:
        """The few lines at the end of an audit."""
        said = self.sentence if self.sentence.endswith(".") else self.sentence + "."
        meant = f"{self.in_short}: {VERDICTS[self.verdict.name]}."
        lines = [f"{self.policy} on {self.system}: {said}", f"Verdict: {self.verdict.title}. {meant}"]
        if self.verdict.refused:
            return "\n".join([*lines, self.sensing])
        lines += filter(None, [self.advice, self._average() if self.leakage.entropy > 0 else ""])
        lines.append(self.sensing)
        lines.append(
            "This holds against an adversary who knows the system, the policy, the prior, the public seed "
            "and the transcript of one episode, and if the plant is the model; audit.json lists what is "
            "outside."
        )
        return "\n".join(lines)

    def _told(self) -> str:
        """Whose gain stands for the upper side where filters fail; nothing where none does."""
        share = float(self.verdict.inputs.get("told_fraction", 0.0))
        if share == 0.0 or not self.verdict.certified:
            return ""
        where = "" if share == 1.0 else f"in {text.percent(share)} of the episodes, where the filters fail, "
        return (
            f"{where}the upper side is what a reader gains who is told {self.verdict.inputs['told']}: "
            "the releases alone may tell less"
        )

    def _guesses(self) -> str:
        """How often the best guess is right, as the end of a sentence; nothing without an attacker."""
        fair, best = self.fair_attacks, self.best_attack
        if best is None:
            return ""
        who = f"the best of {text.count(len(fair))} attackers" if len(fair) > 1 else "the one attacker"
        right, chance = text.percent(best.accuracy.value), text.percent(self.chance)
        return f"{who} names the right {self.nouns.candidate} {right} of the time, chance is {chance}"

    def _scenario(self) -> str:
        worst = self.worst_scenario
        if worst is None:
            return ""
        begin = f"worst scenario of {worst.scenarios}: {worst.scenario.name}"
        if worst.low < LEAST:
            return f"{begin}, where no attacker proves a leak"
        whole, all_there_is = worst.scenario.entropy, self.leakage.entropy
        other = "" if abs(whole - all_there_is) < LEAST else f" of {whole:.3f}"
        gained = f"“{worst.attack.name}” gains at least {text.nats(worst.low, up=False)}{other}"
        return f"{begin}, where {gained}; more may leak there"

    def _tried(self) -> str:
        worst = self.worst_scenario
        assert worst is not None  # asked before
        where = text.count(worst.scenarios) + (" scenario" if worst.scenarios == 1 else " scenarios")
        return (
            f"It was attacked in {where}, by {text.count(worst.tried)} attackers in all. What each gains "
            f"is a lower bound; all of them hold together with {CONFIDENCE} confidence (Bonferroni, normal "
            "approximation)."
        )

    def _cost(self) -> str:
        cost = self.quantity("cost")
        if cost is None or cost.change is None or not math.isfinite(cost.change.value):
            return ""
        if cost.change.value == 0.0 and cost.change.error == 0.0:  # true data themselves
            return ""
        known = [row for row in self.utility if row.weight is not None and row.change is not None]
        parts = ", ".join(f"{row.name} {text.change_text(row)}" for row in known)
        return f"the cost changes by {text.change_text(cost)} against true data" + (parts and f" ({parts})")

    def _average(self) -> str:
        if self.verdict.inputs.get("method") == "excess" and not self.verdict.refused:
            return (
                "The leakage is an average over secrets and episodes; a single one may reveal more. This "
                "bound does not say how much single episodes revealed."
            )
        quantile, largest = self.worst_episodes
        whose = " by a filter that cannot be relied on here" if self.verdict.refused else ""
        said = (
            f"one in a hundred revealed more than {quantile:.3f} nats and the worst one {largest:.3f}{whose}."
            if largest >= LEAST or self.verdict.refused
            else f"not one revealed {LEAST:g} nats or more."
        )
        return (
            "The leakage is an average over secrets and episodes; a single one may reveal more. Of the "
            f"{len(self.realised)} episodes played, equally many per secret, {said}"
        )

    def _confidence(self) -> str:
        rare = "it allows for events so rare that no episode showed them"
        end = f"The upper end of the interval is too low in at most {MISSED:.2%} of audits; {rare}."
        if self.leakage.limit is None:
            end = f"The upper end of the interval is {ERRORS:g} standard errors above the mean."
        elif self.particles:
            end += " The error of the filter itself enters by a normal approximation."
        return f"{end} The lower end is {ERRORS:g} standard errors below the mean, a normal approximation."

    def _title(self) -> str:
        return f"Audit of {self.policy} on {self.system}: {self.in_short} ({self.verdict.title})"

    def _rows(self) -> list[tuple[str, str]]:
        """The main numbers by name."""
        entropy, best, worst = self.leakage.entropy, self.best_attack, self.worst_scenario
        interval = f"{text.interval_text(self.interval, entropy)} of {entropy:.3f} nats"
        rows = [(f"leakage of {self.horizon} releases", interval)]
        if np.any(self.realised):
            claimed = f"{text.mean_text(self.posterior_divergence)} nats"
            rows.append(("mean of KL(posterior ‖ prior)", claimed))
        if best is not None:
            right = f"{text.accuracy_text(best)}, by chance {text.percent(self.chance)}"
            rows.append(("best guess is right", f"{right} ({best.name})"))
        if worst is not None:
            gain = f"{text.nats(worst.low, up=False)} ({worst.scenario.name}, {worst.attack.name})"
            rows.append((f"worst of {worst.scenarios} scenarios, at least", gain))
        for row in self.utility[:8]:
            against = f", {text.change_text(row)} against true data" if row.change else ""
            rows.append((row.name, f"{text.mean_text(row.value)} {row.unit}".strip() + against))
        return rows

    def __str__(self) -> str:
        said = textwrap.fill(text.sentence(self.sentence), 100)
        return "\n".join([self._title(), said, text.text_table(("", ""), self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = text.sentence(self.sentence)
        return text.notebook_page(self._title(), said, ("", ""), self._rows(), self.plot())

    # Files

    def to_dict(self) -> Line:
        """All fields of audit.json, as arrays and numbers that may not be finite."""
        return {
            "verdict": self.verdict.name,
            "sentence": self.sentence,
            "reasons": self.verdict.reasons,
            "advice": self.advice,
            "unit": "nats",
            "system": self.system,
            "policy": self.policy,
            "method": self.method,
            "resolution": self.resolution,
            "sensing": self.sensing,
            "step_seconds": self.step_seconds,
            "private": self.private,
            "leakage": leakage_to_dict(self.leakage)
            | {"interval": self.interval}
            | mean_to_dict("posterior_divergence", self.posterior_divergence),
            "horizon": self.horizon,
            "episodes": self.episodes,
            "particles_per_secret": self.particles,
            "chance": self.chance,
            "attacks": [row.to_dict() for row in self.attacks],
            "utility": utility_to_dict(self.utility),
            "gate": self.verdict.inputs,
            "examination": self.verdict.examination.to_dict(),
            "times": [row.to_dict() for row in self.times],
            "secrets": [row.to_dict() for row in self.secrets],
            "components": [row.to_dict() for row in self.components],
            "curves": self.curves and asdict(self.curves),
            "realised": {
                "mean": float(np.mean(known))
                if len(known := self.realised[np.isfinite(self.realised)])
                else None,
                "quantiles": [{"fraction": x, "nats": self.realised_quantile(x)} for x in QUANTILES],
                "not_finite": len(self.realised) - len(known),
            },
            "scenarios": [row.to_dict() for row in self.scenarios],
            "worst_scenario": self.worst_scenario and self.worst_scenario.to_dict(),
            "threat_model": self.threat_model,
            "nouns": asdict(self.nouns),
            "command": {"system": self.place, "policy": self.policy_flags},
            "seeds": self.seeds,
            "seconds": self.seconds,
            "version": self.version,
        }

    def table(self) -> str:
        """The content of audit.csv: the leakage, then the attacks, then those in each scenario."""
        first = {"scenario": NOMINAL, "name": "leakage", "role": "leakage", "note": self.verdict.name}
        rows = [first | {"chance": self.chance, "episodes": self.episodes, **leakage_to_dict(self.leakage)}]
        tried = [(NOMINAL, self.chance, self.leakage.entropy, self.attacks)]
        tried += [(row.name, row.chance, row.entropy, row.attacks) for row in self.scenarios]
        for name, chance, entropy, attacks in tried:
            known = {"scenario": name, "chance": chance, "entropy": entropy}
            rows += [known | row.to_dict() for row in attacks]
        return csv_text(COLUMNS, rows)

    def save(self, folder: Path | str) -> list[Path]:
        """Write audit.json, audit.csv and audit.npz (what single episodes revealed) into a folder.

        Each file is put in its place in one move. The JSON holds a checksum of the arrays, so that `load`
        notices files of two audits.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = npz_bytes(realised=self.realised, posteriors=self.posteriors, index=self.index)
        digest = {"arrays": {"file": ARRAYS, "sha256": hashlib.sha256(arrays).hexdigest()}}
        replace_bytes(folder / ARRAYS, arrays)
        paths = [
            write_json(folder / FILE, self.to_dict() | digest),
            replace_text(folder / TABLE, self.table()),
        ]
        return [*paths, folder / ARRAYS]

    @classmethod
    def load(cls, folder: Path | str) -> "Audit":
        """The audit that was saved in a folder; a `ResultError` says what is wrong with its files."""
        again = "Give the `veil audit` that made it once more: finished stages are kept."
        path = Path(folder) / FILE
        try:
            line = json.loads(path.read_text(encoding="utf-8"))
            content = (path.parent / ARRAYS).read_bytes()
            if hashlib.sha256(content).hexdigest() != line["arrays"]["sha256"]:
                raise ResultError(f"{path} and {ARRAYS} beside it are of two audits. {again}")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return cls._from(line, {name: arrays[name] for name in arrays.files})
        except ResultError:
            raise
        except OSError as error:
            raise ResultError(
                f"{error.filename or path} cannot be read ({error.strerror}). {again}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise ResultError(f"{path} is cut short or was changed. {again}") from error

    @classmethod
    def _from(cls, line: Line, arrays: dict[str, np.ndarray]) -> "Audit":
        return cls(
            **{name: text_of(line[name]) for name in ("system", "policy", "method", "sensing", "version")},
            resolution={name: float(step) for name, step in line["resolution"].items()},
            step_seconds=None if line["step_seconds"] is None else float(line["step_seconds"]),
            private=each(line["private"], text_of),
            horizon=int(line["horizon"]),
            episodes=int(line["episodes"]),
            particles=int(line["particles_per_secret"]),
            verdict=Verdict.from_dict(line),
            leakage=leakage_from_dict(line["leakage"]),
            chance=float(line["chance"]),
            times=each(line["times"], AtStep.from_dict),
            secrets=each(line["secrets"], Part.from_dict),
            components=each(line["components"], Part.from_dict),
            curves=None if line["curves"] is None else Curves.from_dict(line["curves"]),
            attacks=each(line["attacks"], AttackResult.from_dict),
            utility=each(line["utility"]["quantities"], Quantity.from_dict),
            scenarios=each(line["scenarios"], ScenarioResult.from_dict),
            nouns=Nouns(**{name: text_of(noun) for name, noun in line["nouns"].items()}),
            place=text_of(line["command"]["system"]),
            policy_flags=each(line["command"]["policy"], text_of),
            seeds={name: int(value) for name, value in line["seeds"].items()},
            seconds={name: float(value) for name, value in line["seconds"].items()},
            realised=arrays["realised"],
            posteriors=arrays["posteriors"],
            index=arrays["index"],
        )

    # Pictures

    def plot(self, picture: str = "leakage") -> "Figure":
        """One picture: "leakage" or "posterior" over time, "attacks", "reliability" or "realised"."""
        from veil.results import audit_plots as plots

        if picture == "leakage":
            rows = [row for row in self.times if row.step != self.horizon]
            rows.append(AtStep(self.horizon, self.leakage))
            return plots.draw_leakage(rows, self.curves, self.verdict)
        if picture == "attacks":
            return plots.draw_attacks(self.attacks, self.chance, self.interval[1], self.verdict)
        if picture == "reliability":
            return plots.draw_reliability(reliability_bins(self.posteriors, self.index, self.prior()))
        if picture == "realised":
            return plots.draw_realised(self.realised, self.leakage.entropy, self.worst_episodes[0])
        if picture != "posterior":
            raise ValueError(f"no picture {picture!r}; there are {', '.join(PICTURES)}.")
        names = [row.name for row in self.secrets]
        count = self.posteriors.shape[1]
        names = names if len(names) == count else [f"secret {k + 1}" for k in range(count)]
        if self.curves is not None:
            return plots.draw_posterior(self.curves, names, self.prior())
        return plots.draw_final_posterior(self.posteriors, self.index, names, self.prior(), self.horizon)

    def save_pictures(self, folder: Path | str) -> list[Path]:
        """Draw all pictures into a folder, as PNG."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = [Path(folder) / f"{name}.png" for name in PICTURES]
        for name, path in zip(PICTURES, paths, strict=True):
            self.plot(name).savefig(path, dpi=130)
        return paths


PICTURES = ("posterior", "reliability", "leakage", "attacks", "realised")

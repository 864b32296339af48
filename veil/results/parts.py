"""What results are made of, each with the form that it has in a file. All information is in nats.

A number that is not finite is unknown. Files hold null for it, which comes back as NaN, and as infinity
where it is a standard error.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from veil.settings import FrontierGoal
from veil.stats import ERRORS, MISSED, Leakage, Mean, Rate, several

Line = dict[str, Any]

Made = TypeVar("Made")

CERTIFIED, PROVEN_LEAK = "certifiable", "certified_leak"

LITTLE = 0.05  # fraction of all there is to know up to which a leakage is called little

SMALLEST = 1e-3  # nats; what is measured below is taken for this, which makes a curve flatter and never lower

TRACKING = "tracking error, "  # how the name of such a quantity begins

BELIEVED = (CERTIFIED, PROVEN_LEAK)  # verdicts of an audit that do not refuse

VERDICTS = {
    "replay_mismatch": "another policy made the transcripts",
    "model_does_not_fit": "the data contradict the model, so no leakage is stated",
    "certifiable": "this audit can be relied on; whether that is little enough is yours to judge",
    "certified_leak": "nearly everything leaks",
    "no_upper_bound": "no method bounds the leakage of this kernel from above",
    "not_enough_particles": "the two sides of the bound are too far apart",
    "filter_inconsistent": "the filters contradict the episodes",
    "leak": "the recording tells more than a tenth of what there is to know",
    "no_leak": "it tells less than that, although the recording without protection would tell more",
    "not_enough_data": "the recording does not decide between the two",
}
"""All verdicts: those of audits first, then "leak", "no_leak" and "not_enough_data" of recordings."""

LEVEL = 0.01  # of all fit tests together: how often data of the model itself are rejected


class ResultError(ValueError):
    """A file of a result that cannot be used; the text says which one and what to do."""


@dataclass(frozen=True)
class FitTest:
    """One test of whether data could come from the model.

    Attributes:
        test: what was tested.
        statistic: its value.
        p: probability of a value as extreme if the data come from the model.
        finding: what contradicts the model if p is small.
    """

    test: str
    statistic: float
    p: float
    finding: str


@dataclass(frozen=True)
class Examination:
    """All tests of whether data could come from the model; together they reject the model at `LEVEL`."""

    tests: tuple[FitTest, ...]

    @property
    def p_value(self) -> float:
        """Of all tests together, by Bonferroni's correction."""
        return float(min([1.0, *(len(self.tests) * one.p for one in self.tests)]))

    @property
    def ok(self) -> bool:
        """Whether the model is not contradicted."""
        return self.p_value >= LEVEL

    @property
    def reasons(self) -> tuple[str, ...]:
        """What contradicts the model, in the order of the tests."""
        return tuple(one.finding for one in self.tests if len(self.tests) * one.p < LEVEL)

    def to_dict(self) -> list[Line]:
        """Lines of audit.json or measure.json: every test with its statistic and p-value."""
        return [asdict(one) for one in self.tests]

    @classmethod
    def from_dict(cls, lines: list[Line]) -> "Examination":
        """From lines of audit.json or measure.json."""
        return cls(
            each(
                lines,
                lambda line: FitTest(
                    text_of(line["test"]),
                    number(line["statistic"]),
                    number(line["p"]),
                    text_of(line["finding"]),
                ),
            )
        )


@dataclass(frozen=True)
class Verdict:
    """What may be said about the leakage of a policy, or about a recording that is shared.

    Attributes:
        name: one of `VERDICTS`.
        reasons: why, in a few words each.
        inputs: every number that the rules looked at, by name.
        examination: the tests of recorded data against the model; none for data that were simulated from it.
    """

    name: str
    reasons: tuple[str, ...]
    inputs: dict[str, float | str | bool]
    examination: Examination = field(default_factory=lambda: Examination(()))

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def certified(self) -> bool:
        """Whether the upper bound may be believed."""
        return self.name == CERTIFIED

    @property
    def refused(self) -> bool:
        """Whether neither a bound nor a leak is proven."""
        return self.name not in BELIEVED

    @classmethod
    def from_dict(cls, line: Line) -> "Verdict":
        """From audit.json, or a line of measure.json."""
        inputs = {name: number(x) if x is None else x for name, x in line["gate"].items()}
        examination = Examination.from_dict(line["examination"])
        return cls(text_of(line["verdict"]), each(line["reasons"], text_of), inputs, examination)


@dataclass(frozen=True)
class AttackResult:
    """What one adversary got out of the transcripts.

    Attributes:
        name: a short name.
        role: "attack", "assisted" (knows more than the threat model grants) or "mismatched".
        accuracy: how often its first guess is right.
        lower: mean score of its repaired forecast, nats.
        raw: mean score of its forecast as it is.
        calibration: mean score minus what the forecast claims; negative if it is too sure.
        episodes: transcripts read.
        seconds: time taken, compiling and training included.
        note: anything the reader should know.
    """

    name: str
    role: str
    accuracy: Rate
    lower: Mean
    raw: Mean
    calibration: Mean
    episodes: int
    seconds: float
    note: str = ""

    def to_dict(self) -> Line:
        """A line of audit.json."""
        rate = self.accuracy
        line = {"name": self.name, "role": self.role}
        line |= {"accuracy": rate.value, "accuracy_low": rate.low, "accuracy_high": rate.high}
        for name in ("lower", "raw", "calibration"):
            line |= mean_to_dict(name, getattr(self, name))
        return line | {"episodes": self.episodes, "seconds": self.seconds, "note": self.note}

    @classmethod
    def from_dict(cls, line: Line) -> "AttackResult":
        """From a line of audit.json."""
        return cls(
            name=text_of(line["name"]),
            role=text_of(line["role"]),
            accuracy=Rate(*(number(line[name]) for name in ("accuracy", "accuracy_low", "accuracy_high"))),
            lower=mean_from_dict(line, "lower"),
            raw=mean_from_dict(line, "raw"),
            calibration=mean_from_dict(line, "calibration"),
            episodes=int(line["episodes"]),
            seconds=float(line["seconds"]),
            note=text_of(line["note"]),
        )


@dataclass(frozen=True)
class AtStep:
    """The leakage of the first `step` releases."""

    step: int
    leakage: Leakage

    def to_dict(self) -> Line:
        """A line of audit.json."""
        return {"step": self.step, **leakage_to_dict(self.leakage)}

    @classmethod
    def from_dict(cls, line: Line) -> "AtStep":
        """From a line of audit.json."""
        return cls(int(line["step"]), leakage_from_dict(line))


@dataclass(frozen=True)
class Part:
    """The leakage about one secret, or about one component of the secret."""

    name: str
    leakage: Leakage

    def to_dict(self) -> Line:
        """A line of audit.json."""
        return {"name": self.name, **leakage_to_dict(self.leakage)}

    @classmethod
    def from_dict(cls, line: Line) -> "Part":
        """From a line of audit.json."""
        return cls(text_of(line["name"]), leakage_from_dict(line))


@dataclass(frozen=True)
class Curves:
    """Over the run, by one Kalman filter per secret: a preview, not a bound from above.

    Attributes:
        score: (T,) mean score in nats after each release.
        posterior: (K, T) mean mass on the true secret, for each true secret.
        spread: (K, T) its standard deviation over episodes.
    """

    score: np.ndarray
    posterior: np.ndarray
    spread: np.ndarray

    @classmethod
    def from_dict(cls, line: Line) -> "Curves":
        """From a line of audit.json."""
        score, posterior, spread = (np.array(line[name], float) for name in ("score", "posterior", "spread"))
        if posterior.ndim != 2 or posterior.shape != spread.shape or score.shape != posterior.shape[1:]:
            raise ValueError("curves of one length are expected")
        return cls(score, posterior, spread)


@dataclass(frozen=True)
class Quantity:
    """One line of the table of use: what sharing this way costs the owner and gives the receiver.

    Attributes:
        name: of the quantity.
        unit: of the value.
        value: with this way of sharing.
        true_data: with true data under the same random numbers; None where it was not compared.
        change: per cent against true data, paired; None where it was not compared.
        own: whether the system itself names this quantity.
        weight: of a part of the cost, what one unit of it counts in the cost; None for all else.
    """

    name: str
    unit: str
    value: Mean
    true_data: Mean | None = None
    change: Mean | None = None
    own: bool = False
    weight: float | None = None

    def to_dict(self) -> Line:
        """As in audit.json; `change` is in per cent against true data, paired."""
        line: Line = {"name": self.name, "unit": self.unit}
        for name in ("value", "true_data", "change"):
            mean: Mean | None = getattr(self, name)
            line |= {name: mean and mean.value, f"{name}_error": mean and mean.error}
        return line | {"own": self.own, "weight": self.weight}

    @classmethod
    def from_dict(cls, line: Line) -> "Quantity":
        """From a line of audit.json."""
        known = {
            name: mean_from_dict(line, name) for name in ("true_data", "change") if line[name] is not None
        }
        names = text_of(line["name"]), text_of(line["unit"])
        weight = None if line["weight"] is None else float(line["weight"])
        return cls(*names, mean_from_dict(line, "value"), **known, own=bool(line["own"]), weight=weight)


@dataclass(frozen=True)
class ScenarioResult:
    """The policy in a scenario that differs from its model."""

    name: str
    distortion: Mean
    attacks: tuple[AttackResult, ...]
    entropy: float
    chance: float

    def to_dict(self) -> Line:
        """A line of audit.json."""
        line = {"name": self.name, **mean_to_dict("distortion", self.distortion)}
        line |= {"entropy": self.entropy, "chance": self.chance}
        return line | {"attacks": [row.to_dict() for row in self.attacks]}

    @classmethod
    def from_dict(cls, line: Line) -> "ScenarioResult":
        """From a line of audit.json."""
        return cls(
            text_of(line["name"]),
            mean_from_dict(line, "distortion"),
            each(line["attacks"], AttackResult.from_dict),
            float(line["entropy"]),
            float(line["chance"]),
        )


@dataclass(frozen=True)
class WorstScenario:
    """The scenario in which an attacker is proven to gain most.

    Attributes:
        scenario: which.
        attack: of the attacker who gains most there.
        low: what it gains at least, nats, corrected for the number of attackers; never below zero.
        tried: attackers in all scenarios together.
        scenarios: that were tried.
    """

    scenario: ScenarioResult
    attack: AttackResult
    low: float
    tried: int
    scenarios: int

    def to_dict(self) -> Line:
        """As in audit.json."""
        line = {"name": self.scenario.name, "attacker": self.attack.name, "at_least": self.low}
        line |= mean_to_dict("lower", self.attack.lower) | {"entropy": self.scenario.entropy}
        return line | {"scenarios": self.scenarios, "attackers": self.tried, "confidence": 1.0 - MISSED}


def worst_of(scenarios: Sequence[ScenarioResult]) -> WorstScenario | None:
    """The scenario in which an attacker is proven to gain most; None where no attacker was tried.

    Every attacker of every scenario is one test. Each lower end is as many standard errors below its mean as
    makes all of them right together with the confidence of a single one (Bonferroni).
    """
    tried = [(scenario, row) for scenario in scenarios for row in scenario.attacks]
    errors = several(len(tried))
    ends = [(row.lower.low(errors), scenario, row) for scenario, row in tried]
    known = [found for found in ends if math.isfinite(found[0])]
    if not known:
        return None
    low, scenario, row = max(known, key=lambda found: found[0])
    return WorstScenario(scenario, row, max(low, 0.0), len(tried), len(scenarios))


@dataclass(frozen=True)
class Point:
    """A way of sharing at one strength, and what it tells and costs.

    Attributes:
        goal: which.
        leakage: of the whole run, from both sides; everything may leak where it is not to be believed.
        verdict: the gate's name for it; no attacker was asked.
        reasons: why it is not to be believed; empty where it is.
        distortion: per step.
        cost: per step.
        change: of the cost against true data under the same random numbers, per cent.
        particles: per secret.
        episodes: that it was measured on.
        seconds: that measuring took, without training.
    """

    goal: FrontierGoal
    leakage: Leakage
    verdict: str
    reasons: tuple[str, ...]
    distortion: Mean
    cost: Mean
    change: Mean
    particles: int
    episodes: int
    seconds: float

    @property
    def trusted(self) -> bool:
        """Whether the upper side may be believed."""
        return self.verdict in BELIEVED

    def to_dict(self) -> Line:
        """As in frontier.json: nats and per step; `change` is in per cent."""
        line: Line = {"kind": self.goal.kind, "value": self.goal.value, "before": self.goal.before}
        line |= {"trusted": self.trusted, "verdict": self.verdict, "reasons": self.reasons}
        line |= leakage_to_dict(self.leakage)
        for name in ("distortion", "cost", "change"):
            line |= mean_to_dict(name, getattr(self, name))
        return line | {name: getattr(self, name) for name in ("particles", "episodes", "seconds")}

    @classmethod
    def from_dict(cls, line: Line) -> "Point":
        """From a line of frontier.json."""
        return cls(
            FrontierGoal(line["kind"], float(line["value"]), tuple(map(float, line["before"]))),
            leakage_from_dict(line),
            text_of(line["verdict"]),
            each(line["reasons"], text_of),
            *(mean_from_dict(line, name) for name in ("distortion", "cost", "change")),
            particles=int(line["particles"]),
            episodes=int(line["episodes"]),
            seconds=float(line["seconds"]),
        )


def leakage_to_dict(found: Leakage) -> Line:
    """Both sides; `standard_error` is the larger of the two, `low` and `high` include the errors.

    `limit` is the upper end by a bound for rare events; null where `high` is the mean and standard errors.
    """
    return {
        "lower": found.lower.value,
        "upper": found.upper.value,
        "standard_error": max(found.lower.error, found.upper.error),
        "lower_error": found.lower.error,
        "upper_error": found.upper.error,
        "width": found.width,
        "entropy": found.entropy,
        "low": found.low,
        "high": found.high,
        "limit": found.limit,
        "standard_errors": ERRORS,
    }


def leakage_from_dict(line: Line) -> Leakage:
    """The leakage that these fields speak of."""
    limit = None if line["limit"] is None else float(line["limit"])
    return Leakage(
        mean_from_dict(line, "lower"), mean_from_dict(line, "upper"), float(line["entropy"]), limit
    )


def utility_to_dict(rows: tuple[Quantity, ...]) -> Line:
    """The headline numbers by name, `tracking` per shared axis; all of them with errors and units below."""
    by_name = {row.name: row for row in rows}
    cost = by_name.get("cost")
    errors = [row for row in rows if row.name.startswith(TRACKING)]
    tracking = {row.name.removeprefix(TRACKING): row.value.value for row in errors}
    parts = {row.name: row.value.value for row in rows if row.weight is not None}
    return {
        "distortion": by_name["distortion"].value.value if "distortion" in by_name else None,
        "cost": cost and cost.value.value,
        "cost_true_data": cost and cost.true_data and cost.true_data.value,
        "cost_parts": parts or None,
        "tracking": tracking or None,
        "quantities": [row.to_dict() for row in rows],
    }


def mean_to_dict(name: str, mean: Mean) -> Line:
    """A mean under its name, and its standard error beside it."""
    return {name: mean.value, f"{name}_error": mean.error}


def mean_from_dict(line: Line, name: str) -> Mean:
    """The mean of this name."""
    error = line[f"{name}_error"]
    return Mean(number(line[name]), math.inf if error is None else float(error))


def number(value: object) -> float:
    """A number of a file; NaN where it is unknown."""
    return math.nan if value is None else float(value)  # pyright: ignore[reportArgumentType]


def text_of(value: object) -> str:
    """A text of a file; anything else is a `TypeError`."""
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


def each(rows: Iterable[Any], make: Callable[[Any], Made]) -> tuple[Made, ...]:
    """All rows, made into something."""
    return tuple(make(row) for row in rows)


def same_result(first: object, second: object) -> bool:
    """Whether two results say the same; numbers that are not finite are unknown, hence the same."""
    if isinstance(first, float | int | np.ndarray) and not isinstance(first, bool):
        if not isinstance(second, float | int | np.ndarray) or np.shape(first) != np.shape(second):
            return False
        both = np.asarray(first), np.asarray(second)
        return bool(np.all((both[0] == both[1]) | ~(np.isfinite(both[0]) | np.isfinite(both[1]))))
    if type(first) is not type(second):
        return False
    if is_dataclass(first) and is_dataclass(second):
        names = [field.name for field in fields(first)]
        return all(same_result(getattr(first, name), getattr(second, name)) for name in names)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_result(first[key], second[key]) for key in first)
    if isinstance(first, tuple | list) and isinstance(second, tuple | list):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(same_result(one, other) for one, other in pairs)
    return first == second

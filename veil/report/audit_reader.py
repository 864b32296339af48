"""What `audit.json` says, as the numbers that it was written from."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from veil.report.blocks import ReportError
from veil.results.audit import AtStep, AttackResult, Curves, Part, Quantity, ScenarioResult
from veil.stats import Leakage, Mean, Rate

AUDIT = "audit.json"

CERTIFIED, LEAKS = "certifiable", "certified_leak"

Line = dict[str, Any]

Row = TypeVar("Row")


@dataclass(frozen=True)
class Found:
    """An audit as its file has it; what single episodes told is there as quantiles only.

    Attributes:
        verdict: the gate's name for it.
        sentence: the verdict in the audit's own words.
        reasons: why nothing is certified; empty where something is.
        advice: what to do about it.
        system: name of the class of the system.
        policy: name of the class of the policy.
        method: how the two sides were found.
        leakage: of the whole run, from both sides.
        interval: the leakage that the verdict stands for, nats.
        horizon: releases per episode.
        episodes: of the two-sided measurement.
        particles: per secret, 0 where none were needed.
        chance: accuracy of the best guess without reading.
        attacks: all adversaries.
        utility: what the sharing costs and gives.
        times: the leakage at a few times along the run.
        secrets: the leakage by true secret.
        components: the leakage by component of the secret.
        curves: over time, by Kalman filters; None where they do not apply.
        realised: what single episodes told, nats, by the share of episodes that told less.
        scenarios: the policy in scenarios that differ from its model.
        threat_model: what is granted to the adversary, and what is outside.
        seeds: what reproduces the audit.
        seconds: by stage.
        version: of the library that made it.
    """

    verdict: str
    sentence: str
    reasons: tuple[str, ...]
    advice: str
    system: str
    policy: str
    method: str
    leakage: Leakage
    interval: tuple[float, float]
    horizon: int
    episodes: int
    particles: int
    chance: float
    attacks: tuple[AttackResult, ...]
    utility: tuple[Quantity, ...]
    times: tuple[AtStep, ...]
    secrets: tuple[Part, ...]
    components: tuple[Part, ...]
    curves: Curves | None
    realised: dict[float, float]
    scenarios: tuple[ScenarioResult, ...]
    threat_model: tuple[str, ...]
    seeds: dict[str, int]
    seconds: dict[str, float]
    version: str

    @property
    def certified(self) -> bool:
        """Whether the upper bound may be believed."""
        return self.verdict == CERTIFIED

    @property
    def refused(self) -> bool:
        """Whether neither a bound nor a leak is proven."""
        return self.verdict not in (CERTIFIED, LEAKS)

    @property
    def best(self) -> AttackResult | None:
        """The attacker who is right most often of those who know no more than the threat model grants."""
        fair = [row for row in self.attacks if row.role == "attack"]
        return max(fair, key=lambda row: row.accuracy.value, default=None)

    def quantity(self, name: str) -> Quantity | None:
        """One line of the table of use by its name."""
        return next((row for row in self.utility if row.name == name), None)


def read_audit(folder: Path) -> Found:
    """The audit in this folder; `ReportError` if its file cannot be used."""
    path = folder / AUDIT
    advice = "Give the `veil audit` that made it once more: finished stages are kept."
    try:
        return found_from(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} is cut short or was changed. {advice}") from error


def found_from(line: Line) -> Found:
    """The audit that the content of a file speaks of."""
    leakage = line["leakage"]
    low, high = leakage["interval"]
    realised = line["realised"]["quantiles"]
    return Found(
        **{name: _text(line[name]) for name in ("verdict", "sentence", "advice", "system", "policy")},
        **{name: _text(line[name]) for name in ("method", "version")},
        reasons=tuple(map(_text, line["reasons"])),
        leakage=_sides(leakage),
        interval=(float(low), float(high)),
        horizon=int(line["horizon"]),
        episodes=int(line["episodes"]),
        particles=int(line["particles_per_secret"]),
        chance=float(line["chance"]),
        attacks=_each(line["attacks"], _attack),
        utility=_each(line["utility"]["quantities"], _quantity),
        times=_each(line["times"], lambda row: AtStep(int(row["step"]), _sides(row))),
        secrets=_each(line["secrets"], _part),
        components=_each(line["components"], _part),
        curves=None if line["curves"] is None else _curves(line["curves"]),
        realised={float(row["share"]): _number(row["nats"]) for row in realised},
        scenarios=_each(line["scenarios"], _scenario),
        threat_model=tuple(map(_text, line["threat_model"])),
        seeds={name: int(value) for name, value in line["seeds"].items()},
        seconds={name: float(value) for name, value in line["seconds"].items()},
    )


def _each(rows: list[Line], make: Callable[[Line], Row]) -> tuple[Row, ...]:
    return tuple(make(row) for row in rows)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


def _number(value: object) -> float:
    """A number that was not finite is null in the file."""
    return math.nan if value is None else float(value)  # pyright: ignore[reportArgumentType]


def _mean(line: Line, name: str) -> Mean:
    spread = line[f"{name}_error"]
    return Mean(_number(line[name]), math.inf if spread is None else float(spread))


def _sides(line: Line) -> Leakage:
    return Leakage(_mean(line, "lower"), _mean(line, "upper"), float(line["entropy"]))


def _part(line: Line) -> Part:
    return Part(_text(line["name"]), _sides(line))


def _attack(line: Line) -> AttackResult:
    rate = Rate(*(_number(line[name]) for name in ("accuracy", "accuracy_low", "accuracy_high")))
    return AttackResult(
        name=_text(line["name"]),
        role=_text(line["role"]),
        accuracy=rate,
        lower=_mean(line, "lower"),
        raw=_mean(line, "raw"),
        calibration=_mean(line, "calibration"),
        episodes=int(line["episodes"]),
        seconds=float(line["seconds"]),
        note=_text(line["note"]),
    )


def _quantity(line: Line) -> Quantity:
    known = {name: _mean(line, name) for name in ("true_data", "change") if line[name] is not None}
    return Quantity(_text(line["name"]), _text(line["unit"]), _mean(line, "value"), **known)


def _scenario(line: Line) -> ScenarioResult:
    attacks = _each(line["attacks"], _attack)
    entropy, chance = float(line["entropy"]), float(line["chance"])
    return ScenarioResult(_text(line["name"]), _mean(line, "distortion"), attacks, entropy, chance)


def _curves(line: Line) -> Curves:
    score, posterior, spread = (np.array(line[name], float) for name in ("score", "posterior", "spread"))
    if posterior.ndim != 2 or posterior.shape != spread.shape or score.shape != posterior.shape[1:]:
        raise ValueError("curves of one length are expected")
    return Curves(score, posterior, spread)

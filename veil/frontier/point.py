"""One point of a frontier: a policy measured as an audit does, from both sides, without the attackers."""

from dataclasses import dataclass

import numpy as np

from veil.auditing.context import Context
from veil.auditing.measure import refused
from veil.auditing.result import Leakage
from veil.auditing.statistics import Mean
from veil.auditing.two_sides import choose, measure
from veil.auditing.unattacked import judged, used
from veil.auditing.utility import table
from veil.auditing.worlds import faithful
from veil.frontier.options import KINDS, Goal, Kind
from veil.policies import Truth

TRUSTED = ("certifiable", "certified_leak")


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

    goal: Goal
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
        return self.verdict in TRUSTED


@dataclass(frozen=True)
class Frontier:
    """All points.

    Attributes:
        system: its name.
        horizon: releases per episode.
        floor: distortion per step of transport without noise, averaged along its runs.
        points: measured ones, family by family.
        seed: of all randomness.
        price: of distortion in training.
        updates: gradient steps per learned point at most.
    """

    system: str
    horizon: int
    floor: Mean
    points: tuple[Point, ...]
    seed: int
    price: float
    updates: int

    @property
    def entropy(self) -> float:
        """H(q), nats."""
        return self.points[0].leakage.entropy

    @property
    def kinds(self) -> list[Kind]:
        """The families that have points, in the order of all tables."""
        return [kind for kind in KINDS if self.family(kind)]

    def family(self, kind: Kind) -> list[Point]:
        """The points of one family by distortion; those that were measured on nothing finite are left out."""
        found = [one for one in self.points if one.goal.kind == kind and np.isfinite(one.distortion.value)]
        return sorted(found, key=lambda one: one.distortion.value)


def measured(goal: Goal, context: Context, truth: dict[str, np.ndarray]) -> Point:
    """Measure the policy of a context. Call it where double precision is enabled.

    Args:
        goal: what the point is.
        context: the audit of its policy.
        truth: the use of the same episodes by true data, see `true_use`.
    """
    rows = episodes(context)
    records = context.play(context.policy, faithful(context.system), rows, "playing")
    rung = choose(context)
    sides, scored = measure(context, rung, records)
    verdict = judged(context, rung, sides, scored)
    index = np.asarray(records.index)
    quantities = table(context.system, vars(used(context, records)), truth, None, index)
    by_name = {row.name: row for row in quantities}
    cost = by_name["cost"]
    assert cost.change is not None  # true data were given
    trusted = verdict.name in TRUSTED
    return Point(
        goal,
        scored.leakage if trusted else refused(scored.leakage),
        verdict.name,
        () if trusted else verdict.reasons,
        by_name["distortion"].value,
        cost.value,
        cost.change,
        0 if rung is None else rung.particles,
        len(index),
        round(sum(context.seconds.values()), 1),
    )


def true_use(context: Context) -> dict[str, np.ndarray]:
    """Cost and the like of sharing true data, on the episodes that points are measured on."""
    world = faithful(context.system)
    records = context.play(Truth(context.system), world, episodes(context), "playing true data")
    return vars(used(context, records))


def episodes(context: Context) -> np.ndarray:
    """Numbers of the episodes: equally many per secret, at least two."""
    count = len(context.log_prior)
    return np.arange(count * max(2, -(-context.options.episodes // count)))

"""A frontier: points measured at several strengths, and what distortion each family needs for a leakage."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from veil.settings import FAMILIES, FamilyName, FrontierGoal
from veil.stats import Leakage, Mean

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
    def kinds(self) -> list[FamilyName]:
        """The families that have points, in the order of all tables."""
        return [kind for kind in FAMILIES if self.family(kind)]

    def family(self, kind: FamilyName) -> list[Point]:
        """The points of one family by distortion; those that were measured on nothing finite are left out."""
        found = [one for one in self.points if one.goal.kind == kind and np.isfinite(one.distortion.value)]
        return sorted(found, key=lambda one: one.distortion.value)


SMALLEST = 1e-3  # nats; what is measured below is taken for this, which makes a curve flatter and never lower


@dataclass(frozen=True)
class Needed:
    """The distortion per step that a family needs for a leakage, by its upper side.

    Attributes:
        distortion: the least; None if no point that can be believed gets there.
        bound: whether the weakest point measured is already below, so that less distortion may do.
        believed: whether any point may be believed.
    """

    distortion: float | None
    bound: bool = False
    believed: bool = True


def believed(points: list[Point]) -> list[Point]:
    """The points of a curve: those that may be believed, by distortion, with distortion at all."""
    some = [one for one in points if one.trusted and one.distortion.value > 0.0]
    return sorted(some, key=lambda one: one.distortion.value)


def needed(points: list[Point], nats: float) -> Needed:
    """Where the upper side of a family first falls to so many nats."""
    curve = believed(points)
    logs = [(math.log(one.distortion.value), _log_upper(one)) for one in curve]
    goal = math.log(max(nats, SMALLEST))
    if logs and logs[0][1] <= goal:
        return Needed(curve[0].distortion.value, bound=True)
    for (near, above), (far, below) in pairwise(logs):
        if below <= goal:  # the first one, so that the point before is above
            return Needed(math.exp(near + (far - near) * (above - goal) / (above - below)))
    return Needed(None, believed=bool(curve))


def upper_at(points: list[Point], distortion: float) -> float | None:
    """Upper side of a family at this distortion; None below its first point.

    Beyond the last point it stays there: whoever may distort more need not.
    """
    curve = believed(points)
    if not curve or distortion < curve[0].distortion.value:
        return None
    at = [math.log(one.distortion.value) for one in curve]
    return math.exp(np.interp(math.log(distortion), at, [_log_upper(one) for one in curve]))


def above_displacement(found: Frontier) -> list[tuple[Point, float]]:
    """Learned points on transport that leak more than displacement at equal distortion, and that leakage.

    A point counts if its lower side, three standard errors less, is above the upper side of displacement.
    """
    curve, above = found.family("displacement"), []
    for point in found.family("transport"):
        other = upper_at(curve, point.distortion.value)
        if other is not None and point.leakage.low > other:
            above.append((point, other))
    return above


def comparable(found: Frontier) -> list[Point]:
    """Learned points on transport at distortions that displacement was measured up to, or beyond."""
    curve = found.family("displacement")
    return [one for one in found.family("transport") if upper_at(curve, one.distortion.value) is not None]


def _log_upper(point: Point) -> float:
    return math.log(max(point.leakage.upper.value, SMALLEST))

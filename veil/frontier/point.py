"""One point of a frontier: a policy measured as an audit does, from both sides, without the attackers."""

from dataclasses import dataclass

import numpy as np

from veil.auditing.context import Context
from veil.auditing.episodes import chosen, in_batches
from veil.auditing.forecast import calibration, vulnerability
from veil.auditing.gate import Measured, judge
from veil.auditing.measure import Scored, failed_share, refused
from veil.auditing.reading import use_batch
from veil.auditing.result import Leakage, Verdict
from veil.auditing.rungs import Rung
from veil.auditing.sandwich import Sides
from veil.auditing.statistics import Mean
from veil.auditing.two_sides import choose, measure
from veil.auditing.utility import Use, table
from veil.auditing.worlds import faithful
from veil.frontier.options import KINDS, Goal, Kind
from veil.policies import Truth
from veil.rollout import Record

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
    verdict = _judged(context, rung, sides, scored)
    index = np.asarray(records.index)
    quantities = table(context.system, _use(context, records), truth, None, index)
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
    return _use(context, context.play(Truth(context.system), world, episodes(context), "playing true data"))


def episodes(context: Context) -> np.ndarray:
    """Numbers of the episodes: equally many per secret, at least two."""
    count = len(context.log_prior)
    return np.arange(count * max(2, -(-context.options.episodes // count)))


def _judged(context: Context, rung: Rung | None, sides: Sides | None, scored: Scored) -> Verdict:
    """The gate, without attackers and without a replay."""
    found = Measured(
        leakage=scored.leakage,
        bad=0.0 if rung is None else float(scored.bad.mean()),
        calibration=calibration(scored.forecast),
        vulnerability=vulnerability(scored.forecast),
        ranks=None if sides is None or rung is None or rung.particles == 0 else np.asarray(sides.rank),
        attacks=(),
        mismatch=0,
        failed=0.0 if sides is None else failed_share(sides),
        applicable=rung is not None,
    )
    return judge(found, float(np.exp(context.log_prior).max()))


def _use(context: Context, records: Record) -> dict[str, np.ndarray]:
    def run(part: np.ndarray) -> Use:
        return use_batch(context.system, chosen(records, part))

    return vars(in_batches("measuring use", run, np.arange(len(records.index)), context.progress))

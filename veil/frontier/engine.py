"""The frontier: each point trained, measured and kept in turn."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from veil.auditing.context import Context
from veil.auditing.options import Options
from veil.auditing.statistics import Mean
from veil.auditing.store import Store, fingerprint
from veil.frontier.families import Policies
from veil.frontier.floor import zero_leakage_floor
from veil.frontier.options import Extent, Goal
from veil.frontier.point import Frontier, Point, measured, true_use
from veil.frontier.store import Shelf
from veil.policies import Policy, Truth
from veil.precision import doubled
from veil.systems.base import System

Report = Callable[[str, str, int, int], None]
_FLOOR = 0xF100  # keeps the keys of the floor apart from those of audits with the same seed


def trace(
    system: System,
    extent: Extent | None = None,
    *,
    folder: Path,
    report: Report = lambda point, stage, done, total: None,
) -> Frontier:
    """Measure all points, except those that the folder has already.

    Args:
        system: whose; everything is measured in double precision.
        extent: which points.
        folder: where every point is kept as soon as it is measured.
        report: told the point, what is done about it, how far that is, and of how much.
    """
    with jax.enable_x64(True):
        return _Run(doubled(system), extent or Extent(), folder, report).all()


class _Run:
    """One frontier on its way."""

    def __init__(self, system: System, extent: Extent, folder: Path, report: Report):
        self.system, self.extent, self.report = system, extent, report
        self.shelf, self.now = Shelf(folder), ""
        self.options = Options(steps=extent.steps, episodes=extent.episodes, seed=extent.seed)
        self.policies = Policies(system, extent, self.shelf.place, self.progress)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Add which point it is about."""
        self.report(self.now, stage, done, total)

    def all(self) -> Frontier:
        """The points in turn, then the floor."""
        goals, extent = self.extent.goals, self.extent
        points = []
        for place, goal in enumerate(goals, start=1):
            self.now = f"{place}/{len(goals)} {goal.kind} {goal.value:g}"
            points.append(self.point(goal))
        self.now = "floor"
        return Frontier(
            type(self.system).__name__,
            extent.steps,
            self.floor(),
            tuple(points),
            extent.seed,
            extent.price,
            extent.updates,
        )

    def point(self, goal: Goal) -> Point:
        """From the shelf, or measured now."""
        mark = fingerprint(self.policies.fingerprint(goal), self.options)
        found = self.shelf.point(goal, mark)
        if found is None:
            self.progress("begins", 0, 1)
            policy = doubled(self.policies.policy(goal))
            store = Store(self.shelf.place(goal), mark)
            found = measured(goal, self.context(policy, store), self.truth)
            self.shelf.keep(found, mark)
        return found

    def floor(self) -> Mean:
        """From the shelf, or found now."""
        whole = Goal("displacement", 1.0)
        mark = fingerprint(self.policies.fingerprint(whole), self.options, "floor")
        found = self.shelf.floor(mark)
        if found is None:
            extent, key = self.extent, jr.fold_in(jr.key(self.extent.seed), _FLOOR)
            policy = doubled(self.policies.transport())
            found = zero_leakage_floor(policy, extent.steps, extent.episodes, progress=self.progress, key=key)
            self.shelf.keep_floor(found, mark)
        return found

    def context(self, policy: Policy, store: Store) -> Context:
        """An audit of this policy."""
        return Context(self.system, policy, self.options, self.progress, store)

    @cached_property
    def truth(self) -> dict[str, np.ndarray]:
        """The use of true data, once for all points."""
        return true_use(self.context(Truth(self.system), Store()))

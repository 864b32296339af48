"""A look at a policy on fresh episodes, through a better filter than its own.

What the learner minimises is the leakage under the policy's belief. Which of its policies is kept is decided
here, by the auditor's particles and their upper side: a policy that fools filters is not taken for a quiet one.
"""

from dataclasses import dataclass

import jax
import numpy as np

from veil.attacks.kalman import Translated
from veil.auditing.context import Context
from veil.auditing.episodes import chosen, doubled, in_batches
from veil.auditing.measure import score
from veil.auditing.options import Options
from veil.auditing.reading import use_batch
from veil.auditing.result import Leakage
from veil.auditing.rungs import ladder
from veil.auditing.statistics import Mean, stratified_mean
from veil.auditing.store import Store
from veil.learners.base import Family
from veil.policies.base import Policy
from veil.problem import Problem

LOOKS = 6_000_000  # numbers of the episodes that policies are chosen on; no audit and no update uses them


@dataclass(frozen=True)
class Look:
    """What one look found. Of a family of problems, the one with the worst total.

    Attributes:
        leakage: of the whole run, from both sides.
        cost: per episode.
        distortion: per step.
        limit: D̂, per step.
        total: the objective with the upper side of the leakage, at the floor of the price.
    """

    leakage: Leakage
    cost: Mean
    distortion: Mean
    limit: float
    total: float

    @property
    def merit(self) -> tuple[float, float]:
        """Smaller is better: first what is above the limit of distortion, then the total."""
        total = self.total if np.isfinite(self.total) else float("inf")
        return max(0.0, self.distortion.value - self.limit), total

    def metrics(self) -> dict[str, float]:
        """For the log."""
        return {
            "lower": self.leakage.lower.value,
            "upper": self.leakage.upper.value,
            "fresh_cost": self.cost.value,
            "fresh_distortion": self.distortion.value,
            "total": self.total,
        }


def examine(family: Family, policy: Policy, episodes: int, seed: int) -> Look:
    """Play fresh episodes of every problem, always the same ones for a seed, and take the worst."""
    with jax.enable_x64(True):
        looks = [_look(doubled(problem), doubled(policy), episodes, seed) for problem in family]
    return max(looks, key=lambda look: look.merit)


def _look(problem: Problem, policy: Policy, episodes: int, seed: int) -> Look:
    world, plant = problem.world, problem.world.plant
    options = Options(steps=problem.steps, episodes=max(2, episodes), seed=seed)
    # In the world as modelled this is the policy itself; elsewhere, as one who knows that world sees it.
    seen = Translated(policy, plant, world.believed)
    context = Context(plant, seen, options, _silent, Store())
    rows = np.arange(-(-episodes // problem.secrets) * problem.secrets)
    numbers = LOOKS + rows
    records = context.play(policy, world, numbers, "looking")
    rung = ladder(plant, seen)[0]
    index, prior = np.asarray(records.index), np.exp(context.log_prior)
    sides = context.sides(rung, records, numbers, problem.steps, "looking")
    leakage = score(sides, index, context.log_prior).leakage
    use = vars(in_batches("looking", lambda part: use_batch(plant, chosen(records, part)), rows, _silent))
    distortion = stratified_mean(use["distortion"], index, prior)
    cost = stratified_mean(use["cost"] * problem.steps, index, prior)
    objective = problem.objective
    paid = float(objective.distortion_price) * distortion.value * problem.steps
    total = float(objective.privacy_weight) * leakage.upper.value + cost.value + paid
    return Look(leakage, cost, distortion, float(objective.distortion_limit), total)


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total

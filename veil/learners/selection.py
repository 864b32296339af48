"""Which policy of a training is kept: evaluations on fresh episodes, by a better filter than its own.

What the learner minimises is the leakage under the policy's belief. Which of its policies is kept is decided
here, by the auditor's particles. Where their two sides agree, the leakage is what their forecasts claim,
which varies little between evaluations; where they do not, it is the upper side, so that a policy that fools
filters does not pass for a quiet one.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from veil.evaluation.evaluate import evaluate
from veil.evaluation.verdict import width_limit
from veil.learners.base import Family
from veil.policies.base import Policy
from veil.problem import Problem
from veil.settings import AuditSettings
from veil.stats import ERRORS, Leakage, Mean, stratified_mean

Number = TypeVar("Number", float, np.ndarray)

SELECTION_EPISODES = (
    6_000_000  # numbers of the episodes that policies are chosen on; no audit and no update uses them
)


@dataclass(frozen=True)
class SelectionScore:
    """What one evaluation in a training found. Of a family of problems, the one with the worst total.

    Attributes:
        leakage: of the whole run, from both sides.
        cost: per episode.
        distortion: per step.
        limit: D̂, per step.
        leakage_counted: what the filter claims, or the upper bound if that claim is in doubt.
        total: the objective with that leakage, at the floor of the price.
    """

    leakage: Leakage
    cost: Mean
    distortion: Mean
    limit: float
    leakage_counted: float
    total: float

    @property
    def merit(self) -> tuple[float, float]:
        """Smaller is better: first what is above the limit of distortion, then the total."""
        if not np.isfinite(self.total):  # worse than anything above the limit
            return float("inf"), float("inf")
        return max(0.0, self.distortion.value - self.limit), self.total

    @classmethod
    def read(cls, saved: Any) -> "SelectionScore":
        """One that was saved as a dictionary."""
        leakage, cost, distortion = saved["leakage"], Mean(**saved["cost"]), Mean(**saved["distortion"])
        both = Leakage(**leakage | {side: Mean(**leakage[side]) for side in ("lower", "upper")})
        return cls(**saved | {"leakage": both, "cost": cost, "distortion": distortion})

    def metrics(self) -> dict[str, float]:
        """For the log."""
        return {
            "lower": self.leakage.lower.value,
            "upper": self.leakage.upper.value,
            "leakage_counted": self.leakage_counted,
            "fresh_cost": self.cost.value,
            "fresh_distortion": self.distortion.value,
            "total": self.total,
        }


@dataclass(frozen=True)
class EpisodeSample:
    """Fresh episodes of one problem, in numbers (E,).

    Attributes:
        index: true secrets.
        claimed: KL(posterior ‖ prior) by the auditor's filter, nats.
        upper: what each episode is charged from above, nats.
        cost: per episode.
        distortion: per step.
        leakage: of all of them.
    """

    index: np.ndarray
    claimed: np.ndarray
    upper: np.ndarray
    cost: np.ndarray
    distortion: np.ndarray
    leakage: Leakage

    def totals(self, problem: Problem) -> np.ndarray:
        """The objective of each episode, at the floor of the price and without the constant limit."""
        return _total(problem, self.upper, self.cost, self.distortion)


def evaluate_family(family: Family, policy: Policy, episodes: int, seed: int) -> SelectionScore:
    """Evaluate a policy on fresh episodes of every problem, and return the worst score.

    Args:
        family: the problems.
        policy: the policy.
        episodes: per problem.
        seed: the same seed gives the same episodes.
    """
    return max(
        (_score(one, sample(one, policy, episodes, seed)) for one in family), key=lambda score: score.merit
    )


def sample(
    problem: Problem,
    policy: Policy,
    episodes: int,
    seed: int,
    first: int = SELECTION_EPISODES,
) -> EpisodeSample:
    """Measure episodes in double precision, both sides by particles; policies are given the same noise.

    Args:
        problem: where to play.
        policy: any.
        episodes: how many at least; equally many per secret.
        seed: of the episodes and of the particles.
        first: number of the first episode. What is reported must not be what was chosen by.
    """
    settings = AuditSettings(steps=problem.steps, episodes=max(2, episodes), seed=seed)
    found = evaluate(policy.system, policy, problem.scenario, settings, candidates=1, first_episode=first)
    cost, distortion = np.asarray(found.use.cost) * problem.steps, np.asarray(found.use.distortion)
    return EpisodeSample(
        found.index, found.forecast.claims(), found.scored.upper, cost, distortion, found.leakage
    )


def _score(problem: Problem, found: EpisodeSample) -> SelectionScore:
    prior = np.exp(np.asarray(problem.scenario.plant.prior.log_masses, float))
    cost = stratified_mean(found.cost, found.index, prior)
    distortion = stratified_mean(found.distortion, found.index, prior)
    leakage = counted(found, stratified_mean(found.claimed, found.index, prior))
    total = _total(problem, leakage, cost.value, distortion.value)
    limit = float(problem.objective.distortion_limit)
    return SelectionScore(found.leakage, cost, distortion, limit, leakage, total)


def _total(problem: Problem, leakage: Number, cost: Number, distortion: Number) -> Number:
    """The objective of an episode at the floor of the price, without the constant limit."""
    objective = problem.objective
    paid = float(objective.distortion_price) * distortion * problem.steps
    return float(objective.privacy_weight) * leakage + cost + paid


def counted(found: EpisodeSample, claimed: Mean) -> float:
    """The claim, unless the two sides are apart or the episodes tell more than it says."""
    leakage = found.leakage
    agree = abs(leakage.width) <= width_limit(leakage.entropy)
    modest = claimed.high(ERRORS) < leakage.lower.low(ERRORS)
    return claimed.value if agree and not modest else leakage.upper.value

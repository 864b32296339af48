"""The contract of a learner, and the family of problems for robust training."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil.beliefs.kalman import KalmanSpec
from veil.leakage.per_step import Measure
from veil.policies.base import LearnedPolicy
from veil.problem import Objective, Problem
from veil.systems.base import Scenario, System
from veil.systems.scenarios import nominal, other_plants
from veil.types import Key, Scalar

Metrics = dict[str, Scalar]

Family = tuple[Problem, ...]
"""The problems that one policy must do well on: one, or one per plant that it may meet."""


class Progress(eqx.Module):
    """The state of a learner. Every array in it is saved, so that training can be continued bit for bit.

    Attributes:
        policy: as trained so far.
        price: λ, the price of distortion.
        updates: number of updates made.
        memory: everything else that the learner needs: optimiser, critic, replay buffer.
    """

    policy: LearnedPolicy
    price: Float[Array, ""]
    updates: Int[Array, ""]
    memory: object


class Learner(eqx.Module):
    """An algorithm that improves a policy on a family of problems, one update at a time."""

    @abc.abstractmethod
    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """The state before the first update.

        Args:
            family: the problems that the policy is trained on.
            policy: where to start.
            key: randomness of the start, e.g. of a critic's weights.
        """

    @abc.abstractmethod
    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """Make one update; returns the new state and the metrics of this update.

        Args:
            family: the problems that the policy is trained on.
            progress: the state after the last update.
            key: randomness of this update alone.
        """


def dual_ascent(price: Scalar, distortion: Scalar, objective: Objective, rate: Scalar) -> Scalar:
    """The price of distortion after an update with this mean distortion per step.

    The price rises while the mean distortion is above the limit and falls while it is below, but never under
    its floor. The step is relative to the floor and to the limit, so that `rate` has no unit.

    Args:
        price: λ before.
        distortion: mean distortion per step; NaN leaves the price as it is.
        objective: the limit and the floor.
        rate: step size.
    """
    excess = jnp.where(jnp.isfinite(distortion), distortion / objective.distortion_limit - 1.0, 0.0)
    return jnp.maximum(objective.distortion_price, price + rate * objective.distortion_price * excess)


EMPHASIS = 0.5  # per unit of the objective, see `Pathwise`: the worst plant counts most

MISTAKEN = 0.2  # relative error of every number of a secret, up for one secret and down for the next


def mistaken_secret(system: System, error: float = MISTAKEN) -> Scenario:
    """The owner takes each number of its secret for too much or too little; the adversary knows that."""
    signs = jnp.where(jnp.arange(system.prior.secrets.shape[0], dtype=jnp.int32) % 2 == 0, 1.0, -1.0)
    factors = 1.0 + error * signs.astype(system.prior.secrets.dtype)
    return Scenario(f"secret mistaken by {error:.0%}", system, system.prior.secrets * factors[:, None])


def plants(system: System) -> tuple[Scenario, ...]:
    """As modelled, mistaken secrets, and plants that move by another law."""
    return (nominal(system), mistaken_secret(system), *other_plants(system))


def robust(
    system: System, steps: int = 50, objective: Objective | None = None, measure: Measure | None = None
) -> Family:
    """One problem per plant, for robust training.

    The leakage is computed by Kalman filters that know the plant, although the policy does not.

    Args:
        system: the model that the policy is made for.
        steps: T, releases per episode.
        objective: the weights of leakage and distortion.
        measure: the leakage method.
    """
    objective = Objective() if objective is None else objective
    measure = Measure() if measure is None else measure
    belief = KalmanSpec()
    return tuple(Problem(scenario, steps, objective, measure, belief) for scenario in plants(system))

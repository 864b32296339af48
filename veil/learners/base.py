"""The contract of a learner: begin with a policy, improve it step by step, hand it out."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil.beliefs.kalman import KalmanSpec
from veil.leakage.per_step import Measure
from veil.policies.base import LearnedPolicy
from veil.problem import Objective, Problem
from veil.scenarios import Scenario, coloured_noise, idm_drivers, more_noise, nominal
from veil.systems.base import System
from veil.systems.platoon import Platoon
from veil.types import Key, Scalar

Metrics = dict[str, Scalar]

Family = tuple[Problem, ...]
"""The problems that one policy must do well on: one, or one per plant that it may meet."""


class Progress(eqx.Module):
    """Where a learner stands. Every array in it is saved, so that training goes on with the same bits.

    Attributes:
        policy: as learnt so far.
        price: λ, of distortion.
        updates: how many were made.
        memory: whatever else the learner needs: optimiser, critic, replay.
    """

    policy: LearnedPolicy
    price: Float[Array, ""]
    updates: Int[Array, ""]
    memory: object


class Learner(eqx.Module):
    """A way to improve a policy on a family of problems."""

    @abc.abstractmethod
    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """Before the first update."""

    @abc.abstractmethod
    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """One improvement; `key` belongs to this update alone."""


def dual_ascent(price: Scalar, distortion: Scalar, objective: Objective, rate: Scalar) -> Scalar:
    """The price after an episode with this mean distortion per step.

    It rises while E[d] is above the limit and falls while it is below, but never under the floor. The step is
    relative to the floor and to the limit, so that `rate` has no unit.
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
    """As modelled, mistaken secrets, and for a platoon IDM drivers and coloured noise, else more noise."""
    own = (nominal(system), mistaken_secret(system))
    if isinstance(system, Platoon):
        return (*own, idm_drivers(system), coloured_noise(system))
    return (*own, more_noise(system))


def robust(
    system: System, steps: int = 50, objective: Objective | None = None, measure: Measure | None = None
) -> Family:
    """One problem per plant. Leakage is judged by Kalman filters that know the plant, unlike the policy."""
    objective = Objective() if objective is None else objective
    measure = Measure() if measure is None else measure
    judge = KalmanSpec()
    return tuple(Problem(scenario, steps, objective, measure, judge) for scenario in plants(system))

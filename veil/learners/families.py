"""Plants that a policy may meet though it was made for another: problems to train on together."""

import jax.numpy as jnp

from veil.auditing.worlds import World, coloured_noise, faithful, idm_drivers, more_noise
from veil.beliefs.trackers import KalmanTracker
from veil.leakage.stage import Measure
from veil.learners.base import Family
from veil.problem import Objective, Problem
from veil.systems import Platoon
from veil.systems.base import System

EMPHASIS = 0.5  # per unit of the objective, see `Pathwise`: the worst plant counts most
MISTAKEN = 0.2  # relative error of every number of a secret, up for one secret and down for the next


def mistaken_secret(system: System, error: float = MISTAKEN) -> World:
    """The owner takes each number of its secret for too much or too little; the adversary knows that."""
    signs = jnp.where(jnp.arange(system.prior.secrets.shape[0], dtype=jnp.int32) % 2 == 0, 1.0, -1.0)
    factors = 1.0 + error * signs.astype(system.prior.secrets.dtype)
    return World(f"secret mistaken by {error:.0%}", system, system.prior.secrets * factors[:, None])


def plants(system: System) -> tuple[World, ...]:
    """As modelled, mistaken secrets, and for a platoon IDM drivers and coloured noise, else more noise."""
    own = (faithful(system), mistaken_secret(system))
    if isinstance(system, Platoon):
        return (*own, idm_drivers(system), coloured_noise(system))
    return (*own, more_noise(system))


def robust(
    system: System, steps: int = 50, objective: Objective | None = None, measure: Measure | None = None
) -> Family:
    """One problem per plant. Leakage is judged by Kalman filters that know the plant, unlike the policy."""
    objective = Objective() if objective is None else objective
    measure = Measure() if measure is None else measure
    judge = KalmanTracker()
    return tuple(Problem(world, steps, objective, measure, judge) for world in plants(system))

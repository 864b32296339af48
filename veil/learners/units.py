"""What is usual for a system: units for a policy's network, measured by sharing true data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.policies import Truth
from veil.policies.learned import LearnedPolicy
from veil.policies.scaling import Scaling, Unit
from veil.rollout import Record, rollout
from veil.systems.base import System
from veil.types import Key

EPISODES = 16  # per secret


def usual(system: System, steps: int = 50, *, key: Key) -> Scaling:
    """Means and standard deviations of secrets, states, external inputs and outputs under true data.

    Args:
        system: whose.
        steps: of an episode; policies learn for this horizon.
        key: of the episodes.
    """
    record = _played(system, steps, key)
    states = np.asarray(record.states)[:, :-1].reshape(-1, record.states.shape[-1])
    external = np.asarray(record.public.external).reshape(-1, record.public.external.shape[-1])
    shared = np.asarray(record.public.shared).reshape(-1, record.public.shared.shape[-1])
    dtype = system.prior.secrets.dtype
    masses = np.exp(np.asarray(system.prior.log_masses, float))
    secrets = np.asarray(system.prior.secrets, float)
    centre = masses @ secrets / masses.sum()
    spread = np.sqrt(masses @ (secrets - centre) ** 2 / masses.sum())
    return Scaling(
        _unit(centre, spread, dtype),
        *(_unit(rows.mean(axis=0), rows.std(axis=0), dtype) for rows in (states, external, shared)),
        steps=jnp.asarray(float(steps), dtype),
    )


def units_of(policy: LearnedPolicy) -> Scaling:
    """The units of a policy that has some."""
    scaling = getattr(policy, "scaling", None)
    if not isinstance(scaling, Scaling):
        raise TypeError(f"This learner needs a policy with units; {type(policy).__name__} has no `scaling`.")
    return scaling


@eqx.filter_jit
def _played(system: System, steps: int, key: Key) -> Record:
    count = system.prior.secrets.shape[0]
    numbers = jnp.arange(EPISODES * count, dtype=jnp.int32)

    def one(number):
        own = jr.fold_in(key, number)
        return rollout(system, Truth(system), steps, public_seed=number, key=own, index=number % count)

    return jax.vmap(one)(numbers)


def _unit(centre: np.ndarray, spread: np.ndarray, dtype) -> Unit:
    """Deviations that vanish are replaced by one, so that nothing is divided by zero."""
    some = spread > 1e-6 * (1.0 + np.abs(centre))
    return Unit(jnp.asarray(centre, dtype), jnp.asarray(np.where(some, spread, 1.0), dtype))

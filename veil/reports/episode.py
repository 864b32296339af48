"""One simulated episode of a policy, for the picture of what a receiver gets."""

from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.attacks.guides import filtered_path
from veil.attacks.kalman import GaussianisedPolicy, KalmanBank
from veil.attacks.particle_filter import public_steps
from veil.learners.run import load_policy
from veil.policies.base import Policy
from veil.rollout import rollout
from veil.step import release_kind
from veil.systems.base import System
from veil.types import Key, as_float64

SEED = 7  # of the simulated world; the same episode whenever a report is made

Path3 = Float[Array, "3 T Y"]


@dataclass(frozen=True)
class Episode:
    """Over time, in the units of the shared axes.

    Attributes:
        names: of the shared axes.
        units: of the shared axes.
        true: (T, Y) what sharing without protection would release.
        shared: (T, Y) what was released.
        estimated: (T, Y) best estimate of the true one by a reader who knows the policy.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    true: np.ndarray
    shared: np.ndarray
    estimated: np.ndarray


def play(folder: Path, system: System, steps: int) -> Episode:
    """Play the policy of a run, in a simulated world whose secret is one of the prior's."""
    with jax.enable_x64(True):
        system = as_float64(system)
        policy = as_float64(load_policy(folder, system))
        true, shared, estimated = np.asarray(_paths(system, policy, steps, jr.key(SEED)))
    fields = system.shared_fields
    names, units = (tuple(getattr(field, kind) for field in fields) for kind in ("name", "unit"))
    return Episode(names, units, true, shared, estimated)


@eqx.filter_jit
def _paths(system: System, policy: Policy, steps: int, key: Key) -> Path3:
    """True, shared and estimated, one above the other."""
    play_key, read_key = jr.split(key)
    seed = jnp.asarray(SEED, jnp.int32)
    record = rollout(system, policy, steps, public_seed=seed, key=play_key)
    outputs = jax.vmap(system.output)
    true, shared = outputs(record.states[:-1]), record.public.shared
    # Where releases carry no noise, no filter reads them better than they are.
    if policy.has_memory or release_kind(system, policy).fresh_law().is_point:
        return jnp.stack([true, shared, shared])
    log_masses = KalmanBank(system, policy).trail(record.public, key=read_key).log_masses
    public = public_steps(record.public)
    path = jax.vmap(lambda secret: filtered_path(system, GaussianisedPolicy(policy), secret, public))
    means = jnp.einsum("tk,ktn->tn", jnp.exp(log_masses), path(system.prior.secrets))
    return jnp.stack([true, shared, outputs(means)])

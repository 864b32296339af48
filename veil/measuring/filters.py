"""What noisy releases along a recorded path say: several independent particle filters per secret."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.attacks.bayes import plans, runs
from veil.attacks.guides import Guide, Twisted, Unguided
from veil.attacks.kalman import KalmanBank
from veil.attacks.smc import Filter, public_steps
from veil.laws import Gaussian, Held, Mixture
from veil.measuring.along import releases
from veil.policies import Policy
from veil.releases import release_kind
from veil.types import Key, Secret

RUNS = 4  # independent filters; their differences are the Monte Carlo error


class Noisy(eqx.Module):
    """What the filters found for one draw of the noise.

    Attributes:
        log_likelihood: of the first `length` releases, per run and secret.
        trail: log-masses over time by one Kalman filter per secret, to look at.
    """

    log_likelihood: Float[Array, "R K"]
    trail: Float[Array, "T K"]


def guide(policy: Policy) -> Guide:
    """How to aim the particles at the releases of this policy."""
    law, on_grid = release_kind(policy.system, policy)
    inner = law.inner if isinstance(law, Held) else law
    return Twisted() if isinstance(inner, Gaussian | Mixture) or on_grid else Unguided()


@eqx.filter_jit
def read_noisy(
    swarm: Filter,
    believed: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    length: Int[Array, ""],
    key: Key,
) -> Noisy:
    """Draw the releases once and let the filters read them.

    Args:
        swarm: the filter; its system and policy are those of the reader.
        believed: what the owner takes its secret for.
        states: the recorded path; rows beyond `length` are padding.
        external: the recorded inputs.
        length: how many rows count.
        key: of this draw and its filters.
    """
    draw_key, own_key, bank_key, seed_key = jr.split(key, 4)
    seed = jr.randint(seed_key, (), 0, 1 << 30, jnp.int32)
    public = releases(swarm.policy, believed, states, external, seed=seed, key=draw_key)
    steps = public_steps(public, length)
    plan = plans(swarm, steps)
    found = jax.vmap(lambda one: runs(swarm, steps, plan, key=one).log_likelihood)(jr.split(own_key, RUNS))
    trail = KalmanBank(swarm.system, swarm.policy).trail(public, key=bank_key)
    return Noisy(found, trail.log_masses)

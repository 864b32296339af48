"""A hidden Markov chain with finitely many symbols, enumerated path by path."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from belief_truths import track
from scipy.stats import norm

from veil.beliefs import ParticleBelief, PooledBelief
from veil.laws import Finite, Gaussian, Kernel, diagonal_gaussian
from veil.policies import PlainPolicy
from veil.step import Transcript
from veil.systems import Gain, System

NOISE = 0.15  # chance that the released symbol is wrong
SHARED = np.array([1.0, 1.0, 0.0, 1.0, 0.0])
PUSH = np.array([0.0, 0.3, -0.5, 0.2, 0.0])


class Switch(Gain):
    """x' depends on x by its sign only, so the signs are a two-state Markov chain."""

    def transition(self, secret, state, external) -> Gaussian:
        sign = jnp.where(state > 0, 1.0, -1.0)
        return diagonal_gaussian(secret * sign + external, jnp.ones_like(state))


class Symbol(Kernel):
    """Releases the sign as 0 or 1, wrong once in a while."""

    def __call__(self, secret, state) -> Finite:
        wrong = jnp.full_like(state, NOISE)[0]
        right_is_one = state[0] > 0
        one = jnp.where(right_is_one, 1.0 - wrong, wrong)
        return Finite(jnp.asarray([[0.0], [1.0]], state.dtype), jnp.log(jnp.stack([1.0 - one, one])))


class Symbols(PlainPolicy):
    """Shares symbols whatever the belief."""

    system: System

    def kernel(self, features, external, time) -> Kernel:
        return Symbol()


def enumerated(theta: float) -> float:
    """p(y_1:T | θ) as a sum over all 2^T paths of signs."""
    total = 0.0
    for path in itertools.product((-1.0, 1.0), repeat=len(SHARED)):
        chance = 0.5
        for t, sign in enumerate(path):
            if t > 0:
                chance *= float(norm.cdf(sign * (theta * path[t - 1] + PUSH[t - 1])))
            chance *= 1.0 - NOISE if (sign > 0) == (SHARED[t] > 0) else NOISE
        total += chance
    return total


@pytest.mark.parametrize("kind", [ParticleBelief, PooledBelief])
def test_particles_agree_with_the_enumeration_of_a_finite_chain(kind, float64):
    system = Switch()
    public = Transcript(
        jnp.asarray(PUSH[:, None]), jnp.asarray(SHARED[:, None]), jnp.zeros((len(SHARED), 0)), jnp.asarray(0)
    )
    trail = track(system, Symbols(system), public, 1296, jr.split(jr.key(0), 64), kind=kind)
    exact = np.array([enumerated(float(theta)) for theta in np.asarray(system.prior.secrets)[:, 0]])
    evidence = np.exp(np.asarray(jax.vmap(jnp.sum)(trail.health.log_evidence)))
    assert abs(evidence.mean() - exact.mean()) < 4.0 * evidence.std(ddof=1) / 8.0
    posterior = np.exp(np.asarray(trail.log_masses[:, -1])).mean(axis=0)
    spread = np.exp(np.asarray(trail.log_masses[:, -1])).std(axis=0, ddof=1)
    # A ratio of unbiased estimates has a bias of the order of its variance: far below one deviation here.
    assert np.all(np.abs(posterior - exact / exact.sum()) < 4.0 * spread / 8.0 + 1e-3)

"""What can go wrong with particles is returned as data, and nothing turns into NaN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from belief_truths import advance, moments, start, track

from veil.beliefs import Guided, ParticleBelief, PooledBelief, Scheme
from veil.laws import Finite, Kernel
from veil.policies import GaussianNoise
from veil.policies.plain import GridKernel, NoiseKernel
from veil.step import Transcript
from veil.systems.base import finite_prior
from veil.systems.gain import Gain
from veil.types import LOG_ZERO

GUIDED = Scheme(proposal=Guided())


def test_a_withheld_release_moves_the_states_and_leaves_the_masses():
    system = Gain()
    for belief in (
        start(ParticleBelief, system, 2000, key=jr.key(0)),
        start(ParticleBelief, system, 2000, key=jr.key(0), scheme=GUIDED),
        start(PooledBelief, system, 2000, key=jr.key(0)),
    ):
        kernel = NoiseKernel(system, jnp.asarray([0.3]))
        after, health = advance(belief, system, kernel, jnp.asarray([4.0]), None, key=jr.key(1))
        assert np.allclose(after.log_masses, system.prior.log_masses, atol=1e-5)
        assert np.allclose(moments(after).mean, 4.0, atol=0.1)
        assert health.log_evidence == 0.0 and not np.any(np.asarray(health.depleted))


class Telltale(Kernel):
    """Shares 0 if the secret is small, 1 otherwise; −∞ for the other value."""

    def __call__(self, secret, state):
        large = (secret[0] > 0.5).astype(state.dtype)
        masses = jnp.where(jnp.arange(2, dtype=state.dtype) == large, 0.0, -jnp.inf)
        return Finite(jnp.asarray([[0.0], [1.0]], state.dtype), masses)


@pytest.mark.parametrize("kind", [ParticleBelief, PooledBelief])
def test_a_secret_that_cannot_explain_the_release_is_depleted(kind):
    system = Gain()  # 0.3, 0.6, 0.9
    belief = start(kind, system, 40, key=jr.key(0))
    after, health = advance(belief, system, Telltale(), jnp.zeros(1), jnp.ones(1), key=jr.key(1))
    assert list(np.asarray(health.depleted)) == [True, False, False]
    assert np.allclose(np.exp(np.asarray(after.log_masses)), [0.0, 0.5, 0.5], atol=1e-6)
    assert np.exp(health.log_evidence) == pytest.approx(2 / 3, rel=1e-5)
    again, health = advance(after, system, Telltale(), jnp.zeros(1), jnp.zeros(1), key=jr.key(2))
    assert np.all(np.asarray(health.depleted)), "nobody who has mass can explain a zero now"
    assert np.allclose(again.log_masses, after.log_masses, atol=1e-6)
    for leaf in jax.tree.leaves((after, again, moments(after), moments(again))):
        assert np.all(np.isfinite(np.asarray(leaf)))


def test_a_release_that_nobody_explains_leaves_the_masses():
    system = Gain()
    belief = start(ParticleBelief, system, 40, key=jr.key(0))
    after, health = advance(
        belief, system, GridKernel(system, jnp.ones(1)), jnp.zeros(1), jnp.full(1, 50.0), key=jr.key(1)
    )
    assert np.all(np.asarray(health.depleted)) and health.log_evidence == LOG_ZERO
    assert np.allclose(after.log_masses, belief.log_masses)
    assert np.allclose(after.log_weights, -np.log(40))


@pytest.mark.parametrize("scheme", [None, GUIDED], ids=["bootstrap", "guided"])
def test_single_precision_survives_small_noise_far_from_zero(scheme):
    system = Gain(sd=0.01, initial_sd=0.0)
    policy = GaussianNoise(system, jnp.asarray([0.01]))
    public = Transcript(
        jnp.full((30, 1), 8.0),
        20.0 + 0.01 * jr.normal(jr.key(0), (30, 1), jnp.float32),
        jnp.zeros((30, 0)),
        jnp.asarray(0),
    )
    trail = track(system, policy, public, 100, jr.split(jr.key(1), 3), scheme)
    assert all(np.all(np.isfinite(np.asarray(leaf))) for leaf in jax.tree.leaves(trail))


@pytest.mark.parametrize(("scheme", "spread"), [(None, 1.0), (GUIDED, 0.0)], ids=["bootstrap", "guided"])
def test_gradients_are_finite(scheme, spread):
    def loss(sd, gain):
        system = Gain(prior=finite_prior([0.3, 0.6]), sd=gain, initial_sd=jnp.asarray(spread))
        belief = start(ParticleBelief, system, 16, key=jr.key(0), scheme=scheme)
        kernel = NoiseKernel(system, sd[None])
        total = 0.0
        for t in range(2):
            belief, health = advance(belief, system, kernel, jnp.ones(1), jnp.full(1, 3.0), key=jr.key(t))
            total = total + health.log_evidence + jnp.sum(moments(belief).scale)
        return total + jnp.sum(belief.components(kernel).log_masses)

    slopes = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(0.05), jnp.asarray(0.3))
    assert np.all(np.isfinite(np.asarray(slopes)))


def test_gradients_are_finite_when_a_secret_is_impossible():
    def loss(threshold):
        system = Gain()
        belief = start(ParticleBelief, system, 16, key=jr.key(0))
        shifted = eqx.tree_at(lambda own: own.states, belief, belief.states + threshold)
        after, health = advance(shifted, system, Telltale(), jnp.zeros(1), jnp.ones(1), key=jr.key(1))
        return health.log_evidence + jnp.sum(moments(after).mean) + jnp.sum(jnp.exp(after.log_masses))

    assert np.isfinite(jax.grad(loss)(jnp.asarray(0.1)))


def test_guiding_and_components_refuse_finite_laws_with_advice():
    system = Gain()
    belief = start(ParticleBelief, system, 8, key=jr.key(0), scheme=GUIDED)
    kernel = GridKernel(system, jnp.ones(1))
    with pytest.raises(TypeError, match="bootstrap"):
        advance(belief, system, kernel, jnp.zeros(1), jnp.zeros(1), key=jr.key(0))
    with pytest.raises(TypeError, match="Gaussian"):
        belief.components(kernel)


def test_a_known_start_has_zero_spread_and_no_nan():
    system = Gain(initial_sd=0.0)
    spread = moments(start(ParticleBelief, system, 10, key=jr.key(0)))
    assert np.allclose(spread.scale, 0.0) and np.all(np.isfinite(np.asarray(spread.mean)))


def test_the_layout_is_checked():
    belief = ParticleBelief.start(Gain(), 10, key=jr.key(0))
    with pytest.raises((ValueError, TypeError), match=r"log.weight"):
        ParticleBelief(
            belief.secrets, belief.log_masses, belief.states, belief.log_weights[:, :-1], None, belief.scheme
        )

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.beliefs import KalmanBelief, ParticleBelief, ParticleSpec
from veil.policies import Blind, GaussianNoise, Quantised, Subsampled, Transport
from veil.rollout import follow, replay, rollout
from veil.systems import Gain, finite_prior

EVERY, STEPS = 3, 10
FRESH = np.arange(STEPS) % EVERY == 0
INNER = {
    "noise": lambda system: GaussianNoise(system, (0.4,)),
    "transport": lambda system: Transport(system, (0.3,)),
    "particles": lambda system: Transport(system, (0.3,), tracker=ParticleSpec(20)),
}


def play_held(policy):
    """Three episodes, one after the other: bits depend on batching."""

    def one(number):
        return rollout(policy.system, policy, STEPS, public_seed=number, key=jr.fold_in(jr.key(1), number))

    return eqx.filter_jit(lambda numbers: jax.lax.map(one, numbers))(jnp.arange(3))


def test_blind_releases_have_one_law_whatever_is_true(float64):
    system = Gain(prior=finite_prior([0.3, 0.9]))
    for policy, mean in ((Blind(system, (0.5,)), 0.0), (Blind(system, (0.5,), (2.0,)), 2.0)):
        kernel = policy.kernel(jnp.zeros(0), jnp.ones(1), jnp.asarray(4, jnp.int32))
        for secret, state in ((0.3, -1.0), (0.9, 7.0)):
            law: Any = kernel(jnp.asarray([secret]), jnp.asarray([state]))
            assert np.array_equal(law.mean, [mean]) and np.array_equal(law.scale, [[0.5]])
    record = rollout(system, Blind(system, (0.5,)), 8, public_seed=jnp.asarray(0), key=jr.key(0))
    trail = follow(system, Blind(system, (0.5,)), KalmanBelief.start(system), record.public, key=jr.key(0))
    assert np.allclose(trail.log_masses, np.log(0.5), atol=1e-12)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", INNER)
def test_releases_repeat_and_a_replay_finds_every_bit(name):
    policy = Subsampled(INNER[name](Gain()), EVERY)
    records = play_held(policy)
    shared = np.asarray(records.public.shared)
    repeated = shared[:, 1:] == shared[:, :-1]
    assert np.array_equal(repeated[..., 0], np.broadcast_to(~FRESH[1:], (3, STEPS - 1)))
    again = eqx.filter_jit(lambda public: jax.lax.map(lambda one: replay(policy, one), public))
    assert np.array_equal(again(records.public), records.public.features)
    assert np.array_equal(records.public.features[:, 1:, -1:], shared[:, :-1])


@pytest.mark.parametrize("kind", ["kalman", "particles"])
def test_adversaries_learn_from_fresh_releases_only(float64, kind):
    system = Gain()
    policy = Subsampled(GaussianNoise(system, (0.4,)), EVERY)
    public = jax.tree.map(lambda leaf: leaf[0], play_held(policy).public)
    belief = KalmanBelief.start(system)
    if kind == "particles":
        belief = ParticleBelief.start(system, 50, key=jr.key(2))
    trail = eqx.filter_jit(follow)(system, policy, belief, public, key=jr.key(0))
    moved = np.max(np.abs(np.diff(trail.log_masses, axis=0)), axis=1)
    assert np.all(moved[~FRESH[1:]] < 1e-12) and np.all(moved[FRESH[1:]] > 1e-4)


def test_the_inner_belief_moves_on_while_releases_are_held(float64):
    """As a Kalman belief to which they were withheld; the components of a held release are all the same."""
    system = Gain()
    policy = Subsampled(Transport(system, (0.3,)), EVERY)
    shared = jnp.asarray([0.7])

    @jax.jit
    def step(belief, plain, time):
        kernel = policy.kernel(policy.features(belief, jnp.ones(1), time), jnp.ones(1), time)
        parts = belief.components(kernel).parts, plain.components(kernel.inner).parts
        given = (system, kernel.inner, jnp.ones(1))
        seen, unseen = (plain.update(*given, y, key=jr.key(0))[0] for y in (shared, None))
        after, _ = belief.update(system, kernel, jnp.ones(1), shared, key=jr.key(0))
        return kernel.fresh, parts, after, seen, unseen

    belief, plain = policy.start(key=jr.key(0)), KalmanBelief.start(system)
    for t in range(1, 6):
        fresh, (parts, free), belief, seen, unseen = step(belief, plain, jnp.asarray(t, jnp.int32))
        assert bool(fresh) == ((t - 1) % EVERY == 0)
        assert np.allclose(parts.mean, free.mean if fresh else 0.7)
        assert np.allclose(parts.scale, free.scale if fresh else 1.0)
        plain = seen if fresh else unseen
        assert np.allclose(belief.moments().mean, plain.moments().mean)
        assert np.allclose(belief.moments().covariance, plain.moments().covariance)
        assert np.allclose(belief.log_masses, plain.log_masses)


def test_finite_releases_can_be_held_too():
    policy = Subsampled(Quantised(Gain(), (0.25,)), 4)
    shared = np.asarray(play_held(policy).public.shared)
    assert np.all(shared % 0.25 == 0) and np.all(shared[:, :4] == shared[:, :1])


def test_an_impossible_pace_and_foreign_kernels_are_refused():
    system = Gain()
    with pytest.raises(ValueError, match="at least 1"):
        Subsampled(GaussianNoise(system, (0.4,)), 0)
    inner = GaussianNoise(system, (0.4,))
    belief = Subsampled(inner, 2).start(key=jr.key(0))
    kernel = inner.kernel(jnp.zeros(0), jnp.zeros(1), jnp.asarray(1, jnp.int32))
    with pytest.raises(TypeError, match="Subsampled"):
        belief.update(system, kernel, jnp.zeros(1), jnp.zeros(1), key=jr.key(0))

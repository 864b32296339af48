import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.beliefs import KalmanBelief, ObservedBelief, ParticleBelief, PriorBelief
from veil.policies import GaussianNoise, Policy, Quantised, Truth
from veil.policies.plain import NoiseKernel
from veil.rollout import follow, replay, rollout
from veil.step import Transcript, begin, proceed, public_key, share
from veil.systems import Gain, System


class Wary(Policy):
    """More noise the more is known about the first secret, and as time goes by."""

    system: System
    particles: int = eqx.field(default=0, static=True)  # none: a Kalman belief

    def start(self, *, key):
        if self.particles:
            return ParticleBelief.start(self.system, self.particles, key=key)
        return KalmanBelief.start(self.system)

    def features(self, belief, external, time):
        return jnp.exp(belief.log_masses[:1])

    def kernel(self, features, external, time):
        return NoiseKernel(
            self.system, 0.2 + features + 0.1 * time.astype(external.dtype) + 0.1 * jnp.abs(external)
        )


def test_states_and_externals_follow_each_other_in_the_right_order(float64):
    """Without noise in the world, x_{t+1} = θ x_t + w_t and w_{t+1} = reply · y_t must hold to the digit."""
    system = Gain(sd=0.0, reaction_sd=0.0)
    policy = GaussianNoise(system, jnp.asarray([0.7]))
    record = rollout(system, policy, 9, public_seed=jnp.asarray(3), key=jr.key(0))
    x, w, y = record.states[:, 0], record.public.external[:, 0], record.public.shared[:, 0]
    assert x.shape == (10,) and w.shape == y.shape == (9,)
    assert record.secret == system.prior.secrets[record.index]
    assert w[0] == 0.0
    assert np.allclose(x[1:], record.secret * x[:-1] + w)
    assert np.allclose(w[1:], system.reply * y[:-1])
    assert 0.3 < np.std(y - x[:-1]) < 1.5


def test_secrets_are_drawn_from_the_prior_or_given():
    system = Gain()
    policy = Truth(system)

    def play(key, index=None):
        return rollout(system, policy, 1, public_seed=jnp.asarray(0), key=key, index=index)

    keys = jr.split(jr.key(0), 900)
    drawn = np.bincount(np.asarray(jax.jit(jax.vmap(lambda key: play(key).index))(keys)), minlength=3)
    assert np.all(np.abs(drawn - 300) < 4 * np.sqrt(200))
    given = jax.jit(jax.vmap(play))(keys[:3], jnp.arange(3, dtype=jnp.int32))
    assert np.array_equal(given.secret, system.prior.secrets)


def test_one_step_is_decide_draw_absorb_move_react(float64):
    system = Gain()
    belief = KalmanBelief.start(system)
    policy = Wary(system)
    here = begin(system, policy, system.prior.secrets[1], key=jr.key(0))
    after, stage = share(policy, belief, here, seed=jnp.asarray(7), key=jr.key(1))
    assert stage.belief is belief
    assert np.allclose(stage.features, 1 / 3)
    law: Any = stage.decision(here.secret, here.state)
    assert np.allclose(law.scale, 0.2 + 1 / 3 + 0.1)
    expected, _ = belief.update(
        system, stage.decision, here.external, stage.shared, key=public_key(jnp.asarray(7), 1)
    )
    assert np.allclose(after.log_masses, expected.log_masses)
    assert np.allclose(after.moments().mean, expected.moments().mean)
    there = proceed(system, policy, here, stage, key=jr.key(2))
    assert there.time == 2 and there.secret is here.secret


def test_private_randomness_never_enters_the_belief_and_public_never_the_draw():
    system = Gain()

    def play(seed, key) -> Any:
        policy = Wary(system, particles=20)
        here = begin(system, policy, system.prior.secrets[0], key=jr.key(0))
        return share(policy, policy.start(key=public_key(seed, 0)), here, seed=seed, key=key)

    after, stage = play(jnp.asarray(1), jr.key(5))
    other, same = play(jnp.asarray(2), jr.key(5))
    assert stage.shared == same.shared
    assert not np.array_equal(after.states, other.states)
    replayed, _ = stage.belief.update(
        system, stage.decision, jnp.zeros(1), stage.shared, key=public_key(jnp.asarray(1), 1)
    )
    assert np.array_equal(after.states, replayed.states)


def play_wary(system, steps=12):
    """Five episodes, one after the other: bits depend on batching."""
    policy = Wary(system, particles=200)

    def play(number):
        return rollout(system, policy, steps, public_seed=number, key=jr.fold_in(jr.key(9), number))

    records = eqx.filter_jit(lambda numbers: jax.lax.map(play, numbers))(jnp.arange(5))
    return policy, records


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("double", [False, True])
def test_a_replay_finds_the_features_bit_for_bit_and_another_seed_does_not(double):
    with jax.enable_x64(double):
        policy, records = play_wary(Gain())
        again = eqx.filter_jit(lambda public: jax.lax.map(lambda one: replay(policy, one), public))
        assert np.array_equal(again(records.public), records.public.features)
        other = eqx.tree_at(lambda public: public.public_seed, records.public, jnp.arange(5) + 1)
        assert not np.array_equal(again(other), records.public.features)


def test_an_adversary_weighs_by_the_kernels_of_the_policy():
    system = Gain()
    policy, records = play_wary(system)
    public = jax.tree.map(lambda leaf: leaf[0], records.public)
    bank = KalmanBelief.start(system)
    for t in range(12):
        sd = 0.2 + public.features[t] + 0.1 * (t + 1) + 0.1 * jnp.abs(public.external[t])
        bank, _ = bank.update(
            system, NoiseKernel(system, sd), public.external[t], public.shared[t], key=jr.key(0)
        )
    trail = follow(system, policy, KalmanBelief.start(system), public, key=jr.key(1))
    assert np.allclose(trail.log_masses[-1], bank.log_masses, atol=1e-4)


def test_a_transcript_holds_nothing_private():
    assert {field.name for field in dataclasses.fields(Transcript)} == {
        *("external", "shared", "features", "public_seed")
    }


def test_true_data_are_judged_by_transition_densities(float64):
    system = Gain()
    policy = Truth(system)
    record = rollout(system, policy, 15, public_seed=jnp.asarray(0), key=jr.key(3))
    trail = follow(system, policy, ObservedBelief.start(system), record.public, key=jr.key(0))
    x, w = record.states[:-1, 0], record.public.external[:, 0]
    assert np.array_equal(x, record.public.shared[:, 0])
    gaps = np.asarray(x[1:, None] - system.prior.secrets[None, :, 0] * x[:-1, None] - w[:-1, None])
    scores = -0.5 * (gaps / 0.3) ** 2
    expected = np.concatenate([np.zeros((1, 3)), np.cumsum(scores, axis=0)])
    expected = expected - np.log(np.exp(expected).sum(axis=1, keepdims=True))
    assert np.allclose(trail.log_masses, expected)


@pytest.mark.parametrize(
    "make",
    [Truth, lambda s: GaussianNoise(s, jnp.asarray([0.5])), lambda s: Quantised(s, jnp.asarray([0.5]))],
)
def test_plain_policies_ignore_what_they_are_shown(make):
    system = Gain()
    policy = make(system)
    kernels = [
        policy.kernel(policy.features(belief, w, t), w, t)
        for belief, w, t in (
            (PriorBelief.start(system), jnp.zeros(1), jnp.asarray(1, jnp.int32)),
            (KalmanBelief.start(system), jnp.full(1, 3.0), jnp.asarray(40, jnp.int32)),
        )
    ]
    values = [kernel(jnp.ones(1), jnp.full(1, 0.8)).sample(jnp.zeros(1)) for kernel in kernels]
    assert values[0] == values[1]
    assert values[0] == (1.0 if isinstance(policy, Quantised) else jnp.float32(0.8))


def test_a_prior_belief_keeps_the_prior_and_refuses_the_rest():
    system = Gain()
    belief = PriorBelief.start(system)
    kernel = NoiseKernel(system, jnp.ones(1))
    after, health = belief.update(system, kernel, jnp.zeros(1), jnp.ones(1), key=jr.key(0))
    assert np.array_equal(after.log_masses, system.prior.log_masses) and health.log_evidence == 0.0
    for refused in (belief.moments, lambda: belief.components(kernel)):
        with pytest.raises(TypeError, match="ParticleBelief"):
            refused()

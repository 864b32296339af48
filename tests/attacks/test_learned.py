from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.attacks import LearnedAttack, train_attack
from veil.attacks.learned import fit_scaling, start_network
from veil.beliefs import KalmanBelief
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.policies import GaussianNoise, PlainPolicy
from veil.rollout import follow, rollout
from veil.step import Transcript
from veil.systems.base import System, finite_prior
from veil.systems.gain import Gain

STEPS, FRESH = 12, 1024
# The same for all tests, so that training is compiled once.
SIZES: dict[str, Any] = {"episodes": 2048, "validation": 512, "updates": 200, "batch": 64}
EPISODES, VALIDATION = SIZES["episodes"], SIZES["validation"]
SYSTEM = Gain(prior=finite_prior([0.2, 0.6, 1.0], [0.5, 0.3, 0.2]))


class Odd(Kernel):
    """Ignores the state; the noise level may depend on the secret."""

    loud: float = eqx.field(static=True)

    def __call__(self, secret, state) -> Gaussian:
        return diagonal_gaussian(jnp.zeros_like(state), jnp.ones_like(state) + self.loud * secret)


class OddPolicy(PlainPolicy):
    system: System
    loud: float = eqx.field(static=True)

    def kernel(self, features, external, time) -> Kernel:
        del features, external, time
        return Odd(self.loud)


NOISY = GaussianNoise(SYSTEM, jnp.asarray([0.1]))
DEAF = OddPolicy(SYSTEM, 0.0)
LOUD = OddPolicy(SYSTEM, 1.0)


@cache
def player(policy_name):
    policy = {"noisy": NOISY, "deaf": DEAF, "loud": LOUD}[policy_name]

    def one(number):
        key = jr.fold_in(jr.key(11), number)
        record = rollout(SYSTEM, policy, STEPS, public_seed=number.astype(jnp.uint32), key=key)
        return record.index, record.public

    return eqx.filter_jit(jax.vmap(one))


@cache
def trained(policy_name):
    return train_attack(player(policy_name), SYSTEM.prior, **SIZES, key=jr.key(0))


def fresh(policy_name):
    return player(policy_name)(jnp.arange(FRESH, dtype=jnp.int32) + EPISODES + VALIDATION)


def at(log_posterior, index):
    """Scores of the true secrets."""
    log_ratio = np.asarray(log_posterior) - np.asarray(SYSTEM.prior.log_masses)
    return log_ratio[np.arange(len(index)), np.asarray(index)]


@eqx.filter_jit
def read_one(attack, transcript):
    return attack(transcript, key=jr.key(0))


@eqx.filter_jit
def read_all(attack, public):
    return jax.vmap(lambda one: attack(one, key=jr.key(0)))(public)


@eqx.filter_jit
def read_posteriors(found):
    return jax.vmap(lambda one: one.log_posterior(SYSTEM.prior))(found)


def scores(attack, index, public):
    found = read_all(attack, public)
    assert not np.any(np.asarray(found.failed))
    return at(read_posteriors(found), index)


def standard_error(values):
    return float(np.std(values) / np.sqrt(len(values)))


@pytest.mark.study
def test_it_finds_most_of_what_a_kalman_bank_finds_and_not_more():
    index, public = fresh("noisy")

    def bank(one):
        return follow(SYSTEM, NOISY, KalmanBelief.start(SYSTEM), one, key=jr.key(0)).log_masses[-1]

    exact = at(eqx.filter_jit(jax.vmap(bank))(public), index)
    learned = scores(trained("noisy")[0], index, public)
    assert exact.mean() > 0.3
    assert learned.mean() > 0.8 * exact.mean()
    assert learned.mean() < exact.mean() + 4.0 * standard_error(learned - exact)


def test_a_secret_in_the_noise_level_is_found():
    index, public = fresh("loud")
    sd = 1.0 + np.asarray(SYSTEM.prior.secrets)[:, 0]
    squares = np.sum(np.asarray(public.shared) ** 2, axis=(1, 2))
    log_joint = np.asarray(SYSTEM.prior.log_masses) - 0.5 * squares[:, None] / sd**2 - STEPS * np.log(sd)
    exact = at(log_joint - np.logaddexp.reduce(log_joint, axis=1, keepdims=True), index)
    learned = scores(trained("loud")[0], index, public)
    assert learned.mean() > 0.6 * exact.mean() > 0.08
    assert learned.mean() < exact.mean() + 4.0 * standard_error(learned - exact)


def test_where_the_release_ignores_the_state_it_is_at_chance():
    values = scores(trained("deaf")[0], *fresh("deaf"))
    assert abs(values.mean()) < 0.01 + 4.0 * standard_error(values)


def test_validation_chooses_where_training_only_remembers():
    few = 64

    def play(numbers):
        return player("deaf")(jnp.where(numbers < EPISODES, numbers % few, numbers))

    attack, training = train_attack(play, SYSTEM.prior, **SIZES, key=jr.key(0))
    assert training.train[-1] > 0.2
    assert training.validation[-1] < -0.05
    assert 0.0 <= training.best < 0.02
    assert training.best == training.validation[list(training.update).index(training.chosen)]
    index, public = play(jnp.arange(VALIDATION, dtype=jnp.int32) + EPISODES)
    assert np.isclose(scores(attack, index, public).mean(), training.best, atol=1e-4)


def test_the_validation_score_is_that_of_the_attack_on_the_validation_episodes():
    attack, training = trained("noisy")
    index, public = player("noisy")(jnp.arange(VALIDATION, dtype=jnp.int32) + EPISODES)
    assert np.isclose(scores(attack, index, public).mean(), training.best, atol=1e-4)
    assert training.best == training.validation.max()
    assert training.update[0] == 0 and training.validation[0] == 0.0 and training.seconds > 0.0


def test_the_same_key_gives_the_same_attack_and_another_key_another():
    calls, asked = [], []

    def play(numbers):
        asked.extend(np.asarray(numbers).tolist())
        return player("noisy")(numbers)

    def progress(done, total):
        calls.append((done, total))

    same, again = train_attack(play, SYSTEM.prior, **SIZES, key=jr.key(0), progress=progress)
    other, _ = train_attack(play, SYSTEM.prior, **SIZES, key=jr.key(1))
    attack, training = trained("noisy")
    assert eqx.tree_equal(attack, same) and not eqx.tree_equal(attack, other)
    assert np.array_equal(training.train, again.train) and training.chosen == again.chosen > 0
    assert calls == [(done, 200) for done in training.update[1:].tolist()]
    assert asked[: len(asked) // 2] == list(range(EPISODES + VALIDATION))  # each once: none is in both parts


@pytest.mark.study
def test_double_precision_outside_leaves_the_network_in_single(float64):
    noise = np.random.default_rng(0)

    def play(numbers):
        index = noise.integers(2, size=len(numbers))
        shared = jnp.asarray(noise.normal(size=(len(numbers), 6, 1)) + index[:, None, None])
        public = jax.vmap(Transcript)(jnp.zeros_like(shared), shared, shared[..., :0], numbers)
        return jnp.asarray(index), public

    sizes: dict[str, Any] = {"episodes": 256, "validation": 64, "updates": 50, "batch": 32}
    attack, training = train_attack(play, finite_prior([0.2, 1.0]), **sizes, key=jr.key(0))
    assert training.best > 0.2
    assert {leaf.dtype.name for leaf in jax.tree.leaves(attack.network)} == {"float32"}


def strange(offset, dtype):
    """Transcripts of which one column is constant, one is on a grid, and one has outliers."""
    noise = np.random.default_rng(0)
    external = np.stack([np.full((64, 9), 3.0 + offset), np.round(noise.normal(size=(64, 9)) / 3)], axis=2)
    shared = offset + noise.normal(size=(64, 9, 1))
    features = np.where(noise.uniform(size=(64, 9, 1)) < 0.01, 1e4, noise.normal(size=(64, 9, 1)))
    w, y, f = (jnp.asarray(part, dtype) for part in (external, shared, features))
    return jax.vmap(Transcript)(w, y, f, jnp.zeros(64, jnp.uint32))


def test_inputs_are_standardised_whatever_the_columns():
    transcripts = strange(1e4, jnp.float32)
    scaling = fit_scaling(transcripts)
    inputs = np.asarray(jax.vmap(scaling)(transcripts))
    assert np.all(np.isfinite(inputs)) and np.all(np.abs(inputs) < 20.0)
    assert np.allclose(inputs[..., 1], 0.0)  # the constant column
    assert np.isclose(np.std(inputs[..., 0]), 1.0, atol=0.2)  # the offset one
    assert np.isclose(np.median(np.abs(inputs[..., 3])), 0.674, atol=0.1)  # outliers do not set the scale
    assert np.all(np.isfinite(np.asarray(scaling.whitening))) and np.all(np.asarray(scaling.spread) > 0.0)


def test_an_offset_changes_nothing_in_double_precision(float64):
    network = start_network(8 + 11 * 3, 3, key=jr.key(0))
    head = jr.normal(jr.key(1), network.direct.weight.shape, jnp.float32)
    network = eqx.tree_at(lambda net: net.direct.weight, network, head)
    results = []
    for offset in (0.0, 1e4):
        transcripts = strange(offset, jnp.float64)
        attack = LearnedAttack(fit_scaling(transcripts), network)
        results.append(read_all(attack, transcripts).log_likelihood)
    assert results[0].dtype == jnp.float64 and network.direct.weight.dtype == jnp.float32
    assert np.allclose(results[0], results[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_called_a_failure(bad):
    attack, _ = trained("noisy")
    one = jax.tree.map(lambda leaf: leaf[0], fresh("noisy")[1])
    spoilt = eqx.tree_at(lambda t: t.shared, one, one.shared.at[3, 0].set(bad))
    found = read_one(attack, spoilt)
    assert found.failed and np.all(np.asarray(found.log_likelihood) == 0.0)


def test_releases_off_by_thousands_give_a_finite_forecast():
    attack, _ = trained("noisy")
    one = jax.tree.map(lambda leaf: leaf[0], fresh("noisy")[1])
    found = read_one(attack, eqx.tree_at(lambda t: t.shared, one, one.shared + 1e4))
    assert not found.failed and np.all(np.abs(np.asarray(found.log_likelihood)) < 1e4)

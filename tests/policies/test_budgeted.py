"""A budget holds: on every path by construction, and for the true leakage where the belief is exact."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.laws import Gaussian
from veil.leakage.per_step import Measure
from veil.policies import GaussianNoise, Quantised, Subsampled, Transport, Truth
from veil.policies.counterfactual import Counterfactual
from veil.rollout import rollout
from veil.sharing.budget import budgeted
from veil.systems import Gain, Platoon, finite_prior

STEPS, EPISODES, BUDGET = 15, 3000, 0.12
MODES = ("withhold", "blind", "blur")


class Scaled(Measure):
    """The live bound times a number, to see what an understated charge does."""

    factor: Any = eqx.field(default=1.0, converter=jnp.asarray)

    def __call__(self, belief, kernel, *, key):
        return self.factor * super().__call__(belief, kernel, key=key)


def loop():
    return Gain(prior=finite_prior([0.2, 0.6, 0.9], [0.5, 0.3, 0.2]))


@eqx.filter_jit
def run(policy, numbers):
    def one(number):
        key = jr.fold_in(jr.key(1), number)
        return rollout(policy.system, policy, STEPS, public_seed=number, key=key)

    return jax.vmap(one)(numbers)


@functools.cache
def played(kind, exhausted, factor):
    """Episodes of a budgeted loop on `gain`: w, y, and charge, gate and blur of every step."""
    with jax.enable_x64(True):
        system = loop()
        inner = GaussianNoise(system, jnp.asarray([0.3])) if kind == "noise" else Truth(system)
        policy = budgeted(inner, BUDGET, exhausted, steps=STEPS, measure=Scaled("live", factor=factor))

        public = run(policy, jnp.arange(EPISODES, dtype=jnp.int32)).public
        gate = np.asarray(public.features[:, :, -3:])
        sd = np.asarray(policy.unit)[0] * gate[:, :, 2]
        return (
            np.asarray(public.external[:, :, 0]),
            np.asarray(public.shared[:, :, 0]),
            (gate[:, :, 0], gate[:, :, 1] > 0.5, sd),
        )


def information(w, y, opened, variance):
    """KL(posterior ‖ prior) after every episode, by a scalar Kalman filter that sees what passed the gate.

    Its mean over episodes is the leakage, with far less spread than that of log p(y | θ*) / p(y).
    """
    system = loop()
    secrets, masses = np.asarray(system.prior.secrets)[:, 0], np.exp(np.asarray(system.prior.log_masses))
    log_likelihood = np.zeros((len(y), len(secrets)))
    mean, spread = np.zeros_like(log_likelihood), np.ones_like(log_likelihood) * float(system.initial_sd) ** 2
    for t in range(y.shape[1]):
        now = opened[:, t, None]
        total = np.where(now, spread + variance[:, t, None], 1.0)
        error = y[:, t, None] - mean
        log_likelihood += np.where(now, -0.5 * (error**2 / total + np.log(2 * np.pi * total)), 0.0)
        gain = np.where(now, spread / total, 0.0)
        mean, spread = mean + gain * error, spread * (1 - gain)
        mean = secrets * mean + w[:, t, None]
        spread = secrets**2 * spread + float(system.sd) ** 2
    posterior = masses * np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.sum(posterior * np.log(posterior / masses), axis=1)


def measured(kind, exhausted, factor=1.0):
    w, y, (charges, opened, blur) = played(kind, exhausted, factor)
    own = 0.3**2 if kind == "noise" else 0.0
    values = information(w, y, opened, own + blur**2)
    return values.mean(), values.std() / np.sqrt(len(values)), charges.sum(axis=1)


CASES = [("noise", mode) for mode in MODES] + [("truth", "withhold"), ("truth", "blind")]


@pytest.mark.parametrize(("kind", "exhausted"), CASES)
def test_what_leaks_is_what_was_charged_and_never_more_than_the_budget(kind, exhausted):
    """With an exact belief the charges are the leakage of each step, so their sum is that of the run."""
    leaked, error, spent = measured(kind, exhausted)
    assert spent.max() <= BUDGET * (1 + 1e-9)
    assert leaked <= BUDGET + 3 * error
    assert abs(leaked - spent.mean()) <= 4 * error + 1e-3 * BUDGET


def test_blurring_spends_at_most_an_even_share_of_what_is_left(float64):
    """And nearly that much where the blur is what limits it, so that something is released to the end."""
    _, _, (charges, opened, blur) = played("noise", "blur", 1.0)
    left = BUDGET - np.cumsum(charges, axis=1) + charges
    share = left / np.arange(STEPS, 0, -1)
    assert np.all(charges <= share * (1 + 1e-9))
    assert (
        opened.all() and np.median((charges / share)[blur > 0]) > 0.25
    )  # a level of blur is a factor of two


def test_a_blurred_release_has_the_noise_that_was_charged(float64):
    system = loop()
    policy = budgeted(GaussianNoise(system, jnp.asarray([0.3])), BUDGET, "blur", unit=jnp.asarray([0.7]))
    blur = 1.5  # in units
    features = jnp.asarray([0.0, 0.01, 1.0, blur])  # expectation, charge, open; noise alone has no features
    decision = policy.decide(features, system.initial_external(), jnp.asarray(1, jnp.int32))
    assert float(decision.charge) == 0.01 and bool(decision.open) and float(decision.blur) == blur
    law = decision.opened()(system.prior.secrets[0], jnp.asarray([0.4]))
    assert isinstance(law, Gaussian)
    assert float(law.scale[0, 0]) == pytest.approx(np.hypot(0.3, 0.7 * blur), rel=1e-12)
    assert float(law.mean[0]) == 0.4


def test_true_data_stop_for_good_at_the_first_refusal(float64):
    """After a gap the charge would not be exact, so no later release passes, however cheap it looks."""
    system = loop()
    policy = budgeted(Truth(system), 10.0)
    belief = policy.start(key=jr.key(0))
    given = system.initial_external(), jnp.asarray(1, jnp.int32)
    stopped = eqx.tree_at(lambda one: one.stopped, belief, jnp.asarray(True))
    decided = eqx.filter_jit(lambda one: policy.decide(policy.features(one, *given), *given).open)
    for one, opened in ((belief, True), (stopped, False)):
        assert bool(decided(one)) is opened
    _, _, (_, passed, _) = played("truth", "blind", 1.0)
    assert np.all(np.diff(passed.astype(int), axis=1) <= 0)


@pytest.mark.parametrize("exhausted", MODES)
def test_a_charge_understated_by_a_third_is_caught(exhausted):
    """The sum of the charges still keeps the budget; the leakage does not, by many standard errors."""
    leaked, error, spent = measured("noise", exhausted, 0.7)
    assert spent.max() <= BUDGET * (1 + 1e-9)
    assert leaked > BUDGET + 4 * error


def test_a_withheld_release_does_not_reach_the_environment(float64):
    """Without noise in the reply, w' = reply · y where something was shared, and 0 where nothing was."""
    for exhausted in ("withhold", "blind"):
        system = Gain(reaction_sd=0.0)
        policy = budgeted(GaussianNoise(system, jnp.asarray([0.3])), 0.05, exhausted)
        record = jax.jit(
            lambda policy=policy, system=system: rollout(
                system, policy, 12, public_seed=jnp.asarray(0), key=jr.key(2)
            )
        )()
        opened = np.asarray(record.public.features[:, -2]) > 0.5
        answer, shared = np.asarray(record.public.external[1:, 0]), np.asarray(record.public.shared[:-1, 0])
        assert 0 < opened.sum() < 12
        released = opened[:-1] if exhausted == "withhold" else np.ones(11, bool)
        assert np.allclose(answer, np.where(released, -0.2 * shared, 0.0))


def test_a_blind_release_is_the_output_that_the_public_expects(float64):
    """Without any budget: the mean over secrets of the state given the first release, moved by w alone."""
    system = loop()
    policy = budgeted(GaussianNoise(system, jnp.asarray([0.3])), 0.0, "blind")
    record = jax.jit(
        lambda: rollout(system, policy, 6, public_seed=jnp.asarray(0), key=jr.key(3)),
    )()
    w, y = np.asarray(record.public.external[:, 0]), np.asarray(record.public.shared[:, 0])
    secrets, masses = np.asarray(system.prior.secrets)[:, 0], np.exp(np.asarray(system.prior.log_masses))
    # The first release tells nothing, because the start does not depend on the secret: it is charged zero.
    assert np.asarray(record.public.features[:, -2])[0] == 1.0
    gain = 1.0 / (1.0 + 0.3**2)
    mean, expected = secrets * gain * y[0] + w[0], [y[0]]
    for t in range(1, 6):
        expected.append(masses @ mean)
        mean = secrets * mean + w[t]
    assert np.allclose(y, expected)


def test_transport_is_never_refused_and_noise_is():
    """On the platoon, where transport leaks nothing under its own belief, at any budget above rounding."""
    system = Platoon()
    with jax.enable_x64(True):
        system = Platoon()
        for policy, least, most in (
            (Transport(system, jnp.asarray([0.06, 0.1])), 20, 20),
            (GaussianNoise(system, jnp.asarray([0.25, 0.43])), 1, 15),
        ):
            made = budgeted(policy, 0.05)
            run = jax.jit(
                lambda made=made: rollout(system, made, 20, public_seed=jnp.asarray(5), key=jr.key(0))
            )
            assert least <= float(jnp.sum(run().public.features[:, -2])) <= most


def test_what_cannot_be_charged_is_refused():
    system = Gain()
    noise = GaussianNoise(system, jnp.asarray([0.3]))
    with pytest.raises(TypeError, match="leaks nothing"):
        budgeted(Counterfactual(system))
    with pytest.raises(ValueError, match="0 or more"):
        budgeted(noise, -0.1)
    for inner in (Truth(system), noise):
        with pytest.raises(ValueError, match="sub-sample"):
            budgeted(Subsampled(inner, 2))
    with pytest.raises(ValueError, match="fixed grid"):
        budgeted(Quantised(system, jnp.asarray([0.5])))
    with pytest.raises(ValueError, match="blurred"):
        budgeted(Truth(system), 0.1, "blur")

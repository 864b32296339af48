"""The learner against optima that are known: releases of one step, found again by scipy and quadrature."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special
from scipy.stats import norm

from tests.learners.learner_truths import Split, Truth, by_rounds, folded, kernel_of, seen
from veil.learners import Pathwise, initial_policy, train_policy
from veil.learners import training as loop
from veil.problem import Objective, problem
from veil.settings import PolicyDesign, TrainSettings
from veil.step import first_features
from veil.systems import finite_prior

ALIKE, UNLIKE = [(-1.0, 1.0), (1.0, 1.0)], [(-1.0, 0.5), (1.0, 1.5)]
UPDATES = 240


@functools.cache
def start(secrets):
    """A residual policy with the least noise of 0.05 in the unit of the output."""
    return initial_policy(PolicyDesign(width=8), Split(finite_prior(secrets)), 1, key=jr.key(0))


def truth_of(policy, secrets, rho):
    floor = float(policy.limits.low) * float(policy.scaling.output.spread[0])
    return Truth(secrets, [0.5, 0.5], rho, floor)


def learned(monkeypatch, secrets, rho, first=lambda policy: policy):
    """The policy trained at this price of leakage, judged on the way by its exact value."""
    policy = first(start(tuple(secrets)))
    truth = truth_of(policy, secrets, rho)
    monkeypatch.setattr(
        loop, "evaluate_family", lambda family, policy, *_: seen(truth.value(*kernel_of(policy)))
    )
    objective = Objective(privacy_weight=rho, distortion_price=1.0, distortion_limit=10.0)
    made = problem(policy.system, 1, objective)
    trained = train_policy(
        (made,),
        Pathwise(episodes=64, updates=UPDATES, learning_rate=1e-2),
        policy,
        TrainSettings(updates=UPDATES, evaluate_every=20, patience=0),
    )
    return trained.policy, truth, made


@eqx.filter_jit
def play(made, policy):
    return made.episodes(policy, jnp.arange(2000, dtype=jnp.int32), key=jr.key(9))


@pytest.mark.parametrize(
    ("secrets", "rho"), [pytest.param(ALIKE, 2.0, marks=pytest.mark.study), (ALIKE, 20.0), (UNLIKE, 4.0)]
)
def test_the_learner_finds_the_best_affine_release(monkeypatch, secrets, rho):
    """Within 2 % of the optimum from perfect privacy, better than any displacement, and never below it."""
    policy, truth, made = learned(monkeypatch, secrets, rho)
    value, optimum = truth.value(*kernel_of(policy)), truth.best()[0]
    print(f"rho {rho}: learned {value:.5f}, optimum {optimum:.5f}, displaced {truth.best_displaced()[0]:.5f}")
    assert optimum - 1e-5 <= value <= 1.02 * optimum
    assert value <= truth.best_displaced()[0] + 1e-3
    # What the learner was given about this policy is true: a measure that flatters would be learned.
    outcome = play(made, policy)
    charged, exact = (outcome.leakage, outcome.distortion), truth.parts(*kernel_of(policy))
    for found, number in zip(charged, exact, strict=True):
        mean, error = by_rounds(found, [0.5, 0.5])
        assert abs(mean - number) < 4 * error + 1e-5


def part_of_the_way(policy):
    """The same network, but going only 40 % of the way to the barycentre."""
    bias = policy.network.layers[-1].bias
    return eqx.tree_at(lambda whole: whole.network.layers[-1].bias, policy, bias.at[0].set(np.arctanh(-0.6)))


def test_where_leakage_is_dear_the_learner_returns_to_transport(monkeypatch):
    """From 40 % of the way: distortion ends within 3 % of the cheapest that leaks nothing, |m| on a line."""
    policy, truth, _ = learned(monkeypatch, ALIKE, 1000.0, part_of_the_way)
    begun = truth.parts(*kernel_of(part_of_the_way(start(tuple(ALIKE)))))
    leakage, distortion = truth.parts(*kernel_of(policy))
    print(f"leakage {begun[0]:.4f} -> {leakage:.6f}, distortion {begun[1]:.4f} -> {distortion:.4f}")
    assert begun[0] > 0.1 and abs(begun[1] - 0.4) < 0.05
    assert leakage < 5e-4 and abs(distortion - 1.0) < 0.03


@eqx.filter_jit
def asked(policy, states):
    """Means and sds of the release at these states, [K, B]."""
    system = policy.system
    kernel = policy.kernel(first_features(policy), system.initial_external(), jnp.asarray(1, jnp.int32))
    law = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(system.prior.secrets, states[:, None])
    return law.mean[..., 0], law.scale[..., 0, 0]


def bent_parts(policy):
    """Leakage and distortion of any Gaussian release of a `Split` with two equal masses, on a grid."""
    x, y = np.linspace(-8.0, 8.0, 641), np.linspace(-12.0, 12.0, 1201)
    secrets = np.asarray(policy.system.prior.secrets, float)
    means, sds = (np.asarray(part, float) for part in asked(policy, jnp.asarray(x, jnp.float32)))
    laws = norm.pdf(x, *secrets.T[:, :, None]) * (x[1] - x[0])
    release = np.stack([norm.pdf(y[:, None], m, s) @ law for m, s, law in zip(means, sds, laws, strict=True)])
    ratio = release / np.maximum(release.mean(axis=0), 1e-300)
    information = 0.5 * np.sum(special.xlogy(release, ratio)) * (y[1] - y[0])
    return information, 0.5 * np.sum(laws * folded(means - x, sds))


@pytest.mark.study
@pytest.mark.parametrize("rho", [2.0, 20.0])
def test_a_plain_network_comes_near_the_best_affine_release(monkeypatch, rho):
    """Within 10 %, from noise on true data. It may bend the release, so it may also do better."""
    policy = initial_policy(
        PolicyDesign(start="plain", width=16), Split(finite_prior(ALIKE)), 1, key=jr.key(0)
    )

    def value(policy):
        information, distortion = bent_parts(policy)
        return rho * information + distortion

    monkeypatch.setattr(loop, "evaluate_family", lambda family, policy, *_: seen(value(policy)))
    made = problem(
        policy.system, 1, Objective(privacy_weight=rho, distortion_price=1.0, distortion_limit=10.0)
    )
    trained = train_policy(
        (made,),
        Pathwise(episodes=64, updates=600, learning_rate=1e-2),
        policy,
        TrainSettings(updates=600, evaluate_every=20, patience=0),
    )
    optimum = truth_of(policy, ALIKE, rho).best()[0]
    print(f"rho {rho}: from {value(policy):.4f} to {value(trained.policy):.4f}, affine optimum {optimum:.4f}")
    assert value(trained.policy) <= 1.1 * optimum

"""Noise-free sharing of a part of the state: exact for linear systems, against joint Gaussian densities."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from veil.evaluation.audit import audit
from veil.evaluation.bounds import bounder_candidates
from veil.evaluation.evaluate import evaluate
from veil.laws import Gaussian
from veil.policies import Truth
from veil.settings import AuditSettings
from veil.step import shares_linearly
from veil.systems import Field, Gain, Platoon, Prior, System, finite_prior

SIZE = AuditSettings(steps=5, episodes=240, seed=4)
SPREAD = np.array([[0.3, 0.0], [0.1, 0.2]])
FIRST = np.array([[0.8, 0.0], [0.2, 0.5]])


class Hidden(System):
    """x' = A(θ) x + (w, 0) + noise in the plane; only the first coordinate is shared; w' = 0.5 y + 0.2 ε."""

    prior: Prior
    limit: Array

    secret_fields = (Field("a"), Field("b"))
    state_fields = (Field("x"), Field("hidden"))
    external_fields = (Field("w"),)
    shared_fields = (Field("x"),)
    reaction_noise_size = 1

    def initial(self, secret) -> Gaussian:
        return Gaussian(jnp.zeros(2), jnp.asarray(FIRST))

    def initial_external(self):
        return jnp.zeros(1)

    def transition(self, secret, state, external) -> Gaussian:
        moved = jnp.stack([secret[0] * state[0] + state[1] + external[0], secret[1] * state[1]])
        return Gaussian(moved, jnp.asarray(SPREAD))

    def react(self, external, shared, noise):
        assert shared is not None
        return 0.5 * shared + 0.2 * noise

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state[:1] - shared)[0]

    def output(self, state):
        return state[:1]


class Limited(Hidden):
    """The same with a limit on the hidden coordinate, which is never reached."""

    def transition(self, secret, state, external) -> Gaussian:
        law = super().transition(secret, jnp.clip(state, -self.limit, self.limit), external)
        return law


def hidden(cls=Hidden):
    return cls(finite_prior([(0.3, 0.9), (0.6, 0.5), (0.9, 0.2)]), jnp.asarray(1e6))


def joint_log_density(secret, shared, external):
    """log p(y_1..y_T | w) from the covariance of the whole path, written as one linear map of all noise."""
    steps, matrix = len(shared), np.array([[secret[0], 1.0], [0.0, secret[1]]])
    mean, rows = np.zeros(2), np.zeros((2, 2 * steps))
    rows[:, :2] = FIRST
    means, maps = [], []
    for t in range(steps):
        means.append(mean[0])
        maps.append(rows[0].copy())
        mean, rows = matrix @ mean + np.array([external[t, 0], 0.0]), matrix @ rows
        if t + 1 < steps:
            rows[:, 2 * t + 2 : 2 * t + 4] = SPREAD
    maps = np.array(maps)
    root = np.linalg.cholesky(maps @ maps.T)
    scores = np.linalg.solve(root, shared[:, 0] - np.array(means))
    return -0.5 * scores @ scores - np.log(np.diag(root)).sum() - 0.5 * steps * np.log(2.0 * np.pi)


def test_a_part_of_a_linear_state_is_bounded_exactly(float64):
    system = hidden()
    found = evaluate(system, Truth(system), settings=SIZE)
    assert found.method == "exact Kalman filters" and found.verdict().name == "certifiable"
    public, secrets = found.records.public, np.asarray(system.prior.secrets)
    for e in range(0, 240, 40):
        path = np.asarray(public.shared)[e], np.asarray(public.external)[e]
        exact = np.array([joint_log_density(secret, *path) for secret in secrets])
        ours = np.asarray(found.forecast.log_likelihood)[e]
        np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=1e-9)
    assert found.leakage.width == pytest.approx(0.0, abs=0.02) and found.leakage.low > 0.01


def test_what_is_not_linear_gets_an_attacker_and_no_upper_side(float64):
    """A limit that is never reached makes the filter no worse, but that is not proven."""
    whole, system = audit(hidden(), Truth(hidden()), SIZE), hidden(Limited)
    found = audit(system, Truth(system), SIZE)
    assert found.verdict.name == "no_upper_bound" and found.interval[1] == pytest.approx(np.log(3.0))
    (bank,) = [row for row in found.attacks if row.name == "noise-free Kalman bank"]
    (bayes,) = [row for row in whole.attacks if row.name == "Bayes"]
    assert bank.lower.value == pytest.approx(bayes.lower.value, abs=1e-9)
    assert found.interval[0] > 0.01, "the interval uses what the attacker proves"


def test_linearity_is_decided_from_the_programs():
    assert shares_linearly(hidden(), Truth(hidden()))
    assert not shares_linearly(hidden(Limited), Truth(hidden(Limited)))
    assert shares_linearly(Gain(), Truth(Gain())), "and the whole state has its own densities"
    assert bounder_candidates(Gain(), Truth(Gain()))[0].name == "exact transition densities"
    assert not shares_linearly(Platoon(), Truth(Platoon())), "accelerations are limited"

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.policies.round_units import finite
from veil.beliefs import ParticleBelief, Scheme
from veil.laws import Finite, Kernel
from veil.leakage import finite_information, finite_release
from veil.policies.plain import GridKernel, NoiseKernel
from veil.systems import Gain
from veil.types import LOG_ZERO

information = jax.jit(jax.value_and_grad(finite_information, (0, 1)))


def by_hand(masses, table):
    """H(Y) − H(Y | Θ) in plain numpy."""

    def entropy(probs):
        probs = probs[probs > 0.0]
        return -np.sum(probs * np.log(probs))

    return entropy(masses @ table) - sum(q * entropy(row) for q, row in zip(masses, table, strict=True))


def tables():
    rng = np.random.default_rng(0)
    yield np.asarray([0.2, 0.3, 0.5]), rng.dirichlet(np.ones(6), 3)
    yield np.asarray([0.4, 0.0, 0.6]), rng.dirichlet(np.full(6, 0.1), 3)  # a secret that is ruled out
    yield np.asarray([0.9, 0.1 - 1e-30, 1e-30]), np.eye(6)[:3]  # impossible values, and a hopeless secret
    yield (
        np.asarray([0.0, 0.25, 0.75]),
        np.asarray([[0.0, 1.0, 0, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0], [0, 0, 1.0, 0, 0, 0]]),
    )


@pytest.mark.parametrize("nothing", [-np.inf, LOG_ZERO])
def test_information_agrees_with_the_difference_of_entropies(float64, nothing):
    for masses, table in tables():
        logs = [
            np.log(value, out=np.full(value.shape, nothing), where=value > 0.0) for value in (masses, table)
        ]
        value, slopes = information(*map(jnp.asarray, logs))
        assert float(value) == pytest.approx(by_hand(masses, table), abs=1e-12)
        assert finite(slopes)
        single, slopes = information(*(jnp.asarray(value, jnp.float32) for value in logs))
        assert float(single) == pytest.approx(by_hand(masses, table), abs=1e-6)
        assert finite(slopes)


def test_equal_rows_tell_nothing_and_little_is_not_lost_to_rounding():
    masses = np.asarray([0.2, 0.3, 0.5])
    row = np.random.default_rng(1).dirichlet(np.ones(8))
    same = jnp.log(jnp.asarray(np.tile(row, (3, 1)), jnp.float32))
    log_masses = jnp.log(jnp.asarray(masses, jnp.float32))
    assert 0.0 <= information(log_masses, same)[0] < 1e-12
    tilt = np.asarray([1.0, 0.5, -0.7])[:, None] * np.linspace(-1.0, 1.0, 8)[None, :]
    table = row[None, :] * np.exp(1e-3 * tilt)
    table /= table.sum(axis=1, keepdims=True)
    found, truth = (
        information(log_masses, jnp.log(jnp.asarray(table, jnp.float32)))[0],
        by_hand(masses, table),
    )
    assert truth < 2e-7  # nothing, to a difference of entropies in single precision
    assert float(found) == pytest.approx(truth, rel=0.02)


def test_the_slope_is_that_of_normalised_tables(float64):
    start = np.random.default_rng(3).normal(size=(3, 4))

    def value(logits):
        return finite_information(jax.nn.log_softmax(logits[:, 0]), jax.nn.log_softmax(logits[:, 1:], axis=1))

    slope = np.asarray(jax.jit(jax.grad(value))(jnp.asarray(start)))
    for i, j in np.ndindex(3, 4):
        ends = []
        for step in (1e-5, -1e-5):
            logits = start.copy()
            logits[i, j] += step
            probs = np.exp(logits)
            table = probs[:, 1:] / probs[:, 1:].sum(axis=1, keepdims=True)
            ends.append(by_hand(probs[:, 0] / probs[:, 0].sum(), table))
        assert slope[i, j] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


class Sways(Kernel):
    """Three atoms; secret and state sway the masses."""

    def __call__(self, secret, state):
        logits = jnp.stack([secret[0] * state[0], jnp.sin(3.0 * state[0]), secret[0]])
        return Finite(jnp.asarray([[0.0], [1.0], [2.0]]), jax.nn.log_softmax(logits))


def test_masses_of_a_release_are_averages_over_particles(float64):
    rng, secrets = np.random.default_rng(2), np.asarray([[0.3], [0.6], [0.9]])
    states, weights = rng.normal(size=(3, 4, 1)), rng.dirichlet(np.ones(4), 3)
    log_masses, log_weights = jnp.asarray(np.log([0.2, 0.3, 0.5])), jnp.asarray(np.log(weights))
    belief = ParticleBelief(
        jnp.asarray(secrets), log_masses, jnp.asarray(states), log_weights, None, Scheme()
    )
    found = np.exp(jax.jit(lambda: finite_release(belief, Sways()))())
    for k, secret in enumerate(secrets[:, 0]):
        x = states[k, :, 0]
        rows = np.exp(np.stack([secret * x, np.sin(3.0 * x), np.full(4, secret)], axis=1))
        assert np.allclose(found[k], weights[k] @ (rows / rows.sum(axis=1, keepdims=True)), rtol=1e-12)
    system = Gain()
    for kernel, message in (
        (GridKernel(system, (0.5,)), "fixed grid"),
        (NoiseKernel(system, (0.5,)), "estimate"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            finite_release(belief, kernel)

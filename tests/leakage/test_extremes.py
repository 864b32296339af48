"""Mixtures at the edge of floating point: a bound must stay a bound, and a number a number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.leakage.mixtures import random_covariances, sampled_information
from veil.laws import Gaussian, grouped
from veil.leakage import closed_form_bounds, coupled, mutual_information
from veil.registry import LEAKAGE


def test_narrow_components_a_million_apart_tell_everything():
    """The covariance of the whole mixture is singular in floating point; no bound may use it as it is."""
    mixture = ([0, 1], [0.5, 0.5], [[0.0, 0.0], [1e6, 1e6]], [1e-6 * np.eye(2)] * 2)
    for method in set(LEAKAGE.able("of_mixture")) - {"quadrature"}:
        assert mutual_information(*mixture, method) == pytest.approx(np.log(2.0), abs=1e-9), method
    with pytest.raises(ValueError, match="too narrow for their spread"):
        mutual_information(*mixture, "quadrature")


def test_far_components_lose_nothing_to_cancellation():
    means = [[0.0, 0.0], [1e6, 0.3], [0.0, 1e6], [-1e6, 0.2]]
    value = mutual_information([0, 1, 0, 1], [0.25] * 4, means, [np.eye(2)] * 4, "closed_form")
    assert value == pytest.approx(np.log(2.0), abs=1e-9)


def test_a_direction_in_which_all_are_narrow_costs_no_digits():
    """Shearing the plane changes nothing: two unit normals 0.3 apart."""
    shear = np.array([[1.0, 0.0], [1.0, 1e-6]])
    plain = ([0, 1], [0.5, 0.5], np.array([[0.0, 0.0], [0.3, 0.0]]), np.stack([np.eye(2)] * 2))
    moved = (*plain[:2], plain[2] @ shear.T, shear @ plain[3] @ shear.T)
    for method in ("regime_adaptive", "matched", "coupled", "reference"):
        assert mutual_information(*moved, method) == pytest.approx(
            mutual_information(*plain, method), abs=1e-5
        )


@pytest.mark.parametrize(
    ("spread", "apart", "scale"),
    [
        pytest.param(1.0, 1e4, 0.5 * np.eye(2), marks=pytest.mark.study, id="far"),
        pytest.param(20.0, 0.0, 1e-4 * np.eye(2), id="narrow"),
        pytest.param(1.0, 0.0, np.array([[0.5, 0.0], [1.0, 1e-4]]), marks=pytest.mark.study, id="sheared"),
    ],
)
def test_the_ladder_stays_a_ladder_in_training_precision(spread, apart, scale):
    """All of these tell everything: no bound may fall below log 2, and none may be NaN, nor its slope."""
    generator = np.random.default_rng(0)
    mean = generator.standard_normal((2, 4, 2)) * spread + apart * np.arange(2.0)[:, None, None]

    def bounds(mean):
        parts = Gaussian(mean, jnp.broadcast_to(jnp.asarray(scale, jnp.float32), (2, 4, 2, 2)))
        return closed_form_bounds(grouped(jnp.full((2, 4), -np.log(8.0), jnp.float32), parts))

    function = jax.jit(jax.value_and_grad(lambda mean: bounds(mean).closed_form))
    value, slope = function(jnp.asarray(mean, jnp.float32))
    assert float(value) == pytest.approx(np.log(2.0), abs=1e-4)
    assert bool(jnp.all(jnp.isfinite(slope)))


def test_the_slope_of_the_coupling_follows_the_weights(float64):
    generator = np.random.default_rng(1)
    parts = Gaussian(jnp.asarray(generator.standard_normal((2, 5, 1))), jnp.full((2, 5, 1, 1), 0.7))

    @jax.jit
    def value(step):
        tilt = jnp.asarray(np.cos(np.arange(10.0)))
        log_weights = jax.nn.log_softmax(jnp.asarray(np.sin(np.arange(10.0))) + step * tilt)
        return coupled(grouped(log_weights.reshape(2, 5), parts), by_index=True)

    wanted = (value(1e-5) - value(-1e-5)) / 2e-5
    assert float(jax.grad(value)(0.0)) == pytest.approx(float(wanted), abs=1e-6)


@pytest.mark.study
def test_six_dimensions_are_measured_as_two_are():
    generator = np.random.default_rng(2)
    secret, weight = np.repeat([0, 1, 2], 10), generator.dirichlet(np.ones(30))
    mixture = (secret, weight, generator.standard_normal((30, 6)), random_covariances(generator, 30, 6))
    truth, error = sampled_information(generator, *mixture)
    for method in ("kl_chernoff", "regime_adaptive", "matched", "coupled"):
        assert mutual_information(*mixture, method) >= truth - 4.0 * error, method
    guess = mutual_information(*mixture, "estimate")
    assert guess.standard_error is not None
    assert abs(guess - truth) < 5.0 * np.hypot(guess.standard_error, error)


@pytest.mark.parametrize(
    ("method", "options", "word"),
    [
        ("estimate", {"samples": 0}, "samples"),
        ("confidence_bound", {"samples": -1}, "samples"),
        ("confidence_bound", {"delta": 0.0}, "delta"),
        ("quadrature", {"step": 5.0}, "step"),
        ("quadrature", {"step": 0.0}, "step"),
    ],
)
def test_options_out_of_range_are_refused_by_name(method, options, word):
    with pytest.raises(ValueError, match=word):
        mutual_information([0, 1], [0.5, 0.5], [[0.0], [1.0]], [np.eye(1)] * 2, method, **options)

"""The unbiased estimate and its gradient, against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.leakage.mixtures import random_covariances
from veil.laws import Components, Gaussian, grouped
from veil.leakage import closed_form, coupled, estimate, estimate_per_component, regime_adaptive
from veil.leakage.quadrature import quadrature

pytestmark = pytest.mark.usefixtures("float64")

SECRETS, EACH = 3, 7


def problem(seed=0, size=2):
    generator = np.random.default_rng(seed)
    count = SECRETS * EACH
    mean = generator.standard_normal((count, size))
    scale = np.linalg.cholesky(random_covariances(generator, count, size))
    logits = generator.standard_normal(count)
    return {"mean": mean, "scale": scale, "logits": logits}


def components_of(parameters) -> Components:
    log_weights = jax.nn.log_softmax(jnp.asarray(parameters["logits"])).reshape(SECRETS, EACH)
    shape = (SECRETS, EACH)
    parts = Gaussian(
        jnp.asarray(parameters["mean"]).reshape((*shape, -1)),
        jnp.tril(jnp.asarray(parameters["scale"])).reshape((*shape, *parameters["scale"].shape[1:])),
    )
    return grouped(log_weights, parts)


def exact(parameters) -> float:
    weight = np.exp(parameters["logits"] - np.logaddexp.reduce(parameters["logits"]))
    covariance = parameters["scale"] @ parameters["scale"].swapaxes(1, 2)
    return quadrature(np.repeat(np.arange(SECRETS), EACH), weight, parameters["mean"], covariance).value


@pytest.mark.parametrize("method", [estimate, estimate_per_component])
def test_the_estimate_is_unbiased(method):
    parameters = problem()
    keys = jax.random.split(jax.random.key(1), 64)
    values = np.asarray(jax.jit(jax.vmap(lambda key: method(components_of(parameters), 32, key=key)))(keys))
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - exact(parameters)) < 4.0 * error
    assert error < 0.01


@pytest.mark.parametrize("method", [estimate, estimate_per_component])
def test_the_gradient_of_the_estimate_is_the_gradient_of_the_truth(method):
    """Averaged over many shifts, along random directions of means, scales and weights."""
    parameters = problem(2)
    gradient = jax.jit(
        jax.vmap(jax.grad(lambda p, key: method(components_of(p), 64, key=key)), in_axes=(None, 0))
    )
    samples = gradient(parameters, jax.random.split(jax.random.key(3), 256))
    generator = np.random.default_rng(4)
    for name, value in parameters.items():
        direction = generator.standard_normal(value.shape)
        direction = np.tril(direction) if name == "scale" else direction
        step = 1e-4
        ahead, behind = ({**parameters, name: value + sign * step * direction} for sign in (1, -1))
        wanted = (exact(ahead) - exact(behind)) / (2 * step)
        along = np.asarray(samples[name]).reshape(256, -1) @ direction.reshape(-1)
        assert abs(along.mean() - wanted) < 4.5 * along.std(ddof=1) / 16 + 1e-5, name


def test_gradients_of_the_bounds_match_finite_differences():
    parameters = problem(5)
    bounds = {"adaptive": regime_adaptive}
    for bound in bounds.values():
        function = jax.jit(lambda p, bound=bound: bound(components_of(p)))
        gradient = jax.jit(jax.grad(lambda p, bound=bound: bound(components_of(p))))(parameters)
        for name, value in parameters.items():
            direction = (
                np.tril(np.ones_like(value))
                if name == "scale"
                else np.cos(np.arange(value.size)).reshape(value.shape)
            )
            ahead, behind = ({**parameters, name: value + sign * 1e-5 * direction} for sign in (1, -1))
            wanted = (function(ahead) - function(behind)) / 2e-5
            along = np.sum(np.asarray(gradient[name]) * direction)
            assert along == pytest.approx(float(wanted), rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.study)])
def test_no_gradient_is_nan_when_a_secret_is_empty_or_particles_coincide(whole):
    parameters = problem(6)
    parameters["logits"][:EACH] = -1e6
    parameters["mean"][EACH:] = 0.5
    parameters["scale"][EACH:] = 0.3 * np.eye(2)

    def everything(p):
        components = components_of(p)
        bound = closed_form(components) if whole else coupled(components, by_index=True)
        return jnp.stack([bound, estimate(components, key=jax.random.key(0))])

    values = jax.jit(everything)(parameters)
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(everything(p))))(parameters)
    assert np.asarray(values) == pytest.approx(np.zeros(2), abs=1e-9)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slopes))


@pytest.mark.study
def test_a_descent_step_along_the_closed_form_gradient_lowers_it():
    """The bound's gradient holds its reference fixed: a majoriser, so small steps must go down."""
    parameters = problem(7)
    function = jax.jit(jax.value_and_grad(lambda p: closed_form(components_of(p))))
    value, gradient = function(parameters)
    moved = jax.tree.map(lambda p, g: p - 1e-4 * np.asarray(g), parameters, gradient)
    assert float(function(moved)[0]) < float(value)

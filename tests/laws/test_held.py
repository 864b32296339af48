import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil.laws import Finite, Gaussian, Mixture, SwitchedLaw, diagonal_gaussian

OLD = (0.1, -0.2)


def held(fresh, inner):
    return SwitchedLaw(jnp.asarray(fresh), jnp.asarray(OLD), inner)


def normal(dtype=float):
    return diagonal_gaussian(jnp.asarray([1.0, 2.0], dtype), jnp.asarray([0.5, 0.7], dtype))


def test_a_fresh_value_is_the_inner_laws_and_a_held_one_the_old(float64):
    inner, noise, value = normal(), jnp.asarray([0.3, -1.0]), jnp.asarray([0.4, 1.0])
    assert held(True, inner).noise_size == 2
    assert np.array_equal(held(True, inner).sample(noise), inner.sample(noise))
    assert held(True, inner).log_prob(value) == inner.log_prob(value)
    assert np.array_equal(held(False, inner).sample(noise), np.asarray(OLD))
    assert held(False, inner).log_prob(jnp.asarray(OLD)) == 0.0
    assert held(False, inner).log_prob(jnp.asarray(OLD) + 1e-15) == -np.inf


@pytest.mark.parametrize("fresh", [True, False])
def test_gradients_are_numbers_even_where_the_inner_law_excludes_the_value(fresh):
    """A value far away, and one off the atoms of a finite law."""

    def density(shift):
        return held(fresh, normal(jnp.float32)).log_prob(jnp.asarray(OLD) + shift)

    assert np.isfinite(jax.grad(density)(0.0)) and np.isfinite(jax.grad(density)(1e8))

    def mass(log_masses):
        law = Finite(jnp.asarray([[1.0, 1.0], [2.0, 2.0]]), log_masses)
        return held(fresh, law).log_prob(jnp.asarray([2.0, 2.0] if fresh else OLD))

    slope = jax.grad(mass)(jnp.log(jnp.asarray([0.4, 0.6])))
    assert np.allclose(slope, [0.0, 1.0] if fresh else 0.0)


def test_a_held_value_that_a_mixture_cannot_reach_has_no_slope():
    far = jnp.full(2, 1e25, jnp.float32)
    parts = Gaussian(jnp.zeros((2, 2)), jnp.stack([jnp.eye(2), jnp.eye(2)]))

    def density(log_weights):
        return SwitchedLaw(jnp.asarray(False), far, Mixture(log_weights, parts)).log_prob(far)

    value, slope = jax.value_and_grad(density)(jnp.log(jnp.asarray([0.4, 0.6])))
    assert value == 0.0 and np.array_equal(slope, np.zeros(2))


def test_a_filter_that_linearises_sees_no_slope_in_a_held_value(float64):
    parts = Gaussian(jnp.asarray([[0.0, 1.0], [2.0, 1.0]]), jnp.stack([jnp.eye(2), jnp.eye(2)]))
    for inner in (normal(), Mixture(jnp.log(jnp.asarray([0.5, 0.5])), parts)):
        law = inner.as_gaussian()
        assert np.array_equal(held(True, inner).as_gaussian().mean, law.mean)
        assert np.array_equal(held(True, inner).as_gaussian().scale, law.scale)
        assert np.array_equal(held(False, inner).as_gaussian().mean, np.asarray(OLD))
        assert np.array_equal(held(False, inner).as_gaussian().scale, np.eye(2))

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

from veil.policies.transport import bures_barycentre, optimal_map, symmetric_root, thickened

WEIGHTS = np.asarray([0.5, 0.3, 0.2])


def covariances(size, seed=0, spread=1.0):
    rows = np.random.default_rng(seed).normal(size=(3, size, 2 * size)) * spread + np.ones((3, size, 1))
    return rows @ rows.swapaxes(1, 2) / size


def barycentre_by_scipy(weights, matrices, rounds=200):
    """The fixed point of the note, written with general matrix roots."""
    middle = np.tensordot(weights, matrices, axes=1)
    for _ in range(rounds):
        root = np.real(sqrtm(middle))
        inverse = np.linalg.inv(root)
        mixed = sum(q * np.real(sqrtm(root @ s @ root)) for q, s in zip(weights, matrices, strict=True))
        middle = inverse @ mixed @ mixed @ inverse
    return middle


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_map_carries_one_law_to_the_other_and_is_the_optimal_one(float64, size):
    """Symmetric, positive definite and A S A = T: only one matrix is all of that."""
    source, target, _ = covariances(size)
    found = np.asarray(jax.jit(optimal_map)(source, target))
    assert np.allclose(found @ source @ found.T, target, rtol=1e-9)
    assert np.allclose(found, found.T) and np.all(np.linalg.eigvalsh(found) > 0)
    root = np.real(sqrtm(source))
    inverse = np.linalg.inv(root)
    assert np.allclose(found, inverse @ np.real(sqrtm(root @ target @ root)) @ inverse, rtol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_barycentre_is_that_of_general_matrix_roots(float64, size, seed):
    matrices = covariances(size, seed)
    found = jax.jit(bures_barycentre)(jnp.asarray(WEIGHTS), jnp.asarray(matrices))
    assert np.allclose(found, barycentre_by_scipy(WEIGHTS, matrices), rtol=1e-6)


def test_on_a_line_standard_deviations_are_averaged(float64):
    sds = np.asarray([0.2, 1.0, 5.0])
    found = jax.jit(bures_barycentre)(jnp.asarray(WEIGHTS), jnp.asarray(sds**2)[:, None, None])
    assert np.allclose(np.sqrt(found), WEIGHTS @ sds, rtol=1e-12)


@jax.jit
def maps_and_gradient(factor):
    """Maps to the barycentre of three equal covariances, and a gradient through them."""

    def maps(factor):
        matrices = thickened(jnp.repeat((factor @ factor.T)[None], 3, axis=0))
        middle = bures_barycentre(jnp.asarray(WEIGHTS, factor.dtype), matrices)
        return jax.vmap(optimal_map, (0, None))(matrices, middle)

    found, back = jax.vjp(maps, factor)
    return found, back(jnp.cumsum(jnp.ones_like(found), axis=1))[0]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("double", [False, True])
def test_known_states_are_left_alone_with_finite_gradients(size, double):
    """No covariance at all, and one of rank one for every secret: nothing moves and nothing is NaN."""
    with jax.enable_x64(double):
        nothing = jnp.zeros((size, size))
        for root in (nothing, nothing.at[:, 0].set(jnp.arange(1.0, size + 1.0))):
            found, slope = maps_and_gradient(root)
            assert np.all(np.isfinite(slope))
            assert np.allclose(found @ root, np.asarray(root)[None], atol=1e-6 if double else 1e-3)


def test_the_root_has_a_derivative_where_eigenvalues_meet(float64):
    """d sqrt(M) at M = 4 I in direction D is D / 4."""
    change = jnp.asarray(covariances(3)[0])
    root, slope = jax.jvp(symmetric_root, (4.0 * jnp.eye(3),), (change,))
    assert np.allclose(root, 2.0 * np.eye(3)) and np.allclose(slope, change / 4.0)


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_finite_differences(float64, size):
    matrices = jnp.asarray(covariances(size))

    @jax.jit
    @jax.value_and_grad
    def value(scale):
        moved = matrices.at[1].multiply(scale)
        return jnp.sum(optimal_map(moved[0], bures_barycentre(jnp.asarray(WEIGHTS), moved))[0])

    difference = (value(1.0 + 1e-5)[0] - value(1.0 - 1e-5)[0]) / 2e-5
    assert np.allclose(value(1.0)[1], difference, rtol=1e-6)

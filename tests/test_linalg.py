import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil import linalg

pytestmark = pytest.mark.usefixtures("float64")


def definite(size, batch=(7,)):
    """Well-conditioned positive definite matrices."""
    factor = np.random.default_rng(size).normal(size=(*batch, size, size))
    return factor @ np.swapaxes(factor, -1, -2) + 0.5 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_factors_solutions_and_determinants_agree_with_lapack(size):
    matrix = definite(size)
    vector = np.random.default_rng(0).normal(size=(7, size))
    lower = linalg.cholesky(jnp.asarray(matrix))
    expected = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(lower, expected, rtol=1e-10, atol=1e-12)
    solved = linalg.solve_lower(lower, jnp.asarray(vector))
    np.testing.assert_allclose(solved, np.linalg.solve(expected, vector[..., None])[..., 0], rtol=1e-9)
    np.testing.assert_allclose(linalg.invert_lower(lower), np.linalg.inv(expected), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        linalg.log_determinant(lower), np.linalg.slogdet(matrix)[1], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(linalg.precision(lower), np.linalg.inv(matrix), rtol=1e-8, atol=1e-12)


def test_only_the_lower_triangle_is_read():
    matrix = definite(3)
    np.testing.assert_array_equal(
        linalg.cholesky(jnp.asarray(np.tril(matrix))), linalg.cholesky(jnp.asarray(matrix))
    )


def test_a_matrix_that_is_not_definite_has_no_factor():
    assert bool(jnp.isnan(linalg.cholesky(jnp.array([[1.0, 2.0], [2.0, 1.0]]))[1, 1]))


def test_the_gradient_of_the_log_determinant_is_the_inverse():
    matrix = definite(3, batch=())

    def value(entries):
        return linalg.log_determinant(linalg.cholesky(entries))

    slope = jax.grad(value)(jnp.asarray(matrix))
    # Only lower entries are read, so off the diagonal they carry both halves.
    symmetric = np.linalg.inv(matrix)
    np.testing.assert_allclose(slope, np.tril(2 * symmetric) - np.diag(np.diag(symmetric)), rtol=1e-8)


def test_the_outer_product_is_that_of_numpy():
    vector = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(linalg.outer(jnp.asarray(vector)), np.einsum("bi,bj->bij", vector, vector))

"""Optimal transport between centred Gaussian laws, and their barycentre: the Bures geometry.

Covariances here are at most as large as a release, mostly 1×1 or 2×2, and come in batches. Those sizes have
closed forms, which are smooth and fast under `vmap`; larger ones take eigenvectors.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg

Matrix = Float[Array, "d d"]
Matrices = Float[Array, "K d d"]

_ROUNDS = 12


def optimal_map(source: Matrix, target: Matrix) -> Matrix:
    """The symmetric A with A · source · A = target: source⁻¹ # target, a geometric mean.

    For 2×2, with s² = det(source), t² = det(target) and M = adj(source)/s + target/t, it is
    sqrt(t/s) M / sqrt(det M): exactly the identity where the two agree, however thin they are.
    """
    if source.shape[0] == 1:
        return jnp.sqrt(target / source)
    if source.shape[0] == 2:
        small, large = jnp.sqrt(_determinant(source)), jnp.sqrt(_determinant(target))
        swapped = jnp.trace(source) * jnp.eye(2, dtype=source.dtype) - source
        mixed = swapped / small + target / large
        return jnp.sqrt(large / small) * mixed / jnp.sqrt(_determinant(mixed))
    root = symmetric_root(source)
    inverse = linalg.precision(linalg.cholesky(root))
    return inverse @ symmetric_root(root @ target @ root) @ inverse


def bures_barycentre(weights: Float[Array, " K"], covariances: Matrices) -> Matrix:
    """The covariance nearest to all: the fixed point of Σ̄ <- B Σ̄ B, B = Σ weight · optimal_map(Σ̄, Σ_θ).

    The weights sum to one. A fixed number of rounds; one is enough where the covariances commute.
    """

    def step(_, middle: Matrix) -> Matrix:
        maps = jax.vmap(optimal_map, (None, 0))(middle, covariances)
        mixed = jnp.tensordot(weights, maps, axes=1)
        return _even(mixed @ middle @ mixed)

    return jax.lax.fori_loop(0, _ROUNDS, step, jnp.tensordot(weights, covariances, axes=1))


def thickened(covariances: Matrices) -> Matrices:
    """The covariances plus what rounding cannot see, so that none is singular; all zero become all equal."""
    size, dtype = covariances.shape[-1], covariances.dtype
    limits = jnp.finfo(dtype)
    largest = jnp.max(jnp.trace(covariances, axis1=1, axis2=2))
    relative = 64.0 * limits.eps if size <= 2 else limits.eps**0.5
    jitter = jax.lax.stop_gradient(relative * largest + limits.tiny**0.4)
    return covariances + jitter * jnp.eye(size, dtype=dtype)[None]


@jax.custom_jvp
def symmetric_root(matrix: Matrix) -> Matrix:
    """The symmetric square root of a positive definite matrix.

    Differentiated by S dS + dS S = dM, not through the eigenvectors: those have no derivative where two
    eigenvalues meet, and the root does.
    """
    roots, vectors = _root_spectrum(matrix)
    return (vectors * roots[None, :]) @ vectors.T


@symmetric_root.defjvp
def _root_tangent(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    roots, vectors = _root_spectrum(primals[0])
    turned = vectors.T @ _even(tangents[0]) @ vectors
    tangent = vectors @ (turned / (roots[:, None] + roots[None, :])) @ vectors.T
    return (vectors * roots[None, :]) @ vectors.T, tangent


def _root_spectrum(matrix: Matrix) -> tuple[Float[Array, " d"], Matrix]:
    """Roots of the eigenvalues, those lost to rounding replaced by what rounding leaves; eigenvectors."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.sqrt(jnp.maximum(values, 4.0 * jnp.finfo(values.dtype).eps * values[-1])), vectors


def _determinant(matrix: Matrix) -> Array:
    """Determinant of a 2×2 positive definite matrix, kept positive against rounding."""
    floor = jnp.finfo(matrix.dtype).eps * matrix[0, 0] * matrix[1, 1]
    return jnp.maximum(matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0], floor)


def _even(matrix: Matrix) -> Matrix:
    return 0.5 * (matrix + matrix.T)

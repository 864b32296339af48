"""Linear algebra of many tiny matrices.

A belief holds thousands of covariances of size two to eight. LAPACK, called once per matrix, is slow
there and its gradients are slower; the loops below are unrolled over the matrix size, so that every
operation is elementwise over the batch and the compiler fuses the lot.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Matrices = Float[Array, "*batch d d"]
Vectors = Float[Array, "*batch d"]
Scalars = Float[Array, "*batch"]


def _assemble(entries: list[list[Array]]) -> Matrices:
    """Stack a list of rows of equally shaped scalars into lower triangular matrices."""
    size = len(entries)
    zero = jnp.zeros_like(entries[0][0])
    rows = [jnp.stack(row + [zero] * (size - len(row)), axis=-1) for row in entries]
    return jnp.stack(rows, axis=-2)


def cholesky(matrix: Matrices) -> Matrices:
    """Lower Cholesky factor L with L Lᵀ = matrix; NaN where the matrix is not positive definite."""
    lower: list[list[Array]] = []
    for i in range(matrix.shape[-1]):
        row: list[Array] = []
        for j in range(i):
            rest = matrix[..., i, j] - sum(row[k] * lower[j][k] for k in range(j))
            row.append(rest / lower[j][j])
        row.append(jnp.sqrt(matrix[..., i, i] - sum(value * value for value in row)))
        lower.append(row)
    return _assemble(lower)


def pivots(matrix: Matrices) -> tuple[Matrices, Vectors, Bool[Array, "*batch"]]:
    """Unit lower factor and pivots of matrix = L D Lᵀ, and whether the matrix is positive definite.

    Pivots that are not positive are replaced by one, so that everything stays finite and the flag decides.
    """
    unit: list[list[Array]] = []
    diagonal: list[Array] = []
    definite = jnp.ones(matrix.shape[:-2], bool)
    for i in range(matrix.shape[-1]):
        scaled: list[Array] = []  # entries of L D, row i
        for j in range(i):
            scaled.append(matrix[..., i, j] - sum(scaled[k] * unit[j][k] for k in range(j)))
        row = [value / diagonal[j] for j, value in enumerate(scaled)]
        pivot = matrix[..., i, i] - sum(a * b for a, b in zip(scaled, row, strict=True))
        definite = definite & (pivot > 0)
        diagonal.append(jnp.where(pivot > 0, pivot, 1.0))
        unit.append([*row, jnp.ones_like(pivot)])
    return _assemble(unit), jnp.stack(diagonal, axis=-1), definite


def solve_lower(lower: Matrices, vector: Vectors) -> Vectors:
    """Solve lower @ x = vector by forward substitution."""
    solution: list[Array] = []
    for i in range(lower.shape[-1]):
        rest = vector[..., i] - sum(lower[..., i, k] * solution[k] for k in range(i))
        solution.append(rest / lower[..., i, i])
    return jnp.stack(solution, axis=-1)


def invert_lower(lower: Matrices) -> Matrices:
    """Inverse of a lower triangular matrix."""
    inverse: list[list[Array]] = []
    for i in range(lower.shape[-1]):
        reciprocal = 1.0 / lower[..., i, i]
        row = [
            -reciprocal * sum(lower[..., i, k] * inverse[k][j] for k in range(j, i)) for j in range(i)
        ]
        inverse.append([*row, reciprocal])
    return _assemble(inverse)


def log_determinant(lower: Matrices) -> Scalars:
    """Log-determinant of lower @ lowerᵀ."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)


def precision(lower: Matrices) -> Matrices:
    """Inverse of lower @ lowerᵀ."""
    inverse = invert_lower(lower)
    return jnp.swapaxes(inverse, -1, -2) @ inverse


def outer(vector: Vectors) -> Matrices:
    """Outer product of a vector with itself."""
    return vector[..., :, None] * vector[..., None, :]

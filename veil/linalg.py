"""Linear algebra of many tiny matrices.

A belief holds thousands of covariances of size two to eight. LAPACK, called once per matrix, is slow
there and its gradients are slower. Here a symmetric or lower triangular matrix is taken apart into the
list of its lower entries, each an array over the batch, and the loops run over the entries in Python:
every operation is elementwise over the batch, and the compiler fuses the lot.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Matrices = Float[Array, "*batch d d"]

Vectors = Float[Array, "*batch d"]

Scalars = Float[Array, "*batch"]

Entries = list[list[Array]]


def lower_entries(matrix: Matrices) -> Entries:
    """The lower triangle of a batch of matrices, entry by entry."""
    return [[matrix[..., i, j] for j in range(i + 1)] for i in range(matrix.shape[-1])]


def entry(symmetric: Entries, i: int, j: int) -> Array:
    """Entry (i, j) of a symmetric matrix kept by its lower triangle."""
    return symmetric[max(i, j)][min(i, j)]


def _assemble(entries: Entries) -> Matrices:
    """Stack lower entries into lower triangular matrices."""
    size = len(entries)
    zero = jnp.zeros_like(entries[0][0])
    rows = [jnp.stack(row + [zero] * (size - len(row)), axis=-1) for row in entries]
    return jnp.stack(rows, axis=-2)


def symmetric(entries: Entries) -> Matrices:
    """Stack lower entries into symmetric matrices."""
    size = len(entries)
    rows = [jnp.stack([entry(entries, i, j) for j in range(size)], axis=-1) for i in range(size)]
    return jnp.stack(rows, axis=-2)


def cholesky(matrix: Matrices) -> Matrices:
    """Lower Cholesky factor L with L Lᵀ = matrix; NaN where the matrix is not positive definite."""
    given = lower_entries(matrix)
    lower: Entries = []
    for i, wanted in enumerate(given):
        row: list[Array] = []
        for j in range(i):
            rest = wanted[j] - sum(row[k] * lower[j][k] for k in range(j))
            row.append(rest / lower[j][j])
        row.append(jnp.sqrt(wanted[i] - sum(value * value for value in row)))
        lower.append(row)
    return _assemble(lower)


def ldl(symmetric: Entries) -> tuple[Entries, list[Array], Bool[Array, "*batch"]]:
    """Unit lower factor and pivots of L D Lᵀ, and whether the matrix is positive definite beyond rounding.

    Pivots that are not positive are replaced by one, so that everything stays finite and the flag decides.
    """
    unit: Entries = []
    pivots: list[Array] = []
    definite = jnp.ones_like(symmetric[0][0], bool)
    for i, wanted in enumerate(symmetric):
        scaled: list[Array] = []  # row i of L D
        for j in range(i):
            scaled.append(wanted[j] - sum(scaled[k] * unit[j][k] for k in range(j)))
        row = [value / pivots[j] for j, value in enumerate(scaled)]
        pivot = wanted[i] - sum(a * b for a, b in zip(scaled, row, strict=True))
        definite = definite & (pivot > 16.0 * jnp.finfo(pivot.dtype).eps * jnp.abs(wanted[i]))
        pivots.append(jnp.where(pivot > 0, pivot, jnp.ones_like(pivot)))
        unit.append([*row, jnp.ones_like(pivot)])
    return unit, pivots, definite


def ldl_forward(unit: Entries, vector: Sequence[Array]) -> list[Array]:
    """Solve L x = vector for a unit lower factor."""
    solution: list[Array] = []
    for i, value in enumerate(vector):
        solution.append(value - sum(unit[i][k] * solution[k] for k in range(i)))
    return solution


def ldl_solve(unit: Entries, pivots: Sequence[Array], vector: Sequence[Array]) -> list[Array]:
    """Solve L D Lᵀ x = vector."""
    size = len(pivots)
    solution = [value / pivot for value, pivot in zip(ldl_forward(unit, vector), pivots, strict=True)]
    for i in reversed(range(size)):
        solution[i] = solution[i] - sum(unit[k][i] * solution[k] for k in range(i + 1, size))
    return solution


def ldl_inverse(unit: Entries, pivots: Sequence[Array]) -> Entries:
    """Lower entries of (L D Lᵀ)⁻¹."""
    size = len(pivots)
    inverse: Entries = []  # of the unit factor
    for i in range(size):
        row = [-sum((unit[i][k] * inverse[k][j] for k in range(j + 1, i)), unit[i][j]) for j in range(i)]
        inverse.append([*row, unit[i][i]])

    def product(i: int, j: int) -> Array:
        terms = [inverse[k][i] * inverse[k][j] / pivots[k] for k in range(i, size)]
        return sum(terms[1:], terms[0])

    return [[product(i, j) for j in range(i + 1)] for i in range(size)]


def log_product(pivots: Sequence[Array]) -> Scalars:
    """Sum of the logarithms of the pivots: a log-determinant."""
    return sum((jnp.log(pivot) for pivot in pivots[1:]), jnp.log(pivots[0]))


def solve_lower(lower: Matrices, vector: Vectors) -> Vectors:
    """Solve lower @ x = vector by forward substitution."""
    solution: list[Array] = []
    for i in range(lower.shape[-1]):
        rest = vector[..., i] - sum(lower[..., i, k] * solution[k] for k in range(i))
        solution.append(rest / lower[..., i, i])
    return jnp.stack(solution, axis=-1)


def invert_lower(lower: Matrices) -> Matrices:
    """Inverse of a lower triangular matrix."""
    given = lower_entries(lower)
    inverse: Entries = []
    for i, known in enumerate(given):
        reciprocal = 1.0 / known[i]
        row = [-reciprocal * sum(known[k] * inverse[k][j] for k in range(j, i)) for j in range(i)]
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


def triangular_root(rows: Float[Array, "d n"], weights: Float[Array, " n"]) -> Matrices:
    """Lower triangular L with L Lᵀ = rows · diag(weights) · rowsᵀ, by Gram-Schmidt on the rows.

    It never forms the product, so float32 keeps its digits, and dependent rows give zeros, not NaN.
    """
    size = rows.shape[0]
    lower: Entries = []
    axes: list[Array] = []
    for i in range(size):
        rest = rows[i]
        entries: list[Array] = []
        for axis in axes:
            entries.append(jnp.sum(weights * rest * axis))
            rest = rest - entries[-1] * axis
        square = jnp.sum(weights * rest * rest)
        alive = square > jnp.finfo(rows.dtype).tiny
        length = jnp.sqrt(jnp.where(alive, square, 1.0))
        axes.append(jnp.where(alive, rest / length, 0.0))
        zero = jnp.zeros_like(square)
        lower.append([*entries, jnp.where(alive, length, 0.0), *[zero] * (size - 1 - i)])
    return jnp.stack([jnp.stack(row) for row in lower])


def dot(first: Vectors, second: Vectors) -> Scalars:
    """Inner product, entry by entry: under `vmap` a matrix product of size two is many times slower."""
    return (
        sum(first[..., i] * second[..., i] for i in range(1, first.shape[-1]))
        + first[..., 0] * second[..., 0]
    )


def from_columns(columns: Sequence[Scalars]) -> Vectors:
    """Vectors from their coordinates, written one after the other.

    `jnp.stack` would be merged with all that computes the coordinates into one loop, with a branch per entry
    that keeps the processor from working on several at a time: two to three times slower.
    """
    vectors = jnp.zeros((*columns[0].shape, len(columns)), columns[0].dtype)
    for i, column in enumerate(columns):
        vectors = vectors.at[..., i].set(column)
    return vectors


def apply(matrix: Matrices, vector: Vectors) -> Vectors:
    """Matrix times vector, entry by entry."""
    return jnp.stack([dot(matrix[..., i, :], vector) for i in range(matrix.shape[-2])], axis=-1)


def apply_transposed(matrix: Matrices, vector: Vectors) -> Vectors:
    """Transposed matrix times vector, entry by entry."""
    return jnp.stack([dot(matrix[..., :, i], vector) for i in range(matrix.shape[-1])], axis=-1)


def sandwich(outer_factor: Matrices, inner: Matrices) -> Entries:
    """Lower entries of outerᵀ · inner · outer for a symmetric inner matrix."""
    columns = [outer_factor[..., :, i] for i in range(outer_factor.shape[-1])]
    images = [apply(inner, column) for column in columns]
    return [[dot(columns[i], images[j]) for j in range(i + 1)] for i in range(len(columns))]


def weighted_distance(weights: Float[Array, " d"], apart: Float[Array, " d"]) -> Float[Array, ""]:
    """The root of Σ weight · apart²; its gradient at distance zero is set to zero."""
    squared = weights @ apart**2
    positive = squared > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)

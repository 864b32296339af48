"""Sums over all pairs of a large mixture, in mixed precision with a bound on the rounding error.

Exponents are formed in double precision, exponentials in single, sums again in double. A relative error of
the exponent then matters little: log Σ_j w_j exp(−D_j) moves by at most u Σ_j s_j D_j, where u = 2⁻²⁴ and s
are the shares of the sum, and Σ_j s_j D_j ≤ −log Σ_j w_j exp(−D_j), as relative entropies are not negative.

Loops end at the number of components in use, so that padding costs nothing. There are no derivatives here.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.leakage.entropy import LOG_TWO, Prepared, bilinear, power_of_two

ROWS, COLUMNS = 256, 256  # pairs at a time: their exponents stay in the cache of a core

# On processors with registers of 512 bits the compiler uses half of them unless told otherwise.
WIDE = {"xla_cpu_prefer_vector_width": 512}

# Units in the last place of single precision that a term may lose besides its exponent: the polynomial of the
# exponential, a square root, three products.
SPOILT = 4.0

Rows = Float[Array, " N"]

Single = Float[Array, "B C"]


def rounding_error(weights: Rows, *log_sums: Rows) -> Array:
    """A bound on the error, in nats, of the weighted means of such logarithms of sums."""
    lost = [jnp.sum(weights * (SPOILT - jnp.minimum(values, 0.0))) for values in log_sums]
    return float(jnp.finfo(jnp.float32).eps) * sum(lost[1:], lost[0])


def kl_sums(prepared: Prepared, weights: Rows, count: Int[Array, ""]) -> Rows:
    """Σ_j w_j exp(−KL(N_i ‖ N_j)) for every i below `count`.

    Args:
        prepared: the Gaussians, in float64 and in coordinates where they are about round.
        weights: w_j; zero beyond `count`.
        count: components in use.
    """
    rows, columns = bilinear(prepared)

    def pairs(first: Array, start: Array) -> Single:
        left = lax.dynamic_slice_in_dim(rows, first, ROWS)
        right = lax.dynamic_slice_in_dim(columns, start, COLUMNS, axis=1)
        return power_of_two(jnp.minimum(left @ right, 0.0).astype(jnp.float32))

    every = jnp.zeros((weights.shape[0] // ROWS,), count.dtype)
    return _sums(pairs, weights, count, every, jnp.full_like(every, count))


def chernoff_sums(
    prepared: Prepared, weights: Rows, labels: Int[Array, " N"], count: Int[Array, ""], alpha: Array
) -> Rows:
    """Σ_j w_j exp(−C_α(N_i ‖ N_j)) over the components j with the label of i, for every i below `count`.

    Args:
        prepared: the Gaussians, in float64, sorted by label.
        weights: w_j; zero beyond `count`.
        labels: in ascending order.
        count: components in use.
        alpha: of the Chernoff divergence.
    """
    size = prepared.mean.shape[1]
    first_scale, second_scale = jnp.exp((alpha - 1.0) * prepared.log_det), jnp.exp(-alpha * prepared.log_det)

    def pairs(first: Array, start: Array) -> Single:
        def row(values: Array) -> Array:
            return lax.dynamic_slice_in_dim(values, first, ROWS)[:, None]

        def column(values: Array) -> Array:
            return lax.dynamic_slice_in_dim(values, start, COLUMNS)[None, :]

        mixed = [
            [
                (1.0 - alpha) * row(prepared.covariance[:, i, j])
                + alpha * column(prepared.covariance[:, i, j])
                for j in range(i + 1)
            ]
            for i in range(size)
        ]
        apart = [row(prepared.mean[:, i]) - column(prepared.mean[:, i]) for i in range(size)]
        distance, determinant = _distance(mixed, apart)
        volume = row(first_scale) * column(second_scale) * determinant  # at least one
        exponent = (-0.5 / LOG_TWO) * alpha * (1.0 - alpha) * distance
        value = power_of_two(exponent.astype(jnp.float32)) * lax.rsqrt(volume.astype(jnp.float32))
        return jnp.where(row(labels) == column(labels), value, 0.0)

    low = jnp.searchsorted(labels, labels[::ROWS], side="left").astype(count.dtype)
    high = jnp.searchsorted(labels, labels[ROWS - 1 :: ROWS], side="right").astype(count.dtype)
    return _sums(pairs, weights, count, low, jnp.minimum(high, count))


def _distance(matrix: linalg.Entries, vector: list[Array]) -> tuple[Array, Array]:
    """vectorᵀ matrix⁻¹ vector and the determinant, with one division per dimension."""
    unit: linalg.Entries = []
    inverses: list[Array] = []
    offsets: list[Array] = []
    distance, determinant = jnp.zeros_like(vector[0]), jnp.ones_like(vector[0])
    for i, wanted in enumerate(matrix):
        scaled: list[Array] = []  # row i of L D
        for j in range(i):
            scaled.append(wanted[j] - sum(scaled[k] * unit[j][k] for k in range(j)))
        unit.append([value * inverses[j] for j, value in enumerate(scaled)])
        pivot = wanted[i] - sum(a * b for a, b in zip(scaled, unit[i], strict=True))
        inverses.append(1.0 / pivot)
        offsets.append(vector[i] - sum(unit[i][k] * offsets[k] for k in range(i)))
        distance, determinant = distance + offsets[i] ** 2 * inverses[i], determinant * pivot
    return distance, determinant


def _sums(
    pairs: Callable[[Array, Array], Single],
    weights: Rows,
    count: Int[Array, ""],
    low: Int[Array, " blocks"],
    high: Int[Array, " blocks"],
) -> Rows:
    """Σ_j pairs_ij w_j, for each block of rows over its own range of columns."""
    last = weights.shape[0] - COLUMNS

    def rows(block: Array, sums: Rows) -> Rows:
        def columns(part: Array, total: Array) -> Array:
            # The last range is moved back into the array; what it has seen before gets no weight.
            wanted = low[block] + part * COLUMNS
            start = jnp.minimum(wanted, last)
            fresh = start + jnp.arange(COLUMNS, dtype=start.dtype) >= wanted
            own = jnp.where(fresh, lax.dynamic_slice_in_dim(weights, start, COLUMNS), 0.0)
            return total + pairs(block * ROWS, start).astype(weights.dtype) @ own

        parts = -(-(high[block] - low[block]) // COLUMNS)
        total = lax.fori_loop(jnp.zeros_like(parts), parts, columns, jnp.zeros(ROWS, weights.dtype))
        return lax.dynamic_update_slice(sums, total, (block * ROWS,))

    return lax.fori_loop(jnp.zeros_like(count), -(-count // ROWS), rows, jnp.zeros_like(weights))

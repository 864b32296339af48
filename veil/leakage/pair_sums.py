"""Sums over all pairs of a large mixture, in mixed precision with a bound on the rounding error.

Differences and products that cancel are formed in double precision, powers in single. A relative error of an
exponent then matters little. With terms w_j exp(−D_j), sum Z and shares s_j = w_j exp(−D_j) / Z of the sum,
log Z moves by at most Σ_j s_j |δD_j|, and Σ_j s_j D_j ≤ −log Z, as relative entropies are not negative. The
weight stands in the exponent as well: Σ_j s_j (D_j − log w_j) is the entropy of s less log Z, hence at most
log N − log Z.

A step of a loop is one fused program, shared between the cores. It takes many rows and several groups of
columns, with the columns of a group unrolled, so that exponents, powers and sums stay in registers. Sharing
costs some ten microseconds, so that a step has hundreds of thousands of pairs. There are no derivatives here.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.leakage.entropy import LOG_TWO, Prepared, bilinear, power_of_two

# On processors with registers of 512 bits the compiler uses half of them unless told otherwise.
WIDE = {"xla_cpu_prefer_vector_width": 512}

# Units in the last place of single precision that a sum may lose besides its exponents: the polynomial of the
# power, a square root, a product, and half a unit for each level of the tree of sums.
SPOILT = 6.0

LEAST = -1e4  # power of two that stands for zero

Rows = Float[Array, " N"]

Features = Float[Array, "F 1 B"]

Column = Float[Array, "G C 1"]

Term = Callable[[Features, Column, Float[Array, "C 1"]], Float[Array, "C B"]]


def rounding_error(weights: Rows, log_kl: Rows, log_chernoff: Rows) -> Array:
    """A bound on the error, in nats, of the weighted means of the logarithms of both sums.

    An exponent of the first is rounded once, by half a unit. In the second a divergence is made of six
    rounded numbers, and its sum with the logarithm of the weight of two.
    """
    most = math.log(weights.shape[0])
    kl, chernoff = jnp.minimum(log_kl, 0.0), jnp.minimum(log_chernoff, 0.0)
    lost = 2.0 * SPOILT + 1.5 * most - 0.5 * kl - 3.0 * chernoff
    return float(jnp.finfo(jnp.float32).eps) * jnp.sum(weights * lost)


def kl_sums(prepared: Prepared, log_weights: Rows, count: Int[Array, ""]) -> Rows:
    """Σ_j w_j exp(−KL(N_i ‖ N_j)) for every i below `count`.

    Args:
        prepared: the Gaussians, in float64 and in coordinates where they are about round.
        log_weights: log w_j.
        count: components in use.
    """
    rows, columns = bilinear(prepared)
    *moments, one, own = rows.T
    *natural, start, _ = columns
    start = one * start + _powers(log_weights)

    def term(row: Features, column: Column, start: Array) -> Float[Array, "C B"]:
        exponent = row[-1] + start
        for i in range(len(natural)):
            exponent = exponent + column[i] * row[i]
        return power_of_two(exponent.astype(jnp.float32))

    whole, size = jnp.zeros_like(count)[None], prepared.mean.shape[1]
    block = (rows.shape[0], 16, 32 // size)
    return _sums(term, [*moments, own], [*natural, start], block, whole, whole + count)


def chernoff_sums(
    prepared: Prepared, log_weights: Rows, labels: Int[Array, " N"], secrets: int, count: Array, alpha: Array
) -> Rows:
    """Σ_j w_j exp(−C_α(N_i ‖ N_j)) over the components j with the label of i, for every i below `count`.

    Args:
        prepared: the Gaussians, in float64, sorted by label.
        log_weights: log w_j.
        labels: in ascending order.
        secrets: how many labels there can be.
        count: components in use.
        alpha: of the Chernoff divergence.
    """
    size = prepared.mean.shape[1]
    places = [(i, j) for i in range(size) for j in range(i + 1)]
    covariance = [prepared.covariance[:, i, j] for i, j in places]
    first_scale, second_scale = jnp.exp((alpha - 1.0) * prepared.log_det), jnp.exp(-alpha * prepared.log_det)
    factor = ((-0.5 / LOG_TWO) * alpha * (1.0 - alpha)).astype(jnp.float32)

    def term(row: Features, column: Column, start: Array) -> Float[Array, "C B"]:
        entries = {place: row[k] + column[k] for k, place in enumerate(places)}
        mixed = [[entries[i, j] for j in range(i + 1)] for i in range(size)]
        apart = [row[len(places) + i] - column[len(places) + i] for i in range(size)]
        distance, volume = _distance(mixed, apart, row[-1] * column[-2])
        exponent = factor * distance + start.astype(jnp.float32)
        return power_of_two(exponent) * lax.rsqrt(volume)

    means = [*prepared.mean.T]
    rows = [*((1.0 - alpha) * entry for entry in covariance), *means, first_scale]
    columns = [*(alpha * entry for entry in covariance), *means, second_scale, _powers(log_weights)]
    every = jnp.arange(secrets, dtype=labels.dtype)
    low, high = (jnp.searchsorted(labels, every, side=side).astype(count.dtype) for side in ("left", "right"))
    return _sums(
        term, rows, columns, (-(-labels.shape[0] // 4), 8, 32 // size), low, jnp.minimum(high, count)
    )


def _powers(log_weights: Rows) -> Rows:
    return jnp.maximum(log_weights / LOG_TWO, LEAST)


def _distance(matrix: linalg.Entries, vector: list[Array], scale: Array) -> tuple[Array, Array]:
    """vectorᵀ matrix⁻¹ vector, and the determinant times `scale`, which is at least one; in float32."""
    if len(vector) == 2:  # Cramer's rule, with the one division in single precision
        (first,), (both, last) = matrix
        x, y = vector
        adjugate = (x * last - y * both) * x + (y * first - x * both) * y
        volume = (scale * (first * last - both * both)).astype(jnp.float32)
        return (scale * adjugate).astype(jnp.float32) / volume, volume
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
    return distance.astype(jnp.float32), (scale * determinant).astype(jnp.float32)


def _sums(
    term: Term,
    rows: list[Rows],
    columns: list[Rows],
    block: tuple[int, int, int],
    low: Int[Array, " K"],
    high: Int[Array, " K"],
) -> Rows:
    """Σ_j term_ij for each i, over the j in the same range of components.

    Args:
        term: of many rows and a column of each group, from their features; the last of the column by itself.
        rows: features of the rows.
        columns: features of the columns; the last is a term of the exponent, with the weight in it.
        block: how many rows, groups of columns, and columns of a group at a time.
        low: where each range begins; in ascending order.
        high: where it ends.
    """
    height, groups, unrolled = block
    width = groups * unrolled
    left = jnp.pad(jnp.stack(rows), ((0, 0), (0, height)), mode="edge")
    right = jnp.pad(jnp.stack(columns, axis=1), ((0, width), (0, 0)), mode="edge")

    def one_range(place: Array, sums: Rows) -> Rows:
        start, stop = low[place], high[place]

        def rows_of_block(index: Array, sums: Rows) -> Rows:
            # The last block goes on into the next range, which overwrites that with its own sums.
            at = start + index * height
            own = lax.dynamic_slice_in_dim(left, at, height, axis=1)[:, None, :]

            def add(part: Array, total: Float[Array, "C B"]) -> Float[Array, "C B"]:
                first = start + part * width
                these = lax.dynamic_slice_in_dim(right, first, width)
                inside = first + jnp.arange(width, dtype=first.dtype) < stop
                powers = these[:, -1] + jnp.where(inside, 0.0, LEAST)
                each, powers = these.reshape(groups, unrolled, -1), powers.reshape(groups, unrolled)
                sums = _tree(lambda k: term(own, each[:, k].T[:, :, None], powers[:, k, None]), 0, unrolled)
                return total + sums.astype(total.dtype)

            total = jnp.zeros((groups, height), left.dtype)
            total = lax.fori_loop(jnp.zeros_like(start), -(-(stop - start) // width), add, total)
            return lax.dynamic_update_slice(sums, jnp.sum(total, axis=0), (at,))

        return lax.fori_loop(jnp.zeros_like(start), -(-(stop - start) // height), rows_of_block, sums)

    zero = jnp.zeros_like(low[0])
    sums = lax.fori_loop(zero, zero + low.shape[0], one_range, jnp.zeros(left.shape[1], left.dtype))
    return sums[: rows[0].shape[0]]


def _tree(term: Callable[[int], Array], first: int, stop: int) -> Array:
    """The sum of the terms in pairs of pairs: fewer digits are lost than one by one."""
    if stop - first == 1:
        return term(first)
    middle = (first + stop) // 2
    return _tree(term, first, middle) + _tree(term, middle, stop)

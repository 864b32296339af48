"""Bounds on the differential entropy of a Gaussian mixture.

Upper bounds: `moment_entropy`, `kl_entropy`. Lower bounds: `chernoff_entropy`, `likelihood_entropy`,
`tilt_entropy`. All take normalised log-weights [M] and a batch of M Gaussians, and return nats. The row
functions behind the lower bounds also serve the entropies within each secret. Proofs: docs/leakage.md.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import LOG_TWO_PI, Components, Gaussian, match_moments
from veil.types import LOG_ZERO, Scalar

BLOCK = 1 << 18  # pairs per block: a few megabytes, so intermediate results stay in cache


class Prepared(eqx.Module):
    """Gaussians with what pairwise formulas ask for, computed once per component."""

    mean: Float[Array, "*batch d"]
    scale: Float[Array, "*batch d d"]
    inverse: Float[Array, "*batch d d"]
    """inverse of the scale"""
    covariance: Float[Array, "*batch d d"]
    precision: Float[Array, "*batch d d"]
    log_det: Float[Array, "*batch"]


RowBound = Callable[[Prepared, Prepared, Float[Array, " M"]], Scalar]


def prepare(parts: Gaussian) -> Prepared:
    """Covariances, precisions and log-determinants of a batch of Gaussians."""
    inverse = linalg.invert_lower(parts.scale)
    precision = jnp.swapaxes(inverse, -1, -2) @ inverse
    log_det = linalg.log_determinant(parts.scale)
    return Prepared(parts.mean, parts.scale, inverse, parts.covariance, precision, log_det)


def standardised(components: Components) -> tuple[Components, Scalar]:
    """Coordinates in which the average component is round, and log |det| of the change.

    Information does not change, entropies shift by the returned number, and directions in which all
    components are narrow no longer cost digits.
    """
    weights = jnp.exp(lax.stop_gradient(components.log_weights))
    scale, size = lax.stop_gradient(components.parts.scale), components.parts.mean.shape[1]
    rows = jnp.swapaxes(scale, 0, 1).reshape(size, -1)
    average = linalg.triangular_root(rows, jnp.repeat(weights, size))
    inverse = linalg.invert_lower(average)
    centre = lax.stop_gradient(weights @ components.parts.mean)
    mean = (components.parts.mean - centre[None, :]) @ inverse.T
    parts = Gaussian(mean, inverse[None, :, :] @ components.parts.scale)
    moved = Components(
        components.labels, components.log_weights, parts, components.secrets, components.stride
    )
    return moved, 0.5 * linalg.log_determinant(average)


def blocks(function: Callable, rows, columns: int, pairs: int = BLOCK):
    """Map `function` over rows in blocks of about that many pairs, recomputing instead of storing."""
    size = max(1, pairs // columns)
    return lax.map(jax.checkpoint(function), rows, batch_size=size)


def over_mixture(bound: RowBound, prepared: Prepared, log_weights: Float[Array, " M"]) -> Float[Array, " M"]:
    """h(i; all) for every component of a plain mixture."""
    return blocks(lambda row: bound(row, prepared, log_weights), prepared, log_weights.shape[0])


def over_all(bound: RowBound, components: Components) -> Float[Array, " N"]:
    """h(i; all components, joint weights) for every component."""
    return over_mixture(bound, prepare(components.parts), components.log_weights)


def within(bound: RowBound, components: Components) -> Float[Array, " N"]:
    """h(i; components of i's own secret, weights within it) for every component."""
    prepared, log_weights = prepare(components.parts), components.log_conditional
    if components.stride is None:

        def masked(row):
            part, label = row
            own = jnp.where(components.labels == label, log_weights, LOG_ZERO)
            return bound(part, prepared, own)

        return blocks(masked, (prepared, components.labels), log_weights.shape[0])
    shape = (components.secrets, components.stride)
    split = jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), (prepared, log_weights))
    per_secret = lax.map(lambda group: over_mixture(bound, *group), split)
    return per_secret.reshape(-1)


def per_secret(values: Float[Array, " N"], components: Components) -> Float[Array, " K"]:
    """Averages within each secret, Σ_{i in k} w̄_i value_i."""
    weighted = jnp.exp(components.log_conditional) * values
    return jnp.sum(jnp.where(components.membership, weighted[None, :], 0.0), axis=1)


STRENGTHS = (1.0, 0.8, 0.6, 0.4, 0.2)


def tilt_row(spare: Scalar | float = 0.0) -> RowBound:
    """Row of the TILT bound: best lower bound on −E_i log Σ_j c_j N_j over the tilt strengths.

    Args:
        spare: number of trailing coordinates in which every component is standard normal (padding). A
            weaker tilt loses entropy there although nothing is uncertain; that known loss is given back.
    """

    def bound(row: Prepared, columns: Prepared, log_weights: Float[Array, " M"]) -> Scalar:
        products, pull = log_products(row, columns)
        curvature, slope = _tilt(row, columns, jax.nn.softmax(log_weights + products), pull)

        def at(strength):
            value = _tilted(row, columns, log_weights, strength * curvature, strength * slope)
            return value + spare * _standard_loss(strength)

        plain = spare * _standard_loss(0.0) - logsumexp(log_weights + products)
        return jnp.maximum(plain, jnp.max(lax.map(at, jnp.asarray(np.array(STRENGTHS), plain.dtype))))

    return bound


def _standard_loss(strength):
    """What the bound loses on one standard normal coordinate: ½ (1 − t − log(2 − t))."""
    return 0.5 * (1.0 - strength - jnp.log(2.0 - strength))


def log_products(row: Prepared, columns: Prepared) -> tuple[Float[Array, " M"], list[Array]]:
    """Log ∫ N_i N_j and (S_i + S_j)⁻¹ (μ_j − μ_i), for every column j."""
    size = row.mean.shape[0]
    both = [[row.covariance[i, j] + columns.covariance[:, i, j] for j in range(i + 1)] for i in range(size)]
    unit, pivots, _ = linalg.ldl(both)
    apart = [columns.mean[:, i] - row.mean[i] for i in range(size)]
    pull = linalg.ldl_solve(unit, pivots, apart)
    distance = sum(a * b for a, b in zip(apart, pull, strict=True))
    return -0.5 * (size * LOG_TWO_PI + linalg.log_product(pivots) + distance), pull


def _tilt(row: Prepared, columns: Prepared, share: Float[Array, " M"], pull: list[Array]):
    """(Λ, η) at full strength: N_i·g has the moments of N_i·f, whose components have mass `share`."""
    size = row.mean.shape[0]
    both = [[row.precision[i, j] + columns.precision[:, i, j] for j in range(i + 1)] for i in range(size)]
    narrow = linalg.ldl_inverse(*linalg.ldl(both)[:2])
    centres = [sum(row.covariance[i, k] * pull[k] for k in range(size)) for i in range(size)]
    mean = jnp.stack([share @ centre for centre in centres])
    apart = [centre - mean[i] for i, centre in enumerate(centres)]
    spread = [[share @ (narrow[i][j] + apart[i] * apart[j]) for j in range(i + 1)] for i in range(size)]
    inverse_spread = linalg.precision(linalg.cholesky(linalg.symmetric(spread)))
    return inverse_spread - row.precision, inverse_spread @ mean


def _tilted(row: Prepared, columns: Prepared, log_weights, curvature, slope) -> Scalar:
    """−log E_i[f/g] − E_i log g for one g, or LOG_ZERO where the integral does not exist."""
    size = row.mean.shape[0]
    base = row.precision - curvature
    peak = [[base[i, j] + columns.precision[:, i, j] for j in range(i + 1)] for i in range(size)]
    unit, pivots, definite = linalg.ldl(peak)
    apart = [columns.mean[:, i] - row.mean[i] for i in range(size)]
    drawn = [sum(columns.precision[:, i, k] * apart[k] for k in range(size)) for i in range(size)]
    push = linalg.ldl_forward(unit, [drawn[i] - slope[i] for i in range(size)])
    gain = sum(value * value / pivot for value, pivot in zip(push, pivots, strict=True))
    lost = sum(a * b for a, b in zip(apart, drawn, strict=True))
    constant = size * LOG_TWO_PI + row.log_det
    integral = 0.5 * (gain - lost - linalg.log_product(pivots) - columns.log_det - constant)
    exists = jnp.all(definite | (log_weights <= 0.5 * LOG_ZERO))
    value = 0.5 * jnp.sum(curvature * row.covariance) - logsumexp(log_weights + integral)
    return jnp.where(exists & jnp.isfinite(value), value, LOG_ZERO)


PAIRS = 1 << 15  # per block

Points = Float[Array, "M d"]

Rows = Float[Array, "B d"]


def round_tilt(points: Points, log_weights: Float[Array, " M"]) -> Float[Array, " M"]:
    """A lower bound on −E_i log Σ_j c_j N_j for each row i, all covariances the identity.

    It is the better of that with the tilt and that without.

    Args:
        points: the means.
        log_weights: log c_j.
    """
    count, size = points.shape
    top = jnp.max(log_weights)
    columns, moments, log_weights = [*points.T], _moments(points), (log_weights - top)[None, :]

    def block(rows: Rows) -> Float[Array, " B"]:
        apart = [columns[i][None, :] - rows[:, i, None] for i in range(size)]
        square = sum((gap * gap for gap in apart[1:]), apart[0] * apart[0])
        sums = jnp.exp(log_weights - 0.25 * square) @ moments
        flat = 0.5 * size * jnp.log(2.0) - jnp.log(sums[:, 0])
        curvature, slope = _tilt_round(sums / sums[:, :1], rows)
        lower = linalg.cholesky(2.0 * _unit(curvature) - curvature)
        wide = linalg.precision(lower)
        line, bent = linalg.apply(wide, slope), _unit(wide) - wide
        exponent = log_weights
        for i in range(size):
            pull = sum(bent[:, i, j, None] * apart[j] for j in range(size))
            exponent = exponent - apart[i] * (0.5 * pull + line[:, i, None])
        trace = jnp.trace(curvature, axis1=1, axis2=2)
        shift = 0.5 * (trace + linalg.log_determinant(lower) - linalg.dot(slope, line))
        tilted = shift - jnp.log(jnp.sum(jnp.exp(exponent), axis=1))
        return jnp.where(tilted > flat, tilted, flat)  # also where it is not a number

    height = max(1, PAIRS // count)
    whole = count // height * height
    values = lax.map(block, points[:whole].reshape(-1, height, size)).reshape(-1)
    if whole < count:
        values = jnp.concatenate([values, block(points[whole:])])
    values = values - top
    # No mixture is denser anywhere than one component at its mean: that holds where sums rounded to zero.
    sound = (values > 0.0) & (values < jnp.inf)
    return 0.5 * size * LOG_TWO_PI + jnp.where(sound, values, 0.0)


def _tilt_round(average: Float[Array, "B F"], rows: Rows) -> tuple[Float[Array, "B d d"], Rows]:
    """Curvature and slope at each row, from the averages of 1, p and p pᵀ near it."""
    size = rows.shape[1]
    mean, products = average[:, 1 : 1 + size], average[:, 1 + size :]
    places = [(i, j) for i in range(size) for j in range(i + 1)]
    spread = {
        place: 0.25 * (products[:, k] - mean[:, place[0]] * mean[:, place[1]])
        for k, place in enumerate(places)
    }
    for i in range(size):
        spread[i, i] = 0.5 + jnp.maximum(spread[i, i], 0.0)
    entries = [[spread[i, j] for j in range(i + 1)] for i in range(size)]
    inverse = linalg.precision(linalg.cholesky(linalg.symmetric(entries)))
    return inverse - _unit(inverse), linalg.apply(inverse, 0.5 * (mean - rows))


def _moments(points: Points) -> Float[Array, "M F"]:
    """1, p and p pᵀ for each point."""
    size = points.shape[1]
    products = [points[:, i] * points[:, j] for i in range(size) for j in range(i + 1)]
    return jnp.stack([jnp.ones_like(points[:, 0]), *points.T, *products], axis=1)


def _unit(like: Float[Array, "B d d"]) -> Float[Array, "B d d"]:
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


LOG_TWO = math.log(2.0)

_SHIFT = 1.5 * 2.0**23  # the lowest bits of a float32 near it are those of its integer part

# 2^f on [−½, ½], least squares of the relative error at Chebyshev nodes: within 8e-8, a float32's own step.
_POLYNOMIAL = (1.00000007, 0.69314695, 0.24022122, 0.05550743, 0.00967546, 0.0013267)


def power_of_two(exponent: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """2^exponent for exponents ≤ 0, to the precision of the type; below 2^−125 it stays there in float32.

    In float32 the whole part of the exponent is added to the bits of a polynomial in the rest: faster on a
    CPU than the general function. The whole part is read from the bits of its sum with a large number, since
    a conversion to an integer would also look for numbers too large for one.
    """
    return _from_bits(exponent) if exponent.dtype == jnp.float32 else jnp.exp2(exponent)


@jax.custom_jvp
def _from_bits(exponent):
    bounded = jnp.where(exponent < np.float32(-125.0), np.float32(-125.0), exponent)
    whole = jnp.round(bounded)
    rest = bounded - whole
    value = jnp.full_like(rest, _POLYNOMIAL[-1])
    for coefficient in _POLYNOMIAL[-2::-1]:
        value = value * rest + np.float32(coefficient)
    shifted = lax.bitcast_convert_type(whole + np.float32(_SHIFT), jnp.int32) << 23
    bits = lax.bitcast_convert_type(value, jnp.int32) + shifted
    return lax.bitcast_convert_type(bits, jnp.float32)


@_from_bits.defjvp
def _slope(primals, tangents):
    value = _from_bits(*primals)
    return value, value * tangents[0] * np.float32(LOG_TWO)


LogWeights = Float[Array, " M"]

# Nats: above this possible error of a row the product form gives way to differences.
ROUNDING = {"float32": 1e-3, "float64": 1e-9}


def kl_overlap(log_weights: LogWeights, parts: Gaussian) -> LogWeights:
    """Log Σ_j w_j exp(−KL(N_i ‖ N_j)) for every i, in nats.

    KL is bilinear in (moments of i, natural parameters of j): one matrix product per block of rows. That
    form cancels when components are much narrower than their spread, so where its rounding error could
    exceed `ROUNDING` the differences of means are formed pair by pair instead. KL is never negative and
    the self term keeps each sum above w_i, so the usual shift by the maximum is not needed.
    """
    prepared = prepare(_whiten(log_weights, parts))
    reach = jnp.max(jnp.sum(prepared.mean**2, axis=1))
    sharpness = jnp.max(jnp.trace(prepared.precision, axis1=1, axis2=2))
    safe = reach * sharpness * jnp.finfo(reach.dtype).eps < ROUNDING[reach.dtype.name]
    overlap = lax.cond(safe, _by_product, _by_difference, jnp.exp(log_weights), prepared)
    return jnp.log(jnp.maximum(overlap, jnp.finfo(overlap.dtype).tiny))


def _whiten(log_weights: LogWeights, parts: Gaussian) -> Gaussian:
    """Coordinates in which the whole mixture has mean zero and unit covariance; KL does not change."""
    whole = jax.tree.map(lax.stop_gradient, match_moments(log_weights, parts))
    inverse = linalg.invert_lower(whole.scale)
    return Gaussian((parts.mean - whole.mean[None, :]) @ inverse.T, inverse[None, :, :] @ parts.scale)


def bilinear(prepared: Prepared) -> tuple[Float[Array, "M F"], Float[Array, "F M"]]:
    """Rows and columns whose product is −KL(N_i ‖ N_j) / log 2."""
    mean, size = prepared.mean, prepared.mean.shape[1]
    second = prepared.covariance + linalg.outer(mean)
    drift = jnp.einsum("mij,mj->mi", prepared.precision, mean)
    own = -0.5 * (jnp.sum(drift * mean, axis=1) + prepared.log_det)
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    moments = jnp.stack([second[:, i, j] for i, j in pairs], axis=1)
    natural = jnp.stack([(-0.5 if i == j else -1.0) * prepared.precision[:, i, j] for i, j in pairs], axis=1)
    one = jnp.ones_like(mean[:, :1])
    rows = jnp.concatenate([moments, mean, one, 0.5 * (prepared.log_det + size)[:, None]], axis=1) / LOG_TWO
    return rows, jnp.concatenate([natural, drift, own[:, None], one], axis=1).T


def _by_product(weights: LogWeights, prepared: Prepared) -> LogWeights:
    """Rows × columns: one matrix product per block, or no product at all where there are many."""
    rows, columns = bilinear(prepared)
    few = weights.shape[0] < MANY or prepared.mean.shape[1] > MOST_AXES
    if few or weights.dtype != jnp.float32:
        return _overlap_by_blocks(rows, columns, weights)
    return _overlap(rows, columns, weights)


MANY = 1024  # components from which the sums are unrolled

MOST_AXES = 4  # up to which they are: the program grows with the square

UNROLLED = 64  # columns at a time


def _overlap_by_blocks(
    rows: Float[Array, "M F"], columns: Float[Array, "F M"], weights: LogWeights
) -> LogWeights:
    def row(features):
        return power_of_two(jnp.minimum(features @ columns, 0.0)) @ weights

    return blocks(row, rows, weights.shape[0])


@jax.custom_vjp
def _overlap(rows: Float[Array, "M F"], columns: Float[Array, "F M"], weights: LogWeights) -> LogWeights:
    """The same sums without a matrix of pairs: `UNROLLED` columns at a time are added to those of all rows.

    A block of columns is one loop over the rows, in which exponents, powers and sums stay in registers: half
    of the time of the blocks, whose products go through the cache. The two last features belong to columns
    and to rows alone, so that the one starts the exponent, which then has the weight in it as well, and the
    other multiplies the sum.
    """
    *features, one, own = rows.T
    missing = -columns.shape[1] % UNROLLED
    start = one[0] * columns[-2] + jnp.log2(weights)
    padded = jnp.pad(jnp.concatenate([columns[:-2], start[None]]), ((0, 0), (0, missing)))
    padded = padded.at[-1, columns.shape[1] :].set(LOG_ZERO)
    parts = padded.T.reshape(-1, UNROLLED, padded.shape[0])

    def add(sums: LogWeights, part: Float[Array, "U F"]) -> tuple[LogWeights, None]:
        total = jnp.zeros_like(sums)  # of this part first: fewer digits are lost than one by one
        for k in range(UNROLLED):
            exponent = part[k, -1]
            for i, feature in enumerate(features):
                exponent = exponent + part[k, i] * feature
            total = total + power_of_two(exponent)
        return sums + total, None

    sums, _ = lax.scan(add, jnp.zeros_like(own), parts)
    return sums * jnp.exp2(own)


def _overlap_forward(rows, columns, weights):
    return _overlap(rows, columns, weights), (rows, columns, weights)


def _overlap_backward(given, slope):
    return jax.vjp(_overlap_by_blocks, *given)[1](slope)


_overlap.defvjp(_overlap_forward, _overlap_backward)


def _by_difference(weights: LogWeights, prepared: Prepared) -> LogWeights:
    """The same from differences of means: right for narrow components, somewhat slower."""
    return blocks(lambda row: jnp.exp(-kl_to(row, prepared)) @ weights, prepared, weights.shape[0])


def kl_to(row: Prepared, columns: Prepared) -> LogWeights:
    """KL(row ‖ column) for every column: sums of squares, so that nothing cancels but the dimension."""
    size = row.mean.shape[0]
    apart = [row.mean[i] - columns.mean[:, i] for i in range(size)]
    total = columns.log_det - row.log_det - size
    for i in range(size):
        total = total + sum(columns.inverse[:, i, k] * apart[k] for k in range(i + 1)) ** 2
        for j in range(i + 1):
            total = total + sum(columns.inverse[:, i, k] * row.scale[k, j] for k in range(j, i + 1)) ** 2
    return jnp.maximum(0.5 * total, 0.0)


def moment_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Entropy of the one Gaussian with the mixture's mean and covariance (H_G, an upper bound)."""
    return match_moments(log_weights, parts).entropy()


def kl_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Pairwise KL upper bound H_KL: Σ w_i [H(N_i) − log Σ_j w_j exp(−KL(N_i ‖ N_j))]."""
    entropies = jax.vmap(Gaussian.entropy)(parts)
    return jnp.exp(log_weights) @ (entropies - kl_overlap(log_weights, parts))


def chernoff_entropy(log_weights: LogWeights, parts: Gaussian, alpha: Scalar | float = 0.5) -> Scalar:
    """Pairwise Chernoff lower bound H_Cα: as `kl_entropy`, with the Chernoff α-divergence.

    Args:
        log_weights: of the components; they sum to one.
        parts: the Gaussians.
        alpha: between 0 and 1; 1/2 is the Bhattacharyya distance.
    """
    return _total(chernoff_row(alpha), log_weights, parts)


def likelihood_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Expected-likelihood lower bound −Σ w_i log ∫ N_i f: Jensen's inequality per component."""
    return _total(likelihood_row, log_weights, parts)


def tilt_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """TILT lower bound: Jensen's inequality per component, after dividing f by a fitted quadratic."""
    return _total(tilt_row(), log_weights, parts)


def _total(bound: RowBound, log_weights: LogWeights, parts: Gaussian) -> Scalar:
    return jnp.exp(log_weights) @ over_mixture(bound, prepare(parts), log_weights)


def chernoff_row(alpha: Scalar | float) -> RowBound:
    """Row of H_Cα: H(N_i) − log Σ_j c_j exp(−C_α(N_i ‖ N_j)). Weight of j: paper/deviations.md, item 1."""

    def bound(row: Prepared, columns: Prepared, log_weights: LogWeights) -> Scalar:
        size = row.mean.shape[0]
        mixed = [
            [(1.0 - alpha) * row.covariance[i, j] + alpha * columns.covariance[:, i, j] for j in range(i + 1)]
            for i in range(size)
        ]
        unit, pivots, _ = linalg.ldl(mixed)
        apart = linalg.ldl_forward(unit, [row.mean[i] - columns.mean[:, i] for i in range(size)])
        distance = sum(value * value / pivot for value, pivot in zip(apart, pivots, strict=True))
        spread = (1.0 - alpha) * row.log_det + alpha * columns.log_det
        divergence = 0.5 * (alpha * (1.0 - alpha) * distance + linalg.log_product(pivots) - spread)
        entropy = 0.5 * (row.log_det + size * (1.0 + LOG_TWO_PI))
        return entropy - logsumexp(log_weights - divergence)

    return bound


def likelihood_row(row: Prepared, columns: Prepared, log_weights: LogWeights) -> Scalar:
    """Row of the expected-likelihood bound: −log Σ_j c_j ∫ N_i N_j."""
    return -logsumexp(log_weights + log_products(row, columns)[0])

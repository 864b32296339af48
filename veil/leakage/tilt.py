"""TILT: a lower bound on −E_i log f that is exact when the mixture f looks Gaussian around component i.

For any positive g, Jensen's inequality under N_i gives −E_i log f ≥ −log E_i[f/g] − E_i log g. Here
log g = t (−yᵀΛy/2 + ηᵀy) with y measured from μ_i, and (Λ, η) such that N_i·g at t = 1 has the mean and the
covariance of the normalised product N_i·f: then f/g is nearly constant where N_i lives. Every t for which
the integrals exist gives a bound; the best of a few is kept, t = 0 among them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import LOG_TWO_PI
from veil.leakage.pairwise import Prepared, RowBound
from veil.types import LOG_ZERO, Scalar

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

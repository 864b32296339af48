"""TILT where all components of a secret have one covariance: fast enough for a live release.

In coordinates where that covariance is the identity, Q = 2 − Λ is never below the identity, so the tilt
exists for every row, and the exponent is quadratic in the difference of the means. Rows are taken in blocks
that stay in the cache, and the moments that choose the tilt are one matrix product: rounding there moves the
tilt, and any tilt gives a bound. Formulas and proof are in docs/leakage.md.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from veil import linalg
from veil.laws.gaussian import LOG_TWO_PI

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
        curvature, slope = _tilt(sums / sums[:, :1], rows)
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


def _tilt(average: Float[Array, "B F"], rows: Rows) -> tuple[Float[Array, "B d d"], Rows]:
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

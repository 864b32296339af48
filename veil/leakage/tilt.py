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
from veil.laws.gaussian import LOG_TWO_PI
from veil.leakage.rows import Prepared, RowBound
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

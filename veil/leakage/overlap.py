"""The hot loop: log Σ_j w_j exp(−KL(N_i ‖ N_j)) over all pairs of components."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import Gaussian, match_moments
from veil.leakage.exponential import LOG_TWO, power_of_two
from veil.leakage.rows import Prepared, blocks, prepare

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


def _by_product(weights: LogWeights, prepared: Prepared) -> LogWeights:
    """Rows × columns as one matrix product per block."""
    mean, size = prepared.mean, prepared.mean.shape[1]
    second = prepared.covariance + linalg.outer(mean)
    drift = jnp.einsum("mij,mj->mi", prepared.precision, mean)
    own = -0.5 * (jnp.sum(drift * mean, axis=1) + prepared.log_det)
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    moments = jnp.stack([second[:, i, j] for i, j in pairs], axis=1)
    natural = jnp.stack([(-0.5 if i == j else -1.0) * prepared.precision[:, i, j] for i, j in pairs], axis=1)
    one = jnp.ones_like(mean[:, :1])
    rows = jnp.concatenate([moments, mean, one, 0.5 * (prepared.log_det + size)[:, None]], axis=1) / LOG_TWO
    columns = jnp.concatenate([natural, drift, own[:, None], one], axis=1).T

    def row(features):
        return power_of_two(jnp.minimum(features @ columns, 0.0)) @ weights

    return blocks(row, rows, weights.shape[0], pairs=1 << 20)


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

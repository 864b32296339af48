"""Bounds on the differential entropy of a Gaussian mixture.

Upper bounds: `moment_entropy`, `kl_entropy`. Lower bounds: `chernoff_entropy`, `likelihood_entropy`,
`tilt_entropy`. All take normalised log-weights [M] and a batch of M Gaussians, and return nats. The row
functions behind the lower bounds also serve the entropies within each secret. Proofs: docs/leakage.md.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import LOG_TWO_PI, Gaussian, match_moments
from veil.leakage.pairwise import Prepared, RowBound, blocks, over_mixture, prepare
from veil.leakage.tilt import log_products, tilt_row
from veil.types import Scalar

LOG_TWO = math.log(2.0)

# 2^f on [−½, ½], least squares of the relative error at Chebyshev nodes: within 8e-8, a float32's own step.
_POLYNOMIAL = (1.00000007, 0.69314695, 0.24022122, 0.05550743, 0.00967546, 0.0013267)


def power_of_two(exponent: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """2^exponent for exponents ≤ 0, to the precision of the type; below 2^−125 it stays there in float32.

    In float32 the whole part of the exponent is added to the bits of a polynomial in the rest, which is a
    third faster on a CPU than the general function.
    """
    return _from_bits(exponent) if exponent.dtype == jnp.float32 else jnp.exp2(exponent)


@jax.custom_jvp
def _from_bits(exponent):
    bounded = jnp.maximum(exponent, np.float32(-125.0))
    whole = jnp.round(bounded)
    rest = bounded - whole
    value = jnp.full_like(rest, _POLYNOMIAL[-1])
    for coefficient in _POLYNOMIAL[-2::-1]:
        value = value * rest + np.float32(coefficient)
    bits = lax.bitcast_convert_type(value, jnp.int32) + (whole.astype(jnp.int32) << 23)
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


def moment_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Entropy of the one Gaussian with the mixture's mean and covariance (H_G, an upper bound)."""
    return match_moments(log_weights, parts).entropy()


def kl_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Pairwise KL upper bound H_KL: Σ w_i [H(N_i) − log Σ_j w_j exp(−KL(N_i ‖ N_j))]."""
    entropies = jax.vmap(Gaussian.entropy)(parts)
    return jnp.exp(log_weights) @ (entropies - kl_overlap(log_weights, parts))


def chernoff_entropy(log_weights: LogWeights, parts: Gaussian, alpha: Scalar | float = 0.5) -> Scalar:
    """Pairwise Chernoff lower bound H_Cα: as `kl_entropy`, with the Chernoff α-divergence."""
    return _total(chernoff_row(alpha), log_weights, parts)


def likelihood_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Expected-likelihood lower bound −Σ w_i log ∫ N_i f: Jensen's inequality per component."""
    return _total(likelihood_row, log_weights, parts)


def tilt_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """TILT lower bound: Jensen per component after dividing f by a quadratic that looks like it."""
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

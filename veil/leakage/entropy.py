"""Bounds on the differential entropy of a Gaussian mixture.

Upper bounds: `moment_entropy`, `kl_entropy`. Lower bounds: `chernoff_entropy`, `likelihood_entropy`,
`tilt_entropy`. All take normalised log-weights [M] and a batch of M Gaussians, and return nats. The row
functions behind the lower bounds also serve the entropies within each secret. Proofs: docs/leakage.md.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import Gaussian, match_moments
from veil.laws.gaussian import LOG_TWO_PI
from veil.leakage.overlap import kl_overlap
from veil.leakage.rows import Prepared, RowBound, over_mixture, prepare
from veil.leakage.tilt import log_products, tilt_row
from veil.types import Scalar

LogWeights = Float[Array, " M"]


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

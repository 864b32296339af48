"""Upper bounds on the entropy of a mixture p from a smaller reference mixture.

For any weights W and Gaussians G, H(p) ≤ −Σ_i w_i log Σ_c W_c exp(E_i log G_c): Gibbs' inequality against
Σ W_c G_c, then Jensen's. One moment-matched G gives `moment_entropy`; G = the components themselves gives
`kl_entropy`; expectation-maximisation finds the ones between, and every iterate is a bound.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import LOG_TWO_PI, Gaussian, gaussian, match_moments
from veil.leakage.estimate import curve_order
from veil.types import LOG_ZERO, Scalar

SIZES = (2, 4, 8, 16)

SWEEPS = 25

LogWeights = Float[Array, " N"]


def reference_entropy(log_weights: LogWeights, parts: Gaussian) -> Scalar:
    """Least reference bound over a few reference sizes, fitted by expectation-maximisation.

    The fitted reference is held fixed in gradients: it is a bound for neighbouring mixtures as well.
    """
    known, fixed = lax.stop_gradient(log_weights), jax.tree.map(lax.stop_gradient, parts)
    chunks = jnp.asarray(np.array(SIZES), log_weights.dtype)
    fits = jax.vmap(lambda size: _fit(known, fixed, size))(chunks)
    bounds = jax.vmap(lambda weights, reference: _bound(log_weights, parts, weights, reference))(*fits)
    return jnp.min(jnp.where(jnp.isfinite(bounds), bounds, jnp.inf))


def _bound(log_weights: LogWeights, parts: Gaussian, log_shares, reference: Gaussian) -> Scalar:
    fit = logsumexp(log_shares[None, :] + _expected_log(parts, reference), axis=1)
    return -jnp.sum(jnp.exp(log_weights) * fit)


def _expected_log(parts: Gaussian, reference: Gaussian) -> Float[Array, "N C"]:
    """E_i log G_c for every component i and reference c."""
    inverse = linalg.invert_lower(reference.scale)
    apart = jnp.einsum("cij,ncj->nci", inverse, parts.mean[:, None, :] - reference.mean[None, :, :])
    narrow = jnp.einsum("cij,njk->ncik", inverse, parts.scale)
    spread = jnp.sum(apart**2, axis=2) + jnp.sum(narrow**2, axis=(2, 3))
    constant = linalg.log_determinant(reference.scale) + parts.mean.shape[1] * LOG_TWO_PI
    return -0.5 * (spread + constant[None, :])


def _fit(log_weights: LogWeights, parts: Gaussian, size: Scalar):
    """Log-shares and Gaussians of a reference of the given size (the arrays hold the largest size)."""
    whole = match_moments(log_weights, parts)
    order = curve_order(
        _gathered(log_weights, parts.mean, whole.mean), jnp.zeros_like(log_weights, jnp.int32), jnp
    )
    steps = jnp.cumsum(jnp.exp(log_weights[order]))
    chunk = jnp.minimum(jnp.floor(steps * size / steps[-1]), size - 1.0).astype(jnp.int32)
    start = jnp.zeros_like(chunk).at[order].set(chunk)
    belongs = jax.nn.one_hot(start, max(SIZES), dtype=log_weights.dtype)

    def sweep(belongs, _):
        log_shares, reference = _moments(log_weights, parts, belongs, whole)
        scores = log_shares[None, :] + _expected_log(parts, reference)
        return jax.nn.softmax(scores, axis=1), None

    belongs, _ = lax.scan(sweep, belongs, None, length=SWEEPS)
    return _moments(log_weights, parts, belongs, whole)


def _gathered(log_weights: LogWeights, mean, centre):
    """Means with weightless components moved to the centre, where they do not stretch the curve's box."""
    return jnp.where((log_weights > 0.5 * LOG_ZERO)[:, None], mean, centre[None, :])


def _moments(log_weights: LogWeights, parts: Gaussian, belongs: Float[Array, "N C"], whole: Gaussian):
    """Shares, means and covariances of the reference given who belongs where."""
    weighted = jnp.exp(log_weights)[:, None] * belongs
    shares = jnp.sum(weighted, axis=0)
    used = shares > 1e-12
    weighted = weighted / jnp.where(used, shares, 1.0)[None, :]
    mean = weighted.T @ parts.mean
    apart = parts.mean[:, None, :] - mean[None, :, :]
    covariance = jnp.einsum("nc,ncij->cij", weighted, parts.covariance[:, None, :, :] + linalg.outer(apart))
    covariance = jnp.where(used[:, None, None], covariance, whole.covariance[None, :, :])
    # Any reference gives a bound; a little roundness keeps far and narrow ones factorable.
    size = jnp.trace(covariance, axis1=1, axis2=2) * 32.0 * jnp.finfo(covariance.dtype).eps
    covariance = (
        covariance + size[:, None, None] * jnp.eye(covariance.shape[1], dtype=covariance.dtype)[None, :, :]
    )
    log_shares = jnp.where(used, jnp.log(jnp.where(used, shares, 1.0)), LOG_ZERO)
    total = logsumexp(log_shares)
    return log_shares - total, gaussian(jnp.where(used[:, None], mean, whole.mean[None, :]), covariance)

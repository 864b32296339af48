"""What a live release is charged: an upper bound that is cheap enough for every step, without sampling.

With one Gaussian per secret (a Kalman belief) it is nearly exact: the entropies given the secret are known,
and what is left is one smooth integral. With particles it is the entropy of the moments above and TILT
below, or the coupling of particles that share their noise, whichever is less.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.components import Components
from veil.laws.gaussian import LOG_TWO_PI
from veil.leakage.coupling import coupled, separate_information
from veil.leakage.entropy import moment_entropy
from veil.leakage.rows import blocks, per_secret, standardised, within
from veil.leakage.tilt import tilt_row
from veil.types import LOG_ZERO, Scalar

LINES = {1: 129, 2: 33}  # of the grid per axis, by dimension; beyond, there is no integral
REACH = 7.5  # standard deviations
NEGLIGIBLE = 1e-6  # nats
STRENGTHS = (1.0,)  # of the tilt where all covariances of a secret are one; 0 comes for free
MANY, ROUNDING = (
    256,
    1e-5,
)  # components per secret from which pairs are taken in single precision, and its price


def live_bound(components: Components) -> Scalar:
    """Upper bound on I(Θ; Y) of a labelled mixture whose components come in equal blocks, nats."""
    moved, _ = standardised(components)
    bound = _separate(moved) if components.stride == 1 else _crowded(moved)
    most = jnp.maximum(components.entropy, 0.0)
    return jnp.clip(jnp.where(jnp.isfinite(bound), bound, most), 0.0, most)


def _separate(components: Components) -> Scalar:
    """One Gaussian per secret: the least of the bounds by moments and by pairs, and the integral."""
    bound = separate_information(components.log_masses, components.parts)
    size = components.parts.mean.shape[1]
    if size not in LINES:
        return bound
    # Where next to nothing leaks the bound is as good as the integral, and much cheaper.
    return jax.lax.cond(bound > NEGLIGIBLE, lambda: jnp.minimum(bound, _integral(components)), lambda: bound)


def _integral(components: Components) -> Scalar:
    """∫ p(y) KL(posterior at y ‖ prior) on a grid, plus what every second line of it gives differently.

    The trapezoid rule converges geometrically once its step is below the narrowest spread, so that the
    difference of the two grids is far more than the error of the finer one. Where it is not, this is ∞.
    """
    parts, size = components.parts, components.parts.mean.shape[1]
    spread = jnp.sqrt(jnp.sum(parts.scale**2, axis=2))
    low, high = jnp.min(parts.mean - REACH * spread, axis=0), jnp.max(parts.mean + REACH * spread, axis=0)
    count = LINES[size]
    step = (high - low) / (count - 1)
    precision = jnp.diagonal(linalg.precision(parts.scale), axis1=1, axis2=2)
    enough = jnp.all(step**2 * jnp.max(precision, axis=0) <= 1.0)
    axes = [low[i] + step[i] * jnp.arange(count, dtype=low.dtype) for i in range(size)]
    points = jnp.stack([axis.reshape(-1) for axis in jnp.meshgrid(*axes, indexing="ij")], axis=1)
    density, known = _told(components, points)
    terms = (density * known).reshape((count,) * size)
    fine = jnp.sum(terms) * jnp.prod(step)
    coarse = jnp.sum(terms[(slice(None, None, 2),) * size]) * jnp.prod(2.0 * step)
    return jnp.where(enough, fine + jnp.abs(fine - coarse), jnp.inf)


def _told(components: Components, points: Float[Array, "S d"]) -> tuple[Array, Array]:
    """Density of the release at each point, and the divergence of the posterior there from the prior."""
    inverse = linalg.invert_lower(components.parts.scale)
    peaks = components.log_weights - 0.5 * linalg.log_determinant(components.parts.scale)
    size = points.shape[1]
    apart = [points[:, i, None] - components.parts.mean[None, :, i] for i in range(size)]
    noise = [sum(inverse[None, :, i, j] * apart[j] for j in range(i + 1)) for i in range(size)]
    joint = peaks[None, :] - 0.5 * (sum(value * value for value in noise) + size * LOG_TWO_PI)
    log_density = logsumexp(joint, axis=1)
    log_posterior = joint - log_density[:, None]
    ratio = jnp.maximum(log_posterior, LOG_ZERO) - components.log_weights[None, :]
    return jnp.exp(log_density), jnp.sum(jnp.exp(log_posterior) * ratio, axis=1)


def _crowded(components: Components) -> Scalar:
    """Many Gaussians per secret."""
    above = moment_entropy(components.log_weights, components.parts)
    scale = components.parts.scale.reshape(components.secrets, -1, *components.parts.scale.shape[1:])
    alike = jnp.all(scale == scale[:, :1])
    below = jax.lax.cond(alike, _alike_entropies, _any_entropies, components)
    by_entropies = above - jnp.exp(components.log_masses) @ below
    return jnp.minimum(by_entropies, coupled(components, by_index=True))


def _any_entropies(components: Components) -> Float[Array, " K"]:
    """TILT for each secret."""
    return per_secret(within(tilt_row(), components), components)


def _alike_entropies(components: Components) -> Float[Array, " K"]:
    """TILT for each secret whose components have one covariance: in its own units that is the identity."""
    secrets, stride = components.secrets, components.stride or 0
    scale = components.parts.scale.reshape(secrets, stride, *components.parts.scale.shape[1:])[:, 0]
    mean = components.parts.mean.reshape(secrets, stride, -1)
    log_weights = components.log_conditional.reshape(secrets, stride)

    def one(group: tuple[Array, Array, Array]) -> Scalar:
        scale, mean, log_weights = group
        points, weights, lost = mean @ linalg.invert_lower(scale).T, log_weights, 0.0
        if stride >= MANY:  # centred and in units of their own spread, so that few digits are enough
            points, weights, lost = _short(points - points[:1]), _short(log_weights), ROUNDING
        rows = blocks(lambda point: _round_tilt(point, points, weights), points, stride).astype(mean.dtype)
        return jnp.exp(log_weights) @ rows + 0.5 * linalg.log_determinant(scale) - lost

    return jax.lax.map(one, (scale, mean, log_weights))


def _short(values: Array) -> Array:
    return values.astype(jnp.float32)


def _round_tilt(point: Array, points: Float[Array, "M d"], log_weights: Float[Array, " M"]) -> Scalar:
    """The best of a few tilts of −E_i log Σ_j c_j N_j, all components with the identity as covariance.

    Then Q = 2 − tΛ is the same for all columns and never below the identity, so every strength exists, and
    the exponent is quadratic in the difference of the means.
    """
    size = point.shape[0]
    apart = [points[:, i] - point[i] for i in range(size)]
    square = sum(gap * gap for gap in apart)
    scores = log_weights - 0.25 * square
    share, constant = jax.nn.softmax(scores), -0.5 * size * LOG_TWO_PI
    mean = jnp.stack([0.5 * (share @ gap) for gap in apart])
    spread = [
        [0.25 * (share @ (apart[i] * apart[j])) - mean[i] * mean[j] for j in range(i + 1)]
        for i in range(size)
    ]
    unit = jnp.eye(size, dtype=point.dtype)
    inverse = linalg.precision(linalg.cholesky(0.5 * unit + linalg.symmetric(spread)))
    best = -(constant - 0.5 * size * jnp.log(2.0) + logsumexp(scores))
    for strength in STRENGTHS:
        curvature, slope = strength * (inverse - unit), strength * (inverse @ mean)
        lower = linalg.cholesky(2.0 * unit - curvature)
        wide = linalg.precision(lower)
        line = wide @ slope
        offset = constant - 0.5 * linalg.log_determinant(lower) + 0.5 * (slope @ line)
        bent = unit - wide
        exponent = sum(
            -0.5 * bent[i, j] * (apart[i] * apart[j]) for i in range(size) for j in range(size)
        ) - sum(line[i] * apart[i] for i in range(size))
        value = 0.5 * jnp.trace(curvature) - offset - logsumexp(log_weights + exponent)
        best = jnp.maximum(best, jnp.where(jnp.isfinite(value), value, best))
    return best

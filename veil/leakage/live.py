"""What a live release is charged: an upper bound that is cheap enough for every step, without sampling.

With one Gaussian per secret (a Kalman belief) it is nearly exact: the entropies given the secret are known,
and what is left is one smooth integral. With particles it is the entropy of the moments above and TILT
below, or the coupling of particles that share their noise, whichever is less.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import LOG_TWO_PI, Components
from veil.leakage.closed_forms import paired, separate_information
from veil.leakage.entropy import moment_entropy, per_secret, round_tilt, standardised, tilt_row, within
from veil.registry import LEAKAGE
from veil.types import LOG_ZERO, Key, Scalar

LINES = {1: 129, 2: 33}  # of the grid per axis, by dimension; beyond, there is no integral

REACH = 7.5  # standard deviations

NEGLIGIBLE = 1e-6  # nats

MANY = 256  # components per secret from which pairs are taken in single precision

ROUNDING = 1e-6  # nats charged for that, per squared unit of distance


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
    density, known = _information(components, points)
    terms = (density * known).reshape((count,) * size)
    fine = jnp.sum(terms) * jnp.prod(step)
    coarse = jnp.sum(terms[(slice(None, None, 2),) * size]) * jnp.prod(2.0 * step)
    return jnp.where(enough, fine + jnp.abs(fine - coarse), jnp.inf)


def _information(components: Components, points: Float[Array, "S d"]) -> tuple[Array, Array]:
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
    return jnp.minimum(by_entropies, paired(components))


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
            points, weights = _short(points - points[:1]), _short(log_weights)
            lost = ROUNDING * (1.0 + 4.0 * jnp.max(jnp.sum(points**2, axis=1))).astype(mean.dtype)
        rows = round_tilt(points, weights).astype(mean.dtype)
        return jnp.exp(log_weights) @ rows + 0.5 * linalg.log_determinant(scale) - lost

    return jax.lax.map(one, (scale, mean, log_weights))


def _short(values: Array) -> Array:
    return values.astype(jnp.float32)


@LEAKAGE.register("live")
@dataclass(frozen=True)
class Live:
    """The cheapest bound that is tight: nearly exact for a Kalman belief."""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The charge of a release."""
        del points, key
        return live_bound(components)

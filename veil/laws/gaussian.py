"""The Gaussian law, kept as mean and Cholesky factor, and the divergences between two of them."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws.base import Law
from veil.types import Noise, Scalar, Vector

LOG_TWO_PI = math.log(2.0 * math.pi)


class Gaussian(Law):
    """N(mean, scale scaleᵀ). `scale` is lower triangular; zero columns make a degenerate law.

    The fields may carry leading batch axes; the methods speak of one law, so `jax.vmap` them.
    """

    mean: Float[Array, "*batch d"]
    scale: Float[Array, "*batch d d"]

    @property
    def noise_size(self) -> int:
        """One number per dimension."""
        return self.mean.shape[-1]

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """Covariance, batch axes kept."""
        return self.scale @ jnp.swapaxes(self.scale, -1, -2)

    def sample(self, noise: Noise) -> Vector:
        """Mean + scale @ noise."""
        return self.mean + linalg.apply(self.scale, noise)

    def recover(self, value: Vector) -> Noise:
        """The noise that `sample` would turn into `value`; needs a law that is not degenerate."""
        return linalg.solve_lower(self.scale, value - self.mean)

    def log_prob(self, value: Vector) -> Scalar:
        """Log density in nats."""
        noise = self.recover(value)
        # Summed entry by entry: a dot product of size two under `vmap` is many times slower.
        square = sum(noise[i] * noise[i] for i in range(noise.shape[0]))
        return -0.5 * (square + linalg.log_determinant(self.scale) + noise.shape[0] * LOG_TWO_PI)

    def log_choice(self, noise: Noise) -> Scalar:
        """Zero: nothing is chosen."""
        del noise
        return jnp.zeros((), self.mean.dtype)

    def entropy(self) -> Scalar:
        """Differential entropy in nats."""
        return 0.5 * (linalg.log_determinant(self.scale) + self.mean.shape[-1] * (1.0 + LOG_TWO_PI))


def gaussian(mean: Float[Array, "*batch d"], covariance: Float[Array, "*batch d d"]) -> Gaussian:
    """The Gaussian law with this mean and this positive definite covariance."""
    return Gaussian(mean, linalg.cholesky(covariance))


def diagonal_gaussian(mean: Float[Array, "*batch d"], sd: Float[Array, "*batch d"]) -> Gaussian:
    """Independent coordinates with these standard deviations; zero is allowed (no density then)."""
    return Gaussian(mean, sd[..., :, None] * jnp.eye(sd.shape[-1], dtype=sd.dtype))


def recovered(law: Gaussian, value: Vector, free: Noise) -> Noise:
    """A noise that `law.sample` turns into `value`; what the value does not determine is taken from `free`.

    Where the law has no noise along an axis (a zero on the diagonal of its factor) the value says nothing
    about that number.
    """
    noise: list[Array] = []
    for i in range(value.shape[0]):
        known = sum((law.scale[i, j] * noise[j] for j in range(i)), law.mean[i])
        alive = law.scale[i, i] != 0.0
        noise.append(jnp.where(alive, (value[i] - known) / jnp.where(alive, law.scale[i, i], 1.0), free[i]))
    return jnp.stack(noise)


def kl(first: Gaussian, second: Gaussian) -> Scalar:
    """Kullback-Leibler divergence KL(first ‖ second) in nats."""
    offset = linalg.solve_lower(second.scale, first.mean - second.mean)
    size = offset.shape[0]
    whitened = [linalg.solve_lower(second.scale, first.scale[:, j]) for j in range(size)]
    square = sum((linalg.dot(column, column) for column in whitened), linalg.dot(offset, offset))
    log_ratio = linalg.log_determinant(second.scale) - linalg.log_determinant(first.scale)
    return 0.5 * (square - size + log_ratio)


def chernoff(first: Gaussian, second: Gaussian, alpha: Scalar | float = 0.5) -> Scalar:
    """Chernoff α-divergence −log ∫ first^α second^(1−α), for α in [0, 1]."""
    mixed = (1.0 - alpha) * first.covariance + alpha * second.covariance
    lower = linalg.cholesky(mixed)
    offset = linalg.solve_lower(lower, first.mean - second.mean)
    sizes = [linalg.log_determinant(law.scale) for law in (first, second)]
    spread = linalg.log_determinant(lower) - (1.0 - alpha) * sizes[0] - alpha * sizes[1]
    return 0.5 * (alpha * (1.0 - alpha) * (offset @ offset) + spread)


def bhattacharyya(first: Gaussian, second: Gaussian) -> Scalar:
    """Bhattacharyya distance, the Chernoff divergence at α = 1/2."""
    return chernoff(first, second, 0.5)

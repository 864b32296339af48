"""A finite mixture of Gaussians."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from veil import linalg
from veil.laws.base import Law
from veil.laws.gaussian import Gaussian
from veil.types import LOG_ZERO, Noise, Scalar, Vector


class Mixture(Law):
    """Σ_j weight_j N(mean_j, Σ_j): J Gaussians and their log-weights, which sum to one."""

    log_weights: Float[Array, "*batch J"]
    parts: Gaussian

    @property
    def noise_size(self) -> int:
        """One number chooses the component, the others move it."""
        return 1 + self.parts.mean.shape[-1]

    def sample(self, noise: Noise) -> Vector:
        """Choose a component by inverse transform of the first number, then sample it."""
        index = choose(self.log_weights, noise[0])
        part = jax.tree.map(lambda leaf: leaf[index], self.parts)
        return part.sample(noise[1:])

    def log_prob(self, value: Vector) -> Scalar:
        """Log density in nats."""
        return logsumexp(self.log_weights + jax.vmap(lambda part: part.log_prob(value))(self.parts))

    def log_choice(self, noise: Noise) -> Scalar:
        """Log-weight of the component that the first number chooses."""
        return jnp.maximum(self.log_weights[choose(self.log_weights, noise[0])], LOG_ZERO)

    def moments(self) -> Gaussian:
        """The Gaussian law with the mixture's mean and covariance."""
        return match_moments(self.log_weights, self.parts)


def match_moments(log_weights: Float[Array, " J"], parts: Gaussian) -> Gaussian:
    """The one Gaussian with the mean and the covariance of a mixture with normalised log-weights.

    Its factor is found from the factors and the offsets of the parts, never from their products, so that
    parts which are narrow for their distance do not make it singular.
    """
    weights = jnp.exp(log_weights)
    mean = weights @ parts.mean
    apart = (parts.mean - mean[None, :])[:, :, None]
    rows = jnp.concatenate([parts.scale, apart], axis=2)
    count, size, wide = rows.shape
    flat = jnp.swapaxes(rows, 0, 1).reshape(size, count * wide)
    return Gaussian(mean, linalg.triangular_root(flat, jnp.repeat(weights, wide)))


def choose(log_weights: Float[Array, " J"], normal: Scalar) -> Array:
    """The index that a standard normal number selects by inverse transform."""
    steps = jnp.cumsum(jnp.exp(log_weights))
    index = jnp.searchsorted(steps, ndtr(normal) * steps[-1], side="right")
    return jnp.minimum(index, log_weights.shape[0] - 1)

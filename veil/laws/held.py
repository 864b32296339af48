"""A release that may be the last one repeated: what receivers see between two fresh values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.laws.base import Law
from veil.types import Noise, Scalar, Vector


class Held(Law):
    """`inner` if fresh; otherwise all mass on `value`, which the public knows already."""

    fresh: Bool[Array, "*batch"]
    value: Float[Array, "*batch d"]
    inner: Law

    @property
    def noise_size(self) -> int:
        """As much as a fresh value takes."""
        return self.inner.noise_size

    def sample(self, noise: Noise) -> Vector:
        """A fresh value, or the old one bit for bit."""
        return jnp.where(self.fresh, self.inner.sample(noise), self.value)

    def log_prob(self, value: Vector) -> Scalar:
        """That of the fresh value; where held, log 1 = 0 at the old value and −∞ elsewhere."""
        # A held value may be impossible for the inner law: asked about a value of its own instead, it gives
        # numbers whose gradient is one too.
        own = self.inner.sample(jnp.zeros(self.inner.noise_size, value.dtype))
        asked = jnp.where(self.fresh, value, jax.lax.stop_gradient(own))
        held = jnp.where(jnp.all(value == self.value), 0.0, -jnp.inf)
        return jnp.where(self.fresh, self.inner.log_prob(asked), held)

    def log_choice(self, noise: Noise) -> Scalar:
        """That of the fresh value; zero where held."""
        return jnp.where(self.fresh, self.inner.log_choice(noise), 0.0)

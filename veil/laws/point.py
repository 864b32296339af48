"""A law without randomness and without a density: the true data themselves."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws.base import Law
from veil.types import Noise, Scalar, Vector


class Point(Law):
    """All mass on one value. Its likelihood comes from the transition density, never from a tiny sd."""

    value: Float[Array, "*batch d"]

    @property
    def noise_size(self) -> int:
        """No noise."""
        return 0

    def sample(self, noise: Noise) -> Vector:
        """The value itself."""
        del noise
        return self.value

    def log_prob(self, value: Vector) -> Scalar:
        """Refuse: a point law has no density."""
        raise TypeError(
            "A point law has no density. Track noise-free sharing with veil.beliefs.ObservedBelief, "
            "which uses the exact transition densities, or share with Gaussian noise."
        )

    def log_choice(self, noise: Noise) -> Scalar:
        """Zero: nothing is chosen."""
        del noise
        return jnp.zeros((), self.value.dtype)

"""A law on finitely many values: a grid policy, a quantiser."""

import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil.laws.base import Law
from veil.laws.mixture import choose
from veil.types import LOG_ZERO, Noise, Scalar, Vector


class Finite(Law):
    """Atoms and their log-masses, which sum to one. A deterministic quantiser has one atom."""

    atoms: Float[Array, "*batch J d"]
    log_masses: Float[Array, "*batch J"]

    @property
    def noise_size(self) -> int:
        """One number chooses the atom."""
        return 1

    def sample(self, noise: Noise) -> Vector:
        """Choose an atom by inverse transform."""
        return self.atoms[choose(self.log_masses, noise[0])]

    def log_prob(self, value: Vector) -> Scalar:
        """Log mass: −∞ off the atoms, compared bit for bit."""
        hit = jnp.all(self.atoms == value[None, :], axis=-1)
        return logsumexp(jnp.where(hit, jnp.maximum(self.log_masses, LOG_ZERO), -jnp.inf))

    def log_choice(self, noise: Noise) -> Scalar:
        """Log-mass of the atom chosen."""
        return jnp.maximum(self.log_masses[choose(self.log_masses, noise[0])], LOG_ZERO)

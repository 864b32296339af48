"""The belief that never learns: for policies that do not look at their belief."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs.base import Belief, Health, untouched
from veil.components import Components
from veil.kernel import Kernel
from veil.laws import Gaussian
from veil.systems.base import System
from veil.types import External, Key, Shared


class PriorBelief(Belief):
    """The prior masses at every step and nothing about the state, at no cost."""

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]

    @classmethod
    def start(cls, system: System) -> "PriorBelief":
        """The prior of the system."""
        return cls(system.prior.secrets, system.prior.log_masses)

    def moments(self) -> Gaussian:
        """Refuse: the state is unknown."""
        raise TypeError("A PriorBelief knows nothing about the state. Use ParticleBelief or KalmanBelief.")

    def components(self, kernel: Kernel) -> Components:
        """Refuse: the release is unknown."""
        raise TypeError("A PriorBelief cannot predict a release. Use ParticleBelief or KalmanBelief.")

    def advance(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["PriorBelief", Health]:
        """The same belief."""
        del system, kernel, external, shared, key
        return self, untouched(self.log_masses, jnp.full_like(self.log_masses, jnp.inf))

"""A simulated owner for the demo: a vehicle with a secret driver, in a platoon that reacts to it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil.systems.base import System
from veil.types import External, Secret, Shared, State, as_float64


class Vehicle:
    """State and surroundings before the release of the next step.

    Args:
        system: the model that it follows, and its surroundings with it.
        index: which secret of the prior is its own.
        seed: of its noise; this is a simulation, so that it may repeat itself.
    """

    def __init__(self, system: System, index: int, seed: int):
        self.numbers = np.random.default_rng(seed)
        with jax.enable_x64(True):
            self.system = as_float64(system)
            self.secret = self.system.prior.secrets[index]
            law = self.system.initial(self.secret)
            self.state = np.asarray(law.sample(self._noise(law.noise_size)))
            self.external = np.asarray(self.system.initial_external())

    def go_on(self, shared: np.ndarray | None) -> None:
        """One step: the owner moves by what surrounds it, and that reacts to what was shared."""
        with jax.enable_x64(True):
            noise = self._noise(len(self.state) + self.system.reaction_noise_size)
            seen = None if shared is None else jnp.asarray(shared)
            now = jnp.asarray(self.state), jnp.asarray(self.external), seen
            self.state, self.external = map(np.asarray, _moved(self.system, self.secret, *now, noise))

    def _noise(self, size: int) -> Array:
        return jnp.asarray(self.numbers.standard_normal(size))


@eqx.filter_jit
def _moved(
    system: System,
    secret: Secret,
    state: State,
    external: External,
    shared: Shared | None,
    noise: Float[Array, " S"],
) -> tuple[State, External]:
    """The next state and the next surroundings."""
    law = system.transition(secret, state, external)
    own, others = noise[: law.noise_size], noise[law.noise_size :]
    return law.sample(own), system.react(external, shared, others)

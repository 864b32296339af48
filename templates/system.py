"""Template of a system: copy, rename, replace the physics. `python system.py` examines it."""

import jax.numpy as jnp

from veil.checks.system import check_system
from veil.laws import Gaussian, diagonal_gaussian
from veil.systems import Field, Prior, System, finite_prior


class Tank(System):
    """A tank with a secret leak. It shares its level with the operator of the pump."""

    prior: Prior  # what the adversary believes beforehand: secrets (K, P) and their masses

    secret_fields = (Field("leak", "1/min", 0.0, 1.0),)
    state_fields = (Field("level", "m", 0.0, 5.0),)
    external_fields = (Field("inflow", "m/min", -1.0, 2.0),)
    shared_fields = (Field("level", "m"),)
    reaction_noise_size = 1  # standard normal numbers that `react` takes

    def initial(self, secret) -> Gaussian:
        """Law of the first state; the same for every secret, or the start tells it."""
        return diagonal_gaussian(jnp.array([2.0]), jnp.array([0.2]))

    def initial_external(self):
        """The first public input."""
        return jnp.array([0.4])

    def transition(self, secret, state, external) -> Gaussian:
        """Law of the next state. This is where the secret acts."""
        return diagonal_gaussian(state + external - secret * state, jnp.array([0.05]))

    def react(self, external, shared, noise):
        """What the others answer; `shared` is None where the release was withheld."""
        wish = external if shared is None else 0.4 + 0.2 * (2.0 - shared)
        return wish + 0.02 * noise

    def cost(self, secret, state, after, shared):
        """What a step costs the owner."""
        return (after[0] - 2.0) ** 2

    def distortion(self, state, shared):
        """How far the release is from the truth."""
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        """What would be shared without protection."""
        return state


example = Tank(finite_prior([0.1, 0.2, 0.3]))

if __name__ == "__main__":
    print(check_system(example))

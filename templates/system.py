"""Template of a system: copy, rename, replace the physics. `python system.py` checks it."""

import jax.numpy as jnp

from veil.checks.system import check_system
from veil.laws import Gaussian, diagonal_gaussian
from veil.systems import Field, Prior, System, finite_prior


class Tank(System):
    """A tank with a secret leak. It shares its level with the operator of the pump."""

    prior: Prior  # the secrets that the adversary considers possible, (K, P), and their probabilities

    # A real sensor rounds: add e.g. resolution=0.01, in the unit, to every state and every shared field.
    secret_fields = (Field("leak", "1/min", 0.0, 1.0),)
    state_fields = (Field("level", "m", 0.0, 5.0),)
    external_fields = (Field("inflow", "m/min", -1.0, 2.0),)
    shared_fields = (Field("level", "m"),)
    reaction_noise_size = 1  # standard normal numbers that `react` takes

    def initial(self, secret) -> Gaussian:
        """Distribution of the first state; it should be the same for every secret."""
        return diagonal_gaussian(jnp.array([2.0]), jnp.array([0.2]))

    def initial_external(self):
        """The first public input."""
        return jnp.array([0.4])

    def transition(self, secret, state, external) -> Gaussian:
        """Distribution of the next state. The secret acts here."""
        return diagonal_gaussian(state + external - secret * state, jnp.array([0.05]))

    def react(self, external, shared, noise):
        """The next public input: how others answer a release. `shared` is None if it was withheld."""
        wish = external if shared is None else 0.4 + 0.2 * (2.0 - shared)
        return wish + 0.02 * noise

    def cost(self, secret, state, after, shared, external):
        """The owner's cost of a step."""
        return (after[0] - 2.0) ** 2

    def distortion(self, state, shared):
        """The distance of the release from the true output."""
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        """The value that is shared without protection."""
        return state


example = Tank(finite_prior([0.1, 0.2, 0.3]))

if __name__ == "__main__":
    print(check_system(example))

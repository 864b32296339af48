"""A linear system in the plane of which one coordinate is shared; the other one stays hidden."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from veil.laws import Gaussian
from veil.systems import Field, Prior, System, finite_prior

SPREAD = np.array([[0.3, 0.0], [0.1, 0.2]])
FIRST = np.array([[0.8, 0.0], [0.2, 0.5]])


class Hidden(System):
    """x' = A(θ) x + (w, 0) + noise in the plane; only the first coordinate is shared; w' = 0.5 y + 0.2 ε."""

    prior: Prior
    limit: Array

    secret_fields = (Field("a"), Field("b"))
    state_fields = (Field("x"), Field("hidden"))
    external_fields = (Field("w"),)
    shared_fields = (Field("x"),)
    reaction_noise_size = 1

    def initial(self, secret) -> Gaussian:
        return Gaussian(jnp.zeros(2), jnp.asarray(FIRST))

    def initial_external(self):
        return jnp.zeros(1)

    def transition(self, secret, state, external) -> Gaussian:
        moved = jnp.stack([secret[0] * state[0] + state[1] + external[0], secret[1] * state[1]])
        return Gaussian(moved, jnp.asarray(SPREAD))

    def react(self, external, shared, noise):
        assert shared is not None
        return 0.5 * shared + 0.2 * noise

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state[:1] - shared)[0]

    def output(self, state):
        return state[:1]


def hidden(cls=Hidden):
    return cls(finite_prior([(0.3, 0.9), (0.6, 0.5), (0.9, 0.2)]), jnp.asarray(1e6))

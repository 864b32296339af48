"""A scalar linear loop with a secret gain. One Kalman filter per secret gives every answer exactly."""

import equinox as eqx
import jax.numpy as jnp

from veil.laws import Gaussian, diagonal_gaussian
from veil.registry import SYSTEMS
from veil.systems.base import Field, Nouns, Prior, System, finite_prior
from veil.types import Answer, External, Noise, Scalar, Secret, Shared, State


@SYSTEMS.register("gain", "a scalar linear loop with a secret gain, where every answer is known exactly")
class Gain(System):
    """x' = θ x + w + sd·ε with a secret gain θ; the environment answers w' = reply·y + reaction_sd·ε.

    The transition is linear in x and Gaussian, so under a linear Gaussian kernel the Kalman belief is exact.
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior([0.3, 0.6, 0.9]))
    sd: Scalar = eqx.field(default=0.3, converter=jnp.asarray)
    initial_sd: Scalar = eqx.field(default=1.0, converter=jnp.asarray)
    reply: Scalar = eqx.field(default=-0.2, converter=jnp.asarray)
    reaction_sd: Scalar = eqx.field(default=0.5, converter=jnp.asarray)

    secret_fields = (Field("gain"),)
    state_fields = (Field("level"),)
    external_fields = (Field("push"),)
    shared_fields = (Field("level"),)
    reaction_noise_size = 1
    nouns = Nouns("the loop", "the gain", "gain")

    def initial(self, secret: Secret) -> Gaussian:
        """x_1 around zero, the same for every secret."""
        del secret
        return diagonal_gaussian(jnp.zeros_like(self.initial_sd)[None], self.initial_sd[None])

    def initial_external(self) -> Answer:
        """The first push is zero."""
        return jnp.zeros_like(self.reply)[None]

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """A linear Gaussian step, with the secret as gain."""
        return diagonal_gaussian(secret * state + external, self.sd[None])

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """A proportional answer to the shared level; only noise where nothing was shared."""
        answer = jnp.zeros_like(external) if shared is None else self.reply * shared
        return answer + self.reaction_sd * noise

    def cost(self, secret: Secret, state: State, after: State, shared: Shared, external: External) -> Scalar:
        """Squared level after the step."""
        del secret, state, shared, external
        return after[0] ** 2

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Absolute error of the shared level."""
        return jnp.abs(state[0] - shared[0])

    def output(self, state: State) -> Shared:
        """The level as it is."""
        return state

"""The critic of an actor-critic learner: what is still to be paid, given what the owner sees and does."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws import Gaussian, Law
from veil.policies.scaling import Scaling
from veil.types import External, Features, Key, Scalar, Secret, State, Vector

_DEEP = 2  # hidden layers


class Observation(eqx.Module):
    """What an owner sees before a release, beside the belief. Private."""

    secret: Secret
    state: State
    external: External
    time: Array


class Critic(eqx.Module):
    """Q(features, w, t/T, θ, x, law of the release): one number from two hidden layers.

    As in the paper it sees the kernel at the true secret and state only. Every array in it is trained.
    """

    layers: eqx.nn.MLP

    @classmethod
    def start(cls, features: int, scaling: Scaling, width: int, *, key: Key) -> "Critic":
        """A critic with random weights."""
        output, unit = scaling.output.spread.shape[0], scaling.state.spread
        inputs = features + scaling.external.spread.shape[0] + 1 + scaling.secret.spread.shape[0]
        inputs += unit.shape[0] + output + output * (output + 1) // 2
        layers = eqx.nn.MLP(inputs, "scalar", width, _DEEP, jax.nn.relu, dtype=unit.dtype, key=key)
        return cls(layers)

    def __call__(
        self, features: Features, observation: Observation, action: Vector, scaling: Scaling
    ) -> Scalar:
        """The expected charges to come."""
        public, private = (
            scaling.public(observation.external, observation.time),
            scaling.point(observation.secret, observation.state),
        )
        return self.layers(jnp.concatenate([features, public, private, action]))


def described(law: Law, output: Vector, scaling: Scaling) -> Float[Array, " A"]:
    """A Gaussian release as numbers of size one: offset of the mean, and the factor, its diagonal in logs."""
    if not isinstance(law, Gaussian):
        raise TypeError(f"The critic reads Gaussian releases; this policy gives a {type(law).__name__}.")
    unit, size = scaling.output.spread, output.shape[0]
    factor = law.scale / unit[:, None]
    rows, columns = jnp.tril_indices(size, -1)
    logs = jnp.log(jnp.diagonal(factor))
    return jnp.concatenate([(law.mean - output) / unit, logs, factor[rows, columns]])

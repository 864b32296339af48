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

    Attributes:
        layers: the network.
        printed: whether it sees what the paper lists and no more: Q(θ, s, x, μ, Σ), without w and t.
    """

    layers: eqx.nn.MLP
    printed: bool = eqx.field(default=False, static=True)

    @classmethod
    def start(
        cls, features: int, scaling: Scaling, width: int, printed: bool = False, *, key: Key
    ) -> "Critic":
        """A critic with random weights.

        Args:
            features: how many there are.
            scaling: units of all inputs.
            width: neurons per hidden layer.
            printed: whether w and t are left out.
            key: of the weights.
        """
        output, unit = scaling.output.spread.shape[0], scaling.state.spread
        inputs = features + scaling.secret.spread.shape[0] + unit.shape[0]
        inputs += output + output * (output + 1) // 2
        inputs += 0 if printed else scaling.external.spread.shape[0] + 1
        layers = eqx.nn.MLP(inputs, "scalar", width, _DEEP, jax.nn.relu, dtype=unit.dtype, key=key)
        return cls(layers, printed)

    def __call__(
        self, features: Features, observation: Observation, action: Vector, scaling: Scaling
    ) -> Scalar:
        """The expected charges to come."""
        private = scaling.point(observation.secret, observation.state)
        seen = [features, private, action]
        if not self.printed:
            seen.append(scaling.public(observation.external, observation.time))
        return self.layers(jnp.concatenate(seen))


def described(law: Law, output: Vector, scaling: Scaling, printed: bool = False) -> Float[Array, " A"]:
    """A Gaussian release as numbers of size one: its mean, and its factor, the diagonal first.

    Args:
        law: of the release.
        output: what would be shared without protection.
        scaling: units.
        printed: the mean and the factor as they are; else the mean is measured from the output, and the
            diagonal of the factor is in logs.
    """
    if not isinstance(law, Gaussian):
        raise TypeError(f"The critic reads Gaussian releases; this policy gives a {type(law).__name__}.")
    unit, size = scaling.output.spread, output.shape[0]
    factor = law.scale / unit[:, None]
    rows, columns = jnp.tril_indices(size, -1)
    diagonal, below = jnp.diagonal(factor), factor[rows, columns]
    if printed:
        return jnp.concatenate([scaling.output(law.mean), diagonal, below])
    return jnp.concatenate([(law.mean - output) / unit, jnp.log(diagonal), below])

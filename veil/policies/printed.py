"""The actor as the paper prints it: (μ, Σ) = f_u(θ, x, s), a plain network without any limits.

Nothing ties the mean to the output, and nothing bounds the noise: an untrained one releases numbers that
hardly depend on the secret or the state. `NeuralPolicy` is the variant with limits, which an audit can bound.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from veil.beliefs.base import Belief, FilterSpec
from veil.laws import Gaussian, Kernel
from veil.policies.base import LearnedPolicy, Time
from veil.policies.networks import Encoder, Form, Summary, start_encoder
from veil.policies.scaling import Scaling, Unit
from veil.systems.base import System
from veil.types import External, Features, Key, Secret, State, Vector

_DEEP = 2  # hidden layers

_LEAST = 1e-4  # of the diagonal of the factor, in spreads: no limit of the actor, but of single precision

_SLANT = 1e-3  # of the diagonal for the row below it, likewise: the correlation stays under 1 − 5e-7


class PrintedNetwork(eqx.Module):
    """The encoder, and two hidden layers from (θ, x, s) to the raw outputs. Every array in it is trained."""

    encoder: Encoder
    layers: eqx.nn.MLP

    def __call__(self, point: Vector, features: Features) -> Float[Array, " O"]:
        """Raw outputs at a secret and a state in their units."""
        return self.layers(jnp.concatenate([point, features]))


class PrintedPolicy(LearnedPolicy):
    """Gaussian releases whose mean and Cholesky factor are the outputs of a network of (θ, x, s).

    The external input and the time are no inputs, as in the paper.

    Attributes:
        system: the owner's model.
        scaling: units of everything: the mean is in units of centre and spread of the output, the factor in
            those of the spread.
        tracker: the belief that is encoded.
        network: all that is learned.
    """

    system: System
    scaling: Scaling
    tracker: FilterSpec
    network: PrintedNetwork

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """s_t, as the encoder sums the belief up."""
        del external, time
        return self.network.encoder(belief, self.scaling)

    def kernel(self, features: Features, external: External, time: Time) -> "PrintedKernel":
        """The network at these features."""
        del external, time
        return PrintedKernel(self.scaling, self.network, features)


class PrintedKernel(Kernel):
    """Raw outputs, in this order: the mean, the diagonal of the factor before softplus, the rest of it."""

    scaling: Scaling
    network: PrintedNetwork
    features: Features

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        raw = self.network(self.scaling.point(secret, state), self.features)
        return generic_gaussian(raw, self.scaling.output)


def generic_gaussian(raw: Float[Array, " O"], unit: Unit) -> Gaussian:
    """The Gaussian of raw outputs: any mean and any covariance has some that give it.

    Args:
        raw: d numbers for the mean, d for the diagonal of the factor before softplus, d(d−1)/2 below it.
        unit: centre and spread of the release.
    """
    size = unit.spread.shape[0]
    mean, diagonal, below = jnp.split(raw, [size, 2 * size])
    rows, columns = jnp.tril_indices(size, -1)
    slanted = jnp.zeros((size, size), raw.dtype).at[rows, columns].set(below)
    least = _LEAST + _SLANT * jnp.sum(jnp.abs(slanted), axis=1)
    factor = jnp.diag(jax.nn.softplus(diagonal) + least) + slanted
    return Gaussian(unit.centre + unit.spread * mean, unit.spread[:, None] * factor)


def printed_policy(
    system: System,
    scaling: Scaling,
    *,
    tracker: FilterSpec,
    encoder: Summary = "mgf",
    form: Form = "relu",
    width: int = 128,
    key: Key,
) -> PrintedPolicy:
    """The paper's actor with random weights, all of the usual size: it knows nothing of the output yet.

    Args:
        system: the owner's model.
        scaling: units, of this system's sizes and number type.
        tracker: the belief to encode, as printed a `veil.beliefs.PooledSpec`.
        encoder: how the belief is summed up.
        form: of the features at learned points, if the encoder is "mgf".
        width: number of hidden units per layer.
        key: of the random weights.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, the number of hidden units; got {width}.")
    encoder_key, layer_key = jr.split(key)
    made = start_encoder(system, scaling, encoder, form, key=encoder_key)
    size = len(system.shared_fields)
    inputs = made.size + len(system.secret_fields) + len(system.state_fields)
    outputs = size * (size + 3) // 2
    dtype = scaling.state.centre.dtype
    layers = eqx.nn.MLP(inputs, outputs, width, _DEEP, jax.nn.relu, dtype=dtype, key=layer_key)
    network = PrintedNetwork(made, layers)
    return PrintedPolicy(system=system, scaling=scaling, tracker=tracker, network=network)

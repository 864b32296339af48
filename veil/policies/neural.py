"""A learned policy with Gaussian releases, or mixtures of them, that keeps within limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from veil.beliefs.base import Belief, FilterSpec
from veil.beliefs.kalman import KalmanSpec
from veil.laws import Gaussian, Kernel, Mixture
from veil.policies.base import LearnedPolicy, Time
from veil.policies.geometry import nearest
from veil.policies.networks import Context, Form, Network, Summary, start_encoder, start_network
from veil.policies.scaling import Limits, Scaling, between, bounded, correlation_factor, halfway
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, State

_STEEPEST = 1.1  # no slope of silu is above 1.09985


class NeuralPolicy(LearnedPolicy):
    """Gaussian around the output plus an offset, or a mixture of `parts` such laws, by a network.

    The limits hold whatever the weights are. In units of the output, for every secret and every part:

    - the mean is within `limits.offset` of the output, per axis;
    - the sd of every axis is between `limits.low` and `limits.high`;
    - |offset(x) − offset(x')| ≤ limits.slope · |x̃ − x̃'|, with x̃ the state in its unit. Where the output is
      the state and has the same unit, a slope below one makes the mean one-to-one in the state. Where it
      is a part of the state, this holds with the rest of the state fixed.

    Attributes:
        system: the owner's model.
        scaling: units of everything.
        limits: what the kernel may do at most.
        tracker: the belief that the policy looks at.
        network: all that is learned.
        parts: number of Gaussians in a release law.
    """

    system: System
    scaling: Scaling
    limits: Limits
    tracker: FilterSpec
    network: Network
    parts: int = eqx.field(default=1, static=True)

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """As the encoder sums it up."""
        del external, time
        return self.network.encoder(belief, self.scaling)

    def kernel(self, features: Features, external: External, time: Time) -> "NeuralKernel":
        """The network at these public numbers, its weights within the limits."""
        context = self.network.context(features, self.system.prior, self.scaling.public(external, time))
        rows = self.parts * len(self.system.shared_fields)
        network = limited(self.network, self.parts, rows, self.limits.slope)
        return NeuralKernel(self.system, self.scaling, self.limits, network, context, self.parts)


class NeuralKernel(Kernel):
    """Raw outputs, in this order: offsets, sds and slants of every part, then their log-weights."""

    system: System
    scaling: Scaling
    limits: Limits
    network: Network
    context: Context
    parts: int = eqx.field(static=True)

    def __call__(self, secret: Secret, state: State) -> Gaussian | Mixture:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        raw = self.network(self.context, index, self.scaling.secret(secret), self.scaling.state(state))
        shared = self.system.output(state)
        count, size = self.parts, shared.shape[0]
        cuts = [count * size, 2 * count * size, count * size * (size + 3) // 2]
        offsets, sds, slants, scores = jnp.split(raw, cuts)
        unit = self.scaling.output.spread[None, :]
        means = shared[None, :] + unit * bounded(offsets.reshape(count, size), self.limits.offset)
        sds = unit * between(sds.reshape(count, size), self.limits.low, self.limits.high)
        scales = sds[:, :, None] * correlation_factor(slants.reshape(count, -1), size)
        if count == 1:
            return Gaussian(means[0], scales[0])
        return Mixture(jax.nn.log_softmax(scores), Gaussian(means, scales))


def limited(network: Network, parts: int, rows: int, slope: Scalar) -> Network:
    """The network with the first `rows` outputs, in `parts` equal blocks, of Lipschitz constant ≤ slope.

    silu has slope at most 1.1, so for one block it is at most 1.1 ‖V‖ ‖W‖: each of the two Frobenius norms
    is brought down to sqrt(slope/1.1), if it is larger.
    """
    largest = jnp.sqrt(slope / _STEEPEST)
    blocks = network.bent[:rows].reshape(parts, -1)
    bent = network.bent.at[:rows].set(jax.vmap(_shortened, (0, None))(blocks, largest).reshape(rows, -1))
    inlet = _shortened(network.inlet, largest)
    return eqx.tree_at(lambda whole: (whole.inlet, whole.bent), network, (inlet, bent))


def _shortened(weights: Array, largest: Scalar) -> Array:
    """The weights, scaled down to this Frobenius norm if theirs is larger; at zero they have a gradient."""
    norm = jnp.sqrt(jnp.sum(weights**2) + jnp.finfo(weights.dtype).eps ** 2)
    return weights * (largest / jnp.maximum(norm, largest))


def neural_policy(
    system: System,
    scaling: Scaling,
    *,
    tracker: FilterSpec | None = None,
    encoder: Summary = "moments",
    form: Form = "relu",
    parts: int = 1,
    limits: Limits | None = None,
    width: int = 64,
    sd: float = 0.3,
    key: Key,
) -> NeuralPolicy:
    """A policy that shares nearly the output with noise, until it is trained.

    Args:
        system: the owner's model.
        scaling: units, of this system's sizes and number type.
        tracker: the belief to look at; by default one extended Kalman filter per secret.
        encoder: how the belief is summed up.
        form: of the features at learned points, if the encoder is "mgf".
        parts: 1 for a Gaussian release, more for a mixture.
        limits: of the kernel.
        width: number of hidden units per layer.
        sd: of the noise at the start, in units of the output, between the limits.
        key: of the random weights.
    """
    if parts < 1:
        raise ValueError(f"parts must be at least 1, the number of Gaussians in a release law; got {parts}.")
    dtype = scaling.state.centre.dtype
    limits = Limits() if limits is None else limits
    low, high = float(limits.low), float(limits.high)
    if not 0.0 < low < sd < high:
        raise ValueError(
            f"sd must lie between limits.low, above zero, and limits.high: {low} < {sd} < {high}."
        )
    encoder_key, network_key = jr.split(key)
    size = len(system.shared_fields)
    bias = jnp.zeros(parts * (size * (size + 3) // 2 + 1), dtype)
    raw = halfway(jnp.asarray(sd, dtype), limits.low.astype(dtype), limits.high.astype(dtype))
    bias = bias.at[parts * size : 2 * parts * size].set(raw)
    made = start_encoder(system, scaling, encoder, form, key=encoder_key)
    network = start_network(system, scaling, made, bias, width, key=network_key)
    return NeuralPolicy(
        system=system,
        scaling=scaling,
        limits=jax.tree.map(lambda leaf: leaf.astype(dtype), limits),
        tracker=KalmanSpec() if tracker is None else tracker,
        network=network,
        parts=parts,
    )

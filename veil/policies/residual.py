"""A network on top of transport: it starts from perfect privacy and learns what is worth giving up."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.laws import Gaussian
from veil.policies.base import LearnedPolicy, Time
from veil.policies.geometry import AffineKernel, Plan
from veil.policies.scaling import Limits, Scaling, between, bounded, correlation_factor, halfway
from veil.policies.transport import Transport
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Vector


class Correction(eqx.Module):
    """What the network says about one secret, in units of the output."""

    share: Scalar  # of the way to the barycentre
    offset: Float[Array, " Y"]
    slope: Float[Array, "Y Y"]
    scale: Float[Array, "Y Y"]


class ResidualPolicy(LearnedPolicy):
    """Transport with a learned share of the way, a learned offset and slope per secret, and learned noise.

    The release stays affine in the output given each secret, so that a Kalman belief reads it without error,
    and the network is asked once per secret and step, not once per particle. A fresh one is `base` itself.

    Attributes:
        base: the transport it starts from, with its belief.
        scaling: units of the inputs and outputs.
        limits: how far the kernel may go. `offset` and `slope` bound the distance from transport.
        network: maps what is public and one secret to a `Correction`.
    """

    base: Transport
    scaling: Scaling
    limits: Limits
    network: eqx.nn.MLP

    def __init__(self, base: Transport, scaling: Scaling, limits: Limits, network: eqx.nn.MLP):
        self.base = base
        self.scaling = scaling
        self.limits = limits
        self.network = network

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The model of the transport."""
        return self.base.system

    def start(self, *, key: Key) -> Belief:
        """As the transport begins."""
        return self.base.start(key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """Those of the transport: log-masses, means and factors of the output given each secret."""
        return self.base.features(belief, external, time)

    def kernel(self, features: Features, external: External, time: Time) -> AffineKernel:
        """The plan of the transport, corrected."""
        log_masses, laws = self.base.split(features)
        plan = self.base.plan(log_masses, laws)
        found = jax.vmap(self.correction)(self.inputs(log_masses, laws, plan, external, time))
        spread = self.scaling.output.spread
        mixed = plan.partly(found.share)
        maps = mixed.maps + spread[None, :, None] * found.slope / spread[None, None, :]
        corrected = Plan(plan.starts, maps, mixed.centres + spread[None] * found.offset)
        return AffineKernel(self.system, corrected, spread[None, :, None] * found.scale)

    def inputs(
        self, log_masses: Float[Array, " K"], laws: Gaussian, plan: Plan, external: External, time: Time
    ) -> Float[Array, "K I"]:
        """Inputs of the network, one row per secret, scaled to size one.

        Args:
            log_masses: of the secrets under the belief.
            laws: of the output given each secret.
            plan: the transport of this step.
            external: w_t.
            time: t, counted from 1.
        """
        scaling, spread = self.scaling, self.scaling.output.spread
        apart = (laws.mean - plan.centres) / spread[None]
        rows, columns = jnp.tril_indices(spread.shape[0])
        factors = laws.scale[:, rows, columns] / spread[rows][None]
        masses = jnp.exp(log_masses) * log_masses.shape[0] - 1.0
        everybody = [masses, scaling.output(plan.centres[0]), apart.ravel(), factors.ravel()]
        public = jnp.concatenate([*everybody, scaling.public(external, time)])
        secrets = jax.vmap(scaling.secret)(self.system.prior.secrets)
        common = jnp.broadcast_to(public, (log_masses.shape[0], public.shape[0]))
        return jnp.concatenate([common, secrets, apart, factors], axis=1)

    def correction(self, inputs: Vector) -> Correction:
        """The network's answer within the limits."""
        size = self.scaling.output.spread.shape[0]
        raw, limits = self.network(inputs), self.limits
        share, offset, slope, noise = jnp.split(raw, [1, 1 + size, 1 + size + size * size])
        flat = bounded(slope, limits.slope / size)  # so that the Frobenius norm keeps the limit
        initial = halfway(self.base.sd / self.scaling.output.spread, limits.low, limits.high)
        sds = between(noise[:size] + initial, limits.low, limits.high)
        return Correction(
            1.0 + bounded(share[0], jnp.ones_like(share[0])),
            bounded(offset, limits.offset),
            flat.reshape(size, size),
            sds[:, None] * correlation_factor(noise[None, size:], size)[0],
        )


def residual_policy(
    base: Transport, scaling: Scaling, *, limits: Limits | None = None, width: int = 64, key: Key
) -> ResidualPolicy:
    """A network that leaves the transport as it is, until it is trained.

    Args:
        base: where to start.
        scaling: units, for instance by `veil.learners.usual`.
        limits: of the kernel.
        width: of the two hidden layers.
        key: for the initial weights.
    """
    limits = Limits() if limits is None else limits
    count, size = base.system.prior.secrets.shape[0], len(base.system.shared_fields)
    triangle = size * (size + 1) // 2
    public = count + size + count * size + count * triangle + len(base.system.input_fields) + 1
    inputs = public + len(base.system.secret_fields) + size + triangle
    outputs = 1 + size + size * size + triangle
    dtype = scaling.output.spread.dtype
    network = eqx.nn.MLP(inputs, outputs, width, 2, jax.nn.silu, dtype=dtype, key=key)
    last = network.layers[-1]
    assert last.bias is not None
    quiet = (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias))
    network = eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), network, quiet)
    return ResidualPolicy(base=base, scaling=scaling, limits=limits, network=network)

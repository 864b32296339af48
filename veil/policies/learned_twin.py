"""A learned twin: a network moves the centre of the copies, and sees public functions of ε and w alone.

The release of a twin may be any public function of (ε, w): the bound of docs/twin.md does not depend on which
one. So there is nothing to trade between leakage and cost, and a learner gets no price for leakage. The
network here reads the copies' outputs, which are functions of (ε, w) up to this step, the public inputs and
the time. It does not read ε itself: in a pre-roll, and while inputs are new, the copies do not follow the
noise, and a network that did would tell what the exact reader does not count.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws import Law, MemoryKernel, Point, diagonal_gaussian
from veil.policies.base import LearnedPolicy, Memory, Time
from veil.policies.scaling import Limits, Scaling, bounded
from veil.policies.twin import Twin, TwinMemory
from veil.types import External, Features, Key, Secret, Shared, State


class LearnedTwin(Twin, LearnedPolicy):
    """A twin that releases the centre of its copies and a learned offset. A fresh one is the twin itself.

    Attributes:
        scaling: units of the inputs and outputs.
        limits: of them `offset` counts: how far a release may be from the centre.
        network: maps the copies' outputs, the public inputs and the time to an offset.
    """

    scaling: Scaling
    limits: Limits
    network: eqx.nn.MLP

    def __init__(self, base: Twin, scaling: Scaling, limits: Limits, network: eqx.nn.MLP):
        for each in dataclasses.fields(Twin):
            setattr(self, each.name, getattr(base, each.name))
        self.scaling = scaling
        self.limits = limits
        self.network = network

    def kernel(self, features: Features, external: External, time: Time) -> "LearnedTwinKernel":
        """The kernel of this step: the network reads the public inputs and the time."""
        del features
        return LearnedTwinKernel(self, external, time)

    def moved_centre(self, memory: TwinMemory, external: External, time: Time) -> Shared:
        """The centre of the copies' outputs and the offset, a public function of (ε, w).

        Args:
            memory: of which only the copies are read.
            external: w_t.
            time: t, counted from 1.
        """
        centre, outputs = self.release_centre(memory), jax.vmap(self.system.output)(memory.copies.known.mean)
        unit = self.scaling.output
        apart = ((outputs - centre[None]) / unit.spread[None]).ravel()
        inputs = jnp.concatenate([unit(centre), apart, self.scaling.public(external, time)])
        return centre + unit.spread * bounded(self.network(inputs), self.limits.offset)


class LearnedTwinKernel(MemoryKernel):
    """The moved centre of the copies' outputs, with noise if there is an `sd`."""

    policy: LearnedTwin
    external: Float[Array, " E"]
    time: Time

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """Around the moved centre; the secret and the state are not read."""
        del secret, state
        policy = self.policy
        centre = policy.moved_centre(policy.unpack(memory), self.external, self.time)
        return Point(centre) if policy.sd is None else diagonal_gaussian(centre, policy.sd)


def learned_twin(
    base: Twin, scaling: Scaling, *, limits: Limits | None = None, width: int = 64, key: Key
) -> LearnedTwin:
    """A network that leaves the twin as it is, until it is trained.

    Args:
        base: where to start.
        scaling: units, for instance by `veil.learners.typical_scaling`.
        limits: of which `offset` counts.
        width: of the two hidden layers.
        key: for the initial weights.
    """
    size, copies = (
        len(base.system.shared_fields),
        1 if base.centre == "standard" else base.system.prior.secrets.shape[0],
    )
    inputs = size + copies * size + len(base.system.input_fields) + 1
    dtype = scaling.output.spread.dtype
    network = eqx.nn.MLP(inputs, size, width, 2, jax.nn.silu, dtype=dtype, key=key)
    last = network.layers[-1]
    assert last.bias is not None
    quiet = (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias))
    network = eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), network, quiet)
    return LearnedTwin(base, scaling, Limits() if limits is None else limits, network)

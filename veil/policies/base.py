"""The contract of a sharing policy: what it looks at, and the kernel it decides on."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from veil.beliefs.base import Belief, PriorBelief
from veil.laws import Kernel, SwitchedLaw
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, Shared, State

Time = Int[Array, ""]

Memory = Float[Array, "..."]


class Policy(eqx.Module):
    """Maps what is public, (belief_t, w_t, t), to the kernel that y_t is drawn from.

    It does so in two steps, because the first is expensive and the second is what an adversary needs: the
    belief is summed up in a few numbers, the features, which are published with the transcript; the kernel
    is a function of them. The belief is the policy's own: its kind and size belong to the policy, and
    everybody can recompute it from the transcript and the public seed.

    A policy may also keep a memory. It is as private as the secret: a function of the secret and the states,
    which only the owner can compute. Its kernels are `veil.laws.MemoryKernel`, and no belief can predict its
    releases.

    Attributes:
        system: the owner's model, public.
        has_memory: whether the releases depend on a private memory.
    """

    system: eqx.AbstractVar[System]
    has_memory: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, *, key: Key) -> Belief:
        """The policy's belief before the first release; `key` is public."""

    @abc.abstractmethod
    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """All that the kernel will know of the belief, chosen by w_t and the time where that helps."""

    @abc.abstractmethod
    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of step `time`, counted from 1."""

    def init_memory(self, secret: Secret, state: State) -> Memory:
        """The memory at t = 1, from the owner's secret and x_1; empty by default."""
        del secret
        return jnp.zeros(0, state.dtype)

    def update_memory(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State
    ) -> Memory:
        """The memory at t + 1, from the step (x_t, w_t) -> x_{t+1}.

        Args:
            memory: that at t.
            secret: the owner's.
            state: x_t.
            external: w_t.
            after: x_{t+1}.
        """
        del secret, state, external, after
        return memory

    def coast_memory(self, memory: Memory, external: External) -> Memory:
        """The memory at t + 1 where the owner did not see the step, from what is public alone."""
        del external
        return memory


class PlainPolicy(Policy):
    """A policy that does not look at a belief."""

    def start(self, *, key: Key) -> PriorBelief:
        """Nothing is tracked."""
        del key
        return PriorBelief.start(self.system)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """None."""
        del external, time
        return jnp.zeros(0, belief.log_masses.dtype)


class Gate(Kernel):
    """`inner` where open; otherwise all mass on `value`, whatever the secret and the state.

    Attributes:
        open: whether the inner kernel acts.
        withheld: whether nothing at all is released, so that the environment goes without. A reader may
            take `value` for what it did not get.
        value: a function of the public history.
        charge: nats that this release is charged.
        inner: the other kernel.
    """

    open: Bool[Array, ""]
    withheld: Bool[Array, ""]
    value: Shared
    charge: Scalar
    inner: Kernel

    def __call__(self, secret: Secret, state: State) -> SwitchedLaw:
        """The inner law, or the public value."""
        return SwitchedLaw(self.open, self.value, self.inner(secret, state))

    def shut_if(self, missing: Bool[Array, ""]) -> "Gate":
        """The same, but nothing is released and charged where there is nothing to release."""
        return eqx.tree_at(
            lambda gate: (gate.open, gate.withheld, gate.charge),
            self,
            (self.open & ~missing, self.withheld | missing, jnp.where(missing, 0.0, self.charge)),
        )


class Wrapping(Policy):
    """Model, belief and features of `inner`; what differs is the kernel."""

    inner: eqx.AbstractVar[Policy]

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner policy's model."""
        return self.inner.system

    def start(self, *, key: Key) -> Belief:
        """The inner policy's belief."""
        return self.inner.start(key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The inner policy's features."""
        return self.inner.features(belief, external, time)


class LearnedPolicy(Policy):
    """A policy whose kernels come out of a network.

    `network` holds all that a learner may change, and nothing else: the model of the system, the units and
    the limits of the kernel are constants.
    """

    network: eqx.AbstractVar[Any]

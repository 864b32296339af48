"""The contract of a sharing policy: what it looks at, and the kernel it decides on."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from veil.beliefs.base import Belief, PriorBelief
from veil.laws import Kernel, Law, SwitchedLaw
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, Shared, State

Time = Int[Array, ""]

Memory = Float[Array, "..."]


class Decision(Kernel):
    """What a policy decides about the release of one step, from public knowledge alone.

    As a kernel it gives the law of what the public sees: that of `kernel` where the release is open, all mass
    on `value` elsewhere.

    Attributes:
        kernel: that of an open release; None in a decision that left the compiled step, where it is not kept.
        charge: nats that the release is charged.
        open: whether `kernel` acts.
        withheld: whether nothing at all is released, so that the environment goes without. A reader may
            take `value` for what it did not get. None where the policy never withholds.
        blur: noise that was added to make the charge fit, in units of the policy that adds it.
        value: what goes out where the release is not open; None where the policy is always open.
    """

    kernel: Kernel | None
    charge: Scalar
    open: Bool[Array, ""]
    withheld: Bool[Array, ""] | None
    blur: Scalar
    value: Shared | None

    def opened(self) -> Kernel:
        """The kernel of an open release."""
        assert self.kernel is not None  # inside the compiled step
        return self.kernel

    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the kernel, or the public value."""
        return self._switched(self.opened()(secret, state))

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """The same, for a kernel that reads the owner's memory."""
        return self._switched(self.opened().release_law(secret, state, memory))

    def _switched(self, law: Law) -> Law:
        return law if self.value is None else SwitchedLaw(self.open, self.value, law)

    def shut_if(self, missing: Bool[Array, ""]) -> "Decision":
        """The same, but nothing is released and charged where there is nothing to release."""
        withheld = missing if self.withheld is None else self.withheld | missing
        charge, blur = (jnp.where(missing, 0.0, number) for number in (self.charge, self.blur))
        return Decision(self.kernel, charge, self.open & ~missing, withheld, blur, self.value)


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
        has_belief: whether it looks at a belief that tracks the releases, by which they can be charged.
        has_memory: whether the releases depend on a private memory.
        shares_truth: whether every release is the output itself, or nothing new.
    """

    system: eqx.AbstractVar[System]
    has_belief: ClassVar[bool] = True
    has_memory: ClassVar[bool] = False
    shares_truth: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, *, key: Key) -> Belief:
        """The policy's belief before the first release; `key` is public."""

    @abc.abstractmethod
    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """All that the kernel will know of the belief, chosen by w_t and the time where that helps."""

    @abc.abstractmethod
    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of step `time`, counted from 1."""

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """The kernel of step `time` and its terms; by default it is always open and charged nothing."""
        nothing = jnp.zeros((), features.dtype)
        kernel = self.kernel(features, external, time)
        return Decision(kernel, nothing, jnp.asarray(True), None, nothing, None)

    def fund(self, belief: Belief, left: Scalar) -> Belief:
        """The belief, told how many nats an accountant has left; by default there is no budget to tell of."""
        del left
        return belief

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

    has_belief: ClassVar[bool] = False

    def start(self, *, key: Key) -> PriorBelief:
        """Nothing is tracked."""
        del key
        return PriorBelief.start(self.system)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """None."""
        del external, time
        return jnp.zeros(0, belief.log_masses.dtype)


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

"""The contract of a sharing policy: what it looks at, and the kernel it decides on."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from veil.beliefs.base import Belief
from veil.beliefs.prior import PriorBelief
from veil.kernel import Kernel
from veil.systems.base import System
from veil.types import External, Features, Key

Time = Int[Array, ""]


class Policy(eqx.Module):
    """Maps what is public, (belief_t, w_t, t), to the kernel that y_t is drawn from.

    It does so in two steps, because the first is expensive and the second is what an adversary needs: the
    belief is summed up in a few numbers, the features, which are published with the transcript; the kernel
    is a function of them. The belief is the policy's own: its kind and size belong to the policy, and
    everybody can recompute it from the transcript and the public seed.
    """

    system: eqx.AbstractVar[System]  # the owner's model, public

    @abc.abstractmethod
    def start(self, *, key: Key) -> Belief:
        """The policy's belief before the first release; `key` is public."""

    @abc.abstractmethod
    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """All that the kernel will know of the belief, chosen by w_t and the time where that helps."""

    @abc.abstractmethod
    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of step `time`, counted from 1."""


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

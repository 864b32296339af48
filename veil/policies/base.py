"""The contract of a sharing policy."""

import abc

import equinox as eqx
from jaxtyping import Array, Int

from veil.beliefs.base import Belief
from veil.kernel import Kernel
from veil.types import External


class Policy(eqx.Module):
    """Maps what is public, (belief_t, w_t, t), to the kernel that y_t is drawn from."""

    @abc.abstractmethod
    def __call__(self, belief: Belief, external: External, time: Int[Array, ""]) -> Kernel:
        """The kernel of step `time`, counted from 1."""

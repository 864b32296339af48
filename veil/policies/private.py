"""The contract of a policy with private memory: a species of its own beside belief -> kernel."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from veil.laws import Law
from veil.systems.base import System
from veil.types import External, Secret, State

Memory = Float[Array, "..."]


class PrivatePolicy(eqx.Module):
    """Releases from what the owner remembers, never from a public belief.

    The memory is as private as the secret: it is a function of both the secret and the states. Nobody but
    the owner can compute the law of a release, so there are no features to publish.
    """

    system: eqx.AbstractVar[System]  # the owner's model

    @abc.abstractmethod
    def begin(self, secret: Secret, state: State) -> Memory:
        """The memory at t = 1, from the owner's secret and x_1."""

    @abc.abstractmethod
    def law(self, memory: Memory) -> Law:
        """The law of the release."""

    @abc.abstractmethod
    def remember(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State
    ) -> Memory:
        """The memory at t + 1, from the step (x_t, w_t) -> x_{t+1}."""

    @abc.abstractmethod
    def coast(self, memory: Memory, external: External) -> Memory:
        """The memory at t + 1 where the step was not seen, from what is public alone."""

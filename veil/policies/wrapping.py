"""A policy around another one: it sees what that one sees."""

import equinox as eqx

from veil.beliefs.base import Belief
from veil.policies.base import Policy, Time
from veil.systems.base import System
from veil.types import External, Features, Key


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

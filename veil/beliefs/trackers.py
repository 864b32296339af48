"""How a belief begins: the kind and the size of belief that a policy or an adversary works with."""

import abc

import equinox as eqx

from veil.beliefs.base import Belief
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.beliefs.particles import ParticleBelief, Scheme
from veil.beliefs.proposals import Guided
from veil.systems.base import System
from veil.types import Key


class Tracker(eqx.Module):
    """A choice of belief."""

    @abc.abstractmethod
    def start(self, system: System, *, key: Key) -> Belief:
        """The belief about this system at t = 1."""


class KalmanTracker(Tracker):
    """One extended Kalman filter per secret."""

    def start(self, system: System, *, key: Key) -> KalmanBelief:
        """Nothing is random."""
        del key
        return KalmanBelief.start(system)


class ObservedTracker(Tracker):
    """The transition densities, for sharing the state as it is."""

    def start(self, system: System, *, key: Key) -> ObservedBelief:
        """Nothing is random."""
        del key
        return ObservedBelief.start(system)


class ParticleTracker(Tracker):
    """`count` particles per secret, by default guided: a bootstrap filter is poor where noise is small."""

    count: int = eqx.field(static=True)
    scheme: Scheme = eqx.field(default_factory=lambda: Scheme(proposal=Guided()))

    def start(self, system: System, *, key: Key) -> ParticleBelief:
        """Particles from the initial law."""
        return ParticleBelief.start(system, self.count, key=key, scheme=self.scheme)

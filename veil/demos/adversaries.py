"""Who reads along: an adversary is a belief, and how its posterior is to be understood."""

import abc

import equinox as eqx

from veil.beliefs import Belief, KalmanBelief, ObservedBelief, ParticleBelief, Scheme
from veil.systems.base import System
from veil.types import Key

PARTICLES = 1296


class Adversary(eqx.Module):
    """Who reads along. `caution` is the share of its forecast left on the prior, `batch` episodes at once."""

    method: eqx.AbstractVar[str]
    exact: eqx.AbstractVar[bool]
    caution: eqx.AbstractVar[float]
    batch: eqx.AbstractVar[int]

    @abc.abstractmethod
    def start(self, system: System, *, key: Key) -> Belief:
        """Its belief before the first release."""


class Observer(Adversary):
    """Sees the state itself and weighs it by the transition densities: exact."""

    method: str = eqx.field(default="exact", static=True)
    exact: bool = eqx.field(default=True, static=True)
    caution: float = eqx.field(default=0.0, static=True)
    batch: int = eqx.field(default=256, static=True)

    def start(self, system: System, *, key: Key) -> Belief:
        """The law of the first state."""
        del key
        return ObservedBelief.start(system)


class KalmanBank(Adversary):
    """One Kalman filter per secret; a linearisation unless the system is linear."""

    method: str = eqx.field(default="Kalman bank", static=True)
    exact: bool = eqx.field(default=False, static=True)
    caution: float = eqx.field(default=0.0, static=True)
    batch: int = eqx.field(default=256, static=True)

    def start(self, system: System, *, key: Key) -> Belief:
        """The law of the first state."""
        del key
        return KalmanBelief.start(system)


class Swarm(Adversary):
    """A particle filter. A little caution keeps a lost secret from scoring minus infinity."""

    scheme: Scheme
    count: int = eqx.field(default=PARTICLES, static=True)
    method: str = eqx.field(default="particles", static=True)
    exact: bool = eqx.field(default=False, static=True)
    caution: float = eqx.field(default=1e-3, static=True)
    batch: int = eqx.field(default=16, static=True)

    def start(self, system: System, *, key: Key) -> Belief:
        """Particles from the law of the first state."""
        return ParticleBelief.start(system, self.count, key=key, scheme=self.scheme)

"""Beliefs: the distribution of secret and state given everything public. Filters compute it."""

from veil.beliefs.base import Belief, FilterSpec, Health, PriorBelief
from veil.beliefs.kalman import KalmanBelief, KalmanSpec
from veil.beliefs.observed import ObservedBelief, ObservedSpec
from veil.beliefs.particles import Bootstrap, Guided, ParticleBelief, ParticleSpec, Proposal, Scheme
from veil.beliefs.pooled import PooledBelief, PooledSpec

__all__ = [
    "Belief",
    "Bootstrap",
    "FilterSpec",
    "Guided",
    "Health",
    "KalmanBelief",
    "KalmanSpec",
    "ObservedBelief",
    "ObservedSpec",
    "ParticleBelief",
    "ParticleSpec",
    "PooledBelief",
    "PooledSpec",
    "PriorBelief",
    "Proposal",
    "Scheme",
]

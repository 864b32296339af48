"""Beliefs: what the public history tells about the secret and the state."""

from veil.beliefs.base import Belief, Health
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.beliefs.particles import ParticleBelief, Scheme
from veil.beliefs.pooled import PooledBelief
from veil.beliefs.prior import PriorBelief
from veil.beliefs.proposals import Bootstrap, Guided, Proposal
from veil.beliefs.trackers import KalmanTracker, ObservedTracker, ParticleTracker, Tracker

__all__ = [
    "Belief",
    "Bootstrap",
    "Guided",
    "Health",
    "KalmanBelief",
    "KalmanTracker",
    "ObservedBelief",
    "ObservedTracker",
    "ParticleBelief",
    "ParticleTracker",
    "PooledBelief",
    "PriorBelief",
    "Proposal",
    "Scheme",
    "Tracker",
]

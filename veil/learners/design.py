"""From a design to a policy that can be trained."""

import jax.numpy as jnp
import jax.random as jr

from veil.beliefs.particles import Scheme
from veil.beliefs.trackers import KalmanTracker, ParticleTracker, Tracker
from veil.learners.options import Design
from veil.learners.units import usual
from veil.policies import LearnedPolicy, Limits, Transport, discrete_policy, neural_policy, residual_policy
from veil.systems.base import System
from veil.types import Key

ABOVE = 1.5  # the noise that training begins with, in terms of the least that is allowed


def designed(design: Design, system: System, steps: int = 50, *, key: Key) -> LearnedPolicy:
    """The untrained policy of this design, in units that are usual for the system over so many steps."""
    unit_key, weight_key = jr.split(key)
    scaling = usual(system, steps, key=unit_key)
    if design.start == "grid":
        size = {"counts": design.points, "particles": design.particles, "width": design.width}
        return discrete_policy(system, scaling, **size, key=weight_key)
    tracker = tracked(design)
    limits = Limits(low=jnp.asarray(design.floor, scaling.output.spread.dtype))
    if design.start == "transport":
        base = Transport(system, ABOVE * design.floor * scaling.output.spread, tracker)
        return residual_policy(base, scaling, limits=limits, width=design.width, key=weight_key)
    return neural_policy(
        system,
        scaling,
        tracker=tracker,
        encoder=design.encoder,
        parts=design.parts,
        limits=limits,
        width=design.width,
        key=weight_key,
    )


def tracked(design: Design) -> Tracker:
    """The belief that a policy of this design looks at."""
    if not design.particles:
        return KalmanTracker()
    if design.proposal == "bootstrap":
        return ParticleTracker(design.particles, Scheme())
    return ParticleTracker(design.particles)

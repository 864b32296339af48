"""Putting a policy under a budget: which belief charges it, and what cannot be charged."""

import math

from jaxtyping import Array, Float

from veil.beliefs.particles import Scheme
from veil.beliefs.trackers import KalmanTracker, ObservedTracker, ParticleTracker, Tracker
from veil.laws import Finite, Gaussian, Held
from veil.leakage.stage import Measure
from veil.policies.base import PlainPolicy, Policy
from veil.policies.budgeted import Budgeted, Exhausted
from veil.policies.private import PrivatePolicy
from veil.policies.subsampled import Subsampled
from veil.releases import exact_release, release_kind, sees_state

PARTICLES = 81  # per secret, where particles charge and nobody said how many


def budgeted(
    policy: Policy | PrivatePolicy,
    budget: float = math.inf,
    exhausted: Exhausted = "blind",
    *,
    steps: int = 50,
    particles: int = 0,
    unit: Float[Array, " Y"] | None = None,
    measure: Measure | None = None,
) -> Budgeted:
    """The policy with a budget of nats that holds on every path.

    Args:
        policy: any that maps a public belief to a kernel.
        budget: nats for the whole run; infinity only counts.
        exhausted: "withhold", "blind" or "blur"; see `Budgeted`.
        steps: over which a blurring policy divides its budget.
        particles: per secret, to charge by particles; 0 leaves the choice to the kind of release.
        unit: of the blur, a standard deviation per axis; see `Budgeted` for the usual one.
        measure: how a release is charged; the live bound by default.
    """
    if isinstance(policy, PrivatePolicy):
        raise TypeError(
            f"A {type(policy).__name__} policy has no kernel to charge: it leaks nothing where its model is "
            "right, and the sharer charges it nothing."
        )
    if not budget >= 0.0:
        raise ValueError(f"A budget is a number of nats, 0 or more; got {budget}.")
    tracker = _tracker(policy, particles)
    if exhausted == "blur" and not _smooth(policy):
        raise ValueError(
            "Only Gaussian releases can be blurred. Choose `withhold` or `blind`, or share with noise."
        )
    return Budgeted(policy, budget, exhausted, steps=steps, tracker=tracker, measure=measure, unit=unit)


def _tracker(policy: Policy, particles: int) -> Tracker | None:
    """The belief that charges; None where the policy's own does."""
    law, on_grid = release_kind(policy.system, policy)
    if isinstance(policy, Subsampled) and isinstance(policy.inner, PlainPolicy):
        raise ValueError(
            "A sub-sampled policy without a belief cannot be charged. Leave steps out of the input, or "
            "sub-sample a policy with a belief, such as transport."
        )
    law = law.inner if isinstance(law, Held) else law
    if exact_release(law):
        if not sees_state(policy.system, policy):
            raise ValueError(
                "Releases without noise can be charged only where they are the whole state. Share with some "
                "noise."
            )
        return ObservedTracker()
    if on_grid:
        raise ValueError(
            "A quantiser's cells move with the state, so its releases have no masses in common to charge by. "
            "Share by a policy on a fixed grid, or with Gaussian noise."
        )
    if particles or isinstance(law, Finite):
        count = particles or PARTICLES
        own = not isinstance(policy, PlainPolicy) and not particles
        return None if own else ParticleTracker(count, *([Scheme()] if isinstance(law, Finite) else []))
    if not isinstance(policy, PlainPolicy):
        return None
    return KalmanTracker() if isinstance(law, Gaussian) else ParticleTracker(PARTICLES)


def _smooth(policy: Policy) -> bool:
    """Whether releases are Gaussian or mixtures of Gaussians."""
    law = release_kind(policy.system, policy)[0]
    return not isinstance(law, Held | Finite) and not exact_release(law)

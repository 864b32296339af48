"""Put a policy under a budget of nats: choose the belief that charges its releases, and wrap it."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.beliefs.base import FilterSpec
from veil.beliefs.kalman import KalmanSpec
from veil.beliefs.observed import ObservedSpec
from veil.beliefs.particles import ParticleSpec, Scheme
from veil.beliefs.readings import own_noise
from veil.leakage.per_step import Measure
from veil.policies.base import Policy
from veil.policies.budgeted import Budgeted, Exhausted
from veil.step import first_law, release_kind, sees_state
from veil.systems.base import Field, state_grid
from veil.traced import dependence
from veil.types import State

PARTICLES = 81  # per secret, where particles charge and nobody said how many

FINE = 0.5  # of the noise of a step: up to this resolution rounding may be taken for Gaussian noise


def budgeted(
    policy: Policy,
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
    if policy.has_memory:
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


@dataclass(frozen=True)
class CoarseField:
    """A field of the state that is read in steps too coarse for charges by Kalman filters.

    Attributes:
        field: with its resolution.
        noise: sd of one step's noise that is its own, in its unit; 0 where there is none.
    """

    field: Field
    noise: float

    @property
    def finest(self) -> float:
        """The coarsest resolution at which charges hold; 0 where there is none."""
        return FINE * self.noise


def coarse_fields(policy: Budgeted) -> tuple[CoarseField, ...]:
    """The fields that are read too coarsely for the charges of this policy.

    A belief that linearises takes rounding for independent Gaussian noise. Where a resolution is at most half
    the noise of a step this is close: the place of the state in its cell is as good as uniform and
    independent of the past (docs/resolution.md). Where it is coarser, or where a field has no noise of its
    own, nothing is proved about its charges. Fields that no release depends on do not count.
    """
    system = policy.system
    if not any(state_grid(system)):
        return ()
    belief = eqx.filter_eval_shape(lambda: policy.start(key=jr.key(0)))
    if belief.models_rounding:
        return ()
    found = [
        CoarseField(field, float(noise))
        for field, noise in zip(system.state_fields, own_noise(system), strict=True)
        if field.resolution
        > FINE * noise * (1.0 + 1e-6)  # the noise may have been written in single precision
    ]
    if not found:
        return ()
    read = _fields_read(policy.inner)
    return tuple(one for one in found if one.field.name in read)


def _fields_read(policy: Policy) -> tuple[str, ...]:
    """Names of the fields of the state that the law of a release depends on, from its traced program."""
    system, secret = policy.system, policy.system.prior.secrets[0]

    def law(state: State) -> list[Array]:
        return jax.tree.leaves(eqx.filter(first_law(policy, secret, state), eqx.is_inexact_array))

    used = np.any(dependence(law, system.initial(secret).mean), axis=1)
    return tuple(field.name for field, uses in zip(system.state_fields, used, strict=True) if uses)


def _tracker(policy: Policy, particles: int) -> FilterSpec | None:
    """The belief that charges; None where the policy's own does."""
    kind = release_kind(policy.system, policy)
    law = kind.fresh_law()
    if kind is not law and not policy.has_belief:
        raise ValueError(
            "A sub-sampled policy without a belief cannot be charged. Leave steps out of the input, or "
            "sub-sample a policy with a belief, such as transport."
        )
    if law.is_point:
        if not sees_state(policy.system, policy):
            raise ValueError(
                "Releases without noise can be charged only where they are the whole state. Share with some "
                "noise."
            )
        return ObservedSpec()
    if law.is_finite and law.is_smooth:
        raise ValueError(
            "A quantiser's cells move with the state, so its releases have no masses in common to charge by. "
            "Share by a policy on a fixed grid, or with Gaussian noise."
        )
    if policy.has_belief and not particles:
        return None
    if law.is_finite:
        return ParticleSpec(particles or PARTICLES, Scheme())
    if particles or law.component_count != 1:
        return ParticleSpec(particles or PARTICLES)
    return KalmanSpec()


def _smooth(policy: Policy) -> bool:
    """Whether releases are Gaussian or mixtures of Gaussians."""
    return release_kind(policy.system, policy).component_count > 0

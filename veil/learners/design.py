"""From the settings of a policy to a policy that can be trained."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.beliefs.base import FilterSpec
from veil.beliefs.kalman import KalmanSpec
from veil.beliefs.particles import ParticleSpec, Scheme
from veil.beliefs.pooled import PooledSpec
from veil.policies.base import LearnedPolicy
from veil.policies.grid import discrete_policy
from veil.policies.learned_twin import learned_twin
from veil.policies.neural import neural_policy
from veil.policies.plain import Truth
from veil.policies.printed import printed_policy
from veil.policies.residual import residual_policy
from veil.policies.scaling import Limits, Scaling, Unit
from veil.policies.transport import Transport
from veil.policies.twin import Twin
from veil.rollout import rollout
from veil.settings import PolicyDesign
from veil.step import Record
from veil.systems.base import System
from veil.systems.series import CLOCK
from veil.types import Key

EPISODES = 16  # per secret


def typical_scaling(system: System, steps: int = 50, *, key: Key) -> Scaling:
    """Means and standard deviations of secrets, states, external inputs and outputs under true data.

    Private series and the clock have an infinite unit, in which they are zero.

    Args:
        system: the system to simulate.
        steps: releases per episode.
        key: randomness of the episodes.
    """
    record = _played(system, steps, key)
    states = np.asarray(record.states)[:, :-1].reshape(-1, record.states.shape[-1])
    external = np.asarray(record.public.external).reshape(-1, record.public.external.shape[-1])
    shared = np.asarray(record.public.shared).reshape(-1, record.public.shared.shape[-1])
    dtype = system.prior.secrets.dtype
    inputs = _unit(external.mean(axis=0), external.std(axis=0), dtype)
    # Networks read public values. The clock they know as the share of the run that is over.
    hidden = np.asarray([field.private or field is CLOCK for field in system.input_fields], bool)
    inputs = Unit(inputs.centre, jnp.where(hidden, jnp.inf, inputs.spread))
    masses = np.exp(np.asarray(system.prior.log_masses, float))
    secrets = np.asarray(system.prior.secrets, float)
    centre = masses @ secrets / masses.sum()
    spread = np.sqrt(masses @ (secrets - centre) ** 2 / masses.sum())
    return Scaling(
        _unit(centre, spread, dtype),
        _unit(states.mean(axis=0), states.std(axis=0), dtype),
        inputs,
        _unit(shared.mean(axis=0), shared.std(axis=0), dtype),
        steps=jnp.asarray(float(steps), dtype),
    )


def scaling_of(policy: LearnedPolicy) -> Scaling:
    """The units of a policy that has some."""
    scaling = getattr(policy, "scaling", None)
    if not isinstance(scaling, Scaling):
        raise TypeError(f"This learner needs a policy with units; {type(policy).__name__} has no `scaling`.")
    return scaling


@eqx.filter_jit
def _played(system: System, steps: int, key: Key) -> Record:
    count = system.prior.secrets.shape[0]
    numbers = jnp.arange(EPISODES * count, dtype=jnp.int32)

    def one(number):
        own = jr.fold_in(key, number)
        return rollout(system, Truth(system), steps, public_seed=number, key=own, index=number % count)

    return jax.vmap(one)(numbers)


def _unit(centre: np.ndarray, spread: np.ndarray, dtype) -> Unit:
    """Deviations that vanish are replaced by one, so that nothing is divided by zero."""
    some = spread > 1e-6 * (1.0 + np.abs(centre))
    return Unit(jnp.asarray(centre, dtype), jnp.asarray(np.where(some, spread, 1.0), dtype))


ABOVE = 1.5  # the noise that training begins with, in terms of the least that is allowed

REACH = 12.0  # half-width of a grid of releases, in usual spreads: a blind draw on the platoon uses up D̂ = 4


def initial_policy(design: PolicyDesign, system: System, steps: int = 50, *, key: Key) -> LearnedPolicy:
    """The untrained policy of a design.

    Args:
        design: the kind of policy, its belief and its size.
        system: the model that the policy is made for.
        steps: releases per episode; the policy's inputs are scaled by typical values over so many steps.
        key: randomness of the first weights and of the episodes behind the scaling.
    """
    unit_key, weight_key = jr.split(key)
    scaling = typical_scaling(system, steps, key=unit_key)
    if design.start == "grid":
        spread = np.asarray(scaling.output.spread, float)
        reach = np.asarray(design.reach or REACH * spread, float)
        if reach.shape != spread.shape:
            names = ", ".join(field.name for field in system.shared_fields)
            raise ValueError(f"reach needs one number per shared axis ({names}); got {len(reach)}.")
        # As wide as the grid itself: nearly a blind uniform draw, like a network with generic outputs.
        size = {"counts": design.points, "particles": design.particles, "width": design.width}
        wide = {"reach": reach, "sd": float(np.max(reach / spread))}
        return discrete_policy(system, scaling, **size, **wide, key=weight_key)
    tracker = tracked(design)
    if design.start == "printed":
        own = {"tracker": tracker, "encoder": design.encoder, "width": design.width}
        return printed_policy(system, scaling, **own, key=weight_key)
    limits = Limits(low=jnp.asarray(design.floor, scaling.output.spread.dtype))
    if design.start == "twin":
        return learned_twin(Twin(system), scaling, width=design.width, key=weight_key)
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


def tracked(design: PolicyDesign) -> FilterSpec:
    """The belief that a policy of this design looks at."""
    if not design.particles:
        return KalmanSpec()
    if design.proposal == "bootstrap":
        return ParticleSpec(design.particles, Scheme())
    if design.proposal == "pooled":
        return PooledSpec(design.particles)
    return ParticleSpec(design.particles)

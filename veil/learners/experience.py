"""Episodes under perturbed kernels, step by step, as an off-policy learner keeps them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from veil.beliefs.base import Belief
from veil.learners.critic import Sight, described
from veil.learners.exploration import Shifted, wander
from veil.learners.units import units_of
from veil.policies.learned import LearnedPolicy
from veil.problem import Outcome, Play, Problem
from veil.session import seen
from veil.types import Key, Scalar, Vector

_STRETCH = 0.5  # perturbation of the logarithm of the noise, per unit of that of the mean


class Step(eqx.Module):
    """One step as it is kept: what was known, what was done, what it charged."""

    belief: Belief
    sight: Sight
    action: Vector
    outcome: Outcome
    weight: Scalar  # prior mass of the secret, times the number of secrets
    last: Scalar  # 1 at the end of an episode, else 0


def explored(problem: Problem, policy: LearnedPolicy, number: Array, size: Scalar, *, key: Key) -> Step:
    """One episode under kernels that wander around the policy's, batched [T]."""
    start_key, run_key, shift_key, stretch_key = jr.split(key, 4)
    spread, secrets = units_of(policy).output.spread, problem.secrets
    shifts = wander(problem.steps, (secrets, spread.shape[0]), size, key=shift_key) * spread[None, None, :]
    stretches = wander(problem.steps, (secrets,), _STRETCH * size, key=stretch_key)
    mass = jnp.exp(problem.world.plant.prior.log_masses[number % secrets]) * float(secrets)

    def step(play: Play, given: tuple[Array, Array, Key]) -> tuple[Play, Step]:
        shift, stretch, step_key = given
        acting, now = Shifted(policy, shift, stretch), play.situation
        after, stage, outcome = problem.step(acting, play, seed=number, key=step_key)
        assert stage.kernel is not None
        state = seen(policy, now.state)
        action = described(stage.kernel(now.believed, state), policy.system.output(state), units_of(policy))
        sight = Sight(now.believed, state, now.external, now.time)
        last = (now.time >= problem.steps).astype(mass.dtype)
        return after, Step(play.belief, sight, action, outcome, mass, last)

    first = problem.reset(policy, number, key=start_key)
    return jax.lax.scan(step, first, (shifts, stretches, jr.split(run_key, problem.steps)))[1]

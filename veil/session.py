"""The one owner step, in the one order: the MDP, the rollout, the replay and the live sharer all use it.

Kernel from (belief_t, w_t, t), then y_t, then the belief takes y_t in, then x_{t+1} by w_t, then w_{t+1} by
y_t. Public randomness (beliefs) and private randomness (the draw of y_t, the world) come from two keys.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Integer

from veil.beliefs.base import Belief, Health
from veil.kernel import Kernel
from veil.policies.base import Policy
from veil.systems.base import System
from veil.types import External, Key, Secret, Shared, State

Seed = Integer[Array, ""]
Time = Int[Array, ""]


class Situation(eqx.Module):
    """Where the world stands before the release of step `time`. Private: it holds the secret."""

    secret: Secret
    state: State
    external: External
    time: Time


class Stage(eqx.Module):
    """What one step produced. A charge for it is a function of `belief.components(kernel)`."""

    belief: Belief  # before y_t: leakage is measured under this one
    kernel: Kernel
    shared: Shared
    health: Health


def public_key(seed: Seed, time: Time | int) -> Key:
    """The public randomness of one step; time 0 is for drawing the belief at t = 1."""
    return jr.fold_in(jr.key(seed), time)


def begin(system: System, secret: Secret, *, key: Key) -> Situation:
    """The world at t = 1."""
    law = system.initial(secret)
    noise = jr.normal(key, (law.noise_size,), law.mean.dtype)
    return Situation(secret, law.sample(noise), system.initial_external(), jnp.asarray(1, jnp.int32))


def share(
    system: System, policy: Policy, belief: Belief, situation: Situation, *, seed: Seed, key: Key
) -> tuple[Belief, Stage]:
    """The owner's half: decide the kernel, draw y_t from it, let the belief take it in.

    Args:
        system: the public model of the system.
        policy: maps public knowledge to a kernel.
        belief: the policy's belief before y_t.
        situation: the true secret and state; only the draw of y_t reads them.
        seed: the public seed of the episode.
        key: private randomness for the draw.
    """
    kernel = policy(belief, situation.external, situation.time)
    law = kernel(situation.secret, situation.state)
    shared = law.sample(jr.normal(key, (law.noise_size,), situation.state.dtype))
    step_key = public_key(seed, situation.time)
    after, health = belief.advance(system, kernel, situation.external, shared, key=step_key)
    return after, Stage(belief, kernel, shared, health)


def proceed(system: System, situation: Situation, shared: Shared | None, *, key: Key) -> Situation:
    """The world's half: x_{t+1} from (x_t, w_t), then w_{t+1} from (w_t, y_t)."""
    move_key, reply_key = jr.split(key)
    law = system.transition(situation.secret, situation.state, situation.external)
    state = law.sample(jr.normal(move_key, (law.noise_size,), law.mean.dtype))
    noise = jr.normal(reply_key, (system.reaction_noise_size,), situation.external.dtype)
    external = system.react(situation.external, shared, noise)
    return Situation(situation.secret, state, external, situation.time + 1)

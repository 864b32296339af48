"""Episodes: play one into a private record, and run a belief along a public transcript.

All functions speak of one episode; `jax.vmap` or `jax.lax.map` them over seeds and keys. A replay is bit
for bit only with the same unbatched program, so use `jax.lax.map` where that matters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.beliefs.base import Belief, Health
from veil.policies.base import Policy
from veil.session import Seed, Situation, begin, proceed, public_key, share
from veil.systems.base import System
from veil.types import Key, Secret


class Transcript(eqx.Module):
    """All that the public sees. Nothing else may reach an adversary."""

    external: Float[Array, "T E"]
    shared: Float[Array, "T Y"]
    public_seed: Seed


class Record(eqx.Module):
    """A transcript and what was hidden behind it."""

    index: Int[Array, ""]
    secret: Secret
    states: Float[Array, "T_plus_1 N"]
    public: Transcript


class Trail(eqx.Module):
    """The posterior of the secret after each release, and how each advance went (batched [T])."""

    log_masses: Float[Array, "T K"]
    health: Health


def rollout(
    system: System,
    policy: Policy,
    belief: Belief,
    steps: int,
    *,
    public_seed: Seed,
    key: Key,
    index: Int[Array, ""] | None = None,
) -> Record:
    """Play one episode.

    Args:
        system: the world.
        policy: decides the kernels.
        belief: the policy's belief at t = 1; if random, drawn with `public_key(public_seed, 0)`. A
            `PriorBelief` is enough, and free, for policies that do not look at it.
        steps: T, the number of releases.
        public_seed: seed of all public randomness.
        key: private randomness.
        index: which secret of the prior; drawn from the prior if not given.
    """
    secret_key, start_key, run_key = jr.split(key, 3)
    if index is None:
        index = jr.categorical(secret_key, system.prior.log_masses).astype(jnp.int32)
    first = begin(system, system.prior.secrets[index], key=start_key)

    def step(carry: tuple[Belief, Situation], step_key: Key):
        before, situation = carry
        draw_key, world_key = jr.split(step_key)
        after, stage = share(system, policy, before, situation, seed=public_seed, key=draw_key)
        following = proceed(system, situation, stage.shared, key=world_key)
        return (after, following), (situation.state, situation.external, stage.shared)

    (_, last), (states, external, shared) = jax.lax.scan(step, (belief, first), jr.split(run_key, steps))
    public = Transcript(external, shared, public_seed)
    return Record(index, first.secret, jnp.concatenate([states, last.state[None]]), public)


def follow(
    system: System,
    policy: Policy,
    belief: Belief,
    transcript: Transcript,
    *,
    key: Key,
    policy_belief: Belief | None = None,
) -> Trail:
    """Run an adversary's belief along a transcript.

    The kernels are those of the policy, replayed from its own belief and the public seed; the adversary's
    belief only weighs the releases by them and never feeds the policy.

    Args:
        system: the public model.
        policy: the policy in force, known to the adversary.
        belief: the adversary's belief at t = 1.
        transcript: what was made public.
        key: the adversary's own randomness.
        policy_belief: the policy's belief at t = 1, as given to `rollout`; the adversary's own start will
            do for a policy that does not look at it.
    """
    steps = transcript.shared.shape[0]
    times = jnp.arange(1, steps + 1, dtype=jnp.int32)
    inputs = (times, transcript.external, transcript.shared, jr.split(key, steps))

    def step(carry: tuple[Belief | None, Belief], seen):
        guide, own = carry
        time, external, shared, own_key = seen
        kernel = policy(own if guide is None else guide, external, time)
        if guide is not None:
            guide_key = public_key(transcript.public_seed, time)
            guide, _ = guide.advance(system, kernel, external, shared, key=guide_key)
        own, health = own.advance(system, kernel, external, shared, key=own_key)
        return (guide, own), (own.log_masses, health)

    _, (log_masses, health) = jax.lax.scan(step, (policy_belief, belief), inputs)
    return Trail(log_masses, health)

"""Episodes: play one into a private record, replay its public side, run a belief along it.

All functions speak of one episode; `jax.vmap` or `jax.lax.map` them over seeds and keys. How the last bit of
a number is rounded depends on the compiled program. Where a replay must find the same bits, play and replay
by one program: `rollout` with `Given`, mapped by `jax.lax.map`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from veil.beliefs.base import Belief, Health
from veil.policies.base import Policy, sensed
from veil.step import (
    Record,
    Recorded,
    Seed,
    Transcript,
    WorldState,
    begin,
    first_belief,
    policy_features,
    proceed,
    public_key,
    share,
    update_belief,
)
from veil.systems.base import Scenario, System, require_rows
from veil.types import Features, Key, Secret


class Trail(eqx.Module):
    """The posterior of the secret after each release, and how each update went (batched [T])."""

    log_masses: Float[Array, "T K"]
    health: Health


class Given(eqx.Module):
    """Public data of an episode, taken instead of the answers and draws of a rollout where `taken`.

    The features of the record are then a replay. `taken` is an argument of the compiled program, so that one
    program both plays and replays, and both have the same bits.
    """

    taken: Bool[Array, ""]
    external: Float[Array, "T E"]
    shared: Float[Array, "T Y"]


def rollout(
    system: System,
    policy: Policy,
    steps: int,
    *,
    public_seed: Seed,
    key: Key,
    index: Int[Array, ""] | None = None,
    believed: Secret | None = None,
    given: Given | None = None,
    scenario: Scenario | None = None,
) -> Record:
    """Play one episode.

    Args:
        system: the world, which need not be the model of the policy.
        policy: decides the laws of the releases, by its own model and belief.
        steps: T, the number of releases.
        public_seed: seed of all public randomness.
        key: private randomness.
        index: which secret of the world's prior; drawn from the prior if not given.
        believed: what the owner takes its secret for, in the terms of its model; the secret if not given.
        given: public data to replay.
        scenario: whose active adversary and whose sensor there are; none and the modelled one if not given.
    """
    require_rows(system, steps)
    policy = sensed(policy, () if scenario is None else scenario.coarse)
    secret_key, start_key, run_key = jr.split(key, 3)
    if index is None:
        index = jr.categorical(secret_key, system.prior.log_masses).astype(jnp.int32)
    first = begin(system, policy, system.prior.secrets[index], key=start_key, believed=believed)

    def step(carry: tuple[Belief, WorldState], at: tuple[Key, Given | None]):
        (before, situation), (step_key, now) = carry, at
        draw_key, world_key = jr.split(step_key)
        recorded = None
        if now is not None:
            recorded = Recorded(now.taken, now.shared)
            external = jnp.where(now.taken, now.external, situation.external)
            situation = eqx.tree_at(lambda it: it.external, situation, external)
        after, stage = share(policy, before, situation, seed=public_seed, key=draw_key, recorded=recorded)
        following = proceed(system, policy, situation, stage, key=world_key)
        if scenario is not None:
            moved = scenario.pushed(following.external, following.time)
            following = eqx.tree_at(lambda it: it.external, following, moved)
        return (after, following), (situation.state, situation.external, stage.shared, stage.features)

    start = (first_belief(policy, public_seed), first)
    if given is not None:  # a row per step
        given = eqx.tree_at(lambda it: it.taken, given, jnp.broadcast_to(given.taken, (steps,)))
    inputs = jr.split(run_key, steps), given
    (_, last), (states, external, shared, features) = jax.lax.scan(step, start, inputs)
    transcript = Transcript(external, shared, features, public_seed)
    return Record(index, first.secret, jnp.concatenate([states, last.state[None]]), transcript)


def play(
    scenario: Scenario,
    policy: Policy,
    steps: int,
    *,
    number: Int[Array, ""] | int,
    key: Key,
    given: Given | None = None,
) -> Record:
    """Play one episode of a scenario.

    Args:
        scenario: the plant, and what the owner believes.
        policy: the one in force, with its own model.
        steps: T, the number of releases.
        number: of the episode; secrets take turns by it, and it is the public seed.
        key: of the whole set of episodes. Scenarios played with one key share their random numbers.
        given: public data to replay, of the episode with this number.
    """
    number = jnp.asarray(number, jnp.int32)
    error_key, run_key = jr.split(jr.fold_in(key, number))
    index = number % scenario.believed.shape[0]
    believed = scenario.taken_for(index, key=error_key)
    return rollout(
        scenario.plant,
        policy,
        steps,
        public_seed=number,
        key=run_key,
        index=index,
        believed=believed,
        given=given,
        scenario=scenario,
    )


def replay(policy: Policy, transcript: Transcript) -> Float[Array, "T F"]:
    """The features of every step, computed again from the transcript and the public seed alone.

    This is another program than the one that played, and may round the last bit otherwise. The audit replays
    by the program that played (`Given`).
    """
    policy = sensed(policy)
    seed, times = transcript.public_seed, _times(transcript)

    def step(belief: Belief, public: tuple[Array, ...]) -> tuple[Belief, Features]:
        time, external, shared = public
        features = policy_features(policy, belief, external, time)
        decision = policy.decide(features, external, time)
        belief, _ = update_belief(policy, belief, decision, external, shared, key=public_key(seed, time))
        return belief, features

    start = first_belief(policy, seed)
    return jax.lax.scan(step, start, (times, transcript.external, transcript.shared))[1]


def follow(system: System, policy: Policy, belief: Belief, transcript: Transcript, *, key: Key) -> Trail:
    """Run an adversary's belief along a transcript.

    The kernels are those of the policy, by the features in the transcript; the adversary's belief only
    weighs the releases by them and never feeds the policy.

    Args:
        system: the adversary's model.
        policy: the policy in force, known to the adversary.
        belief: the adversary's belief at t = 1.
        transcript: what was made public.
        key: the adversary's own randomness.
    """
    policy = sensed(policy)
    times = _times(transcript)
    inputs = (times, transcript.external, transcript.shared, transcript.features)

    def step(own: Belief, public: tuple[tuple[Array, ...], Key]):
        (time, external, shared, features), own_key = public
        kernel = policy.kernel(features, external, time)
        own, health = own.update(system, kernel, external, shared, key=own_key)
        return own, (own.log_masses, health)

    _, (log_masses, health) = jax.lax.scan(step, belief, (inputs, jr.split(key, len(times))))
    return Trail(log_masses, health)


def _times(transcript: Transcript) -> Int[Array, " T"]:
    return jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)

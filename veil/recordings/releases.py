"""Releases that a policy would have made along a recorded path, the inputs taken as recorded."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from veil.laws import recovered
from veil.policies.base import Policy
from veil.step import Seed, Transcript, WorldState, first_belief, seen, share
from veil.systems.base import System
from veil.types import Key, Secret

AGREE = 1e-7  # releases this close, relative to their size, are the same release up to round-off


def releases_on_recording(
    policy: Policy,
    believed: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    *,
    seed: Seed,
    key: Key,
) -> Transcript:
    """Share along a path that has happened: what is released changes nothing in it.

    Args:
        policy: decides the laws of the releases.
        believed: what the owner takes its secret for.
        states: x_1..x_T.
        external: w_1..w_T.
        seed: of the public randomness.
        key: private randomness of the draws.
    """
    times = jnp.arange(1, states.shape[0] + 1, dtype=jnp.int32)
    later = jnp.concatenate([states[1:], states[-1:]])  # what comes after the last row is not used
    own = policy.init_memory(believed, seen(policy, states[0]))

    def step(carry, now):
        belief, memory = carry
        (time, state, after, inputs), draw_key = now
        situation = WorldState(believed, believed, state, inputs, time, memory)
        belief, stage = share(policy, belief, situation, seed=seed, key=draw_key)
        memory = policy.update_memory(memory, believed, seen(policy, state), inputs, seen(policy, after))
        return (belief, memory), (stage.shared, stage.features)

    rows = (times, states, later, external), jr.split(key, states.shape[0])
    _, (shared, features) = jax.lax.scan(step, (first_belief(policy, seed), own), rows)
    return Transcript(external, shared, features, seed)


def fresh_releases(policy: Policy, transcript: Transcript) -> Bool[Array, " T"]:
    """Which releases are new; all of them unless the policy repeats some."""
    system = policy.system
    secret = system.prior.secrets[0]
    state = system.initial(secret).mean

    def one(time: Int[Array, ""], external: Array, features: Array) -> Bool[Array, ""]:
        return policy.kernel(features, external, time)(secret, state).is_fresh

    times = jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)
    return jax.vmap(one)(times, transcript.external, transcript.features)


def as_other_secrets(
    system: System, believed: Secret, states: Float[Array, "T N"], external: Float[Array, "T E"]
) -> Float[Array, "K T N"]:
    """The path that each secret of the prior would have taken with the noise of the recorded one."""
    own = jax.vmap(system.transition, (None, 0, 0))(believed, states[:-1], external[:-1])
    noise = jax.vmap(lambda law, after: recovered(law, after, jnp.zeros_like(after)))(own, states[1:])

    def path(secret: Secret) -> Float[Array, "T N"]:
        def step(state, now):
            inputs, numbers = now
            after = system.transition(secret, state, inputs).sample(numbers)
            return after, after

        rest = jax.lax.scan(step, states[0], (external[:-1], noise))[1]
        return jnp.concatenate([states[:1], rest])

    return jax.vmap(path)(system.prior.secrets)


def same_whatever_the_secret(
    policy: Policy,
    believed: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    *,
    seed: Seed,
    key: Key,
) -> Bool[Array, " T"]:
    """Which releases would have been the same under every secret, given the same noise."""
    paths = as_other_secrets(policy.system, believed, states, external)

    def one(secret: Secret, path: Array) -> Array:
        return releases_on_recording(policy, secret, path, external, seed=seed, key=key).shared

    found = jax.vmap(one)(policy.system.prior.secrets, paths)
    given = releases_on_recording(policy, believed, states, external, seed=seed, key=key).shared
    apart = jnp.abs(found - given[None]) / (1.0 + jnp.abs(given[None]))
    return jnp.max(jnp.nan_to_num(apart, nan=jnp.inf), axis=(0, 2)) <= AGREE

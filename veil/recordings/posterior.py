"""The posterior of the secret given a recorded path: exact transition densities, or filters under noise."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from veil.attacks.guides import Guide, Twisted, Unguided
from veil.attacks.kalman import KalmanBank
from veil.attacks.particle_filter import ParticleFilter, plans, public_steps, runs
from veil.beliefs.innovations import Innovation
from veil.beliefs.readings import CellFilter
from veil.evaluation.bounds import same_emitted
from veil.laws import Gaussian, recovered
from veil.policies.base import Policy, sensed
from veil.recordings.bound import Rows
from veil.step import Seed, Transcript, WorldState, first_belief, release_kind, seen, share
from veil.systems.base import Prior, System, state_grid
from veil.systems.variants import Variant
from veil.types import External, Key, Secret, State


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
    policy, own_key = sensed(policy), jr.fold_in(key, 0)
    times = jnp.arange(1, states.shape[0] + 1, dtype=jnp.int32)
    later = jnp.concatenate([states[1:], states[-1:]])  # what comes after the last row is not used
    own = policy.init_memory(believed, seen(policy, states[0]), key=own_key)

    def step(carry, now):
        belief, memory = carry
        (time, state, after, inputs), draw_key = now
        situation = WorldState(believed, believed, state, inputs, time, memory)
        belief, stage = share(policy, belief, situation, seed=seed, key=draw_key)
        step = seen(policy, state), inputs, seen(policy, after)
        memory = policy.update_memory(memory, believed, *step, key=jr.fold_in(own_key, time))
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
        return sensed(policy).kernel(features, external, time)(secret, state).is_fresh

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

    found = jax.lax.map(lambda both: one(*both), (policy.system.prior.secrets, paths))
    given = releases_on_recording(policy, believed, states, external, seed=seed, key=key).shared
    return jnp.all(same_emitted(found, given[None]), axis=0)


BLOCK = 128  # lengths are filled up to a multiple of this


class RecordedPath(eqx.Module):
    """A recorded path; rows beyond `length` repeat the last one and are not to be used."""

    states: Float[Array, "T N"]
    external: Float[Array, "T E"]
    length: Int[Array, ""]

    @property
    def used(self) -> Bool[Array, " T"]:
        """Which rows count."""
        return jnp.arange(self.states.shape[0], dtype=jnp.int32) < self.length


def filled(stretch: Rows) -> RecordedPath:
    """One stretch of a recording in double precision."""
    rows = np.minimum(np.arange(-(-stretch.steps // BLOCK) * BLOCK), stretch.steps - 1)
    states, external = (jnp.asarray(table[rows], float) for table in (stretch.states, stretch.external))
    return RecordedPath(states, external, jnp.asarray(stretch.steps, jnp.int32))


def readings(
    system: System,
    secret: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    used: Bool[Array, " T"],
) -> Innovation:
    """`innovations` where a sensor rounds and the output is the whole state: probabilities of readings.

    The first row is known as far as it was read: the state lies anywhere in its cell. Scores are randomised
    (see `veil.beliefs.readings`), by the same numbers for every secret.

    Args:
        system: the model, with the resolution of its fields.
        secret: the secret that the forecasts assume.
        states: the readings.
        external: w_1..w_T.
        used: which rows count.
    """
    cells = CellFilter(system)
    draws = jr.uniform(jr.key(0), states.shape, states.dtype)

    def step(weights: Array, now: tuple[State, State, External, Array]) -> tuple[Array, Innovation]:
        before, after, inputs, uniform = now
        found = cells.whiten(cells.predict(secret, before, weights, inputs), after, uniform)
        return found.log_weights, Innovation(found.noise, found.log_masses)

    start = cells.anywhere().astype(states.dtype)
    rows = states[:-1], states[1:], external[:-1], draws[1:]
    found = jax.lax.scan(step, start, rows)[1]
    return jax.tree.map(
        lambda leaf: jnp.where(used[:, None], jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf]), 0.0), found
    )


class RecordedStart(Variant):
    """A system whose first state is known as far as it is recorded: the model of whoever reads a log.

    A recording begins anywhere, not where the system's own episodes begin. What is not recorded keeps the
    inner system's law, taken to be independent of the rest.

    Attributes:
        inner: the system.
        state: the first row; coordinates that are not recorded are not read.
        seen: which coordinates are recorded.
    """

    inner: System
    state: State
    seen: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, inner: System, state: ArrayLike, seen: tuple[bool, ...]):
        self.inner = inner
        self.state = jnp.asarray(state, inner.prior.secrets.dtype)
        self.seen = seen

    @property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner system's."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """All mass on the recorded coordinates, for every secret."""
        law, seen = self.inner.initial(secret), jnp.asarray(self.seen)
        return Gaussian(
            jnp.where(seen, self.state, law.mean),
            jnp.where(seen[:, None] | seen[None, :], jnp.zeros_like(law.scale), law.scale),
        )

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner system's."""
        return self.inner.transition(secret, state, external)

    def cell(self) -> Float[Array, " N"] | None:
        """Sd of the place of the state in the cell of its reading; None where values are exact."""
        steps = [step if there else 0.0 for step, there in zip(state_grid(self), self.seen, strict=True)]
        return jnp.asarray(steps, self.state.dtype) / math.sqrt(12.0) if any(steps) else None


RUNS = 4  # independent filters; their differences are the Monte Carlo error


class Noisy(eqx.Module):
    """What the filters found for one draw of the noise.

    Attributes:
        log_likelihood: of the first `length` releases, per run and secret.
        trail: log-masses over time by one Kalman filter per secret, to look at.
    """

    log_likelihood: Float[Array, "R K"]
    trail: Float[Array, "T K"]


def guide(policy: Policy) -> Guide:
    """How to aim the particles at the releases of this policy."""
    return Twisted() if release_kind(policy.system, policy).fresh_law().is_smooth else Unguided()


@eqx.filter_jit
def read_noisy(
    swarm: ParticleFilter,
    believed: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    length: Int[Array, ""],
    key: Key,
) -> Noisy:
    """Draw the releases once and let the filters read them.

    Args:
        swarm: the filter; its system and policy are those of the reader.
        believed: what the owner takes its secret for.
        states: the recorded path; rows beyond `length` are padding.
        external: the recorded inputs.
        length: how many rows count.
        key: of this draw and its filters.
    """
    draw_key, own_key, bank_key, seed_key = jr.split(key, 4)
    seed = jr.randint(seed_key, (), 0, 1 << 30, jnp.int32)
    public = releases_on_recording(swarm.policy, believed, states, external, seed=seed, key=draw_key)
    steps = public_steps(public, length)
    plan = plans(swarm, steps)
    found = jax.vmap(lambda one: runs(swarm, steps, plan, key=one).log_likelihood)(jr.split(own_key, RUNS))
    trail = KalmanBank(swarm.system, swarm.policy).trail(public, key=bank_key)
    return Noisy(found, trail.log_masses)

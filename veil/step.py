"""One step, in its one order: choose the kernel, draw the release, update the belief, move the system.

The kernel depends on (belief_t, w_t, t). Then y_t is drawn, the belief is updated by y_t, x_{t+1} follows
from w_t, and w_{t+1} answers y_t. Training, episodes, replays and the live sharer all use this step. Public
randomness (beliefs) and private randomness (the draw of y_t, the system) come from two keys.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Integer

from veil.beliefs.base import Belief, Health
from veil.laws import Gaussian, Law
from veil.policies.base import Decision, Memory, Policy, Time, emitted, sensed
from veil.systems.base import System
from veil.traced import MIXED, degrees, is_identity, moved_numbers
from veil.types import External, Features, Key, Scalar, Secret, Shared, State, Vector

Seed = Integer[Array, ""]


class WorldState(eqx.Module):
    """The state of the world before the release of step `time`. Private: it contains the secret.

    `believed` is the secret that the owner assumes, in the terms of its own model; it is the true secret
    unless the owner errs. The owner sees the leading coordinates of the state, as many as its model has.
    `memory` is that of the policy; for most policies it is empty.
    """

    secret: Secret
    believed: Secret
    state: State
    external: External
    time: Time
    memory: Memory


class StreamOverride(eqx.Module):
    """What a stream imposes on a step.

    Attributes:
        left: nats that the accountant has left.
        missing: there is no state to share.
    """

    left: Scalar
    missing: Bool[Array, ""]


class Recorded(eqx.Module):
    """A release that may be on record already, as it was emitted; where it is known, none is drawn."""

    known: Bool[Array, ""]
    shared: Shared


class StepOutput(eqx.Module):
    """What one step produced. A charge for it is a function of `belief.components(decision)`."""

    belief: Belief  # before y_t: leakage is measured under this one
    features: Features
    decision: Decision
    shared: Shared
    log_choice: Scalar  # log-probability of what was discrete in the draw of y_t; 0 where nothing was
    health: Health


def public_key(seed: Seed, time: Time | int) -> Key:
    """The public randomness of one step; time 0 is for drawing the belief at t = 1."""
    return jr.fold_in(jr.key(seed), time)


def first_belief(policy: Policy, seed: Seed) -> Belief:
    """The policy's belief at t = 1."""
    return policy.start(key=public_key(seed, 0))


def policy_features(policy: Policy, belief: Belief, external: External, time: Time) -> Features:
    """The features of one step.

    Here and in `update_belief`, barriers keep the compiler from merging the public arithmetic with its
    surroundings. They do not fix the last bit: on a processor XLA removes them before it fuses operations,
    and how a product and a sum are rounded depends on what they are fused with. Only the same program gives
    the same bits (`Given` in `veil.rollout`).

    Args:
        policy: the policy in force.
        belief: of the policy, before y_t.
        external: w_t.
        time: t, counted from 1.
    """
    known = jax.lax.optimization_barrier((belief, external, time))
    return jax.lax.optimization_barrier(policy.features(*known))


def first_features(policy: Policy, seed: Seed | int = 0) -> Features:
    """The features at t = 1."""
    time = jnp.asarray(1, jnp.int32)
    start = first_belief(policy, jnp.asarray(seed, jnp.int32))
    return policy.features(start, policy.system.first_external(), time)


def first_law(policy: Policy, secret: Secret, state: State) -> Law:
    """The law of y_1 at a secret and a state.

    Args:
        policy: the policy in force.
        secret: θ.
        state: x_1.
    """
    time = jnp.asarray(1, jnp.int32)
    policy = sensed(policy)
    decision = policy.decide(first_features(policy), policy.system.first_external(), time)
    return decision.release_law(secret, state, policy.init_memory(secret, state, key=jr.key(0)))


def release_kind(system: System, policy: Policy) -> Law:
    """A law such as the releases have, to ask what it can do; its arrays are shapes, nothing is computed."""

    def probe() -> Law:
        start = system.initial(system.prior.secrets[0]).mean
        return first_law(policy, policy.system.prior.secrets[0], seen(policy, start))

    return eqx.filter_eval_shape(probe)


def sees_state(system: System, policy: Policy) -> bool:
    """Whether the releases are the whole state as it is, or repeat an earlier one.

    Decided from the traced program of the release: it may copy numbers from the state to their places, and do
    nothing else. A sensor that is the identity at most states (a rectifier, a limit) is none.
    """
    policy = sensed(policy)
    if not policy.shares_truth or not release_kind(system, policy).fresh_law().is_point:
        return False
    return is_identity(*_release_program(system, policy))


def shares_linearly(system: System, policy: Policy) -> bool:
    """Whether releases are affine in the state, without noise, and what they leave open moves linearly.

    The system must be linear and Gaussian in the coordinates that are not released; it may depend on those
    that are in any way, a limit on a heater that reads the released temperature for example. Then one Kalman
    filter per secret has the exact likelihood, whichever part of the state is shared: it linearises where
    the released coordinates are known, and the others have no curvature. Decided from the traced programs.
    """
    copied = copied_coordinates(system, policy)
    return len(copied) > 0 and moves_linearly(system, tuple(place for place in copied if place != MIXED))


def copied_coordinates(system: System, policy: Policy) -> tuple[int, ...]:
    """For each number of a release, the coordinate of the state that it copies, or `MIXED`.

    Empty where releases have noise, are not affine in the state, or repeat earlier ones. Decided from the
    traced program.
    """
    policy = sensed(policy)
    kind = release_kind(system, policy)
    if kind.fresh_law() is not kind or not shares_affinely(system, policy):
        return ()
    return tuple(int(place) for place in moved_numbers(*_release_program(system, policy)))


def shares_by_gaussians(system: System, policy: Policy) -> bool:
    """Whether releases are affine in the state plus Gaussian noise, and the system is linear and Gaussian.

    The noise may depend on everything but the state. Then one Kalman filter per secret has the exact
    likelihood. Decided from the traced programs.
    """
    policy = sensed(policy)
    if policy.has_memory or type(release_kind(system, policy)) is not Gaussian:
        return False
    _, start, *known = _release_program(system, policy)

    def law(state: State, secret: Secret, features: Features, external: External, time: Time) -> tuple:
        decision = policy.decide(features, external, time)
        memory = policy.init_memory(secret, seen(policy, state), key=jr.key(0))
        found = decision.release_law(secret, seen(policy, state), memory)
        assert isinstance(found, Gaussian)  # as its kind says
        return found.mean, found.scale

    mean, scale = degrees(law, start, *known)
    return mean <= 1 and scale == 0 and moves_linearly(system)


def coordinates_read(system: System, policy: Policy) -> tuple[int, ...] | None:
    """The coordinates of the state that the law of a release depends on; None if it depends on the secret.

    For a policy without a memory. Decided from the traced program.
    """
    policy = sensed(policy)
    _, start, *known = _release_program(system, policy)

    def law(state: State, secret: Secret, features: Features, external: External, time: Time) -> list[Array]:
        decision = policy.decide(features, external, time)
        memory = policy.init_memory(secret, seen(policy, state), key=jr.key(0))
        found = decision.release_law(secret, seen(policy, state), memory)
        return jax.tree.leaves(eqx.filter(found, eqx.is_array))

    def of_secret(secret: Secret, state: State, *rest: Array) -> list[Array]:
        return law(state, secret, *rest)

    if max(degrees(of_secret, known[0], start, *known[1:]), default=0) > 0:
        return None
    places = range(len(system.state_fields))
    others = (tuple(one for one in places if one != place) for place in places)
    return tuple(
        place
        for place, fixed in enumerate(others)
        if max(degrees(law, start, *known, fixed=fixed), default=0) > 0
    )


def moves_linearly(system: System, known: tuple[int, ...] = ()) -> bool:
    """Whether the next state is Gaussian with a mean affine in the state, and noise that ignores it.

    Args:
        system: the system.
        known: coordinates that are known, so that the next state may depend on them in any way.
    """
    secret, external = system.prior.secrets[0], system.first_external()

    def moved(state: State, secret: Secret, external: External) -> tuple[Vector, Array]:
        law = system.transition(secret, state, external)
        return law.mean, law.scale

    mean, scale = degrees(moved, system.initial(secret).mean, secret, external, fixed=known)
    return mean <= 1 and scale == 0


def shares_affinely(system: System, policy: Policy) -> bool:
    """Whether releases are affine in the state, without noise, or repeat an earlier one.

    Then the density of a release, and the law of what it leaves open of the state, are known for every
    Gaussian law of the state. Decided from the traced program.
    """
    policy = sensed(policy)
    if policy.has_memory or not release_kind(system, policy).fresh_law().is_point:
        return False
    return max(degrees(*_release_program(system, policy))) <= 1


def _release_program(system: System, policy: Policy) -> tuple:
    """The release without noise as a function of the state and of all else, and an example of each."""
    secret, external = system.prior.secrets[0], system.first_external()
    features, time = first_features(policy), jnp.asarray(1, jnp.int32)

    def release(state: State, secret: Secret, features: Features, external: External, time: Time) -> Vector:
        return noiseless_release(policy, secret, state, features, external, time)

    start = system.initial(secret).mean
    return release, start, policy.system.prior.secrets[0], features, external, time


def noiseless_release(
    policy: Policy, secret: Secret, state: State, features: Features, external: External, time: Time
) -> Vector:
    """What a policy without noise releases.

    Args:
        policy: the one in force.
        secret: θ.
        state: x_t.
        features: of this step.
        external: w_t.
        time: t, counted from 1.
    """
    policy = sensed(policy)
    state = seen(policy, state)
    decision = policy.decide(features, external, time)
    memory = policy.init_memory(secret, state, key=jr.key(0))
    law = decision.release_law(secret, state, memory).fresh_law()
    return law.sample(jnp.zeros(law.noise_size, state.dtype))


def update_belief(
    policy: Policy, belief: Belief, decision: Decision, external: External, shared: Shared, *, key: Key
) -> tuple[Belief, Health]:
    """The policy's belief after y_t.

    Args:
        policy: the one in force.
        belief: before y_t.
        decision: what the policy decided about y_t.
        external: w_t.
        shared: y_t.
        key: the public one of this step.
    """
    belief, external, shared = jax.lax.optimization_barrier((belief, external, shared))
    return jax.lax.optimization_barrier(belief.update(policy.system, decision, external, shared, key=key))


def begin(
    system: System,
    policy: Policy,
    secret: Secret,
    *,
    key: Key,
    believed: Secret | None = None,
) -> WorldState:
    """The state of the world at t = 1.

    Args:
        system: the true system.
        policy: the policy in force; its memory starts here.
        secret: the true secret of the system.
        key: private randomness.
        believed: the secret that the owner assumes; by default the true one.
    """
    law = system.initial(secret)
    state = law.sample(jr.normal(key, (law.noise_size,), law.mean.dtype))
    believed = secret if believed is None else believed
    memory = policy.init_memory(believed, seen(policy, state), key=jr.fold_in(key, 1))
    start = jnp.asarray(1, jnp.int32)
    return WorldState(secret, believed, state, system.first_external(), start, memory)


def share(
    policy: Policy,
    belief: Belief,
    situation: WorldState,
    *,
    seed: Seed,
    key: Key,
    live: StreamOverride | None = None,
    recorded: Recorded | None = None,
) -> tuple[Belief, StepOutput]:
    """The owner's part of a step: decide the law of y_t, draw from it, update the belief.

    Args:
        policy: the policy in force.
        belief: of the policy, before y_t.
        situation: the true secret and state, and the memory; only the draw of y_t reads them.
        seed: the public seed of the episode.
        key: private randomness of the draw.
        live: what a live stream knows: the rest of its budget, a missing state.
        recorded: a release on record.
    """
    external = situation.external
    if live is not None:
        belief = policy.fund(belief, live.left)
    features = policy_features(policy, belief, external, situation.time)
    decision = policy.decide(features, external, situation.time)
    if live is not None:
        decision = decision.shut_if(live.missing)
    law = decision.release_law(situation.believed, seen(policy, situation.state), situation.memory)
    shared, choice = _draw(law, situation.state, key)
    shared = emitted(policy, shared)
    if recorded is not None:
        shared = jnp.where(recorded.known, recorded.shared, shared)
    step_key = public_key(seed, situation.time)
    after, health = update_belief(policy, belief, decision, external, shared, key=step_key)
    return after, StepOutput(belief, features, decision, shared, choice, health)


def proceed(
    system: System, policy: Policy, situation: WorldState, stage: StepOutput, *, key: Key
) -> WorldState:
    """The system's part of a step: x_{t+1}, then w_{t+1}, then the policy's memory.

    Args:
        system: the true system.
        policy: the policy in force.
        situation: before the release.
        stage: the release and what led to it.
        key: private randomness.
    """
    move_key, reply_key = jr.split(key)
    law = system.transition(situation.secret, situation.state, situation.external)
    state = law.sample(jr.normal(move_key, (law.noise_size,), law.mean.dtype))
    noise = jr.normal(reply_key, (system.reaction_noise_size,), situation.external.dtype)
    external = system.next_external(situation.external, stage.shared, noise)
    if stage.decision.withheld is not None:
        without = system.next_external(situation.external, None, noise)
        external = jnp.where(stage.decision.withheld, without, external)
    step = seen(policy, situation.state), situation.external, seen(policy, state)
    memory = policy.update_memory(situation.memory, situation.believed, *step, key=jr.fold_in(key, 2))
    return WorldState(situation.secret, situation.believed, state, external, situation.time + 1, memory)


def seen(policy: Policy, state: State) -> Vector:
    """The part of the state that the owner's model knows."""
    return state[: len(policy.system.state_fields)]


def _draw(law: Law, state: State, key: Key) -> tuple[Shared, Scalar]:
    """The release, and the log-probability of what was discrete in its draw."""
    noise = jr.normal(key, (law.noise_size,), state.dtype)
    return law.sample(noise), law.log_choice(noise)


class Transcript(eqx.Module):
    """Everything public about one episode. Nothing else may reach an adversary."""

    external: Float[Array, "T E"]
    shared: Float[Array, "T Y"]
    features: Float[Array, "T F"]
    public_seed: Seed


class Record(eqx.Module):
    """A transcript together with the private secret and states."""

    index: Int[Array, ""]
    secret: Secret
    states: Float[Array, "T_plus_1 N"]
    public: Transcript

"""The compiled step of a stream, and the engine that runs it live or along a ledger.

The same program shares live and replays a ledger, so that both agree to the last bit; it is compiled once, at
start-up, for fixed shapes. The secret is an argument: a constant of the program would end up on disk, in the
cache of compiled programs.
"""

import os
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, UInt32

from veil.beliefs.base import Belief
from veil.laws import Grid
from veil.policies.base import Decision, Memory, Policy, emission_grid, emitted, sensed
from veil.policies.geometry import expected_start
from veil.policies.twin import apart, together, twin_of
from veil.sharing.alarm import Surprise, surprise, twin_surprise, unknown_cell
from veil.sharing.ledger import MISSING, Entry
from veil.sharing.snapshots import MemoryFile, PrivateSnapshot, packed, unpacked
from veil.step import Recorded, StreamOverride, WorldState, first_belief, first_law, share
from veil.systems.base import System
from veil.traced import dependence
from veil.types import Scalar, Secret, Shared, State


class OwnerObservation(NamedTuple):
    """What the owner sees at one step, and saw at the one before; arrays of JAX or numpy. Private."""

    state: Any
    external: Any
    missing: Any
    state_before: Any
    external_before: Any
    missing_before: Any
    partial: Any  # whether a field of one of the states is missing


class PublicInput(NamedTuple):
    """What is public about a step before it is shared."""

    time: Any
    seed: Any
    left: Any  # nats
    missing: Any  # whether there is nothing to release
    known: Any  # whether the release is on record
    shared: Any  # that release


class LiveStep(eqx.Module):
    """What a step made public: arrays in the program, of numpy outside it.

    Attributes:
        decision: without its kernel.
        shared: y_t; not used where it was withheld.
        effective: smallest effective sample size over the secrets, as a fraction of the particles; None where
            the belief has no particles.
        log_evidence: log density of the release by the policy's belief; None where no belief weighs it.
        sound: whether all that would be kept of the step is a number.
        quiet: whether the policy follows nothing of the owner because a public input is new.
    """

    decision: Decision
    shared: Shared
    effective: Scalar | None
    log_evidence: Scalar | None
    sound: Bool[Array, ""]
    quiet: Bool[Array, ""]


def live_step(policy: Policy, shape: Any = None):
    """The step, from (own, belief, memory, ready, secret, ...) to (belief, memory, public part, surprise).

    `ready` says that the memory is that of this step already.

    Args:
        policy: its public part. A constant of the program would end up on disk.
        shape: what is no array of the owner's fitted self-models; their arrays are `own`.
    """
    system, shared_policy = policy.system, policy

    def step(
        own: Any,
        belief: Belief,
        memory: Memory,
        ready: Bool[Array, ""],
        secret: Secret,
        sight: OwnerObservation,
        public: PublicInput,
        cell: Float[Array, " J"],
        coins: UInt32[Array, "2"],
    ) -> tuple[Belief, Memory, LiveStep, Surprise]:
        policy = together(shared_policy, eqx.combine(own, shape))
        state, before = clamped(system, sight.state), clamped(system, sight.state_before)
        key, memory_key, alarm_key = jr.split(jr.wrap_key_data(coins), 3)
        begun = jnp.where(sight.missing, system.initial(secret).mean, state)
        first = policy.init_memory(secret, begun, key=memory_key)
        updated = policy.update_memory(memory, secret, before, sight.external_before, state, key=memory_key)
        coasted = policy.coast_memory(memory, sight.external_before)
        later = jnp.where(sight.missing | sight.missing_before, coasted, updated)
        earlier, memory = memory, jnp.where(public.time == 1, first, jnp.where(ready, memory, later))
        situation = WorldState(secret, secret, state, sight.external, public.time, memory)
        live = StreamOverride(public.left, public.missing)
        # What was emitted is read back from decimals, which may miss the last bit.
        recorded = Recorded(public.known, emitted(policy, public.shared))
        after, made = share(
            policy, belief, situation, seed=public.seed, key=key, live=live, recorded=recorded
        )
        particles = belief.particle_count
        twin = twin_of(policy)
        live_step = LiveStep(
            made.decision.numbers(),
            made.shared,
            jnp.min(made.health.effective) / particles if particles else None,
            None if policy.has_memory else made.health.log_evidence,
            _sound((after, memory, made.decision.charge), made.shared),
            jnp.asarray(False) if twin is None else twin.quiet(twin.unpack(memory)),
        )
        if twin is not None:  # it reads its own noise, which needs no field that is left out
            rows = twin_surprise(twin, earlier, memory, sight.external_before)
            blank = sight.missing | sight.missing_before | ready | (public.time == 1)
            return after, memory, live_step, Surprise(jnp.where(blank, jnp.nan, rows), cell)
        moved = sight.state_before, sight.external_before, sight.state
        found = surprise(system, secret, *moved, cell=cell, key=alarm_key)
        # The alarm does not look at what is only there in part.
        unknown = sight.missing | sight.missing_before | sight.partial
        cell = jnp.where(unknown, unknown_cell(system), found.cell)
        return after, memory, live_step, Surprise(jnp.where(unknown, jnp.nan, found.rows), cell)

    return step


def _sound(kept: Any, shared: Shared) -> Bool[Array, ""]:
    """Whether there are numbers everywhere; single ones (a budget) and logarithms may be infinite."""
    floats = [one for one in jax.tree.leaves(kept) if jnp.issubdtype(one.dtype, jnp.floating)]
    arrays = [jnp.all(one < jnp.inf) for one in floats if one.ndim]
    return jnp.all(
        jnp.stack([*(~jnp.any(jnp.isnan(one)) for one in floats), *arrays, jnp.all(jnp.isfinite(shared))])
    )


def clamped(system: System, state: State) -> State:
    """The state within the ranges of its fields: refusing it would tell something about it."""
    low = jnp.asarray([field.low for field in system.state_fields], state.dtype)
    high = jnp.asarray([field.high for field in system.state_fields], state.dtype)
    return jnp.clip(state, low, high)


def initial_belief(policy: Policy, seed: int) -> Belief:
    """The belief at t = 1."""
    return jax.jit(lambda number: first_belief(policy, number))(jnp.asarray(seed, jnp.int32))


@dataclass(frozen=True)
class PendingStep:
    """A step that was computed and is not in force yet.

    Attributes:
        step: its number.
        public: what it makes public.
        belief: after it.
        memory: that of this step; private.
        state: x_t, None where missing; private.
        external: w_t.
        noise: recovered from the last step, and where other plants expect it; NaN where unknown. Private.
        cell: what is known about where in the cell of its reading the state is. Private.
        rate: nats that a release costs in any case.
        blind: whether the release depends on what was public before and on nothing else.
    """

    step: int
    public: LiveStep
    belief: Belief
    memory: np.ndarray
    state: np.ndarray | None
    external: np.ndarray
    noise: np.ndarray
    cell: np.ndarray
    rate: float = 0.0
    blind: bool = False

    @property
    def charge(self) -> float:
        """The charge of the release, in nats."""
        decision = self.public.decision
        follows = bool(decision.open) and not bool(decision.withheld) and not self.blind
        return float(decision.charge) + (self.rate if follows else 0.0)

    def entry(self, missing: str = "") -> Entry:
        """What the ledger says of it, apart from the money and the clock.

        Args:
            missing: "fault" or "gap" where there was no state to share.
        """
        public, decision = self.public, self.public.decision
        withheld, blur, evidence = bool(decision.withheld), float(decision.blur), public.log_evidence
        passed = "blind" if self.blind else "blurred" if blur > 0 else "released"
        return {
            "step": self.step,
            "decision": missing or ("withheld" if withheld else passed if decision.open else "blind"),
            "shared": None if withheld else public.shared.tolist(),
            "external": self.external.tolist(),
            "blur": blur,
            "charge": self.charge,
            "effective": None if public.effective is None else float(public.effective),
            "log_density": float(evidence) if evidence is not None and decision.open else None,
        }


class StepEngine:
    """Where a stream stands: the last step, the belief after it, and what only the owner knows.

    Args:
        policy: as it shares, with its budget if it has one.
        secret: its values.
        seed: of the public randomness.
        file: keeps the private memory; None for a policy without one, or to keep nothing.
        rate: nats that each release costs, beside what the policy charges.
    """

    def __init__(
        self,
        policy: Policy,
        secret: np.ndarray,
        seed: int,
        file: MemoryFile | None = None,
        rate: float = 0.0,
    ):
        policy, system = sensed(policy), policy.system
        self._rate = rate
        self.step, self._file = 0, file
        # On the device from the start: what changes at every step is all that a call has to move there.
        self._secret, self._seed = jnp.asarray(secret), jnp.asarray(seed, jnp.int32)
        self._flags = {flag: jnp.asarray(flag) for flag in (False, True)}
        self._has_memory, self._nothing = policy.has_memory, jnp.zeros(len(system.shared_fields))
        self._anywhere = np.asarray(jax.jit(lambda: expected_start(system))(), float)
        self._external: np.ndarray = np.asarray(system.first_external(), float)
        self._system = system
        self._state: np.ndarray | None = None
        self._belief = initial_belief(policy, seed)
        start = jnp.asarray(self._anywhere)
        made = jax.eval_shape(lambda: policy.init_memory(self._secret, start, key=jr.key(0)))
        self._memory, self._ready = np.zeros(made.shape, made.dtype), False
        self._unknown_cell = self._cell = np.asarray(unknown_cell(system), float)
        self._grid = emission_grid(policy)
        example = self._inputs(None, self._external, 0.0, True, None)
        public, own = apart(policy)
        self._own, shape = eqx.partition(own, eqx.is_array)
        program = jax.jit(live_step(public, shape))
        self._program = program.lower(self._own, *example).compile()

    def make(
        self, state: np.ndarray | None, external: np.ndarray | None, left: float, *, blind: bool = False
    ) -> PendingStep:
        """The next step, live: decide and draw.

        Args:
            state: x_t; None where there is none.
            external: w_t; without it the last one is taken to hold, but for series and clock.
            left: nats that may be spent.
            blind: release what is expected without the state, which is None then.
        """
        if external is None:
            # The environment is taken to stand still; its series and its clock go on.
            last = jnp.asarray(self._external)
            external = self._external if self.step == 0 else np.asarray(self._system.held_external(last))
        return self._run(state, external, left, state is None and not blind, None, blind)

    def again(self, entry: Entry) -> PendingStep:
        """The next step as the ledger has it: decide as then; what was drawn is given."""
        shared = None if entry["shared"] is None else np.asarray(entry["shared"], float)
        left = np.inf if entry["left"] is None else entry["left"]
        missing = entry["decision"] in MISSING or (self._has_memory and entry["decision"] == "withheld")
        blind = self._has_memory and entry["decision"] == "blind"
        return self._run(None, np.asarray(entry["external"], float), left, missing, shared, blind)

    def standing(self) -> tuple[Any, ...]:
        """Where the stream stands, for `stand`."""
        public = self.step, self._external, self._belief
        return public, (self._state, self._memory, self._ready, self._cell)

    def stand(self, standing: tuple[Any, ...]) -> None:
        """Go back to where the stream stood: what was computed since then is not in force."""
        (self.step, self._external, self._belief), own = standing
        self._state, self._memory, self._ready, self._cell = own

    def keep(self, made: PendingStep) -> None:
        """Go on from this step."""
        self.step, self._state, self._external = made.step, made.state, made.external
        self._belief, self._memory, self._ready, self._cell = made.belief, made.memory, False, made.cell

    def prepare(self, made: PendingStep, last: int) -> None:
        """Make durable what must be before the release is: without its memory a stream cannot go on.

        Args:
            made: the step.
            last: step at which the ledger ends.
        """
        if self._file is not None:
            state = np.full_like(self._anywhere, np.nan) if made.state is None else made.state
            self._file.write(PrivateSnapshot(made.step, made.memory, state, made.external), last)

    def resume(self) -> None:
        """The ledger was replayed to its end: take the memory from its file.

        It counts where it is that of the last step, or of the one that was pending.
        """
        kept = None if self._file is None else self._file.read(self.step)
        if kept is None or kept.memory.shape != self._memory.shape:
            return
        if kept.step == self.step:
            self._state = None if np.all(np.isnan(kept.state)) else kept.state
        if kept.step in (self.step, self.step + 1):
            self._memory, self._ready = kept.memory, kept.step == self.step + 1

    def snapshot(self) -> bytes:
        """The belief as bytes; empty where the policy's memory, not its belief, says where the stream is."""
        if self._has_memory:
            return b""
        return packed([np.asarray(leaf) for leaf in jax.tree.leaves(self._belief)])

    def restore(self, content: bytes, last: Entry) -> None:
        """Go on from a snapshot that was taken after this entry."""
        self.step, self._external = last["step"], np.asarray(last["external"], float)
        leaves, shape = jax.tree.flatten(self._belief)
        self._belief = jax.tree.unflatten(shape, [jnp.asarray(one) for one in unpacked(content, len(leaves))])

    def _whole(self, state: np.ndarray | None) -> np.ndarray:
        """A state without gaps: what is not known is what is expected at the start, and not looked at."""
        return self._anywhere if state is None else np.where(np.isnan(state), self._anywhere, state)

    def _run(
        self,
        state: np.ndarray | None,
        external: np.ndarray,
        left: float,
        missing: bool,
        shared: np.ndarray | None,
        blind: bool = False,
    ) -> PendingStep:
        given = self._inputs(state, external, left, missing, shared)
        belief, memory, public, found = self._program(self._own, *given)
        public = jax.tree.map(np.asarray, public)
        public = eqx.tree_at(lambda one: one.shared, public, in_decimals(public.shared, self._grid))
        own = (np.asarray(one) for one in found)
        noise, cell = own
        return PendingStep(
            self.step + 1,
            public,
            belief,
            np.asarray(memory),
            state,
            external,
            noise,
            cell,
            self._rate,
            blind or bool(public.quiet),
        )

    def _inputs(
        self,
        state: np.ndarray | None,
        external: np.ndarray,
        left: float,
        missing: bool,
        shared: np.ndarray | None,
    ) -> tuple[Any, ...]:
        """The arguments of the program."""
        before, flags = self._state, self._flags
        partial = any(one is not None and bool(np.isnan(one).any()) for one in (state, before))
        sight = OwnerObservation(
            self._whole(state),
            external,
            flags[state is None],
            self._whole(before),
            self._external,
            flags[before is None],
            flags[partial],
        )
        public = PublicInput(
            np.int32(self.step + 1),
            self._seed,
            np.float64(left),
            flags[missing],
            flags[shared is not None],
            self._nothing if shared is None else shared,
        )
        own = self._belief, self._memory, flags[self._ready], self._secret
        return *own, sight, public, self._cell, _coins()


def unread_fields(policy: Policy) -> tuple[str, ...]:
    """Names of the fields of the state that no release of the policy depends on, by its traced program."""
    policy, fields = sensed(policy), policy.system.state_fields
    twin = twin_of(policy)
    if twin is not None:
        return tuple(field.name for field, flag in zip(fields, twin.seen, strict=True) if not flag)
    secret, start = policy.system.prior.secrets[0], expected_start(policy.system)
    # Most systems share all of their state; then there is no need to trace the policy.
    if policy.has_memory or np.all(np.any(dependence(policy.system.output, start), axis=1)):
        return ()
    used = np.any(dependence(lambda state: jax.tree.leaves(first_law(policy, secret, state)), start), axis=1)
    return tuple(field.name for field, there in zip(fields, used, strict=True) if not there)


def in_decimals(values: np.ndarray, grid: Grid) -> np.ndarray:
    """Points of a grid as the numbers that their decimal digits stand for, if its steps are decimal ones.

    A count times 0.01 is 14.370000000000001 in floating point; what goes out is 14.37.
    """
    pairs = zip(values.tolist(), _decimals(grid), strict=True)
    return np.asarray([value if digits is None else round(value, digits) for value, digits in pairs])


@lru_cache
def _decimals(grid: Grid) -> tuple[int | None, ...]:
    """Decimal digits of the points of a grid per axis; None where they have no end that matters."""
    ends = [Decimal(repr(step)).normalize().as_tuple().exponent if step > 0 else -99 for step in grid]
    return tuple(max(-int(end), 0) if int(end) > -15 else None for end in ends)


def _coins() -> np.ndarray:
    """Private randomness from the operating system."""
    return np.frombuffer(os.urandom(8), np.uint32)

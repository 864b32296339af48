"""The compiled step of a stream, one for policies with a belief and one for those with a private memory.

The same program shares live and replays a ledger, so that both agree to the last bit; it is compiled once, at
start-up, for fixed shapes. The secret is an argument: a constant of the program would end up on disk, in the
cache of compiled programs.
"""

import abc
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from veil.beliefs.base import Belief
from veil.beliefs.particles import ParticleBelief
from veil.laws import recovered
from veil.policies.base import Memory, Policy
from veil.policies.budgeted import Budgeted, BudgetedBelief
from veil.policies.geometry import expected_start
from veil.sharing.ledger import Entry
from veil.sharing.secret_files import MemoryFile, PrivateSnapshot
from veil.sharing.snapshot import packed, unpacked
from veil.step import StreamOverride, WorldState, first_belief, share
from veil.systems.base import System
from veil.types import Noise, Secret, State, Vector


class OwnerObservation(NamedTuple):
    """What the owner sees at one step, and saw at the one before; arrays of JAX or numpy. Private."""

    state: Any
    external: Any
    missing: Any
    state_before: Any
    external_before: Any
    missing_before: Any


class PublicInput(NamedTuple):
    """What is public about a step before it is shared."""

    time: Any
    seed: Any
    left: Any  # nats
    known: Any  # whether the release is on record
    shared: Any  # that release


class StepResult(NamedTuple):
    """What a step made public, in one row of numbers; see `told_by`."""

    shared: np.ndarray
    open: bool
    withheld: bool
    blur: float
    charge: float
    effective: float
    log_evidence: float


def step_result(row: np.ndarray) -> StepResult:
    """The parts of the row that a belief step gives."""
    numbers = [float(number) for number in row[-6:]]
    return StepResult(row[:-6], bool(numbers[0] > 0.5), bool(numbers[1] > 0.5), *numbers[2:])


def belief_step(policy: Budgeted):
    """The step of a policy with a public belief, from (belief, secret, ...) to (belief, row, noise)."""

    def step(
        belief: BudgetedBelief,
        secret: Secret,
        sight: OwnerObservation,
        public: PublicInput,
        coins: UInt32[Array, "2"],
    ) -> tuple[Belief, Float[Array, " R"], Noise]:
        state = clamped(policy.system, sight.state)
        situation = WorldState(secret, secret, state, sight.external, public.time, jnp.zeros(0, state.dtype))
        live = StreamOverride(public.left, sight.missing, public.known, public.shared)
        key = jr.wrap_key_data(coins)
        after, stage = share(policy, belief, situation, seed=public.seed, key=key, live=live)
        decision, health = stage.decision, stage.health
        assert decision.withheld is not None
        effective = jnp.min(health.effective) / _particles(belief)
        numbers = (
            decision.open,
            decision.withheld,
            decision.blur,
            decision.charge,
            effective,
            health.log_evidence,
        )
        row = jnp.concatenate([stage.shared, jnp.stack([jnp.asarray(n, state.dtype) for n in numbers])])
        return after, row, _residual(policy.system, secret, sight)

    return step


def memory_step(policy: Policy):
    """The step of a policy with private memory, from (memory, ready, secret, ...) to (memory, y, noise).

    `ready` says that the memory is that of this step already.
    """
    system = policy.system

    def step(
        memory: Memory,
        ready: Bool[Array, ""],
        secret: Secret,
        sight: OwnerObservation,
        time: Int[Array, ""],
        coins: UInt32[Array, "2"],
    ) -> tuple[Memory, Vector, Noise]:
        state, before = clamped(system, sight.state), clamped(system, sight.state_before)
        first = policy.init_memory(secret, jnp.where(sight.missing, system.initial(secret).mean, state))
        kept = policy.update_memory(memory, secret, before, sight.external_before, state)
        coasted = policy.coast_memory(memory, sight.external_before)
        unseen = sight.missing | sight.missing_before
        later = jnp.where(ready, memory, jnp.where(unseen, coasted, kept))
        memory = jnp.where(time == 1, first, later)
        kernel = policy.kernel(jnp.zeros(0, state.dtype), sight.external, time)
        law = kernel.release_law(secret, state, memory)
        noise = jr.normal(jr.wrap_key_data(coins), (law.noise_size,), state.dtype)
        return memory, law.sample(noise), _residual(system, secret, sight)

    return step


def clamped(system: System, state: State) -> State:
    """The state within the ranges of its fields: refusing it would tell something about it."""
    low = jnp.asarray([field.low for field in system.state_fields], state.dtype)
    high = jnp.asarray([field.high for field in system.state_fields], state.dtype)
    return jnp.clip(state, low, high)


def initial_belief(policy: Budgeted, seed: int) -> Belief:
    """The belief at t = 1."""
    return jax.jit(lambda number: first_belief(policy, number))(jnp.asarray(seed, jnp.int32))


def _residual(system: System, secret: Secret, sight: OwnerObservation) -> Noise:
    """The noise that the last step took if the model is right; NaN where that is not known. Private."""
    law = system.transition(secret, sight.state_before, sight.external_before)
    noise = recovered(law, sight.state, jnp.full_like(sight.state, jnp.nan))
    return jnp.where(sight.missing | sight.missing_before, jnp.nan, noise)


def _particles(belief: BudgetedBelief) -> float:
    """How many there are per secret; the effective size of other beliefs is infinite."""
    account = belief.account
    return float(account.log_weights.shape[1]) if isinstance(account, ParticleBelief) else 1.0


MISSING = ("fault", "gap")


@dataclass(frozen=True)
class PendingStep:
    """A step that was computed and is not in force yet.

    Attributes:
        entry: what the ledger will say, spending apart.
        charge: nats.
        after: belief or memory after it.
        state: x_t, None where missing; private.
        external: w_t.
        noise: recovered from the last step, NaN where unknown; private.
    """

    entry: Entry
    charge: float
    after: Any
    state: np.ndarray | None
    external: np.ndarray
    noise: np.ndarray


class StepEngine(abc.ABC):
    """Where a stream stands: the last step, and what was seen there."""

    def __init__(self, system: System, secret: np.ndarray):
        self.step, self._secret = 0, secret
        self._anywhere = np.asarray(jax.jit(lambda: expected_start(system))(), float)
        self._external = np.asarray(system.initial_external(), float)
        self._state: np.ndarray | None = None

    @abc.abstractmethod
    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> PendingStep:
        """The next step, live; without w_t the last one is taken to hold."""

    @abc.abstractmethod
    def again(self, entry: Entry) -> PendingStep:
        """The next step as the ledger has it."""

    @abc.abstractmethod
    def prepare(self, made: PendingStep) -> None:
        """Make durable what must be before the release is."""

    @abc.abstractmethod
    def resume(self) -> None:
        """The ledger was replayed to its end: take up what only the owner knows."""

    def snapshot(self) -> bytes:
        """What is public about where the stream stands and is not in the ledger; empty if that is nothing."""
        return b""

    def restore(self, content: bytes, last: Entry) -> None:
        """Go on from a snapshot that was taken after this entry."""
        del content
        self.step, self._external = last["step"], np.asarray(last["external"], float)

    def keep(self, made: PendingStep) -> None:
        """Go on from this step."""
        self.step, self._state, self._external = made.entry["step"], made.state, made.external

    def _sight(self, state: np.ndarray | None, external: np.ndarray) -> OwnerObservation:
        before = self._state
        return OwnerObservation(
            self._anywhere if state is None else state,
            external,
            np.bool_(state is None),
            self._anywhere if before is None else before,
            self._external,
            np.bool_(before is None),
        )


class BeliefEngine(StepEngine):
    """A policy with a public belief, under a budget."""

    def __init__(self, policy: Budgeted, secret: np.ndarray, seed: int):
        super().__init__(policy.system, secret)
        self._seed, self._belief = np.int32(seed), initial_belief(policy, seed)
        self._size = len(policy.system.shared_fields)
        self._blurs = policy.exhausted == "blur"
        sight = self._sight(None, self._external)
        example = (self._belief, secret, sight, self._public(0.0, None), _coins())
        self._program = jax.jit(belief_step(policy)).lower(*example).compile()

    def _public(self, left: float, shared: np.ndarray | None) -> PublicInput:
        known = np.zeros(self._size) if shared is None else shared
        time = np.int32(self.step + 1)
        return PublicInput(time, self._seed, np.float64(left), np.bool_(shared is not None), known)

    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> PendingStep:
        """Decide and draw."""
        external = self._external if external is None else external
        return self._run(state, external, self._public(left, None), missing=state is None)

    def again(self, entry: Entry) -> PendingStep:
        """Decide as then; what was drawn is given."""
        shared = None if entry["shared"] is None else np.asarray(entry["shared"], float)
        left = np.inf if entry["left"] is None else entry["left"]
        missing = entry["decision"] in MISSING
        return self._run(None, np.asarray(entry["external"], float), self._public(left, shared), missing)

    def _run(
        self, state: np.ndarray | None, external: np.ndarray, public: PublicInput, missing: bool
    ) -> PendingStep:
        sight = self._sight(state, external)._replace(missing=np.bool_(missing))
        after, row, noise = self._program(self._belief, self._secret, sight, public, _coins())
        told = step_result(np.asarray(row))
        entry = {
            "step": self.step + 1,
            "decision": ("blurred" if told.blur > 0 else "released") if told.open else "blind",
            "shared": None if told.withheld else told.shared.tolist(),
            "external": external.tolist(),
            "blur": told.blur,
            "charge": told.charge,
            "effective": told.effective if np.isfinite(told.effective) else None,
            "log_density": told.log_evidence if told.open else None,
        }
        if told.withheld:
            entry["decision"] = "withheld"
        return PendingStep(entry, told.charge, after, state, external, np.asarray(noise))

    def prepare(self, made: PendingStep) -> None:
        """Nothing: the ledger holds all."""

    def resume(self) -> None:
        """Nothing: the ledger held all."""

    def snapshot(self) -> bytes:
        """The arrays of the belief."""
        return packed([np.asarray(leaf) for leaf in jax.tree.leaves(self._belief)])

    def restore(self, content: bytes, last: Entry) -> None:
        """Take the belief from there."""
        super().restore(content, last)
        leaves, shape = jax.tree.flatten(self._belief)
        self._belief = jax.tree.unflatten(shape, [jnp.asarray(one) for one in unpacked(content, len(leaves))])

    def keep(self, made: PendingStep) -> None:
        """Go on from this step."""
        super().keep(made)
        self._belief = made.after


class MemoryEngine(StepEngine):
    """A policy with private memory, which leaks nothing where its model is right."""

    def __init__(self, policy: Policy, secret: np.ndarray, file: MemoryFile | None):
        super().__init__(policy.system, secret)
        self._file, self._ready = file, False
        made = jax.eval_shape(policy.init_memory, secret, self._anywhere)
        self._memory = np.zeros(made.shape, made.dtype)
        example = self._given(None, self._external)
        self._program = jax.jit(memory_step(policy)).lower(*example).compile()

    def _given(self, state: np.ndarray | None, external: np.ndarray) -> tuple[Any, ...]:
        sight, time = self._sight(state, external), np.int32(self.step + 1)
        return self._memory, np.bool_(self._ready), self._secret, sight, time, _coins()

    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> PendingStep:
        """Remember and draw; nothing is charged."""
        del left
        external = self._external if external is None else external
        memory, shared, noise = self._program(*self._given(state, external))
        return self._made(state, external, None if state is None else np.asarray(shared), memory, noise)

    def again(self, entry: Entry) -> PendingStep:
        """The memory as far as what is public goes; `resume` knows more."""
        external = np.asarray(entry["external"], float)
        memory, _, noise = self._program(*self._given(None, external))
        made = self._made(None, external, None, memory, noise)
        return PendingStep(entry, entry["charge"], made.after, None, external, made.noise)

    def _made(
        self,
        state: np.ndarray | None,
        external: np.ndarray,
        shared: np.ndarray | None,
        memory: Any,
        noise: Any,
    ) -> PendingStep:
        entry = {
            "step": self.step + 1,
            "decision": "withheld" if shared is None else "released",
            "shared": None if shared is None else shared.tolist(),
            "external": external.tolist(),
            "blur": 0.0,
            "charge": 0.0,
            "effective": None,
            "log_density": None,
        }
        return PendingStep(entry, 0.0, np.asarray(memory), state, external, np.asarray(noise))

    def prepare(self, made: PendingStep) -> None:
        """Save the memory of this step: a release without it could not be gone on from."""
        if self._file is not None:
            state = np.full_like(self._anywhere, np.nan) if made.state is None else made.state
            self._file.write(PrivateSnapshot(made.entry["step"], made.after, state, made.external))

    def resume(self) -> None:
        """Take the memory from its file where it is that of the last step, or of the one that was pending."""
        kept = None if self._file is None else self._file.read()
        if kept is None or kept.memory.shape != self._memory.shape:
            return
        if kept.step == self.step:
            self._state = None if np.any(np.isnan(kept.state)) else kept.state
        if kept.step in (self.step, self.step + 1):
            self._memory, self._ready = kept.memory, kept.step == self.step + 1

    def keep(self, made: PendingStep) -> None:
        """Go on from this step."""
        super().keep(made)
        self._memory, self._ready = made.after, False


def _coins() -> np.ndarray:
    """Private randomness from the operating system."""
    return np.frombuffer(os.urandom(8), np.uint32)

"""What happens inside a sharer at one step, for the two kinds of policy: make, perhaps keep, never redo."""

import abc
import os
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veil.policies.budgeted import Budgeted
from veil.policies.metric import expected_start
from veil.policies.private import PrivatePolicy
from veil.sharing.chain import Entry
from veil.sharing.private import Kept, MemoryFile
from veil.sharing.program import Public, Sight, believing, first, remembering, told_by
from veil.sharing.snapshot import packed, unpacked
from veil.systems.base import System

MISSING = ("fault", "gap")


@dataclass(frozen=True)
class Made:
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


class Engine(abc.ABC):
    """Where a stream stands: the last step, and what was seen there."""

    def __init__(self, system: System, secret: np.ndarray):
        self.step, self._secret = 0, secret
        self._anywhere = np.asarray(jax.jit(lambda: expected_start(system))(), float)
        self._external = np.asarray(system.initial_external(), float)
        self._state: np.ndarray | None = None

    @abc.abstractmethod
    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> Made:
        """The next step, live; without w_t the last one is taken to hold."""

    @abc.abstractmethod
    def again(self, entry: Entry) -> Made:
        """The next step as the ledger has it."""

    @abc.abstractmethod
    def prepare(self, made: Made) -> None:
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

    def keep(self, made: Made) -> None:
        """Go on from this step."""
        self.step, self._state, self._external = made.entry["step"], made.state, made.external

    def _sight(self, state: np.ndarray | None, external: np.ndarray) -> Sight:
        before = self._state
        return Sight(
            self._anywhere if state is None else state,
            external,
            np.bool_(state is None),
            self._anywhere if before is None else before,
            self._external,
            np.bool_(before is None),
        )


class BelievingEngine(Engine):
    """A policy with a public belief, under a budget."""

    def __init__(self, policy: Budgeted, secret: np.ndarray, seed: int):
        super().__init__(policy.system, secret)
        self._seed, self._belief = np.int32(seed), first(policy, seed)
        self._size = len(policy.system.shared_fields)
        self._blurs = policy.exhausted == "blur"
        sight = self._sight(None, self._external)
        example = (self._belief, secret, sight, self._public(0.0, None), _coins())
        self._program = jax.jit(believing(policy)).lower(*example).compile()

    def _public(self, left: float, shared: np.ndarray | None) -> Public:
        known = np.zeros(self._size) if shared is None else shared
        time = np.int32(self.step + 1)
        return Public(time, self._seed, np.float64(left), np.bool_(shared is not None), known)

    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> Made:
        """Decide and draw."""
        external = self._external if external is None else external
        return self._run(state, external, self._public(left, None), missing=state is None)

    def again(self, entry: Entry) -> Made:
        """Decide as then; what was drawn is given."""
        shared = None if entry["shared"] is None else np.asarray(entry["shared"], float)
        left = np.inf if entry["left"] is None else entry["left"]
        missing = entry["decision"] in MISSING
        return self._run(None, np.asarray(entry["external"], float), self._public(left, shared), missing)

    def _run(self, state: np.ndarray | None, external: np.ndarray, public: Public, missing: bool) -> Made:
        sight = self._sight(state, external)._replace(missing=np.bool_(missing))
        after, row, noise = self._program(self._belief, self._secret, sight, public, _coins())
        told = told_by(np.asarray(row))
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
        return Made(entry, told.charge, after, state, external, np.asarray(noise))

    def prepare(self, made: Made) -> None:
        """Nothing: the ledger holds all."""

    def resume(self) -> None:
        """Nothing: the ledger held all."""

    def snapshot(self) -> bytes:
        """The belief."""
        return packed([np.asarray(leaf) for leaf in jax.tree.leaves(self._belief)])

    def restore(self, content: bytes, last: Entry) -> None:
        """Take the belief from there."""
        super().restore(content, last)
        leaves, shape = jax.tree.flatten(self._belief)
        self._belief = jax.tree.unflatten(shape, [jnp.asarray(one) for one in unpacked(content, len(leaves))])

    def keep(self, made: Made) -> None:
        """Go on from this step."""
        super().keep(made)
        self._belief = made.after


class RememberingEngine(Engine):
    """A policy with private memory, which leaks nothing where its model is right."""

    def __init__(self, policy: PrivatePolicy, secret: np.ndarray, file: MemoryFile | None):
        super().__init__(policy.system, secret)
        self._file, self._ready = file, False
        made = jax.eval_shape(policy.begin, secret, self._anywhere)
        self._memory = np.zeros(made.shape, made.dtype)
        example = self._given(None, self._external)
        self._program = jax.jit(remembering(policy)).lower(*example).compile()

    def _given(self, state: np.ndarray | None, external: np.ndarray) -> tuple[Any, ...]:
        sight, time = self._sight(state, external), np.int32(self.step + 1)
        return self._memory, np.bool_(self._ready), self._secret, sight, time, _coins()

    def make(self, state: np.ndarray | None, external: np.ndarray | None, left: float) -> Made:
        """Remember and draw; nothing is charged."""
        del left
        external = self._external if external is None else external
        memory, shared, noise = self._program(*self._given(state, external))
        return self._made(state, external, None if state is None else np.asarray(shared), memory, noise)

    def again(self, entry: Entry) -> Made:
        """The memory as far as what is public goes; `resume` knows more."""
        external = np.asarray(entry["external"], float)
        memory, _, noise = self._program(*self._given(None, external))
        made = self._made(None, external, None, memory, noise)
        return Made(entry, entry["charge"], made.after, None, external, made.noise)

    def _made(
        self,
        state: np.ndarray | None,
        external: np.ndarray,
        shared: np.ndarray | None,
        memory: Any,
        noise: Any,
    ) -> Made:
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
        return Made(entry, 0.0, np.asarray(memory), state, external, np.asarray(noise))

    def prepare(self, made: Made) -> None:
        """Save the memory of this step: a release without it could not be gone on from."""
        if self._file is not None:
            state = np.full_like(self._anywhere, np.nan) if made.state is None else made.state
            self._file.write(Kept(made.entry["step"], made.after, state, made.external))

    def resume(self) -> None:
        """Take the memory from its file where it is that of the last step, or of the one that was pending."""
        kept = None if self._file is None else self._file.read()
        if kept is None or kept.memory.shape != self._memory.shape:
            return
        if kept.step == self.step:
            self._state = None if np.any(np.isnan(kept.state)) else kept.state
        if kept.step in (self.step, self.step + 1):
            self._memory, self._ready = kept.memory, kept.step == self.step + 1

    def keep(self, made: Made) -> None:
        """Go on from this step."""
        super().keep(made)
        self._memory, self._ready = made.after, False


def _coins() -> np.ndarray:
    """Private randomness from the operating system."""
    return np.frombuffer(os.urandom(8), np.uint32)

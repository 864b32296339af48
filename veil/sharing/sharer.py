"""The sharer, between the sensor and the network: a state goes in, a release and its receipt come out."""

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from veil.io import fingerprint
from veil.policies.base import Policy
from veil.policies.budgeted import Budgeted, Exhausted
from veil.sharing import snapshot
from veil.sharing.account import Release, release_of
from veil.sharing.alarm import Alarm
from veil.sharing.budget import Accountant, budgeted
from veil.sharing.inputs import Fault, Request, given
from veil.sharing.ledger import START, Entry, Ledger, LedgerError, MemoryLedger, about_of, chained
from veil.sharing.secret_files import MemoryFile, checked_secret
from veil.sharing.step_program import BeliefEngine, MemoryEngine, PendingStep, StepEngine
from veil.types import as_float64
from veil.version import __version__

MOST_MISSING = 1000  # steps that a gap may have

CLOSE = 1e-9  # replayed charges may differ by this from those on record, relative and absolute


class Sharer:
    """Shares a stream by a policy, within a budget, and keeps the ledger.

    The private randomness of a release comes from the operating system; the public randomness comes from the
    seed. A step that is in the ledger is answered from the ledger and never drawn again.

    Args:
        policy: any policy; one with private memory is charged nothing.
        secret: its index in the prior, or its values.
        budget: nats for the whole stream; with infinity the sharer only counts.
        exhausted: what happens to a release that would exceed the budget: "withhold", "blind" or "blur".
        steps: number of steps among which a blurring policy divides its budget.
        particles: per secret, to compute charges by particles; with 0 the kind of release decides.
        seed: of the public randomness; by default taken from the ledger, or drawn.
        ledger: file of the ledger; without one, nothing survives the process.
        memory: file for the private memory of a policy that has one.
        shared_budget: an accountant that other streams of the same secret spend from as well.
        strict: raise `Fault` at unusable input instead of withholding the release.
        progress: called with the number of steps of an old ledger that were replayed, and their total.
    """

    def __init__(
        self,
        policy: Policy,
        secret: object,
        *,
        budget: float = math.inf,
        exhausted: Exhausted = "blind",
        steps: int = 50,
        particles: int = 0,
        seed: int | None = None,
        ledger: Path | None = None,
        memory: Path | None = None,
        shared_budget: Accountant | None = None,
        strict: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ):
        self.system, self.strict = policy.system, strict
        self.accountant = Accountant(budget, shared=shared_budget)
        self._alarm, self.alarm = Alarm(), ""
        self._snapshots = None if ledger is None else snapshot.beside(ledger)
        values = checked_secret(secret, policy.system)
        with jax.enable_x64(True):
            policy = as_float64(policy)
            if not policy.has_memory:
                policy = budgeted(policy, budget, exhausted, steps=steps, particles=particles)
            self.ledger = _opened(ledger, policy, budget, seed)
            try:
                self._engine = _engine(policy, values, self.ledger.about, memory)
                self._replay(progress)
            except BaseException:
                self.ledger.close()
                raise

    @property
    def next_step(self) -> int:
        """The step that is expected next."""
        return self._engine.step + 1

    def share(self, state: object, external: object, *, step: int | None = None) -> Release:
        """Share one step.

        Args:
            state: x_t, by name or in the order of the system's fields.
            external: w_t, the same.
            step: its number; by default the next one. Steps that are left out are withheld.
        """
        number = self.next_step if step is None else step
        if number in self.ledger:
            return release_of(self.ledger[number])
        try:
            w = given("external", external, self.system.external_fields, limits=True)
        except Fault as fault:
            return self.answer(Request(number, None, None, str(fault)))
        try:
            x = given("state", state, self.system.state_fields, limits=False)
        except Fault as fault:
            return self.answer(Request(number, None, w, str(fault)))
        return self.answer(Request(number, x, w))

    def skip(self, external: object = None, *, step: int | None = None) -> Release:
        """A step in which nothing is released; without w_t the last one is taken to hold."""
        number = self.next_step if step is None else step
        w = (
            None
            if external is None
            else given("external", external, self.system.external_fields, limits=True)
        )
        return self.answer(Request(number, None, w))

    def answer(self, request: Request) -> Release:
        """The release of a step, from the ledger if it is there; what is missing before it is withheld."""
        if request.step in self.ledger:
            return release_of(self.ledger[request.step])
        if request.step > self._engine.step + 1 + MOST_MISSING:
            raise Fault(f"step is more than {MOST_MISSING} ahead of the last one.")
        if request.fault and self.strict:
            raise Fault(request.fault)
        while self.next_step < request.step:
            self._advance(Request(self.next_step, None, None))
        return self._advance(request)

    def _advance(self, request: Request) -> Release:
        """Decide, draw, write, and only then go on."""
        began = time.perf_counter()
        with jax.enable_x64(True):
            left = self.accountant.remaining()
            made = self._engine.make(request.state, request.external, left)
        self.accountant.check(made.charge)
        entry = made.entry | {
            "left": None if math.isinf(left) else left,
            "total": self.accountant.after(made.charge),
            "milliseconds": round(1e3 * (time.perf_counter() - began), 3),
        }
        if request.state is None:
            entry |= {"decision": "fault" if request.fault else "gap"}
        content = self._engine.snapshot() if snapshot.due(request.step) else b""
        if content and self._snapshots is not None:
            snapshot.write(self._snapshots, content)
            entry |= {"belief": snapshot.digest(content)}
        self._engine.prepare(made)
        self.ledger.append(entry)
        self._engine.keep(made)
        self.accountant.spend(made.charge)
        if self._alarm.watch(made.noise):
            self.alarm = self._alarm.reason
        release = release_of(entry)
        return release._replace(receipt=replace(release.receipt, fault=request.fault))

    def _replay(self, progress: Callable[[int, int], None]) -> None:
        """Bring belief and spending to where the ledger ends."""
        total, content = len(self.ledger), b"" if self._snapshots is None else snapshot.read(self._snapshots)
        first = self.ledger.beliefs.get(snapshot.digest(content), 1) if content else 1
        if first > 1:
            self._engine.restore(content, self.ledger[first - 1])
        for step in range(first, total + 1):
            entry = self.ledger[step]
            self._check(self._engine.again(entry), entry)
            if step % 256 == 0:
                progress(step, total)
        for charge in self.ledger.charges:
            self.accountant.spend(charge)
        self._engine.resume()

    def _check(self, made: PendingStep, entry: Entry) -> None:
        """Go on from a replayed step that came out as it is on record."""
        if abs(made.charge - entry["charge"]) > CLOSE * (1.0 + entry["charge"]):
            raise LedgerError(
                f"Step {entry['step']} of the ledger was charged otherwise than this policy would be: it was "
                "written by another version or on another kind of machine. Begin a new ledger."
            )
        self._engine.keep(made)

    def close(self) -> None:
        """Close the ledger, so that another process may open it."""
        self.ledger.close()

    def __enter__(self) -> "Sharer":
        """The sharer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the ledger."""
        self.close()


def _engine(policy: Policy, secret: np.ndarray, about: Entry, memory: Path | None) -> StepEngine:
    if policy.has_memory:
        file = None if memory is None else MemoryFile(memory, chained(about, START)[0])
        return MemoryEngine(policy, secret, file)
    assert isinstance(policy, Budgeted)  # made by `budgeted`
    return BeliefEngine(policy, secret, about["seed"])


def _opened(path: Path | None, policy: Policy, budget: float, seed: int | None) -> Ledger | MemoryLedger:
    """The ledger, begun or gone on with; it knows the seed if nobody else does."""
    old = None if path is None else about_of(path)
    if seed is None:
        seed = secrets.randbits(31) if old is None else int(old.get("seed", 0))
    system = policy.system
    about = {
        "veil": __version__,
        "system": type(system).__name__,
        "policy": fingerprint(policy),
        "seed": seed,
        "budget": None if math.isinf(budget) else budget,
        "external": [field.name for field in system.external_fields],
        "shared": [field.name for field in system.shared_fields],
    }
    return MemoryLedger(about) if path is None else Ledger(path, about)

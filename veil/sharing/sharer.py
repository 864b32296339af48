"""The sharer, between the sensor and the network: a state goes in, a release and its receipt come out."""

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import jax
import numpy as np

from veil.io import fingerprint
from veil.policies.base import Policy
from veil.policies.budgeted import Exhausted
from veil.registry import system_name
from veil.sharing import snapshots
from veil.sharing.account import Accountant
from veil.sharing.budget import budgeted
from veil.sharing.inputs import Fault, Request, checked_secret, given
from veil.sharing.ledger import (
    START,
    Entry,
    Ledger,
    LedgerError,
    MemoryLedger,
    Release,
    about_of,
    chained,
    release_of,
)
from veil.sharing.snapshots import MemoryFile
from veil.sharing.step_program import PendingStep, StepEngine
from veil.types import as_float64
from veil.version import __version__

MOST_MISSING = 1000  # steps that a gap may have

CLOSE = 1e-9  # replayed charges may differ by this from those on record, relative and absolute


class Sharer:
    """Shares a stream by a policy, within a budget, and keeps the ledger.

    The accountant owns what is left of the budget. The policy receives it before every step, and the ledger
    writes down what it received, since other streams may spend from the same budget.

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
        system: what the ledger calls the system; by default the name of its class, in snake case.
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
        system: str = "",
        progress: Callable[[int, int], None] = lambda done, total: None,
    ):
        self.system, self.strict = policy.system, strict
        self.accountant = Accountant(budget, shared=shared_budget)
        self._alarm, self.alarm = Alarm(), ""
        self._memory: MemoryFile | None = None
        self._snapshots = None if ledger is None else snapshots.beside(ledger)
        values = checked_secret(secret, policy.system)
        with jax.enable_x64(True):
            policy = as_float64(policy)
            if not policy.has_memory:
                policy = budgeted(policy, budget, exhausted, steps=steps, particles=particles)
            self.ledger = _opened(ledger, policy, budget, seed, system)
            try:
                about = self.ledger.about
                if memory is not None and policy.has_memory:
                    self._memory = MemoryFile(memory, chained(about, START)[0])
                self._engine = StepEngine(policy, values, about["seed"], self._memory)
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
        missing = "" if request.state is not None else "fault" if request.fault else "gap"
        entry = made.entry(missing) | {
            "left": None if math.isinf(left) else left,
            "total": self.accountant.after(made.charge),
            "milliseconds": round(1e3 * (time.perf_counter() - began), 3),
        }
        content = self._engine.snapshot() if snapshots.due(request.step) else b""
        if content and self._snapshots is not None:
            snapshots.write(self._snapshots, content)
            entry |= {"belief": snapshots.digest(content)}
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
        total, content = len(self.ledger), b"" if self._snapshots is None else snapshots.read(self._snapshots)
        first = self.ledger.beliefs.get(snapshots.digest(content), 1) if content else 1
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
        """Close the files, so that another process may open them."""
        if self._memory is not None:
            self._memory.close()
        self.ledger.close()

    def __enter__(self) -> "Sharer":
        """The sharer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the ledger."""
        self.close()


def _opened(
    path: Path | None, policy: Policy, budget: float, seed: int | None, name: str
) -> Ledger | MemoryLedger:
    """The ledger, begun or gone on with; it knows the seed if nobody else does."""
    old = None if path is None else about_of(path)
    if seed is None:
        seed = secrets.randbits(31) if old is None else int(old.get("seed", 0))
    system = policy.system
    about = {
        "veil": __version__,
        "system": name or system_name(type(system).__name__),
        "policy": fingerprint(policy),
        "seed": seed,
        "budget": None if math.isinf(budget) else budget,
        "external": [field.name for field in system.external_fields],
        "shared": [field.name for field in system.shared_fields],
    }
    return MemoryLedger(about) if path is None else Ledger(path, about)


WINDOW = 64  # steps between two verdicts

LEVEL = 1e-7  # of each test, on either side

FAR = -NormalDist().inv_cdf(LEVEL)


class Alarm:
    """Takes recovered noise, which is standard normal and white if the model is right."""

    def __init__(self):
        self._rows: list[np.ndarray] = []
        self.reason = ""

    def watch(self, noise: np.ndarray) -> bool:
        """One step more; True when the window that it completes contradicts the model."""
        self._rows.append(noise)
        if len(self._rows) < WINDOW:
            return False
        rows = np.stack(self._rows)
        self._rows = []
        self.reason = _contradiction(rows)
        return bool(self.reason)


def _contradiction(rows: np.ndarray) -> str:
    """The first test that fails, in words; numbers would tell about the noise."""
    for column in rows.T:
        known = column[np.isfinite(column)]
        if len(known) < WINDOW // 2:
            continue
        count = len(known)
        if abs(_normal_score(float(np.sum(known**2)), count)) > FAR:
            return "its noise does not have the size that the model says"
        if abs(known.mean()) * np.sqrt(count) > FAR:
            return "it drifts away from what the model says"
        pairs = column[1:] * column[:-1]
        pairs = pairs[np.isfinite(pairs)]
        if len(pairs) and abs(pairs.mean()) * np.sqrt(len(pairs)) > FAR:
            return "its noise goes on from step to step, which the model says it does not"
    return ""


def _normal_score(square: float, count: int) -> float:
    """The normal number as unlikely as this chi-square one, by Wilson and Hilferty's cube root.

    From 32 numbers on its level is right to a factor of two; scipy takes longer to import than a restart
    may.
    """
    width = 2.0 / (9.0 * count)
    return float(((square / count) ** (1.0 / 3.0) - (1.0 - width)) / np.sqrt(width))

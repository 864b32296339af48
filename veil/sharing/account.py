"""Reading a ledger without opening it: verified to its end, beside the process that writes it.

Nothing here locks, repairs or needs the secret: whoever has the file can check it.
"""

import json
import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from veil.sharing.ledger import (
    START,
    STEP,
    VERSION,
    DecisionName,
    Entry,
    LedgerError,
    cut_short,
    opening,
    room_only,
    verified,
)

ROUNDING = 1e-12  # relative: charges add up to the budget, not beyond it by more than rounding


class BudgetError(ValueError):
    """A charge that the budget does not cover."""


class Accountant:
    """Adds charges up and never lets them exceed the budget.

    The budget holds for the secret, whoever reads. Streams that are independent given the secret add up, so
    they may share one accountant: give the others this one as `shared`.

    Args:
        budget: nats; infinity counts without a limit.
        spent: charges from before, e.g. those of a ledger.
        shared: an accountant that every charge must fit in as well.
    """

    def __init__(
        self, budget: float = math.inf, spent: Iterable[float] = (), shared: "Accountant | None" = None
    ):
        if not budget >= 0.0:
            raise ValueError(f"A budget is a number of nats, 0 or more; got {budget}.")
        self.budget, self.shared = float(budget), shared
        self._spent = self._lost = 0.0
        for charge in spent:
            self.spend(charge)

    def total(self) -> float:
        """Nats charged so far."""
        return self._spent

    def remaining(self) -> float:
        """Nats left, here and in what is shared with others."""
        own = max(0.0, self.budget - self._spent)
        return own if self.shared is None else min(own, self.shared.remaining())

    def check(self, charge: float) -> None:
        """Raise `BudgetError` unless this charge is covered. Nothing is spent."""
        if not 0.0 <= charge < math.inf:
            raise ValueError(f"A charge is a finite number of nats, 0 or more; got {charge}.")
        slack = ROUNDING * self.budget if math.isfinite(self.budget) else 0.0
        if self._spent + charge > self.budget + slack:
            raise BudgetError(
                f"A charge of {charge:.4g} nats is above the {self.remaining():.4g} nats left of "
                f"{self.budget:.4g}. Withhold the release, share a blind one, or add noise until it fits."
            )
        if self.shared is not None:
            self.shared.check(charge)

    def spend(self, charge: float) -> float:
        """Charge, here and in what is shared; gives the new total. What is not covered changes nothing."""
        self.check(charge)
        if self.shared is not None:
            self.shared.spend(charge)
        added, total = charge - self._lost, self.after(charge)
        self._lost = (total - self._spent) - added
        self._spent = total
        return total

    def parts(self) -> tuple[float, float]:
        """The total, and what compensated summation carries along."""
        return self._spent, self._lost

    def after(self, charge: float) -> float:
        """The total that this charge would make; by compensated summation, so that small ones count."""
        return self._spent + (charge - self._lost)


DECISIONS: tuple[str, ...] = get_args(DecisionName)

CLOSE = 1e-9  # totals on record may differ by this from the sum of the charges, relative and absolute


@dataclass(frozen=True)
class Account:
    """A verified ledger, one number per step; whole entries are read from the file when they are asked for.

    Attributes:
        path: the file.
        about: what the first line says of the stream.
        note: what is worth knowing about the end of the file; empty if nothing is.
        decisions: indices into `DECISIONS`.
        charges: nats.
        totals: nats up to and with each step.
        starts: where each entry begins in the file, bytes.
        alarmed: the first step that is blind because of an alarm; 0 where there is none. Charges mean nothing
            from the step before it on.
    """

    path: Path
    about: Entry
    note: str
    decisions: np.ndarray
    charges: np.ndarray
    totals: np.ndarray
    starts: np.ndarray
    alarmed: int = 0

    def __len__(self) -> int:
        """Entries, the first line apart; they are the steps 1, 2, ..."""
        return len(self.charges)

    @property
    def budget(self) -> float:
        """Nats; infinity where they are only counted."""
        given = self.about.get("budget")
        return math.inf if given is None else float(given)

    @property
    def total(self) -> float:
        """Nats charged so far."""
        return float(self.totals[-1]) if len(self) else self.start

    @property
    def start(self) -> float:
        """Nats that were charged before the first step."""
        return opening(self.about)

    def counts(self) -> dict[str, tuple[int, float]]:
        """Steps and nats of each decision that occurs."""
        found = {}
        for code, name in enumerate(DECISIONS):
            those = self.charges[self.decisions == code]
            if len(those):
                found[name] = (len(those), math.fsum(those))
        return found

    def largest(self) -> tuple[int, float]:
        """The step with the largest charge, and that charge; step 0 where there is none."""
        place = int(np.argmax(self.charges)) if len(self) else -1
        return place + 1, float(self.charges[place]) if len(self) else 0.0

    def entries(self, first: int = 1) -> Iterator[Entry]:
        """Entries from a step on, one at a time."""
        with self.path.open("rb") as file:
            for start in self.starts[first - 1 :]:
                file.seek(int(start))
                yield json.loads(file.readline())


def read_account(path: Path) -> Account:
    """Verify a ledger as far as it goes; `LedgerError` names the line where it is wrong."""
    reader, chain, note = _Reader(path), START, ""
    place = start = 0
    with path.open("rb") as file:
        while (line := file.readline()).strip(b"\0"):
            place += 1
            if cut_short(line) and room_only(path, start + len(line)):
                note = f"Line {place} is not whole: it is being written, or a crash cut it short. Left out."
                break
            if cut_short(line):  # the writer went on after we looked
                line = _line_at(path, start)
                file.seek(start + len(line))
            entry, chain = verified(line, chain, place, path)
            reader.take(entry, start, place)
            start += len(line)
    return reader.account(note)


def _line_at(path: Path, start: int) -> bytes:
    """A line as it is now."""
    with path.open("rb") as file:
        file.seek(start)
        return file.readline()


class _Reader:
    """Collects the columns, and checks that they agree with each other."""

    def __init__(self, path: Path):
        self.path, self.about = path, dict[str, object]()
        self.decisions, self.starts = array("b"), array("q")
        self.charges, self.totals, self.alarmed = array("d"), array("d"), 0

    def take(self, entry: Entry, start: int, place: int) -> None:
        """Read one line more."""
        try:
            if place == 1:
                self._begin(entry)
            else:
                self._add(entry, start)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise LedgerError(f"{self.path}: line {place} is not that of a ledger: {reason}") from error

    def _begin(self, entry: Entry) -> None:
        if entry["VEIL"] != VERSION:
            raise ValueError(f"it says {entry['VEIL']}, this program reads {VERSION}.")
        self.about = dict(entry["about"])
        budget, charge = self.about["budget"], opening(self.about)
        self.accountant = Accountant(math.inf if budget is None else float(str(budget)), [charge])

    def _add(self, entry: Entry, start: int) -> None:
        if entry[STEP] != len(self.charges) + 1:
            raise ValueError(f"step {len(self.charges) + 1} should stand there.")
        try:
            total = self.accountant.spend(entry["charge"])
        except BudgetError:
            raise ValueError("it spends more than the budget.") from None
        if not abs(total - entry["total"]) <= CLOSE * (1.0 + total):
            raise ValueError("its total is not the sum of the charges.")
        declared = self.about.get("declared")
        if isinstance(declared, dict):
            due = declared["rate"] if entry["decision"] == "released" else 0.0
            if not abs(entry["charge"] - due) <= CLOSE * due:
                raise ValueError("its charge is not what is declared.")
        if entry.get("alarmed") and not self.alarmed:
            self.alarmed = entry[STEP]
        self.decisions.append(DECISIONS.index(entry["decision"]))
        self.starts.append(start)
        self.charges.append(entry["charge"])
        self.totals.append(entry["total"])

    def account(self, note: str) -> Account:
        """The account of all lines."""
        if not self.about:
            raise LedgerError(f"{self.path} has no whole line. `veil share` begins a ledger.")
        columns = (np.array(column) for column in (self.decisions, self.charges, self.totals, self.starts))
        return Account(self.path, self.about, note, *columns, alarmed=self.alarmed)

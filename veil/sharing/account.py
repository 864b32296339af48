"""Reading a ledger without opening it: verified to its end, beside the process that writes it.

Nothing here locks, repairs or needs the secret: whoever has the file can check it.
"""

import json
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from veil.sharing.budget import Accountant, BudgetError
from veil.sharing.ledger import (
    START,
    STEP,
    VERSION,
    DecisionName,
    Entry,
    LedgerError,
    cut_short,
    room_only,
    verified,
)

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
    """

    path: Path
    about: Entry
    note: str
    decisions: np.ndarray
    charges: np.ndarray
    totals: np.ndarray
    starts: np.ndarray

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
        return float(self.totals[-1]) if len(self) else 0.0

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
        self.charges, self.totals = array("d"), array("d")

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
        if entry["ledger"] != VERSION:
            raise ValueError(f"it has version {entry['ledger']}, this program reads {VERSION}.")
        self.about = dict(entry["about"])
        budget = self.about["budget"]
        self.accountant = Accountant(math.inf if budget is None else float(str(budget)))

    def _add(self, entry: Entry, start: int) -> None:
        if entry[STEP] != len(self.charges) + 1:
            raise ValueError(f"step {len(self.charges) + 1} should stand there.")
        try:
            total = self.accountant.spend(entry["charge"])
        except BudgetError:
            raise ValueError("it spends more than the budget.") from None
        if not abs(total - entry["total"]) <= CLOSE * (1.0 + total):
            raise ValueError("its total is not the sum of the charges.")
        self.decisions.append(DECISIONS.index(entry["decision"]))
        self.starts.append(start)
        self.charges.append(entry["charge"])
        self.totals.append(entry["total"])

    def account(self, note: str) -> Account:
        """The account of all lines."""
        if not self.about:
            raise LedgerError(f"{self.path} has no whole line. `veil share` begins a ledger.")
        columns = (np.array(column) for column in (self.decisions, self.charges, self.totals, self.starts))
        return Account(self.path, self.about, note, *columns)

"""The append-only, hash-chained file of what was released. It holds nothing secret.

The first line says what stream this is. Every line carries the SHA-256 of the line before it and of itself,
so that an edit anywhere is noticed. A line is on the disk before its release goes out; a last line that was
cut short by a crash was never released, and is removed.

While it is open, the file ends in zeros: room for lines to come. Where the file does not grow, nothing but
the line has to reach the disk, which makes the slowest of a hundred writes ten times faster.
"""

import fcntl
import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

Entry = dict[str, Any]

CHAIN, STEP, VERSION = "chain", "step", 1

START = "0" * 64

_MARK, _CLOSE = f',"{CHAIN}":"'.encode(), b'"}\n'

_TAIL = _MARK + START.encode() + _CLOSE  # as long as the end of every line

ROOM = 1 << 18  # bytes that are made ready at a time


class LedgerError(ValueError):
    """A ledger that cannot be used; the text says where it is broken and what to do."""


DecisionName = Literal["released", "blurred", "blind", "withheld", "fault", "gap"]

MISSING = ("fault", "gap")  # decisions of steps that had no state to share


@dataclass(frozen=True)
class Receipt:
    """One step of a stream.

    Attributes:
        step: its number, from 1.
        decision: "released" as the policy intends, "blurred", "blind" (what the public expects anyway),
            "withheld" for want of budget, "fault" (no usable input) or "gap" (no input at all).
        charge: nats charged for this step.
        total: nats charged so far.
        remaining: nats left; infinity without a budget.
        effective: smallest effective sample size over the secrets, as a fraction of the particles; None where
            the belief has no particles.
        milliseconds: from the input to the durable record, the writing itself left out.
        fault: what was wrong with the input; empty if nothing was.
    """

    step: int
    decision: DecisionName
    charge: float
    total: float
    remaining: float
    effective: float | None
    milliseconds: float
    fault: str = ""


class Release(NamedTuple):
    """What goes out (None where nothing does) and its receipt."""

    shared: np.ndarray | None
    receipt: Receipt


def release_of(entry: dict[str, Any]) -> Release:
    """A release as the ledger has it."""
    shared = None if entry["shared"] is None else np.asarray(entry["shared"], float)
    left = np.inf if entry["left"] is None else entry["left"]
    receipt = Receipt(
        entry["step"],
        entry["decision"],
        entry["charge"],
        entry["total"],
        max(0.0, left - entry["charge"]),
        entry["effective"],
        entry["milliseconds"],
    )
    return Release(shared, receipt)


def about_of(path: Path) -> Entry | None:
    """What the first line of a ledger says; None where there is no whole line yet."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    if not line.endswith(b"\n"):
        return None
    return dict(verified(line, START, 1, path)[0].get("about", {}))


def chained(entry: Mapping[str, Any], before: str) -> tuple[str, bytes]:
    """The digest of an entry after another one, and its line."""
    content = json.dumps(
        dict(entry), sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":")
    )
    digest = hashlib.sha256((before + content).encode()).hexdigest()
    return digest, content[:-1].encode() + _MARK + digest.encode() + _CLOSE


def verified(line: bytes, before: str, place: int, path: Path) -> tuple[Entry, str]:
    """An entry and its digest; `LedgerError` where the chain is broken."""
    content, digest = line[: -len(_TAIL)] + b"}", line[-len(_TAIL) :][len(_MARK) : len(_MARK) + len(START)]
    again = hashlib.sha256(before.encode() + content).hexdigest().encode()
    if again != digest or line[-len(_TAIL) :] != _MARK + again + _CLOSE:
        raise LedgerError(broken(path, place))
    try:
        return json.loads(content.decode()), again.decode()
    except ValueError as error:
        raise LedgerError(broken(path, place)) from error


def broken(path: Path, place: int) -> str:
    """What to say about a chain that does not hold."""
    return f"{path}: the chain is broken at line {place}, by an edit or by damage. Restore it from a copy."


def cut_short(line: bytes) -> bool:
    """Whether a line did not reach the disk as a whole."""
    return not line.endswith(b"\n") or b"\0" in line


def room_only(path: Path, offset: int) -> bool:
    """Whether nothing but zeros follows: what comes before may be the last line, cut short by a crash."""
    with path.open("rb") as file:
        file.seek(offset)
        return not any(part.strip(b"\0") for part in iter(lambda: file.read(ROOM), b""))


def lines_of(path: Path, size: int) -> Iterator[bytes]:
    """Lines of the first `size` bytes, up to the room for those to come."""
    with path.open("rb") as file:
        while file.tell() < size and (line := file.readline()).strip(b"\0"):
            yield line


class Ledger:
    """A ledger that is open for one process; a second one is refused.

    Args:
        path: the file; begun if there is none.
        about: what the stream is, public things only; must be the same when the ledger is opened again.

    Attributes:
        charges: nats of each entry that was found, in their order.
        beliefs: at which step the belief with this digest was in force, for what was found.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]):
        self.path, self.about = path, dict(about)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock()
            self._offsets, self._steps = array("q"), dict[int, int]()
            self.charges, self.beliefs = array("d"), dict[str, int]()
            self.note = ""
            self._chain, self._end, self._ready = START, 0, 0
            self._open()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LedgerError(
                f"{self.path} is in use by another process. Stop that one, or give another file."
            ) from error

    def _open(self) -> None:
        """Read and verify what is there, repair a last line that was cut short, or begin."""
        self._ready = os.fstat(self._file).st_size
        for place, line in enumerate(lines_of(self.path, self._ready), 1):
            if cut_short(line):
                if not room_only(self.path, self._end + len(line)):
                    raise LedgerError(broken(self.path, place))
                self.note = (
                    f"Line {place} of {self.path} was cut short by a crash, never released, and removed."
                )
                break
            entry, self._chain = verified(line, self._chain, place, self.path)
            if place == 1:
                self._known(entry)
            else:
                self._remember(entry)
            self._end += len(line)
        os.ftruncate(self._file, self._end)
        os.fsync(self._file)
        self._ready = self._end
        if self._end == 0:
            self._write({"ledger": VERSION, "about": self.about})
            sync_folder(self.path.parent)

    def _known(self, entry: Entry) -> None:
        if entry.get("ledger") != VERSION or entry.get("about") != self.about:
            raise LedgerError(
                f"{self.path} belongs to another stream: its first line says something else about system, "
                "policy, seed or budget. Give another file, or the settings that it was begun with."
            )

    def _remember(self, entry: Entry) -> None:
        self._steps[int(entry[STEP])] = len(self._offsets)
        self.charges.append(float(entry.get("charge", 0.0)))
        if "belief" in entry:
            self.beliefs[entry["belief"]] = int(entry[STEP])
        self._offsets.append(self._end)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Make an entry durable; when this returns it survives a crash. Every step is written once."""
        step = entry.get(STEP)
        if not isinstance(step, int) or isinstance(step, bool):
            raise LedgerError("An entry needs its step, a whole number.")
        if step in self._steps:
            raise LedgerError(
                f"Step {step} is in the ledger already; a second release of it would leak twice."
            )
        place = self._end
        self._write(entry)
        self._steps[step] = len(self._offsets)
        self._offsets.append(place)

    def _write(self, entry: Mapping[str, Any]) -> None:
        chain, line = chained(entry, self._chain)
        try:
            self._make_room(len(line))
            self._put(line)
            os.fdatasync(self._file)
            self._chain, self._end = chain, self._end + len(line)
        except BaseException:  # nothing went out; what is left of this line would spoil the next one
            os.ftruncate(self._file, self._end)
            self._ready = self._end
            raise

    def _make_room(self, size: int) -> None:
        """Zeros for this line and many more; a full disk is noticed here, before anything is promised."""
        if self._end + size <= self._ready:
            return
        wanted = max(ROOM, size)
        self._put(bytes(wanted))
        os.fsync(self._file)
        self._ready = self._end + wanted

    def _put(self, content: bytes) -> None:
        """Write at the end of the lines."""
        if os.pwrite(self._file, content, self._end) < len(content):
            raise OSError(f"{self.path} cannot grow: the disk may be full. Make room and start again.")

    def __contains__(self, step: int) -> bool:
        """Whether this step was released or decided already."""
        return step in self._steps

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._offsets)

    def __getitem__(self, step: int) -> Entry:
        """The entry of a step."""
        if step not in self._steps:
            raise KeyError(step)
        place = self._steps[step]
        end = self._offsets[place + 1] if place + 1 < len(self._offsets) else self._end
        return json.loads(os.pread(self._file, end - self._offsets[place], self._offsets[place]))

    def __iter__(self) -> Iterator[Entry]:
        """All entries in their order, one at a time from the file."""
        for place, line in enumerate(lines_of(self.path, self._end)):
            if place:
                yield json.loads(line)

    def close(self) -> None:
        """Cut the room that was not used, and give the file free for others."""
        if self._file >= 0:
            os.ftruncate(self._file, self._end)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "Ledger":
        """The ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the ledger."""
        self.close()


def sync_folder(folder: Path) -> None:
    """A new file's name is durable once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class MemoryLedger:
    """The entries of a stream in memory, as a `Ledger` has them on disk."""

    def __init__(self, about: Mapping[str, Any]):
        self.about, self.note = dict(about), ""
        self._entries = dict[int, Entry]()
        self.charges, self.beliefs = (), {}

    def append(self, entry: Mapping[str, Any]) -> None:
        """Remember an entry."""
        self._entries[entry["step"]] = dict(entry)

    def __contains__(self, step: int) -> bool:
        """Whether this step was decided already."""
        return step in self._entries

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def __getitem__(self, step: int) -> Entry:
        """The entry of a step."""
        return self._entries[step]

    def __iter__(self) -> Iterator[Entry]:
        """All entries in their order."""
        yield from self._entries.values()

    def close(self) -> None:
        """Nothing to do."""

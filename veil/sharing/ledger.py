"""The append-only, hash-chained file of what was released. It holds nothing secret.

The first line says what stream this is, after the magic words that tell a ledger from other files. Every line
ends with three fields: `chain`, the SHA-256 of the line before it and of itself, which everybody can verify;
`mac`, its authentication by the key beside the secret, which only the owner can make and verify; and `sum`, a
checksum of the line alone, which tells a damaged line from one that was taken out, added or moved.

A line is on the disk before its release goes out. A last line without its end was cut short by a crash, was
never released, and is removed. Anything else that is wrong is damage or tampering, and is refused.

While it is open, the file ends in zeros: room for lines to come. Where the file does not grow, nothing but
the line has to reach the disk, which makes the slowest of a hundred writes ten times faster.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from veil.sharing.secret_account import behind, same_file, sync_folder

Entry = dict[str, Any]

CHAIN, STEP, VERSION = "chain", "step", "ledger 2"

MAGIC = f'{{"VEIL":"{VERSION}",'.encode()  # the first bytes of every ledger

START = "0" * 64

NO_KEY = "0" * 32  # the mac of a ledger without a key

ROOM = 1 << 18  # bytes that are made ready at a time


class LedgerError(ValueError):
    """A ledger that cannot be used; the text says where it is broken and what to do."""


DecisionName = Literal["released", "blurred", "blind", "withheld", "fault", "gap"]

ALARMED = "alarmed"  # counts steps that share nothing of their own since an alarm

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
        milliseconds: from the input to the durable record, the writing itself left out; coarse where it comes
            from the ledger, which everybody reads.
        head: digest of this step's line in the ledger. It goes out with the release: readers who hold
            different ones for the same step have been told different stories.
        fault: what was wrong with the input; empty if nothing was.
    """

    step: int
    decision: DecisionName
    charge: float
    total: float
    remaining: float
    effective: float | None
    milliseconds: float
    head: str = ""
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
        entry.get(CHAIN, ""),
    )
    return Release(shared, receipt)


def first_line(path: Path) -> Entry | None:
    """The first line of a ledger; None where there is no file, or an empty one.

    Whatever else is there and does not begin as a ledger is refused, and never written to.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)
    except FileNotFoundError:
        return None
    if not line:
        return None
    if not line.startswith(MAGIC):
        other = " of this version" if line.startswith((b'{"VEIL":"ledger', b'{"about":')) else ""
        raise LedgerError(f"{path} is not a ledger{other}; it was not touched. Give another file.")
    return verified(line, START, 1, path)[0]


def opening(about: Mapping[str, Any]) -> float:
    """Nats that a stream is charged before its first step: what its alarm may tell."""
    return float((about.get("alarm") or {}).get("charge", 0.0))


def chained(entry: Mapping[str, Any], before: str, key: bytes = b"") -> tuple[str, bytes]:
    """The digest of an entry after another one, and its line.

    Args:
        entry: what the line says.
        before: digest of the line before it.
        key: of the authentication; empty for a ledger that has none.
    """
    content = json.dumps(
        dict(entry), sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":")
    )
    digest = hashlib.sha256((before + content).encode()).hexdigest()
    line = f'{content[:-1]},"{CHAIN}":"{digest}","mac":"{_mac(digest, key)}"'.encode()
    return digest, line + f',"sum":"{zlib.crc32(line):08x}"}}\n'.encode()


def _mac(digest: str, key: bytes) -> str:
    return hmac.digest(key, digest.encode(), "sha256").hex()[: len(NO_KEY)] if key else NO_KEY


_TAIL = len(chained({"x": 0}, START)[1]) - len(b'{"x":0')  # bytes of the end of every line

_SUM = len(b',"sum":"00000000"}\n')


def verified(line: bytes, before: str, place: int, path: Path, key: bytes = b"") -> tuple[Entry, str]:
    """An entry and its digest; `LedgerError` where it is damaged, or the chain is broken.

    Args:
        line: with its end.
        before: digest of the line before it.
        place: its number, for messages.
        path: of the ledger, for messages.
        key: of the authentication; empty to verify the public chain alone.
    """
    if line[-_SUM:] != f',"sum":"{zlib.crc32(line[:-_SUM]):08x}"}}\n'.encode():
        raise LedgerError(broken(path, place, "was damaged or edited"))
    content = line[:-_TAIL] + b"}"
    digest = hashlib.sha256(before.encode() + content).hexdigest()
    end = f',"{CHAIN}":"{digest}","mac":"'.encode()
    if not line[-_TAIL:].startswith(end):
        raise LedgerError(broken(path, place, "does not follow from the line before it"))
    given = line[-_TAIL + len(end) : -_SUM - 1]
    if key and not hmac.compare_digest(given, _mac(digest, key).encode()):
        raise LedgerError(broken(path, place, "was not written with the key beside the secret"))
    try:
        return json.loads(content.decode()), digest
    except (ValueError, RecursionError) as error:
        raise LedgerError(broken(path, place, "is not JSON")) from error


def broken(path: Path, place: int, what: str) -> str:
    """What to say about a chain that does not hold."""
    return (
        f"{path}: the chain is broken at line {place}, which {what}. Nothing is released from it any more: "
        "keep it as evidence, and begin a new stream in another file."
    )


def cut_short(line: bytes) -> bool:
    """Whether a line has no end: a crash cut it short, or it is being written."""
    return not line.endswith(b"\n")


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


def _decided(entry: Mapping[str, Any]) -> str:
    return ALARMED if entry.get("alarmed") else str(entry.get("decision", ""))


class Ledger:
    """A ledger that is open for one process; a second one is refused.

    Args:
        path: the file; begun if there is none, or an empty one.
        about: what the stream is, public things only; must be the same when the ledger is opened again.
        key: of the authentication; empty for a ledger without.
        stream: random name of a new one; drawn if none is given.
        released: the last step that went out for certain; None where nobody knows.

    Attributes:
        stream: the random name.
        head: digest of the last line.
        charges: nats of each entry that was found, in their order.
        decisions: how many entries have each decision; ALARMED are those that are blind by an alarm.
        beliefs: at which step the belief with this digest was in force, for what was found.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        *,
        key: bytes = b"",
        stream: str = "",
        released: int | None = None,
    ):
        self.path, self.about, self._key, self._released = path, dict(about), key, released
        path.parent.mkdir(parents=True, exist_ok=True)
        if first_line(path) is None:
            self._begin(stream or secrets.token_hex(16))
        self._file = os.open(path, os.O_RDWR)
        try:
            self._lock()
            self._offsets, self._steps = array("q"), dict[int, int]()
            self.charges, self.beliefs = array("d"), dict[str, int]()
            self.decisions = Counter[str]()
            self.note, self.stream = "", ""
            self.head, self._end, self._ready = START, 0, 0
            self._open()
        except BaseException:
            os.close(self._file)
            raise

    def _begin(self, stream: str) -> None:
        """The first line, put in its place in one piece: a ledger is never half begun."""
        line = chained({"VEIL": VERSION, "about": self.about, "stream": stream}, START, self._key)[1]
        new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new")
        mode = 0o600 if self.about.get("private") else 0o644  # private series stand in it
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            if os.write(file, line) < len(line):
                raise OSError(
                    f"{self.path} cannot be begun: the disk may be full. Make room and start again."
                )
            os.fsync(file)
            if self.path.exists():  # and is empty
                os.replace(new, self.path)
            else:
                with suppress(FileExistsError):  # another process was quicker
                    os.link(new, self.path)
        finally:
            os.close(file)
            with suppress(FileNotFoundError):
                os.unlink(new)
        sync_folder(self.path.parent)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LedgerError(
                f"{self.path} is in use by another process. Stop that one, or give another file."
            ) from error

    def _open(self) -> None:
        """Read and verify what is there, and remove a last line that was cut short."""
        self._ready = os.fstat(self._file).st_size
        for place, line in enumerate(lines_of(self.path, self._ready), 1):
            if self._is_torn(line, place):
                self.note = (
                    f"Line {place} of {self.path} was cut short by a crash, never released, and removed."
                )
                break
            entry, self.head = verified(line, self.head, place, self.path, self._key)
            if place == 1:
                self._known(entry)
            else:
                self._remember(entry)
            self._end += len(line)
        os.ftruncate(self._file, self._end)
        os.fsync(self._file)
        self._ready = self._end

    def _is_torn(self, line: bytes, place: int) -> bool:
        """Whether this is a last line that a crash cut short; one that was released is none."""
        unreleased = self._released is not None and place - 1 > self._released
        # A disk may write the end of a line before its beginning. Only where it is known that the line never
        # went out does that count as cut short.
        torn = cut_short(line) or (unreleased and b"\0" in line)
        if not torn or not room_only(self.path, self._end + len(line)):
            return False
        if self._released is not None and not unreleased:
            raise LedgerError(behind(self.path, place - 2, self._released))
        return True

    def _known(self, entry: Entry) -> None:
        if entry.get("VEIL") != VERSION or entry.get("about") != self.about:
            raise LedgerError(
                f"{self.path} belongs to another stream: its first line says something else about system, "
                "policy, seed, alarm or budget. Give another file, or the settings that it was begun with."
            )
        self.stream = str(entry.get("stream", ""))

    def _remember(self, entry: Entry) -> None:
        self._steps[int(entry[STEP])] = len(self._offsets)
        self.charges.append(float(entry.get("charge", 0.0)))
        self.decisions[_decided(entry)] += 1
        if "belief" in entry:
            self.beliefs[entry["belief"]] = int(entry[STEP])
        self._offsets.append(self._end)

    def append(self, *entries: Mapping[str, Any]) -> list[str]:
        """Make entries durable in one write; when this returns they survive a crash. Gives their digests."""
        for entry in entries:
            step = entry.get(STEP)
            if not isinstance(step, int) or isinstance(step, bool):
                raise LedgerError("An entry needs its step, a whole number.")
            if step in self._steps:
                raise LedgerError(
                    f"Step {step} is in the ledger already; a second release of it would leak twice."
                )
        heads, lines = list[str](), list[bytes]()
        for entry in entries:
            head, line = chained(entry, heads[-1] if heads else self.head, self._key)
            heads.append(head)
            lines.append(line)
        place = self._end
        self._write(b"".join(lines))
        self.head = heads[-1]
        for entry, line in zip(entries, lines, strict=True):
            self.decisions[_decided(entry)] += 1
            self._steps[entry[STEP]] = len(self._offsets)
            self._offsets.append(place)
            place += len(line)
        return heads

    def _write(self, lines: bytes) -> None:
        same_file(self.path, self._file, LedgerError)
        try:
            self._make_room(len(lines))
            self._put(lines)
            os.fdatasync(self._file)
            self._end += len(lines)
        except BaseException:  # nothing went out; what is left of these lines would spoil the next one
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


class MemoryLedger:
    """The entries of a stream in memory, as a `Ledger` has them on disk."""

    def __init__(self, about: Mapping[str, Any]):
        self.about, self.note, self.head, self.stream = dict(about), "", START, ""
        self._entries = dict[int, Entry]()
        self.charges, self.beliefs, self.decisions = (), {}, Counter[str]()

    def append(self, *entries: Mapping[str, Any]) -> list[str]:
        """Remember entries; gives their digests."""
        heads = list[str]()
        for entry in entries:
            self.head = chained(entry, self.head)[0]
            self.decisions[_decided(entry)] += 1
            heads.append(self.head)
            self._entries[entry["step"]] = {**entry, CHAIN: self.head}
        return heads

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

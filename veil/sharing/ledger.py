"""The append-only, hash-chained file of what was released. It holds nothing secret.

The first line says what stream this is. Every line carries the SHA-256 of the line before it and of itself,
so that an edit anywhere is noticed. A line is on the disk before its release goes out; a last line that was
cut short by a crash was never released, and is removed.
"""

import fcntl
import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
CHAIN, STEP, VERSION = "chain", "step", 1
_START = "0" * 64


class LedgerError(ValueError):
    """A ledger that cannot be used; the text says where it is broken and what to do."""


class Ledger:
    """A ledger that is open for one process; a second one is refused.

    Args:
        path: the file; begun if there is none.
        about: what the stream is, public things only; must be the same when the ledger is opened again.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]):
        self.path, self.about = path, dict(about)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock()
            self._offsets, self._steps = array("q"), dict[int, int]()
            self.note = ""
            self._chain, self._end = _START, 0
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
        size = os.fstat(self._file).st_size
        for place, line in enumerate(_lines(self.path, size), 1):
            if not line.endswith(b"\n"):
                os.ftruncate(self._file, self._end)
                os.fsync(self._file)
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
        if self._end == 0:
            self._write({"ledger": VERSION, "about": self.about})
            _sync_folder(self.path.parent)

    def _known(self, entry: Entry) -> None:
        if entry.get("ledger") != VERSION or entry.get("about") != self.about:
            raise LedgerError(
                f"{self.path} belongs to another stream: its first line says something else about system, "
                "policy, seed or budget. Give another file, or the settings that it was begun with."
            )

    def _remember(self, entry: Entry) -> None:
        self._steps[int(entry[STEP])] = len(self._offsets)
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
        written = os.write(self._file, line)
        if written != len(line):  # a full disk: leave no half line behind
            os.ftruncate(self._file, self._end)
            raise OSError(
                f"{self.path}: only {written} of {len(line)} bytes were written; the disk may be full."
            )
        os.fdatasync(self._file)
        self._chain, self._end = chain, self._end + len(line)

    def __contains__(self, step: int) -> bool:
        """Whether this step was released or decided already."""
        return step in self._steps

    def __len__(self) -> int:
        """Entries, the first line apart."""
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
        for place, line in enumerate(_lines(self.path, self._end)):
            if place:
                yield json.loads(line)

    def close(self) -> None:
        """Give the file free for others."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "Ledger":
        """The ledger itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class Scratch:
    """A ledger that is not kept: the same steps, in memory."""

    def __init__(self, about: Mapping[str, Any]):
        self.about, self.note = dict(about), ""
        self._entries = dict[int, Entry]()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Remember an entry."""
        self._entries[entry[STEP]] = dict(entry)

    def __contains__(self, step: int) -> bool:
        """Whether this step was decided already."""
        return step in self._entries

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    def __getitem__(self, step: int) -> Entry:
        """The entry of a step."""
        return self._entries[step]

    def __iter__(self) -> Iterator[Entry]:
        """All entries in their order."""
        yield from self._entries.values()

    def close(self) -> None:
        """Nothing to do."""


def about_of(path: Path) -> Entry | None:
    """What the first line of a ledger says; None where there is no whole line yet."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    if not line.endswith(b"\n"):
        return None
    return dict(verified(line, _START, 1, path)[0].get("about", {}))


def chained(entry: Mapping[str, Any], before: str) -> tuple[str, bytes]:
    """The digest of an entry after another one, and its line."""
    content = json.dumps(
        dict(entry), sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":")
    )
    digest = hashlib.sha256((before + content).encode()).hexdigest()
    return digest, f'{content[:-1]},"{CHAIN}":"{digest}"}}\n'.encode()


def verified(line: bytes, before: str, place: int, path: Path) -> tuple[Entry, str]:
    """An entry and its digest; `LedgerError` where the chain is broken."""
    broken = f"{path}: the chain is broken at line {place}, by an edit or by damage. Restore it from a copy."
    try:
        entry = json.loads(line)
        digest = entry.pop(CHAIN)
        again, same = chained(entry, before)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(broken) from error
    if again != digest or same != line:
        raise LedgerError(broken)
    return entry, digest


def _lines(path: Path, size: int) -> Iterator[bytes]:
    """Lines of the first `size` bytes."""
    with path.open("rb") as file:
        while file.tell() < size and (line := file.readline()):
            yield line


def _sync_folder(folder: Path) -> None:
    """A new file's name is durable once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

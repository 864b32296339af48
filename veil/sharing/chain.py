"""The chain of a ledger: how a line is made of an entry, and how an edit is found."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
CHAIN, STEP, VERSION = "chain", "step", 1
START = "0" * 64
_MARK, _CLOSE = f',"{CHAIN}":"'.encode(), b'"}\n'
_TAIL = _MARK + START.encode() + _CLOSE  # as long as the end of every line
ROOM = 1 << 18  # bytes that are made ready at a time


class LedgerError(ValueError):
    """A ledger that cannot be used; the text says where it is broken and what to do."""


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

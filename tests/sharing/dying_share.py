"""`veil share` in a process that kills itself at a chosen point, at the first occasion from some step on.

Nothing of the program is replaced: the doomed calls run as they are up to the point, and SIGKILL comes there.
"""

import importlib
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

import jax

from veil.cli import main
from veil.sharing import snapshots
from veil.sharing.ledger import Ledger
from veil.sharing.secret_account import SecretAccount
from veil.sharing.snapshots import MemoryFile

# Points between the first byte in the ledger and the first byte on the way out, the others, and those of a
# policy with private memory.
INSIDE = ("half a line", "line not synced", "line not emitted")
AROUND = ("half the room", "snapshot not in place", "nothing written", "half emitted", "emitted")
MARK = ("nothing marked", "half a mark", "mark not synced", "marked")
MEMORY = ("half a memory", "memory not synced")
FAILURES = ("full disk", "bug", "abort")  # ends of other kinds

SNAPSHOTS = 16  # steps between two; usually there are more

# Processes are forked from a server that has loaded this module, so that they need not load what it loads.
for _module in ("beliefs", "io", "sharing.sharer", "sharing.stream"):
    importlib.import_module(f"veil.{_module}")


class Death(NamedTuple):
    """Where the process ends, and the first step at which it does."""

    point: str
    step: int


def die(*_: object, **__: object) -> NoReturn:
    """By a signal that nothing can catch or clean up after."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives this")


def share(arguments: Sequence[str], death: Death | None, folder: Path, streams: Sequence[Connection]) -> None:
    """Run the command in a folder, with pipes as input and output; errors go into a file there."""
    os.chdir(folder)
    os.environ["VEIL_CACHE"] = str(folder / "cache")
    snapshots.EVERY = SNAPSHOTS
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedReader(io.FileIO(0))),
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w"))),
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w"))),
    )
    prepare = main.prepare

    def caching_all() -> None:
        """Small programs too: a process that lives for a second should not compile them again."""
        prepare()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

    main.prepare = caching_all
    if death is not None:
        arm(death)
    main.main([*arguments])


def arm(death: Death) -> None:
    """Put the end in its place."""
    if death.point in ("half emitted", "emitted"):
        sys.stdout = _Output(sys.stdout, death)  # pyright: ignore[reportAttributeAccessIssue]
    elif death.point == "snapshot not in place":
        _doom_snapshot(death.step)
    elif death.point in MEMORY:
        _doom(MemoryFile, "write", lambda kept, last: kept.step >= death.step, DOOMS[death.point])
    elif death.point in MARK:
        _doom(SecretAccount, "commit", lambda mark: mark.step >= death.step, DOOMS[death.point])
    else:
        first = 1 if death.point == "half the room" else death.step  # room is made for a process's first line
        _doom(Ledger, "append", lambda *entries: entries[-1]["step"] >= first, DOOMS[death.point])


def _doom(owner: type, name: str, chosen: Callable[..., bool], doom: Callable[[], None]) -> None:
    """Doom the chosen call of a method."""
    method = getattr(owner, name)

    def doomed(self: object, *given: object) -> object:
        if chosen(*given):
            doom()
        return method(self, *given)

    setattr(owner, name, doomed)


def _doom_snapshot(first: int) -> None:
    due = snapshots.due

    def doomed(step: int) -> bool:
        if due(step) and step >= first:
            _not_in_place()
        return due(step)

    snapshots.due = doomed


def _half_a_line() -> None:
    _cut_write(lambda content: content.startswith(b"{"))


def _half_the_room() -> None:
    _cut_write(lambda content: content.startswith(b"\0"))


def _cut_write(chosen: Callable[[bytes], bool]) -> None:
    write = os.pwrite

    def cut(file: int, content: Any, offset: int) -> int:
        if not chosen(content):
            return write(file, content, offset)
        write(file, content[: len(content) // 2], offset)
        die()

    os.pwrite = cut


def _not_synced() -> None:
    os.fdatasync = die


def _synced() -> None:
    sync = os.fdatasync
    os.fdatasync = lambda file: die(sync(file))


def _half_a_memory() -> None:
    _cut_write(lambda content: any(content))


def _half_a_mark() -> None:
    write = os.pwrite

    def cut(file: int, content: Any, offset: int) -> int:
        write(file, content[:100], offset)
        die()

    os.pwrite = cut


def _not_in_place() -> None:
    os.replace = die


def _bug() -> NoReturn:
    raise RuntimeError("a bug")


def _full_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


DOOMS: dict[str, Callable[[], None]] = {
    "nothing written": die,
    "half the room": _half_the_room,
    "half a line": _half_a_line,
    "line not synced": _not_synced,
    "line not emitted": _synced,
    "nothing marked": die,
    "half a mark": _half_a_mark,
    "mark not synced": _not_synced,
    "marked": _synced,
    "half a memory": _half_a_memory,
    "memory not synced": _not_synced,
    "bug": _bug,
    "full disk": _full_disk,
    "abort": os.abort,
}


class _Output:
    """Standard output that ends the process within or after the line of a step."""

    def __init__(self, file: TextIO, death: Death):
        self.buffer, self._file, self._death = self, file, death
        self._doomed = False

    def write(self, line: bytes) -> None:
        self._doomed = json.loads(line)["step"] >= self._death.step
        half = self._doomed and self._death.point == "half emitted"
        self._file.buffer.write(line[: len(line) // 2] if half else line)

    def flush(self) -> None:
        self._file.buffer.flush()
        if self._doomed:
            die()

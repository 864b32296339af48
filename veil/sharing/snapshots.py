"""What a stream keeps on disk beside its ledger, so that it can go on: its belief, and a private memory.

The belief is public, written now and then so that a long ledger need not be replayed from its beginning.
Nothing depends on it: its digest is in the ledger, so that one which is missing, old or edited is noticed and
the ledger is replayed instead. The memory of a policy that has one is private and written at every step.
"""

import hashlib
import io
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from veil.sharing.secret_account import OWNER_ONLY, sync_folder

EVERY = 1000  # steps between two snapshots of the belief

_BLOCK = 4096  # bytes; a slot of the memory's file is a multiple

_HEAD = struct.Struct("<32sQQ")  # digest, bytes of a slot, bytes of the content


def due(step: int) -> bool:
    """Whether the belief before this step is kept."""
    return step > 1 and step % EVERY == 1


def packed(arrays: Sequence[np.ndarray]) -> bytes:
    """Arrays as bytes, the same for the same arrays."""
    file = io.BytesIO()
    for array in arrays:
        np.save(file, array, allow_pickle=False)
    return file.getvalue()


def unpacked(content: bytes, count: int) -> list[np.ndarray]:
    """The arrays again."""
    file = io.BytesIO(content)
    return [np.load(file, allow_pickle=False) for _ in range(count)]


def digest(content: bytes) -> str:
    """What the ledger says about a snapshot."""
    return hashlib.sha256(content).hexdigest()


def beside(ledger: Path) -> Path:
    """Where the snapshot of a ledger is."""
    return ledger.with_name(ledger.name + ".belief")


def write(path: Path, content: bytes) -> None:
    """Replace the old one; the ledger can do without, so nothing waits for the disk."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def read(path: Path) -> bytes:
    """The last one; nothing if there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


class PrivateSnapshot(NamedTuple):
    """The memory of a policy at a step, and what the owner saw there (NaN where nothing)."""

    step: int
    memory: np.ndarray
    state: np.ndarray
    external: np.ndarray


class MemoryFile:
    """The private memory on disk, readable by the owner only.

    The file has two slots, which the steps use in turn: a write that a crash cuts short leaves the memory of
    the step before it. The slots are made once and written in place, so that nothing but the content has to
    reach the disk. Replacing the file at every step takes about twice as long (8 ms instead of 4, measured on
    a busy disk).

    Args:
        path: the file.
        stream: names the stream; the memory of another one with the same secret counts for nothing.
    """

    def __init__(self, path: Path, stream: str):
        self.path, self._stream, self._file, self._size = path, stream.encode(), -1, 0

    def read(self) -> PrivateSnapshot | None:
        """What was kept last; None if there is nothing, or nothing usable."""
        try:
            whole = self.path.read_bytes()
        except OSError:
            return None
        half = len(whole) // 2
        found = [one for one in (self._parsed(whole[:half]), self._parsed(whole[half:])) if one is not None]
        return max(found, key=lambda one: one.step, default=None)

    def write(self, kept: PrivateSnapshot) -> None:
        """Keep this, durably."""
        content = packed([np.asarray(one) for one in kept])
        if _HEAD.size + len(content) > self._size:
            self._begin(_HEAD.size + len(content))
        slot = _HEAD.pack(self._digest(content), self._size, len(content)) + content
        self._put(slot, (kept.step + 1) % 2 * self._size)
        os.fdatasync(self._file)

    def close(self) -> None:
        """Give the file free."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._size = -1, 0

    def _begin(self, least: int) -> None:
        """Open the file, with room for two slots of at least so many bytes; keep what it has if it fits."""
        self.close()
        size = -(-least // _BLOCK) * _BLOCK
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        os.fchmod(self._file, OWNER_ONLY)
        if os.fstat(self._file).st_size != 2 * size:
            os.ftruncate(self._file, 0)
            self._put(bytes(2 * size), 0)
            os.fsync(self._file)
            sync_folder(self.path.parent)
        self._size = size

    def _put(self, content: bytes, offset: int) -> None:
        if os.pwrite(self._file, content, offset) < len(content):
            raise OSError(f"{self.path} cannot be written: the disk may be full. Make room and start again.")

    def _parsed(self, slot: bytes) -> PrivateSnapshot | None:
        if len(slot) < _HEAD.size:
            return None
        expected, size, length = _HEAD.unpack_from(slot)
        content = slot[_HEAD.size : _HEAD.size + length]
        if size != len(slot) or expected != self._digest(content):
            return None
        step, memory, state, external = unpacked(content, len(PrivateSnapshot._fields))
        return PrivateSnapshot(int(step), memory, state, external)

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self._stream + content).digest()

"""The belief of a stream on disk now and then, so that a long ledger need not be replayed from its beginning.

A snapshot is public, and nothing depends on it: its digest is in the ledger, so that one which is missing,
old or edited is noticed and the ledger is replayed instead.
"""

import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

EVERY = 1000  # steps


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

"""Finished stages of an audit on disk, so that an interrupted one goes on where it stopped."""

import hashlib
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np


class Store:
    """Arrays by the name of the stage that made them; in memory only without a folder.

    Parts that belong to another audit (another system, policy, option or version) are not read, and are
    removed when this one begins.
    """

    def __init__(self, folder: Path | None = None, fingerprint: str = ""):
        self.folder = None if folder is None else folder / "parts"
        self.fingerprint = fingerprint
        if self.folder is not None:
            self._claim(self.folder)

    def _claim(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        owner = folder / "audit.txt"
        if owner.exists() and owner.read_text(encoding="utf-8") == self.fingerprint:
            return
        for old in folder.glob("*.npz"):
            old.unlink()
        owner.write_text(self.fingerprint, encoding="utf-8")

    def keep(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The arrays of this name, from disk if they were made before."""
        if self.folder is None:
            return make()
        path = self.folder / f"{name}.npz"
        if path.exists():
            try:
                with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                    return {key: arrays[key] for key in arrays.files}
            except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # cut short by a crash: make it again
                path.unlink()
        made = make()
        temporary = path.with_suffix(".partial")
        with temporary.open("wb") as file:
            np.savez(file, **made)  # pyright: ignore[reportArgumentType]
        os.replace(temporary, path)
        return made


def fingerprint(*things: object) -> str:
    """A short text that changes when any array or any other part of these objects does."""
    digest = hashlib.sha256()
    for thing in things:
        arrays, rest = eqx.partition(thing, eqx.is_array)
        for text in (str(jax.tree.structure(thing)), repr(jax.tree.leaves(rest))):
            digest.update(re.sub(r" at 0x[0-9a-f]+", "", text).encode())  # functions live elsewhere next time
        for leaf in jax.tree.leaves(arrays):
            digest.update(repr((leaf.dtype, leaf.shape)).encode())
            digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()

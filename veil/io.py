"""Files: one atomic write, arrays with a fingerprint of what they belong to, and stages that are kept."""

import csv
import hashlib
import io
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save


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
        found = self.find(name)
        if found is None:
            found = make()
            self.put(name, found)
        return found

    def find(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays of this name, if they were made before."""
        path = None if self.folder is None else self.folder / f"{name}.npz"
        if path is None or not path.exists():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # cut short by a crash: make it again
            path.unlink(missing_ok=True)
            return None

    def put(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write these arrays in one move; two processes that write the same leave one whole file."""
        if self.folder is not None:
            replace_bytes(self.folder / f"{name}.npz", npz_bytes(**arrays))


def fingerprint(*things: object) -> str:
    """A short text that changes when any array or any other part of these objects does."""
    digest = hashlib.sha256()
    for thing in things:
        arrays, rest = eqx.partition(thing, eqx.is_array)
        for text in (str(jax.tree.structure(thing)), repr(jax.tree.leaves(rest))):
            digest.update(re.sub(r" at 0x[0-9a-f]+", "", text).encode())  # functions live elsewhere next time
        for leaf in jax.tree.leaves(arrays):
            digest.update(repr((leaf.dtype, leaf.shape)).encode())
            keyed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            digest.update(np.asarray(jax.random.key_data(leaf) if keyed else leaf).tobytes())
    return digest.hexdigest()


Tree = TypeVar("Tree")


class StoreError(ValueError):
    """A file that cannot be used; the text says why and what to do."""


def save_arrays(path: Path, tree: object, about: Mapping[str, object] | None = None) -> None:
    """Write all arrays of an object, and a few words about them, so that a crash leaves the old file."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    arrays = {f"{i:04d}": np.asarray(leaf, order="C") for i, leaf in enumerate(leaves)}
    content = save(arrays, {"about": json.dumps(dict(about or {}))})
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # a full disk needs the room
        temporary.unlink(missing_ok=True)
        raise


def load_arrays(path: Path, like: Tree) -> Tree:
    """An object like this one, with the arrays of the file."""
    kept, rest = eqx.partition(like, eqx.is_array)
    leaves, shape = jax.tree.flatten(kept)
    try:
        with safe_open(path, framework="numpy") as file:
            names = sorted(file.keys())
            found = [file.get_tensor(name) for name in names]
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} cannot be read ({error}). Train again, or restore the file.") from error
    expected, given = [leaf.shape for leaf in leaves], [array.shape for array in found]
    if expected != given:
        raise StoreError(f"{path} belongs to another design: its arrays have other shapes. Train again.")
    filled = [jnp.asarray(array, leaf.dtype) for array, leaf in zip(found, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(shape, filled), rest)


def about(path: Path) -> dict[str, object]:
    """The words that were saved with the arrays."""
    try:
        with safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {}).get("about", "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}). Train again, or restore the file.") from error


def plain(value: object) -> object:
    """The same in what JSON knows; a number that is not finite is unknown, hence null."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def replace_bytes(path: Path, content: bytes) -> Path:
    """Write beside the file, then put it in its place in one move."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def replace_text(path: Path, text: str) -> Path:
    """Write a text in one move; see `replace_bytes`."""
    return replace_bytes(path, text.encode())


def write_json(path: Path, content: object) -> Path:
    """Write strict JSON in one move; a number that is not finite becomes null."""
    text = json.dumps(plain(content), indent=2, allow_nan=False, ensure_ascii=False)
    return replace_text(path, text + "\n")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A table as CSV; what is not finite is an empty cell, and keys that are no column are left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def npz_bytes(**arrays: np.ndarray) -> bytes:
    """Arrays by name as the content of an npz file; the same arrays give the same bytes."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()

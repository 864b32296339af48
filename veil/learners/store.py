"""Arrays of a training run on disk: what a policy has learnt, and where a learner stood."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

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

"""Transcripts on disk: arrays that anyone can read, checked on the way back in."""

import os
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from veil.evaluation.episodes import has_features
from veil.io import csv_text, replace_text
from veil.policies.base import Policy
from veil.step import Record, Transcript
from veil.systems.base import System
from veil.systems.series import CLOCK

NAMES = ("secret", "state", "external", "shared", "features", "public_seed")


class TranscriptError(ValueError):
    """A file that cannot be taken for transcripts of this system and policy; the message says why."""


def save(records: Record, path: Path, system: System) -> None:
    """Write episodes (batched [E]) as the arrays of `NAMES`, all at once or not at all.

    `secret` is the index of the true secret in the prior. `last_state`, the state after the last release, is
    there for the cost of the last step. `private` holds the series of the system that only its owner knows;
    in `external` there are zeros instead. Leave these and `state` out of what an adversary is given.

    Args:
        records: the episodes.
        path: of the file.
        system: that was played; it says which inputs are private.
    """
    hidden = np.asarray([field.private for field in system.input_fields], bool)
    external = np.asarray(records.public.external)
    arrays = {
        "secret": np.asarray(records.index),
        "state": np.asarray(records.states)[:, :-1],
        "last_state": np.asarray(records.states)[:, -1],
        "external": np.where(hidden, 0.0, external),
        "shared": np.asarray(records.public.shared),
        "features": np.asarray(records.public.features),
        "public_seed": np.asarray(records.public.public_seed),
    }
    if hidden.any():
        arrays["private"] = external[..., hidden]
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(temporary, path)
    except BaseException:  # a full disk needs the room
        temporary.unlink(missing_ok=True)
        raise


def save_recording(records: Record, path: Path, system: System) -> None:
    """Write the true states and inputs of episodes (batched [E]) as a table with one row per step.

    The columns are `episode`, `secret` (its index in the prior), `time` in seconds if a step has a length,
    and the fields of the state and of w by their names, but for the clock. All of it is private.

    Args:
        records: the episodes.
        path: of the file.
        system: that was played.
    """
    index, states = np.asarray(records.index), np.asarray(records.states)[:, :-1]
    external = np.asarray(records.public.external)
    count, steps = external.shape[:2]
    columns: dict[str, list] = {
        "episode": np.repeat(np.arange(1, count + 1), steps).tolist(),
        "secret": np.repeat(index, steps).tolist(),
    }
    if system.step_seconds is not None:
        columns["time"] = np.tile(np.round(float(system.step_seconds) * np.arange(steps), 9), count).tolist()
    for fields, values in ((system.state_fields, states), (system.input_fields, external)):
        for place, field in enumerate(fields):
            if field is not CLOCK:
                columns[field.name] = [float(f"{x:.9g}") for x in values[..., place].ravel()]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    replace_text(path, csv_text(tuple(columns), rows))


def load(path: Path, system: System, policy: Policy) -> Record:
    """Read episodes from a file; a `TranscriptError` says what is wrong with it.

    Args:
        path: the file, as `save` writes it.
        system: that the episodes are from.
        policy: that shared them.
    """
    arrays = _arrays(path)
    count, steps = _sizes(path, arrays, system)
    seen = 0 if not has_features(policy) else None
    shapes = {
        "secret": (count,),
        "state": (count, steps, len(system.state_fields)),
        "external": (count, steps, len(system.input_fields)),
        "shared": (count, steps, len(system.shared_fields)),
        "features": (count, steps, arrays["features"].shape[-1] if seen is None else 0),
        "public_seed": (count,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise TranscriptError(
                f"{path}: '{name}' has shape {arrays[name].shape}; this system and policy need {shape}."
            )
        if not np.all(np.isfinite(arrays[name])):
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(arrays[name]))[0])
            raise TranscriptError(
                f"{path}: '{name}' is not a finite number at {where}; correct or drop that episode."
            )
    index = arrays["secret"].astype(np.int32)
    secrets = np.asarray(system.prior.secrets)
    if index.min() < 0 or index.max() >= len(secrets):
        raise TranscriptError(f"{path}: 'secret' must be an index from 0 to {len(secrets) - 1} in the prior.")
    dtype = secrets.dtype
    hidden = np.asarray([field.private for field in system.input_fields], bool)
    if hidden.any():
        private = arrays.get("private", np.zeros((0,)))
        if private.shape != (count, steps, np.count_nonzero(hidden)) or not np.all(np.isfinite(private)):
            names = ", ".join(field.name for field in system.input_fields if field.private)
            raise TranscriptError(
                f"{path}: 'private' must hold the private series ({names}) of every step, as `veil simulate` "
                "writes it; an audit needs them."
            )
        arrays["external"][..., hidden] = private
    external, shared, features = (jnp.asarray(arrays[name], dtype) for name in NAMES[2:5])
    # Built under `vmap`, because these types speak of one episode.
    public = jax.vmap(Transcript)(external, shared, features, jnp.asarray(arrays["public_seed"], jnp.int32))
    last = arrays.get("last_state", arrays["state"][:, -1])
    states = jnp.asarray(np.concatenate([arrays["state"], last[:, None]], axis=1), dtype)
    return jax.vmap(Record)(jnp.asarray(index), jnp.asarray(secrets[index]), states, public)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise TranscriptError(f"{path}: no such file. Write one with `veil simulate`.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TranscriptError(
            f"{path}: not a complete .npz file ({error}); it may have been cut short."
        ) from None
    missing = [name for name in NAMES if name not in arrays]
    if missing:
        raise TranscriptError(f"{path}: no array {', '.join(missing)}; expected {', '.join(NAMES)}.")
    return arrays


def _sizes(path: Path, arrays: dict[str, np.ndarray], system: System) -> tuple[int, int]:
    shape = arrays["shared"].shape
    if len(shape) != 3 or shape[0] == 0 or shape[1] == 0:
        raise TranscriptError(
            f"{path}: 'shared' has shape {shape}: there is no episode to audit. Expected (episodes, steps, "
            f"{len(system.shared_fields)})."
        )
    return shape[0], shape[1]

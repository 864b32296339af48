"""What only the owner may read: the secret, and the memory of a policy that has one. Files of mode 0600."""

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from veil.systems.base import System

OWNER_ONLY = 0o600


class SecretError(ValueError):
    """A secret that cannot be used; the text never says what it is."""


def read_secret(path: Path, system: System) -> np.ndarray:
    """The secret of a file: JSON, its index in the prior or its values by name or in order."""
    try:
        status = path.stat()
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise SecretError(f"{path} can be read by others. Protect it with `chmod 600 {path}`.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SecretError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        if isinstance(error, SecretError):
            raise
        raise SecretError(
            f"{path} is not JSON. Write the index of the secret in the prior, e.g. 2."
        ) from None
    return checked_secret(content, system)


def checked_secret(content: object, system: System) -> np.ndarray:
    """The values of a secret given by its index in the prior, by its values in order, or by their names."""
    secrets = np.asarray(system.prior.secrets, float)
    names = ", ".join(field.name for field in system.secret_fields)
    if isinstance(content, int) and not isinstance(content, bool):
        if not 0 <= content < len(secrets):
            raise SecretError(f"The index of the secret must be between 0 and {len(secrets) - 1}.")
        return secrets[content]
    if isinstance(content, dict):
        if set(content) != {field.name for field in system.secret_fields}:
            raise SecretError(f"The secret needs {names}, and nothing else.")
        content = [content[field.name] for field in system.secret_fields]
    try:
        values = np.atleast_1d(np.asarray(content, float))
    except (TypeError, ValueError):
        raise SecretError(f"The secret must be an index, or numbers for {names}.") from None
    if values.shape != secrets.shape[1:] or not np.all(np.isfinite(values)):
        raise SecretError(f"The secret needs one finite number for each of {names}.")
    return values


def in_prior(secret: np.ndarray, system: System) -> bool:
    """Whether a secret is one of those that charges speak of, to the precision that it is kept in."""
    secrets = np.asarray(system.prior.secrets, float)
    return bool(np.any(np.all(np.isclose(secrets, secret, rtol=1e-5, atol=0.0), axis=1)))


class PrivateSnapshot(NamedTuple):
    """The memory of a policy at a step, and what the owner saw there (NaN where nothing)."""

    step: int
    memory: np.ndarray
    state: np.ndarray
    external: np.ndarray


class MemoryFile:
    """The private memory on disk, replaced as a whole, readable by the owner only.

    Args:
        path: the file.
        stream: names the stream; the memory of another one with the same secret counts for nothing.
    """

    def __init__(self, path: Path, stream: str):
        self.path, self._stream = path, stream

    def read(self) -> PrivateSnapshot | None:
        """What was kept last; None if there is nothing, or nothing usable."""
        try:
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                kept = PrivateSnapshot(int(file["step"]), file["memory"], file["state"], file["external"])
                return kept if str(file["stream"]) == self._stream else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def write(self, kept: PrivateSnapshot) -> None:
        """Keep this, durably."""
        temporary = self.path.with_name(self.path.name + ".partial")
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, OWNER_ONLY)
            np.savez(file, stream=self._stream, **kept._asdict())
            file.flush()
            os.fdatasync(file.fileno())
        os.replace(temporary, self.path)

"""What comes in, checked: steps of a stream, and the secret. A message never says a value."""

import json
import math
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from veil.systems.base import Field, System, series_of
from veil.systems.series import CLOCK

LONGEST = 1 << 16  # bytes of a line

MOST_STEP = (1 << 31) - 1  # steps are 32-bit numbers

LARGEST = 1e9  # in the unit of the field; further than this from zero a field without a range does not go


class Fault(ValueError):
    """Input that cannot be used."""


class Request(NamedTuple):
    """A line of input; `fault` says why the state or the external input is missing."""

    step: int
    state: np.ndarray | None
    external: np.ndarray | None
    fault: str = ""


def parsed(line: bytes, system: System, optional: Collection[str] = ()) -> Request:
    """Read one line of JSON; `Fault` where not even its step can be read.

    Args:
        line: its bytes.
        system: whose fields it has.
        optional: coordinates of the state that may be left out; they are NaN then.
    """
    if len(line) > LONGEST:
        raise Fault(f"it is longer than {LONGEST} bytes.")
    try:
        content = json.loads(line.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise Fault("it is not UTF-8.") from None
    except Fault:
        raise
    except (ValueError, RecursionError):
        raise Fault('it is not JSON. Write e.g. {"step": 1, "state": {...}, "external": {...}}.') from None
    if not isinstance(content, dict):
        raise Fault("it is not a JSON object with step, state and external.")
    step = _step(content)
    unknown = sorted(set(content) - {"step", "state", "external"})
    if unknown:
        return Request(step, None, None, "only step, state and external are known; leave the rest out.")
    external, wrong = _checked_external(content.get("external"), system, step)
    fields = system.state_fields
    state, fault = _checked("state", content.get("state"), fields, limits=False, optional=optional)
    if wrong or fault:
        return Request(step, None, external, wrong or fault)
    return Request(step, state, external)


def given(
    name: str, values: object, fields: Sequence[Field], *, limits: bool, optional: Collection[str] = ()
) -> np.ndarray:
    """The numbers of a Python caller, by name or in order; `Fault` if they are not usable.

    Args:
        name: of the whole, for messages.
        values: by the names of the fields, or in their order.
        fields: that are asked for.
        limits: whether values out of the range of a field are refused.
        optional: fields that may be left out by name; they are NaN then.
    """
    if not isinstance(values, Mapping):
        try:
            row = np.asarray(values, float)
        except (TypeError, ValueError):
            raise Fault(f"{name} must be numbers.") from None
        if row.shape != (len(fields),):
            raise Fault(f"{name} needs {len(fields)} numbers: {_names(fields)}.")
        values = {field.name: float(number) for field, number in zip(fields, row, strict=True)}
    numbers, fault = _checked(name, values, fields, limits=limits, optional=optional)
    if numbers is None:
        raise Fault(fault)
    return numbers


def given_external(values: object, system: System, step: int) -> np.ndarray:
    """W of a step from what a Python caller says of it, by name or in order; `Fault` if it is not usable.

    Exogenous values that are not said are taken from the series of the system, the clock from the step.

    Args:
        values: numbers by name, or in the order of the fields without the clock.
        system: whose inputs they are.
        step: t, counted from 1.
    """
    if not isinstance(values, Mapping):
        fields = (*system.external_fields, *system.exogenous_fields)
        values = dict(
            zip([f.name for f in fields], given("external", values, fields, limits=True), strict=True)
        )
    numbers, fault = _checked_external(values, system, step)
    if numbers is None:
        raise Fault(fault)
    return numbers


def _checked_external(values: object, system: System, step: int) -> tuple[np.ndarray | None, str]:
    """All of w in order, or None and what is wrong."""
    if not system.has_clock or not isinstance(values, Mapping):
        return _checked("external", values, system.input_fields, limits=True)
    series = series_of(system)
    clock = values.get(CLOCK.name, step - 1 + (0 if series is None else series.start))
    if isinstance(clock, bool) or not isinstance(clock, int | float) or not 0 <= clock <= MOST_STEP:
        return None, f"external.{CLOCK.name} must be a whole number of steps, 0 or more."
    if clock != int(clock):
        return None, f"external.{CLOCK.name} must be a whole number of steps, 0 or more."
    filled: dict[Any, Any] = {CLOCK.name: int(clock)}
    if series is not None and clock < series.rows:
        filled |= dict(zip(series.names, np.asarray(series.values, float)[int(clock)].tolist(), strict=True))
    missing = [field.name for field in system.exogenous_fields if field.name not in {**filled, **values}]
    if missing:
        return (
            None,
            f"external.{missing[0]} is missing, and the series of the system has no row {int(clock)}.",
        )
    return _checked("external", {**filled, **values}, system.input_fields, limits=True)


def _step(content: dict[str, Any]) -> int:
    step = content.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 1 <= step <= MOST_STEP:
        raise Fault(f"step must be a whole number from 1 to {MOST_STEP}.")
    return step


def _checked(
    name: str, values: object, fields: Sequence[Field], *, limits: bool, optional: Collection[str] = ()
) -> tuple[np.ndarray | None, str]:
    """The numbers in the order of the fields, or None and what is wrong."""
    if not isinstance(values, Mapping):
        return None, f"{name} must be an object with {_names(fields)}."
    numbers = []
    for field in fields:
        if field.name not in values:
            if field.name in optional:
                numbers.append(math.nan)
                continue
            return None, f"{name}.{field.name} is missing."
        value = values[field.name]
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            return None, f"{name}.{field.name} must be a number."
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return None, f"{name}.{field.name} must be finite."
        low, high = max(field.low, -LARGEST), min(field.high, LARGEST)
        if limits and not low <= number <= high:
            return None, f"{name}.{field.name} must lie between {low:g} and {high:g}."
        numbers.append(min(max(number, -LARGEST), LARGEST))
    if set(values) - {field.name for field in fields}:
        return None, f"{name} has more fields than {_names(fields)}."
    return np.asarray(numbers), ""


def _names(fields: Sequence[Field]) -> str:
    return ", ".join(field.name for field in fields)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise Fault("a name occurs twice.")
    return content


class SecretError(ValueError):
    """A secret that cannot be used; the text never says what it is."""


def read_secret(path: Path, system: System) -> np.ndarray:
    """The secret of a file: JSON, its index in the prior or its values by name or in order."""
    return checked_secret(read_private(path), system)


def read_private(path: Path) -> object:
    """The content of a file that is the owner's alone: JSON.

    What is kept beside it (account, memory) belongs to this very file, so that it must be a file of the
    owner's, with one name, in a folder where nobody else writes.
    """
    try:
        status, folder = path.lstat(), path.parent.stat()
        if stat.S_ISLNK(status.st_mode):
            raise SecretError(f"{path} is a symbolic link. Give the file itself: its account is beside it.")
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise SecretError(f"{path} has a second name (a hard link), and one account per name. Keep one.")
        if status.st_uid != os.geteuid():
            raise SecretError(f"{path} belongs to somebody else. Make a file of your own with `chmod 600`.")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise SecretError(f"{path} can be read by others. Protect it with `chmod 600 {path}`.")
        if stat.S_IMODE(folder.st_mode) & 0o022:
            raise SecretError(
                f"Others may write in the folder of {path}. Protect it with `chmod go-w {path.parent}`, or "
                "move the secret to a folder of your own."
            )
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SecretError(f"{path} cannot be read ({error.strerror}).") from None
    except SecretError:
        raise
    except (ValueError, RecursionError):
        raise SecretError(
            f"{path} is not JSON. Write the index of the secret in the prior, e.g. 2."
        ) from None
    return content


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
    listed = content if isinstance(content, list | tuple | np.ndarray) else [content]
    if not all(isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in listed):
        raise SecretError(f"The secret must be an index, or numbers for {names}: no text, no true or false.")
    try:
        values = np.asarray(listed, float)
    except (TypeError, ValueError, OverflowError):
        raise SecretError(f"The secret must be an index, or numbers for {names}.") from None
    if values.shape != secrets.shape[1:] or not np.all(np.isfinite(values)):
        raise SecretError(f"The secret needs one finite number for each of {names}.")
    return values


def in_prior(secret: np.ndarray, system: System) -> bool:
    """Whether a secret is one of those that charges speak of, to the precision that it is kept in."""
    secrets = np.asarray(system.prior.secrets, float)
    return bool(np.any(np.all(np.isclose(secrets, secret, rtol=1e-5, atol=0.0), axis=1)))

"""What comes in, checked: a message names the field and the rule that it breaks, never a value."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from veil.systems.base import Field, System

LONGEST = 1 << 16  # bytes of a line

MOST_STEP = (1 << 31) - 1  # steps are 32-bit numbers


class Fault(ValueError):
    """Input that cannot be used."""


class Request(NamedTuple):
    """A line of input; `fault` says why the state or the external input is missing."""

    step: int
    state: np.ndarray | None
    external: np.ndarray | None
    fault: str = ""


def parsed(line: bytes, system: System) -> Request:
    """Read one line of JSON; `Fault` where not even its step can be read."""
    if len(line) > LONGEST:
        raise Fault(f"it is longer than {LONGEST} bytes.")
    try:
        content = json.loads(line.decode("utf-8"), parse_constant=_refused, object_pairs_hook=_unique)
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
    external, wrong = _checked("external", content.get("external"), system.external_fields, limits=True)
    state, fault = _checked("state", content.get("state"), system.state_fields, limits=False)
    if wrong or fault:
        return Request(step, None, external, wrong or fault)
    return Request(step, state, external)


def given(name: str, values: object, fields: Sequence[Field], *, limits: bool) -> np.ndarray:
    """The numbers of a Python caller, by name or in order; `Fault` if they are not usable."""
    if not isinstance(values, Mapping):
        try:
            row = np.asarray(values, float)
        except (TypeError, ValueError):
            raise Fault(f"{name} must be numbers.") from None
        if row.shape != (len(fields),):
            raise Fault(f"{name} needs {len(fields)} numbers: {_names(fields)}.")
        values = {field.name: float(number) for field, number in zip(fields, row, strict=True)}
    numbers, fault = _checked(name, values, fields, limits=limits)
    if numbers is None:
        raise Fault(fault)
    return numbers


def _step(content: dict[str, Any]) -> int:
    step = content.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 1 <= step <= MOST_STEP:
        raise Fault(f"step must be a whole number from 1 to {MOST_STEP}.")
    return step


def _checked(
    name: str, values: object, fields: Sequence[Field], *, limits: bool
) -> tuple[np.ndarray | None, str]:
    """The numbers in the order of the fields, or None and what is wrong."""
    if not isinstance(values, Mapping):
        return None, f"{name} must be an object with {_names(fields)}."
    numbers = []
    for field in fields:
        if field.name not in values:
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
        if limits and not field.low <= number <= field.high:
            return None, f"{name}.{field.name} must lie between {field.low:g} and {field.high:g}."
        numbers.append(number)
    if len(values) > len(fields):
        return None, f"{name} has more fields than {_names(fields)}."
    return np.asarray(numbers), ""


def _names(fields: Sequence[Field]) -> str:
    return ", ".join(field.name for field in fields)


def _refused(word: str) -> float:
    del word
    raise Fault("NaN and Infinity are not JSON; leave out what is not known.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise Fault("a name occurs twice.")
    return content

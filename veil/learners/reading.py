"""Frozen dataclasses from what a JSON file says: every field, each of its type, and nothing else."""

import math
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Part = TypeVar("Part")


def made(kind: type[Part], given: object) -> Part:
    """A dataclass of this kind; a `ValueError` says what does not fit."""
    assert is_dataclass(kind)
    hints, names = get_type_hints(kind), [field.name for field in fields(kind)]
    if not isinstance(given, dict) or sorted(given) != sorted(names):
        raise ValueError(f"it needs {', '.join(names)}, and nothing else there.")
    return kind(**{name: _value(name, hints[name], given[name]) for name in names})  # pyright: ignore[reportReturnType]


def _value(name: str, kind: Any, given: object) -> object:
    if is_dataclass(kind) and isinstance(kind, type):
        return made(kind, given)
    if get_origin(kind) is tuple:
        if not isinstance(given, list | tuple):
            raise ValueError(f"{name} cannot be {given!r}.")
        return tuple(_value(name, get_args(kind)[0], one) for one in given)
    if get_origin(kind) is Literal:
        right = given in get_args(kind)
    elif kind is float:  # not finite is null in the file
        given = math.nan if given is None else given
        right = isinstance(given, int | float) and not isinstance(given, bool)
        given = float(given) if isinstance(given, int | float) else given
    else:
        right = type(given) is kind
    if not right:
        raise ValueError(f"{name} cannot be {given!r}.")
    return given

"""The settings of a command, read off its dataclass: what help, files and command lines have in common."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}

SHORT = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Setting:
    """One field of a command.

    Attributes:
        name: as on the command line and in files.
        field: its name in Python.
        group: the field of the command that it belongs to; empty for its own.
        kind: type of one value.
        many: whether it takes any number of values.
        default: its value if it is not given; `MISSING` if it must be.
        text: one sentence about it, with its unit.
        metavar: what stands for its value in help.
        note: the default in words, if they say more than its value; None if they do not.
        positional: whether it is given without a flag.
    """

    name: str
    field: str
    group: str
    kind: Any
    many: bool
    default: object
    text: str
    metavar: str
    note: str | None
    positional: bool

    @property
    def flag(self) -> str:
        """As on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that there are, if they can be listed."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def each(self) -> str:
        """What one value is, in words."""
        return f"one of {', '.join(self.choices)}" if self.choices else KINDS[self.kind]

    @property
    def expected(self) -> str:
        """What is to be given, in words."""
        return f"a list, each {self.each}" if self.many else self.each


def settings(kind: type, usual: object = None, group: str = "") -> tuple[Setting, ...]:
    """All settings of a command, those of its groups behind its own.

    A field whose metadata say `flag` has that name here, or is no setting if that is empty.

    Args:
        kind: its dataclass.
        usual: an instance with other defaults than those of the dataclass.
        group: which part of a command this is.
    """
    own, parts = [], []
    texts, hints = sentences(kind), get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = _default(field) if usual is None else getattr(usual, field.name)
        hint, marks = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            parts += settings(hint, default, field.name)
            continue
        name = field.metadata.get("flag", field.name)
        if not name:
            continue
        one, many = _one(hint)
        own.append(
            Setting(
                *(name, field.name, group, one, many, default, texts.get(field.name, "")),
                metavar=_mark(marks, "metavar") or _short(one) + " ..." * many,
                note=_mark(marks, "help_behavior_hint"),
                positional=tyro.conf.Positional in marks,
            )
        )
    return (*own, *parts)


def groups(kind: type) -> dict[str, str]:
    """The groups of a command, and the sentence about each."""
    hints = get_type_hints(kind)
    parts = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {
        name: inspect.getdoc(part) or "" for name, part in parts.items() if dataclasses.is_dataclass(part)
    }


def sentences(kind: type) -> dict[str, str]:
    """The sentence that stands below each field in the source."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    return dict(_pairs(made.body))


def _pairs(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            name, text = field.target, below.value
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield name.id, " ".join(text.value.split())


def _default(field: dataclasses.Field) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _one(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be many."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [part for part in get_args(hint) if part is not type(None)]
    return (get_args(hint)[0], True) if get_origin(hint) is tuple else (hint, False)


def _short(kind: Any) -> str:
    return "NAME" if get_origin(kind) is Literal else SHORT.get(kind, "")


def _mark(marks: tuple[Any, ...] | list[Any], name: str) -> Any:
    """What `tyro.conf.arg` says of a field."""
    found = [getattr(mark, name) for mark in marks if getattr(mark, name, None) is not None]
    return found[0] if found else None

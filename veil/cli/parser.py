"""The one reader of command lines and TOML files: words and values in, a command with its settings out.

A command is a frozen dataclass. Its fields are its settings, named alike in Python, as flags and in files;
a field that is a dataclass itself is a group of settings. Reading takes two steps. `read_words` and
`read_file` find out which setting gets which value, and convert it; `build` makes the command of them.

There are two steps because flags win over files, and because the defaults depend on what was given (those of
`veil train --policy ddpg` are not those of `--policy pathwise`). A parser library such as tyro parses and
builds in one go and prints its own errors, so that everything would have to be read twice.
"""

import ast
import dataclasses
import inspect
import json
import math
import re
import textwrap
import tomllib
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from veil.cli.console import Mistake
from veil.registry import Registry, guess, sentences_of

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}

SHORT = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}

CONFIG = "--config"

WIDTH = 110  # of a line in a file

FEW = 2  # help says which things a setting is for, if they are no more than these

Given = dict[str, Any]


@dataclass(frozen=True)
class Flag:
    """How a field looks on the command line, where its type does not say it; stands in `Annotated`.

    Attributes:
        metavar: what stands for its value in help.
        default: the default in words, if they say more than its value; empty to say nothing.
        positional: whether it is given without a flag.
        choices: gives all values that there are.
        names: gives names that stand for `{names}` in the sentence about it; other values are possible.
    """

    metavar: str = ""
    default: str | None = None
    positional: bool = False
    choices: Callable[[], tuple[str, ...]] | None = None
    names: Collection[str] = ()


@dataclass(frozen=True)
class Parameters:
    """Marks a field that maps names to values: the settings of all things of a registry.

    What was not given is not in the mapping.
    """

    registry: Registry


@dataclass(frozen=True)
class Setting:
    """One setting of a command.

    Attributes:
        name: in Python, as a flag and in files.
        group: the field of the command that it belongs to; empty for its own.
        kind: type of one value.
        many: whether it takes any number of values.
        default: its value if it is not given; `MISSING` if it must be.
        text: one sentence about it, with its unit.
        metavar: what stands for its value in help.
        note: the default in words, if they say more than its value; None if they do not.
        positional: whether it is given without a flag.
        choices: all values that there are, if they can be listed.
        alone: the value that its flag has if none of the choices follows; empty if one must follow.
        off: the value that `--no-` before its name stands for; empty if that is not possible.
    """

    name: str
    group: str
    kind: Any
    many: bool
    default: object
    text: str
    metavar: str
    note: str | None = None
    positional: bool = False
    choices: tuple[str, ...] = ()
    alone: str = ""
    off: str = ""

    @property
    def flag(self) -> str:
        """As on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def label(self) -> str:
        """As messages call it."""
        return self.metavar.strip("[]") if self.positional else self.flag

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    @property
    def each(self) -> str:
        """What one value is, in words."""
        return f"one of {', '.join(self.choices)}" if self.choices else KINDS[self.kind]

    @property
    def expected(self) -> str:
        """What is to be given, in words."""
        return f"a list, each {self.each}" if self.many else self.each


def settings(kind: type, usual: object = None, group: str = "") -> tuple[Setting, ...]:
    """All settings of a command, those of its groups behind its own; one of each name.

    A field whose metadata say `hidden` is no setting.

    Args:
        kind: its dataclass.
        usual: an instance with other defaults than those of the dataclass.
        group: which part of a command this is.
    """
    own, parts = list[Setting](), list[Setting]()
    texts = sentences(kind)
    for field, hint, marks in _fields(kind):
        default = _default(field) if usual is None else getattr(usual, field.name)
        if _is_group(hint):
            parts += settings(hint, default, field.name)
        elif registry := _registry(marks):
            given = default if isinstance(default, Mapping) else {}
            known = parameters(registry, group or field.name)
            parts += [replace(one, default=given.get(one.name)) for one in known]
        else:
            made = _setting(field.name, hint, marks, default, texts.get(field.name, ""), group)
            words = {name: field.metadata[name] for name in ("alone", "off") if name in field.metadata}
            own.append(replace(made, **words))
    unique = dict[str, Setting]()
    for one in (*own, *parts):
        unique.setdefault(one.name, one)
    return tuple(unique.values())


def parameters(registry: Registry, group: str) -> list[Setting]:
    """The settings of all things of a registry: one per name, with the shortest of its sentences.

    Args:
        registry: whose.
        group: that they belong to on the command line.
    """
    found, users = dict[str, Setting](), dict[str, list[str]]()
    for thing in registry:
        header = registry.header(thing)
        texts = sentences(header)
        for field, hint, marks in _fields(header):
            one = _setting(field.name, hint, marks, None, texts.get(field.name, ""), group)
            before = found.setdefault(field.name, one)
            if (before.kind, before.many) != (one.kind, one.many):
                raise TypeError(f"{one.name} of {thing} is {one.expected}, and elsewhere {before.expected}.")
            found[field.name] = min(before, one, key=lambda each: len(each.text))
            users.setdefault(field.name, []).append(thing)
    notes = {name: f"for {', '.join(them)}" if len(them) <= FEW else "" for name, them in users.items()}
    return [replace(one, note=notes[name]) for name, one in found.items()]


def groups(kind: type) -> dict[str, str]:
    """The groups of a command, and the sentence about each."""
    found = dict[str, str]()
    texts = sentences(kind)
    for field, hint, marks in _fields(kind):
        if _is_group(hint):
            found[field.name] = (inspect.getdoc(hint) or "").partition("\n")[0]
        elif _registry(marks):
            found[field.name] = texts.get(field.name, "")
    return found


def sentences(kind: type) -> dict[str, str]:
    """The sentence that stands below each field in the source."""
    known = vars(kind).get("__sentences__")  # of a class that the registry read
    if known is not None:
        return known
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    return sentences_of(made)


def _fields(kind: type) -> Iterator[tuple[dataclasses.Field, Any, tuple[Any, ...]]]:
    """The fields that can be set, with their types and what `Annotated` says of them."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if not field.metadata.get("hidden"):
            hint, *marks = (
                get_args(hints[field.name])
                if get_origin(hints[field.name]) is Annotated
                else (hints[field.name],)
            )
            yield field, hint, tuple(marks)


def _setting(name: str, hint: Any, marks: tuple[Any, ...], default: object, text: str, group: str) -> Setting:
    flag = next((mark for mark in marks if isinstance(mark, Flag)), Flag())
    kind, many = _one(hint)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    choices = flag.choices() if flag.choices else choices
    metavar = flag.metavar or ("NAME" if choices else SHORT.get(kind, "")) + " ..." * many
    text = text.replace("{names}", ", ".join(flag.names))
    return Setting(
        name, group, kind, many, default, text, metavar, flag.default, flag.positional, tuple(choices)
    )


def _is_group(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) and isinstance(hint, type)


def _registry(marks: tuple[Any, ...]) -> Registry | None:
    return next((mark.registry for mark in marks if isinstance(mark, Parameters)), None)


def _default(field: dataclasses.Field) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _one(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be many."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [part for part in get_args(hint) if part is not type(None)]
    return (get_args(hint)[0], True) if get_origin(hint) is tuple else (hint, False)


def convert(setting: Setting, words: Sequence[str], place: str = "") -> Any:
    """The value of a setting from its words; what does not fit is a `Mistake`.

    Numbers may also stand together, as in `"0.1 0.2"` or `0.1,0.2`.

    Args:
        setting: which.
        words: one, or any number where it takes many.
        place: what to call the setting in a message, where it is not its flag.
    """
    if setting.many and setting.kind in (int, float):
        words = [word for word in re.split(r"[\s,]+", " ".join(words)) if word]
    values = tuple(_value(setting, word, place) for word in words)
    return values if setting.many else values[0]


def _value(setting: Setting, word: str, place: str) -> object:
    if setting.choices or setting.kind is bool:
        right = word in (setting.choices or ("true", "false"))
        value = word == "true" if setting.kind is bool else word
    else:
        try:
            value, right = setting.kind(word), True
        except ValueError:
            value, right = None, False
    if not right:
        got = f"'{word}'" if not place else _toml(word) if setting.choices else word
        raise Mistake(
            f"{place or setting.label} takes {setting.each}; got {got}.{guess(word, setting.choices)}"
        )
    return value


def read_words(known: Sequence[Setting], arguments: Sequence[str]) -> Given:
    """What a command line gives each setting, by name.

    Args:
        known: all settings of the command.
        arguments: the words behind its name.
    """
    given = dict[str, list[str]]()
    places = [one for one in known if one.positional]
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            place = next((one for one in places if one.many or one.name not in given), None)
            if place is None:
                raise Mistake(f"there is no place for '{word}'. Flags begin with --, e.g. --help.")
            given.setdefault(place.name, []).append(word)
            continue
        name, equals, value = word.partition("=")
        if equals:
            words.insert(0, value)
        setting = _named(known, name)
        given[setting.name] = _taken(setting, name, words)
    return {one.name: convert(one, given[one.name]) for one in known if one.name in given}


def _named(known: Sequence[Setting], word: str) -> Setting:
    """The setting of a flag."""
    flags = {one.flag: one for one in known if not one.positional}
    flags |= {f"--no-{one.flag[2:]}": one for one in flags.values() if one.kind is bool or one.off}
    kebab = word.replace("_", "-")
    if kebab in flags:
        return flags[kebab]
    raise Mistake(f"there is no flag {word}.{guess(kebab, [*flags, CONFIG])} All flags: --help.")


def _taken(setting: Setting, name: str, words: list[str]) -> list[str]:
    """The values of a flag, taken from the words behind it."""
    named = name.replace("_", "-") == setting.flag
    if setting.kind is bool:
        return ["true" if named else "false"]
    if not named:
        return [setting.off]
    if setting.alone and (not words or words[0] not in setting.choices):
        return [setting.alone]
    count = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    if not setting.many and count == 0:
        raise Mistake(f"{name} needs a value, {setting.expected}.")
    count = count if setting.many else 1
    taken, words[:] = words[:count], words[count:]
    return taken


def files_apart(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The TOML files that a command line names, and the rest of it."""
    files, rest, words = list[Path](), list[str](), list(arguments)
    while words:
        word = words.pop(0)
        if word != CONFIG and not word.startswith(f"{CONFIG}="):
            rest.append(word)
            continue
        value = word.partition("=")[2] or (words.pop(0) if words else "")
        if not value or value.startswith("--"):
            raise Mistake(f"{CONFIG} needs a file, e.g. {CONFIG} settings.toml.")
        files.append(Path(value))
    return files, rest


def read_file(path: Path, known: Sequence[Setting]) -> Given:
    """What a TOML file gives each setting, by name; tables are the groups, if one likes.

    Args:
        path: of the file.
        known: all settings of the command.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"{path} cannot be read ({error.strerror or error}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} is not a TOML file: {error}.") from error
    except RecursionError:
        raise Mistake(f"{path} is nested too deeply for a file of settings.") from None
    given, parts = Given(), {one.group for one in known if one.group}
    for key, value in content.items():
        if not isinstance(value, dict):
            given |= _line(path, key, value, known)
            continue
        if key not in parts:
            raise Mistake(f"{path}: there is no table [{key}] here.{_guess(key, parts)}")
        for name, inner in value.items():
            given |= _line(path, name, inner, [one for one in known if one.group == key])
    return given


def _line(path: Path, key: str, value: object, known: Sequence[Setting]) -> Given:
    """One line of a file, read as the words that mean the same on a command line."""
    names = {one.name: one for one in known}
    name = key.replace("-", "_")
    if name not in names:
        raise Mistake(f"{path}: there is no setting '{key}'.{_guess(name, names)}")
    setting, place = names[name], f"{path}: {key}"
    if isinstance(value, list) != setting.many:
        raise Mistake(f"{place} takes {setting.expected}; got {_toml(value)}.")
    values = value if isinstance(value, list) else [value]
    if not setting.choices and setting.kind not in (str, Path):
        return {name: convert(setting, [_toml(one) for one in values], place)}
    words = [one for one in values if isinstance(one, str)]
    for one in values:
        if one not in words:
            raise Mistake(f"{place} takes {setting.each}; got {_toml(one)}.")
    return {name: convert(setting, words, place)}


def _guess(name: str, names: Collection[str]) -> str:
    return guess(name, names) or f" Choose {', '.join(sorted(names))}."


def complete(known: Sequence[Setting], given: Mapping[str, object], example: str) -> None:
    """Refuse a command without something that it needs.

    Args:
        known: all settings of the command.
        given: by name.
        example: what to say where to find more.
    """
    for one in known:
        if one.required and one.name not in given:
            what = one.metavar if one.positional else f"{one.flag} {one.metavar}"
            raise Mistake(f"{what} is missing ({one.text}). {example}".strip())


def build(kind: type, given: Mapping[str, object], usual: object = None) -> Any:
    """A command with the settings that were given.

    Args:
        kind: its dataclass.
        given: values by name.
        usual: an instance with other defaults than those of the dataclass.
    """
    by_group = dict[str, Given]()
    for one in settings(kind):
        if one.name in given:
            by_group.setdefault(one.group, {})[one.name] = given[one.name]
    return _build(kind, "", by_group, usual)


def _build(kind: type, group: str, given: Mapping[str, Given], usual: object) -> Any:
    """A command, or a group of its settings."""
    values, own = Given(), given.get(group, {})
    for field, hint, marks in _fields(kind):
        name = field.name
        if _is_group(hint):
            default = _default(field) if usual is None else getattr(usual, name)
            values[name] = _build(hint, name, given, default)
        elif registry := _registry(marks):
            known = {one.name for one in parameters(registry, group or name)}
            mine = given.get(group or name, {})
            values[name] = {key: value for key, value in mine.items() if key in known}
        elif name in own:
            values[name] = own[name]
    return kind(**values) if usual is None else replace(usual, **values)  # pyright: ignore[reportArgumentType]


def toml_text(command: object, kept: Callable[[Setting], bool]) -> str:
    """A file that gives those settings of this command that are to be kept.

    Args:
        command: an instance.
        kept: says which.
    """
    lines, group = list[str](), ""
    for one in settings(type(command), command):
        if one.default is None or not kept(one):
            continue
        if one.group != group:
            lines += ["", f"[{one.group}]"]
            group = one.group
        line = f"{one.name} = {_toml(one.default)}"
        note = f"  # {one.text}"
        lines.append(line + note if len(line + note) <= WIDTH else line)
    return "\n".join(lines) + "\n"


def flag_words(part: object, usual: object = None) -> list[str]:
    """The flags that make a group of settings; what is usual is left out.

    Args:
        part: the group.
        usual: another one of its kind; by default, the defaults of its fields.
    """
    words = list[str]()
    defaults = {one.name: _default(one) for one in dataclasses.fields(type(part))}  # pyright: ignore[reportArgumentType]
    for one in settings(type(part), part):
        value = one.default
        if value == (defaults[one.name] if usual is None else getattr(usual, one.name)):
            continue
        if one.kind is bool:
            words.append(one.flag if value else f"--no-{one.flag[2:]}")
        else:
            words += [one.flag, *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def _toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else f"{value:+}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")

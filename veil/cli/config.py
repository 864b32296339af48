"""Settings of a command in a TOML file: the names of its flags, in tables by group if one likes."""

import json
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from veil.cli.fields import Setting, settings
from veil.cli.mistakes import Mistake, guess
from veil.cli.words import Given

FLAG = "--config"

WIDTH = 110  # of a line in a file


def apart(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The files that a command line names, and the rest of it."""
    files, rest, words = list[Path](), list[str](), list(arguments)
    while words:
        word = words.pop(0)
        if word != FLAG and not word.startswith(f"{FLAG}="):
            rest.append(word)
            continue
        value = word.partition("=")[2] or (words.pop(0) if words else "")
        if not value or value.startswith("--"):
            raise Mistake(f"{FLAG} needs a file, e.g. {FLAG} settings.toml.")
        files.append(Path(value))
    return files, rest


def read(path: Path, known: Sequence[Setting]) -> Given:
    """What a file gives each field, as words of a command line."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"{path} cannot be read ({error.strerror or error}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} is not a TOML file: {error}.") from error
    given, parts = Given(), {one.group for one in known if one.group}
    for key, value in content.items():
        if not isinstance(value, dict):
            given |= _value(path, key, value, known)
            continue
        if key not in parts:
            raise Mistake(f"{path}: there is no table [{key}] here.{_guess(key, parts)}")
        for name, inner in value.items():
            given |= _value(path, name, inner, [one for one in known if one.group == key])
    return given


def _value(path: Path, key: str, value: object, known: Sequence[Setting]) -> Given:
    """One line of a file."""
    names = {one.name: one for one in known}
    name = key.replace("-", "_")
    if name not in names:
        raise Mistake(f"{path}: there is no setting '{key}'.{_guess(name, names)}")
    setting = names[name]
    if isinstance(value, list) != setting.many:
        raise Mistake(f"{path}: {key} takes {setting.expected}; got {_toml(value)}.")
    values = value if isinstance(value, list) else [value]
    for one in values:
        if not _right(setting, one):
            raise Mistake(f"{path}: {key} takes {setting.each}; got {_toml(one)}.")
    return {name: [one if isinstance(one, str) else _toml(one) for one in values]}


def _right(setting: Setting, value: object) -> bool:
    """Whether a value is of the type of its field; a list of words may hold numbers."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if setting.choices:
        return value in setting.choices
    if setting.kind is float:
        return number
    if setting.kind is int:
        return number and isinstance(value, int)
    if setting.kind is bool:
        return isinstance(value, bool)
    return isinstance(value, str) or (setting.many and number)


def _guess(name: str, names: Collection[str]) -> str:
    return guess(name, names) or f" Choose {', '.join(sorted(names))}."


def text(command: object, kept: Callable[[Setting], bool]) -> str:
    """A file that gives those settings of this command that are to be kept."""
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

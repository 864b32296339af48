"""Help that fits a screen: what a command does, an example, and one line per flag."""

import inspect
import math
import shutil
import textwrap
from collections.abc import Mapping

from veil.cli.parser import Setting, groups, settings

WIDEST, MARGIN = 100, 30

CONFIG_TEXT = "TOML file of settings, as `name = value`; flags win over it"


def page(name: str, kind: type, given: Mapping[str, object] | None = None) -> str:
    """The help of one command.

    A command may have `usual(given)`, its defaults beside what was given, `shown(setting, given)`, which
    leaves out what does not matter then, and `program`, the words that start it.

    Args:
        name: of the command.
        kind: its dataclass.
        given: values by name that stand beside `--help`.
    """
    given = given or {}
    shown = getattr(kind, "shown", lambda setting, given: True)
    known = settings(kind, getattr(kind, "usual", lambda given: None)(given))
    known = [one for one in known if shown(one, given)]
    places = [one for one in known if one.positional]
    usage = " ".join(["usage:", program(name, kind), *(one.metavar for one in places), "[FLAGS]"])
    lines = [usage, "", *_about(inspect.getdoc(kind) or ""), ""]
    for one in places:
        lines += _entry(one.metavar, _sentence(one))
    titles = {"": "", **groups(kind)}
    for group, title in titles.items():
        own = [one for one in known if one.group == group and not one.positional]
        lines += [title] if title and own else []
        for one in own:
            lines += _entry(_left(one), _sentence(one))
        if not group and known:
            lines += [*_entry("--config FILE", CONFIG_TEXT), *_entry("--help", "Print this page")]
    return "\n".join(lines)


def program(name: str, kind: type) -> str:
    """The words that start a command, as in `veil audit`."""
    return getattr(kind, "program", f"veil {name}")


def _about(text: str) -> list[str]:
    """The docstring; paragraphs that are too wide are filled anew."""
    width, lines = _width(), list[str]()
    for paragraph in text.split("\n\n"):
        own = paragraph.splitlines()
        lines += ["", *(own if max(map(len, own)) <= width else textwrap.wrap(paragraph, width))]
    return lines[1:]


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 50)).columns)


def _left(setting: Setting) -> str:
    if setting.kind is bool:
        return f"--no-{setting.flag[2:]}" if setting.default is True else setting.flag
    return f"{setting.flag} {setting.metavar}"


def _sentence(setting: Setting) -> str:
    """The sentence, the choices that it does not name, and the default."""
    text = setting.text
    if any(choice not in text for choice in setting.choices):
        text += f": {', '.join(setting.choices)}"
    if setting.kind is bool and setting.default is True:
        return f"Do not: {text[0].lower()}{text[1:]}"
    note = _default(setting) if setting.note is None else setting.note.strip("()")
    return f"{text} ({note})" if note else text


def _default(setting: Setting) -> str:
    value = setting.default
    if setting.required:
        return "required"
    if value is None or value in ("", ()) or setting.kind is bool:
        return ""
    if isinstance(value, tuple):
        return f"default: {' '.join(map(_plain, value))}"
    return f"default: {_plain(value)}"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else "none"
    return str(value)


def _entry(left: str, text: str) -> list[str]:
    """One flag: beside its sentence if it is short, above it if it is long."""
    lines = textwrap.wrap(text, max(40, _width() - MARGIN), break_long_words=False) or [""]
    first = f"  {left:<{MARGIN - 4}}  "
    begin = [first + lines.pop(0)] if len(first) == MARGIN else [first.rstrip()]
    return [*begin, *(" " * MARGIN + line for line in lines)]

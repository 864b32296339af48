"""What cannot be done, said in one way by all commands."""

import difflib
import sys
from collections.abc import Iterable
from typing import NoReturn


class Mistake(ValueError):
    """Something on the command line that cannot be done; the text says what can."""


def complain(command: str, mistake: Exception) -> NoReturn:
    """Say what is wrong and end; without a command it is about the program itself."""
    text = str(mistake)
    if isinstance(mistake, OSError) and mistake.strerror:  # a write that fails does not know its file
        what = mistake.filename or "a file cannot be written or read"
        text = f"{what}: {mistake.strerror}."
    print(f"{f'veil {command}'.strip()}: {text}", file=sys.stderr)
    sys.exit(2)


def known(kind: str, name: str, names: Iterable[str], also: str = "") -> None:
    """Refuse a name that is not among these, with a guess at what was meant and what else could be."""
    names = list(names)
    if name not in names:
        raise Mistake(f"no {kind} '{name}'.{guess(name, names)} Choose {', '.join(names)}.{also}")


def guess(name: str, names: Iterable[str]) -> str:
    """The sentence about the name that was probably meant, after a space; empty if none is near."""
    close = difflib.get_close_matches(name, list(names), 1, 0.4)
    return f" Did you mean {close[0]}?" if close else ""

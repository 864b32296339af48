"""Recordings on the command line: the flags that say how a file is read, the same for every command."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, grid, paragraphs
from veil.cli.parser import Flag
from veil.settings import ReadSettings

if TYPE_CHECKING:
    from veil.recordings import Recording
    from veil.systems.base import System

EXAMPLES = {"columns": 'speed=v_fol "spacing=Gap [m]"', "where": "pair=3", "units": "speed=km/h"}


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns and rows of a recording are used."""

    columns: Annotated[tuple[str, ...], Flag("FIELD=COLUMN ...", default="")] = ()
    """Columns of the system's fields, where they have other names; quote names with spaces. A number
    stands for a field that has it throughout"""
    units: Annotated[tuple[str, ...], Flag("FIELD=UNIT ...", default="")] = ()
    """Units of columns, where their headers do not give them"""
    where: Annotated[tuple[str, ...], Flag("COLUMN=VALUE ...", default="")] = ()
    """Rows to use, e.g. pair=3; of several conditions all must hold"""
    each: Annotated[str, Flag("COLUMN", default="")] = ""
    """Read the rows of each value of this column as one individual"""

    def __post_init__(self) -> None:
        """Refuse what are no pairs."""
        for flag in EXAMPLES:
            pairs(flag, getattr(self, flag))


def pairs(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """From `a=b c=d`, `"a=b c=d"` or `a=b,c=d` to a dictionary; a value may hold spaces and commas."""
    found = dict[str, str]()
    for word in given:
        for pair in re.split(r"[\s,]+(?=\w+=)", word.strip().rstrip(",")):
            name, sign, value = pair.partition("=")
            if not (name.strip() and sign and value.strip()):
                raise Mistake(
                    f"--{flag} takes NAME=VALUE, got '{pair}'. For example --{flag} {EXAMPLES[flag]}."
                )
            if name in found:
                raise Mistake(f"--{flag} names '{name}' twice.")
            found[name] = value
    return found


def content(logs: "list[Recording]") -> list[tuple]:
    """All that a result depends on in recordings, for its fingerprint: names, begin, stretches, values.

    Args:
        logs: as they were read.
    """
    return [
        (log.name, f"{log.start}", log.stretches, [(name, log[name].tobytes()) for name in log.signals])
        for log in logs
    ]


def read(path: Path, system: "System", choice: ColumnChoice, settings: ReadSettings) -> "list[Recording]":
    """All recordings of a file that were asked for.

    Args:
        path: of the file.
        system: whose fields are read.
        choice: which columns and rows.
        settings: how times and numbers are written.
    """
    from veil.recordings import read_recordings

    return read_recordings(
        path,
        system,
        pairs("columns", choice.columns),
        each=choice.each or None,
        where=pairs("where", choice.where),
        units=pairs("units", choice.units),
        settings=settings,
    )


MOST_NOTES = 12  # lines about what was done; the rest is counted


def show(recordings: "list[Recording]") -> None:
    """Print what was read, before anything is computed from it."""
    from veil.recordings.recording import what_was_read

    grid(*what_was_read(recordings))
    alone = len(recordings) == 1
    notes = list(
        dict.fromkeys(
            note if alone or note in recordings[0].notes else f"{one.name}: {note}"
            for one in recordings
            for note in one.notes
        )
    )
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"And {len(notes) - MOST_NOTES} more of such notes."]
    if notes:
        paragraphs("\n".join([*notes, ""]))

"""From a CSV file to recordings of a system: which columns, which rows, and whether they make sense."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.measuring.clock import USUAL, check_clock, time_step
from veil.measuring.log import Log, LogError
from veil.measuring.needs import Needs, needs
from veil.measuring.table import Table, guess, load
from veil.systems.base import Field, System


def read(
    path: Path | str,
    system: System,
    columns: Mapping[str, str] | None = None,
    *,
    where: Mapping[str, str] | None = None,
    each: str | None = None,
    time: str | None = None,
) -> list[Log]:
    """The recordings in a file.

    Only the columns that the output and the transition of the system use are asked for; all others may be
    missing, and are used where they are there under the field's own name.

    Args:
        path: a CSV file whose first line names the columns.
        system: whose states and inputs are recorded.
        columns: column of the file by name of the field, where the names differ.
        where: rows to use, by the value of a column.
        each: column that tells several recordings apart; one log per value.
        time: column of the times; 't' or 'time' if there is one and none is named.
    """
    table, given = load(Path(path)), dict(columns or {})
    _known_fields(system, given)
    table = _selected(table, where or {})
    name = ", ".join(f"{column}={value}" for column, value in (where or {}).items()) or table.path.name
    parts = {name: table} if each is None else _parts(table, each)
    column = time or next((name for name in USUAL if name in table.header), None)
    used = needs(system)
    return [_log(name, part, system, used, given, column) for name, part in parts.items()]


def _known_fields(system: System, columns: Mapping[str, str]) -> None:
    names = [field.name for field in (*system.state_fields, *system.external_fields)]
    for name in columns:
        if name not in names:
            raise LogError(
                f"the system has no field '{name}'. {guess(name, names)}It has {', '.join(names)}."
            )


def _selected(table: Table, where: Mapping[str, str]) -> Table:
    for column, value in where.items():
        words = table.words(column, " to choose rows by")
        kept = table.chosen([_equal(word, value) for word in words])
        if not kept.rows:
            some = ", ".join(dict.fromkeys(words[:10000:97] + words[-1:]))[:60]
            raise LogError(
                f"{table.path} has no row with {column}={value}; values there are, for example, {some}."
            )
        table = kept
    return table


def _parts(table: Table, each: str) -> dict[str, Table]:
    words = table.words(each, " to tell recordings apart")
    return {
        f"{each}={value}": table.chosen([word == value for word in words]) for value in dict.fromkeys(words)
    }


def _equal(word: str, value: str) -> bool:
    """Whether two words are the same, or the same number."""
    try:
        return word.strip() == value or float(word) == float(value)
    except ValueError:
        return False


def _log(
    name: str, table: Table, system: System, used: Needs, columns: Mapping[str, str], time: str | None
) -> Log:
    """One recording, complete and within the ranges of the fields."""
    if len(table.rows) < 2:
        raise LogError(f"{name}: one row is no recording; two are the least, some hundred are usual.")
    first = system.initial(system.prior.secrets[0]).mean
    states, seen = _numbers(table, system.state_fields, used.state, columns, np.asarray(first))
    start = np.asarray(system.initial_external())
    external, _ = _numbers(table, system.external_fields, used.external, columns, start)
    if time is not None:
        check_clock(table, time, time_step(system))
    return Log(name, states, external, seen, checked=time is not None)


def _numbers(
    table: Table,
    fields: tuple[Field, ...],
    needed: tuple[bool, ...],
    columns: Mapping[str, str],
    otherwise: np.ndarray,
) -> tuple[np.ndarray, tuple[bool, ...]]:
    """The columns of these fields, and which there are; what is neither there nor needed is filled."""
    found, there = [], []
    for field, must, fill in zip(fields, needed, otherwise, strict=True):
        column = columns.get(field.name, field.name)
        there.append(must or field.name in columns or column in table.header)
        if there[-1]:
            found.append(_column(table, field, column))
        else:
            found.append(np.full(len(table.rows), float(fill)))
    return np.stack(found, axis=1), tuple(there)


def _column(table: Table, field: Field, column: str) -> np.ndarray:
    unit = f" in {field.unit}" if field.unit else ""
    hint = f" for {field.name}{unit}; name it with --columns {field.name}=COLUMN"
    values = table.numbers(column, hint)
    outside = (values < field.low) | (values > field.high)
    if np.any(outside):
        place = int(np.argmax(outside))
        raise LogError(
            f"{table.path}, line {table.lines[place]}: '{column}' is {values[place]:g}, and {field.name}"
            f"{unit} lies between {field.low:g} and {field.high:g}. Is the unit right?"
        )
    return values

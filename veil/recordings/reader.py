"""Read recordings: which columns, which rows, which clock, in which units, and whether they make sense.

Read `read_recordings` first. A table of any source is cut into one part per individual; of each part the
times and the columns become numbers, and gaps cut the rows into stretches. Nothing is filled, resampled or
guessed: what is unclear is asked for, and what was done is told in the notes of the recording.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from veil.recordings.recording import Recording, Signal, Stretch, counted, estimated_resolution, fitted
from veil.recordings.requirements import needs
from veil.recordings.tables import (
    FEW_LINES,
    NUMBER,
    RecordingError,
    Source,
    Table,
    decimal_mark,
    equal,
    is_missing,
    load,
    numbers,
    quoted,
)
from veil.recordings.times import Times, read_times, time_column
from veil.recordings.units import split_header
from veil.settings import ReadSettings
from veil.systems.base import Field, System, series_of
from veil.systems.series import later

GAP = 1.5  # steps: what is longer is a gap, what is shorter is a sample out of time

FEW_ODD = 2  # steps out of time that are always taken for the begin of a stretch

MOST_ODD = 0.02  # fraction of steps that may be out of time; with more the sampling is irregular

FAR_OFF = 5.0  # spans of the other values: a number of nines that is further off marks a missing value

LEAST = 0.5  # fraction of the rows that must be left after gaps


def read_recording(
    source: Source,
    system: System | None = None,
    columns: Mapping[str, str | int] | None = None,
    *,
    where: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    settings: ReadSettings | None = None,
) -> Recording:
    """One recording from a file, a frame or arrays.

    With a system, its fields are looked up, converted into their units and checked against their ranges. Only
    the columns that its output and its transition use are asked for; all others may be missing. Without a
    system, `columns` names what is read; all columns of numbers if it is None.

    Args:
        source: path of a CSV or Parquet file; frame of pandas, polars or Arrow; dict of columns; numpy array.
        system: whose states and inputs are recorded.
        columns: column of the source by name of the field, where the names differ; or a number that the
            field has throughout.
        where: rows to use, by the value of a column.
        units: unit of a column by name of the field, where its header does not say it or is wrong.
        settings: how times and numbers are written.
    """
    (found,) = read_recordings(source, system, columns, where=where, units=units, settings=settings)
    return found


def read_recordings(
    source: Source,
    system: System | None = None,
    columns: Mapping[str, str | int] | None = None,
    *,
    each: str | None = None,
    where: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    settings: ReadSettings | None = None,
) -> list[Recording]:
    """All recordings of a source: one, or one per individual.

    Args:
        source: path of a CSV or Parquet file; frame of pandas, polars or Arrow; dict of columns; numpy array.
        system: whose states and inputs are recorded.
        columns: column of the source by name of the field, where the names differ; or a number that the
            field has throughout.
        each: column that tells individuals apart; one recording per value.
        where: rows to use, by the value of a column.
        units: unit of a column by name of the field, where its header does not say it or is wrong.
        settings: how times and numbers are written.
    """
    settings = settings or ReadSettings()
    named = {name: str(column) for name, column in (columns or {}).items()}
    table, named = _with_constants(load(source), named)
    fields = _fields(system)
    for name in (*named, *(units or {})):
        if fields and name not in fields:
            raise RecordingError(
                f"the system has no field '{name}'.{quoted(name, fields)} It has {', '.join(fields)}."
            )
    table = _selected(table, where or {})
    given = ", ".join(f"{column}={value}" for column, value in (where or {}).items())
    parts = {given or _short_name(table): table} if each is None else _parts(table, each)
    wanted = _wanted(table, system, named, settings)
    for want in wanted:
        if want.name in (units or {}):
            want.given = (units or {})[want.name]
    found, short = list[Recording](), list[str]()
    for name, part in parts.items():
        try:
            found.append(_recording(name, part, wanted, system, settings, each is None))
        except TooShort:
            if each is None or len(parts) == 1:
                raise
            short.append(name)
    if not found:
        raise RecordingError(f"{table.name}: no individual has two rows that follow each other.")
    if short:
        more = f" and {len(short) - FEW_LINES} more" if len(short) > FEW_LINES else ""
        listed = ", ".join(short[:FEW_LINES]) + more
        left = f"{counted(len(short), 'individual')} with too few rows {_were(short)} left out ({listed})."
        found[0] = replace(found[0], notes=(*found[0].notes, left))
    return found


def _with_constants(table: Table, columns: Mapping[str, str]) -> tuple[Table, dict[str, str]]:
    """A column for each field that is said to be a number throughout; a column of that name comes first."""
    found = dict(columns)
    for name, column in columns.items():
        if NUMBER.fullmatch(column) and table.look_for(column) is None:
            found[name] = f"the number {column}"
            if found[name] not in table.header:
                header, cells = (*table.header, found[name]), (*table.columns, [float(column)] * table.rows)
                table = replace(table, header=header, columns=cells)
    return table, found


def _short_name(table: Table) -> str:
    return table.name.replace("\\", "/").rpartition("/")[2]


# Which columns


class TooShort(RecordingError):
    """There are no two rows that follow each other."""


@dataclass
class _Want:
    """A column that is wanted.

    Attributes:
        name: what it is to be called.
        header: that it has in the table.
        field: of the system; None where there is none.
        must: whether rows without its value are of no use.
        given: unit that the user stated; None where nothing was.
    """

    name: str
    header: str
    field: Field | None
    must: bool
    given: str | None = None


def _fields(system: System | None) -> dict[str, Field]:
    """The fields that a recording may have: of the state, of all inputs, and of what else is shared."""
    if system is None:
        return {}
    found = dict[str, Field]()
    inputs = (*system.external_fields, *system.exogenous_fields)
    for one in (*system.state_fields, *inputs, *system.shared_fields):
        found.setdefault(one.name, one)
    return found


def _wanted(
    table: Table, system: System | None, columns: Mapping[str, str], settings: ReadSettings
) -> list[_Want]:
    if system is None:
        if columns:
            return [
                _Want(name, table.find(column, f" for {name}"), None, True)
                for name, column in columns.items()
            ]
        time = time_column(table, settings, ())
        free = [
            header for header in table.header if header != time and header.strip() and _begins(table, header)
        ]
        names = [split_header(header)[0] for header in free]
        if not free:
            raise RecordingError(f"{table.name} has no column of numbers.")
        return [
            _Want(name if names.count(name) == 1 else header, header, None, True)
            for name, header in zip(names, free, strict=True)
        ]
    used = needs(system)
    must = {
        **{one.name: flag for one, flag in zip(system.external_fields, used.external, strict=False)},
        **{one.name: flag for one, flag in zip(system.state_fields, used.state, strict=True)},
    }
    found = list[_Want]()
    fields = _fields(system)
    lost = [name for name in fields if must.get(name) and name not in columns and not table.look_for(name)]
    for name, one in fields.items():
        unit = f" in {one.unit}" if one.unit else ""
        more = [other for other in lost if other != name]
        others = f", nor for {', '.join(more)}" if more else ""
        example = " ".join(f"{other}=COLUMN" for other in ([name] if name not in lost else lost))
        asked = f" for {name}{unit}{others if name in lost else ''}; name it with --columns {example}"
        needed = must.get(name, False)
        must_be = needed or name in columns
        header = table.find(columns.get(name, name), asked) if must_be else table.look_for(name)
        if header is not None:
            found.append(_Want(name, header, one, must_be))
    return found


def _begins(table: Table, header: str) -> bool:
    """Whether the first value of a column is a number."""
    first = next((cell for cell in table.cells(header) if not is_missing(cell, frozenset())), None)
    if isinstance(first, str):
        return bool(NUMBER.fullmatch(first.strip().replace(",", ".")))
    return isinstance(first, int | float | np.number)


def _selected(table: Table, where: Mapping[str, str]) -> Table:
    for column, value in where.items():
        cells = table.cells(table.find(column, " to choose rows by"))
        rows = [row for row, cell in enumerate(cells) if cell is not None and equal(str(cell), str(value))]
        if not rows:
            words = [str(cell) for cell in cells]
            some = ", ".join(dict.fromkeys(words[:10000:97] + words[-1:]))[:60]
            raise RecordingError(
                f"{table.name} has no row with {column}={value}; values there are, for example, {some}."
            )
        table = table.chosen(rows)
    return table


def _parts(table: Table, each: str) -> dict[str, Table]:
    header = table.find(each, " to tell individuals apart")
    rows = dict[str, list[int]]()
    for row, cell in enumerate(table.cells(header)):
        if is_missing(cell, frozenset()):
            raise RecordingError(
                f"{table.at(row)}: '{header}' is empty, so that it is not known whose row this is."
            )
        rows.setdefault(str(cell).strip(), []).append(row)
    return {f"{each}={value}": table.chosen(own) for value, own in rows.items()}


# One recording


def _recording(
    name: str,
    table: Table,
    wanted: Sequence[_Want],
    system: System | None,
    settings: ReadSettings,
    alone: bool,
) -> Recording:
    where = "" if alone else f"{name}: "
    if table.rows < 2:
        raise TooShort(
            f"{where or table.name + ': '}one row is no recording; two are the least, some hundred are usual."
        )
    notes = list(table.notes)
    header = time_column(table, settings, [want.header for want in wanted])
    seconds = time_step(system)
    times = None if header is None else read_times(table, header, settings, seconds)
    if times is None:
        notes.append("There is no column of times (--time): the rows are taken for successive steps.")
    values = _values(table, wanted, settings, notes)
    wanted = [want for want in wanted if want.header in values]
    rows = np.arange(table.rows)
    if times is not None and header is not None:
        notes += times.notes
        rows = _in_order(table, header, times, settings, notes)
        rows = _once(table, header, times, rows, values, notes)
    own = None if times is None else _usual(times.seconds[rows])
    if times is not None and header is not None and own is not None:
        _check_regular(table, times, rows, own, settings)
        _check_step(table, header, times, own, seconds, settings)
    rows = _complete(table, rows, values, wanted, notes)
    fits = own is not None and seconds is not None and abs(own - seconds) <= settings.time_tolerance * seconds
    own = seconds if fits else own
    stretches = _stretches(table, times, rows, own, settings, notes, where)
    kept = np.concatenate([rows[start:stop] for start, stop in stretches])
    bounds = np.cumsum([0, *(stop - start for start, stop in stretches)]).tolist()
    moved = None if times is None else times.seconds[kept] - times.seconds[kept[0]]
    start = _started(times, kept)
    notes += _borrowed(system, [want.name for want in wanted], start)
    signals = {
        want.name: _signal(table, want, values[want.header][kept], lambda row: table.at(kept[row]))
        for want in wanted
    }
    return Recording(
        *(name, table.name, signals, moved, times is not None and times.known),
        start=start,
        step=own,
        time_header=(header or "").strip(),
        time_text="" if times is None else times.text,
        stretches=tuple(pairwise(bounds)),
        lines=table.lines[kept],
        counted=table.counted,
        notes=tuple(notes),
    )


def _borrowed(system: System | None, recorded: Sequence[str], at: datetime | None) -> list[str]:
    """Says which series are taken from the system, because the recording has none, and from which row on."""
    if system is None or not system.exogenous_fields:
        return []
    first = len(system.external_fields)
    matters = needs(system).external[first : first + len(system.exogenous_fields)]
    lost = [
        field.name
        for field, flag in zip(system.exogenous_fields, matters, strict=True)
        if flag and field.name not in recorded
    ]
    if not lost:
        return []
    series = series_of(system)
    start, begins = (0, None) if series is None else (series.start, series.begins)
    if series is not None and begins is not None and at is not None:
        which = f"by date and time; they run from {series.span}"
    else:
        whose = "the series have no dates" if begins is None else "the recording has no dates"
        which = f"from their row {start} on: {whose}, so that both are taken to begin together"
    return [
        f"Not recorded: {', '.join(lost)}. The series of the system are taken instead, {which}. Name the "
        f"columns with --columns {lost[0]}=COLUMN if there are some."
    ]


def _started(times: Times | None, kept: np.ndarray) -> datetime | None:
    """The wall clock at the first row that is kept."""
    if times is None or times.start is None:
        return None
    return later(times.start, float(times.seconds[kept[0]]))


def time_step(system: System | None) -> float | None:
    """The length of a step in seconds, if the system says so."""
    return None if system is None or system.step_seconds is None else float(system.step_seconds)


def _values(
    table: Table, wanted: Sequence[_Want], settings: ReadSettings, notes: list[str]
) -> dict[str, np.ndarray]:
    """The numbers of every wanted column by header; what need not be complete and is not is left out."""
    marks = frozenset(word.strip().lower() for word in settings.missing)
    words = [
        cell.strip()
        for header in dict.fromkeys(want.header for want in wanted)
        for cell in table.cells(header)
        if isinstance(cell, str) and not is_missing(cell, marks)
    ]
    decimal = decimal_mark(words, settings.decimal, table.name)
    if decimal == "," and not settings.decimal:
        notes.append("Numbers are written with decimal commas.")
    found = dict[str, np.ndarray]()
    for want in wanted:
        column = numbers(table, want.header, decimal, marks)
        if not settings.missing:
            _ask_mark(table, want.header, column)
        if want.must or np.all(np.isfinite(column)):
            found[want.header] = column
        else:
            notes.append(f"'{want.header}' has missing values and is not needed; it was left out.")
    return found


def _ask_mark(table: Table, header: str, column: np.ndarray) -> None:
    """Refuse a number such as -999 that is far off all others, and marks a missing value in many files."""
    there = column[np.isfinite(column)]
    for value in np.unique(there[np.abs(there) >= 99.0]):
        if set(f"{abs(value):g}".replace(".", "")) != {"9"}:
            continue
        others = there[there != value]
        if len(others) >= 2 and np.min(np.abs(others - value)) > FAR_OFF * max(float(np.ptp(others)), 1e-9):
            row = int(np.argmax(column == value))
            raise RecordingError(
                f"{table.at(row)}: '{header.strip()}' is {value:g}, far off all other values. Say --missing "
                f"{value:g} if it marks a missing value, or --missing nan if it is a value."
            )


def _in_order(
    table: Table, header: str, times: Times, settings: ReadSettings, notes: list[str]
) -> np.ndarray:
    """The rows that have a time, in the order of time."""
    rows = np.flatnonzero(np.isfinite(times.seconds))
    lost = np.flatnonzero(~np.isfinite(times.seconds))
    if len(lost):
        notes.append(
            f"{counted(len(lost), 'row')} without a time {_were(lost)} left out ({table.places(lost)})."
        )
    apart = np.diff(times.seconds[rows])
    if len(apart) and np.all(apart <= 0) and np.any(apart < 0):
        notes.append("The newest row comes first; the order was turned around.")
        return rows[::-1]
    if not np.any(apart < 0):
        return rows
    if settings.sort:
        notes.append("The rows were put in the order of their times.")
        return rows[np.argsort(times.seconds[rows], kind="stable")]
    place = int(np.argmax(apart < 0))
    before, after = int(rows[place]), int(rows[place + 1])
    raise RecordingError(f"{table.at(after)}: the time '{header}' goes back.{_several(table, before, after)}")


def _once(
    table: Table,
    header: str,
    times: Times,
    rows: np.ndarray,
    values: Mapping[str, np.ndarray],
    notes: list[str],
) -> np.ndarray:
    """Each time once: rows that repeat the one before are left out, and contradictions refused."""
    same = np.flatnonzero(np.diff(times.seconds[rows]) == 0) + 1
    for place in same:
        before, after = int(rows[place - 1]), int(rows[place])
        equals = all(np.array_equal(one[before], one[after], equal_nan=True) for one in values.values())
        if not equals or _telling(table, before, after):
            raise RecordingError(
                f"{table.at(after)}: the time '{header}' is that of {table.counted} {table.lines[before]}, "
                f"and other values differ; correct one of them.{_several(table, before, after, '')}"
            )
    if len(same):
        lines = table.places(rows[same])
        notes.append(
            f"{counted(len(same), 'row')} repeat{'s' * (len(same) == 1)} the one before and {_were(same)} "
            f"left out ({lines})."
        )
    return np.delete(rows, same)


def _usual(seconds: np.ndarray) -> float:
    """The usual distance of two rows."""
    apart = np.diff(seconds)
    return float(np.median(apart)) if len(apart) else math.nan


def _off(apart: np.ndarray, usual: float, seconds: np.ndarray, settings: ReadSettings) -> np.ndarray:
    """Which distances are not the usual one, within the tolerance and the round-off of large times."""
    allowed = settings.time_tolerance * usual + 4 * np.finfo(float).eps * float(
        np.abs(seconds).max(initial=0.0)
    )
    return np.abs(apart - usual) > allowed


def _check_regular(table: Table, times: Times, rows: np.ndarray, own: float, settings: ReadSettings) -> None:
    """Refuse rows that are neither a step apart nor parted by a gap, unless they are few."""
    seconds = times.seconds[rows]
    apart = np.diff(seconds)
    odd = np.flatnonzero(_off(apart, own, seconds, settings) & (apart < GAP * own))
    if len(odd) <= max(FEW_ODD, MOST_ODD * len(apart)):
        return
    place, unit = int(odd[0]), " s" if times.known else ""
    raise RecordingError(
        f"{table.at(rows[place + 1])}: the times are irregular: {len(odd)} of {len(apart)} steps differ by "
        f"more than {settings.time_tolerance:.0%} from the usual {own:g}{unit}, this one is "
        f"{apart[place]:g}{unit}. Resample the recording, or allow for more with --time-tolerance."
    )


def _check_step(
    table: Table, header: str, times: Times, own: float, step: float | None, settings: ReadSettings
) -> None:
    """Refuse rows that are not the system's step apart."""
    if step is None or not times.known or not math.isfinite(own):
        return
    if abs(own - step) <= settings.time_tolerance * step:
        return
    ratio = step / own
    if ratio > 1.5 and abs(ratio - round(ratio)) <= settings.time_tolerance * ratio:
        advice = f"Keep one row in {round(ratio)}."
    else:
        advice = "Resample the recording to that step, or use a system with the step of the recording."
    unit = " The times are taken for seconds; else give --time-unit." if "unless" in times.text else ""
    raise RecordingError(
        f"{table.name} has a step of {own:g} s in '{header}', and the system's is {step:g} s. {advice}{unit}"
    )


def _complete(
    table: Table,
    rows: np.ndarray,
    values: Mapping[str, np.ndarray],
    wanted: Sequence[_Want],
    notes: list[str],
) -> np.ndarray:
    """The rows that have all values."""
    missing = np.zeros(len(rows), bool)
    columns = list[str]()
    for want in wanted:
        lost = ~np.isfinite(values[want.header][rows])
        if np.any(lost):
            columns.append(f"'{want.header.strip()}'")
        missing |= lost
    if np.all(missing):
        raise RecordingError(
            f"{table.name} has no row with all values; missing are some of {', '.join(columns)}."
        )
    if np.any(missing):
        lost = rows[missing]
        listed = ", ".join(dict.fromkeys(columns))
        notes.append(
            f"{counted(len(lost), 'row')} without a value of {listed} {_were(lost)} left out "
            f"({table.places(lost)})."
        )
    return rows[~missing]


def _stretches(
    table: Table,
    times: Times | None,
    rows: np.ndarray,
    own: float | None,
    settings: ReadSettings,
    notes: list[str],
    where: str,
) -> list[Stretch]:
    """Places in `rows` of the stretches of at least two rows that are one step apart."""
    if times is None or own is None:
        cut = (np.diff(rows) != 1) | (np.diff(table.parts[rows]) != 0)
    else:
        cut = _off(np.diff(times.seconds[rows]), own, times.seconds[rows], settings)
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(rows)]
    every = [(start, stop) for start, stop in pairwise(edges) if stop > start]
    found = [(start, stop) for start, stop in every if stop - start >= 2]
    single = [int(rows[start]) for start, stop in every if stop - start == 1]
    if not found or len(single) > LEAST * len(rows):
        raise TooShort(
            f"{where or table.name + ': '}{len(single)} of {len(rows)} rows stand alone between gaps; a "
            "recording needs rows that follow each other, some hundred are usual."
        )
    if single:
        notes.append(
            f"{counted(len(single), 'row')} between two gaps {_were(single)} left out "
            f"({table.places(single)})."
        )
    if len(found) > 1:
        begins = [int(rows[start]) for start, _ in found[1:]]
        notes.append(
            f"Gaps cut the recording into {len(found)} stretches; new ones begin at {table.places(begins)}."
        )
    return found


def _were(rows: Sequence[object] | np.ndarray) -> str:
    return "was" if len(rows) == 1 else "were"


def _telling(table: Table, before: int, after: int) -> list[str]:
    """Columns that differ between two rows and have few values: they may tell individuals apart."""
    return [
        header
        for header, cells in zip(table.header, table.columns, strict=True)
        if cells[before] != cells[after]
        and isinstance(cells[after], str | int)
        and len(set(map(str, cells))) <= max(1, table.rows // 4)
    ]


SORT = " If all rows are one recording in disorder, put them in order with --sort."


def _several(table: Table, before: int, after: int, otherwise: str = SORT) -> str:
    """A guess at which column tells individuals apart, if the source holds several."""
    changed = _telling(table, before, after)
    if not changed:
        return otherwise
    value = table.cells(changed[0])[after]
    return (
        f" If the source holds several individuals, choose one with --where {changed[0]}={value} or read all "
        f"with --each {changed[0]}."
    )


def _signal(table: Table, want: _Want, values: np.ndarray, at: Callable[[SupportsIndex], str]) -> Signal:
    given = table.unit(want.header) if want.given is None else want.given
    raw = Signal(want.name, want.header.strip(), given, given, values, estimated_resolution(values))
    if len(values) and np.ptp(values) == 0:
        raw = replace(raw, remarks=(*raw.remarks, "constant"))
    if any(
        isinstance(cell, bool) or str(cell).strip().lower() in ("true", "false")
        for cell in table.cells(want.header)[:1]
    ):
        raw = replace(raw, remarks=(*raw.remarks, "true is 1, false is 0"))
    return raw if want.field is None else fitted(raw, want.field, at, table.name)

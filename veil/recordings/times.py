"""The times of a recording: wall clocks with and without zones, or numbers in a unit; never guessed."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from veil.recordings.tables import (
    NUMBER,
    RecordingError,
    Table,
    decimal_mark,
    is_missing,
    numbers,
    plain,
)
from veil.recordings.units import ending, seconds, split_header
from veil.settings import ReadSettings

USUAL = ("t", "time", "timestamp", "time_stamp", "datetime", "date_time", "date")
"""Columns of these names, in any spelling and with any unit, are taken for the time if none is named."""

NO_TIME = "none"  # what to say where a column of such a name is no time

UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

HOUR = 3600.0

NIGHT = (22, 23, 0, 1, 2, 3, 4, 5)  # hours in which clocks are put forward or back, in any zone since 2010

SEASON = (2, 3, 4, 5, 8, 9, 10, 11)  # months in which 99.4 % of these changes are

DATE = re.compile(  # 21.10.2025 00:00, 10/21/2025 1:00 AM, 21-Oct-2025, 2025/10/21, or a time of day alone
    r"(\d{1,2}[./-] ?(\d{1,2}|\w{3,9})[./-]? ?\d{2,4}|\d{4}[./-]\d{1,2}[./-]\d{1,2})"
    r"([ ,T]+\d{1,2}[:.h]\d{2}\b.*)?|\d{1,2}:\d{2}(:\d{2})?"
)

YEARS = (1000, 9000)  # of times; what lies outside is a mistake

_NONE = timedelta()

FAR = 1.0  # days: times that are further ahead of now lie in the future


@dataclass(frozen=True)
class Times:
    """The times of all rows.

    Attributes:
        seconds: since an origin; NaN where a row has none. Numbers whose unit is not known stay as they are.
        known: whether they are in seconds.
        start: the wall clock at the origin, with its zone where one is known; None for numbers.
        text: what was understood, in a few words.
        notes: what people should know about them.
    """

    seconds: np.ndarray
    known: bool
    start: datetime | None
    text: str
    notes: tuple[str, ...] = ()


def time_column(table: Table, settings: ReadSettings, taken: Sequence[str]) -> str | None:
    """The header of the column of times: the one that was named, or the only one that can be it.

    Args:
        table: that is read.
        settings: may name it.
        taken: columns that stand for something else.
    """
    if settings.time:
        if settings.time == NO_TIME and NO_TIME not in table.header:
            return None
        return table.find(settings.time, " for the time")
    free = [name for name in table.header if name not in taken]
    found = [name for name in free if plain(split_header(name)[0]) in USUAL]
    for shows in (_shows_times, _looks_like_times):
        found = found or [name for name in free if shows(table.cells(name))]
    if len(found) > 1:
        named = ", ".join(f"'{name}'" for name in found)
        raise RecordingError(
            f"{table.name} has several columns that may be the time: {named}. Name one with --time; where "
            "date and time of day stand apart, put them into one column."
        )
    return found[0] if found else None


def _shows_times(cells: Sequence[Any]) -> bool:
    """Whether a column begins with a date, as an object or in ISO form."""
    first = _first(cells)
    if isinstance(first, str) and not NUMBER.fullmatch(first):
        return _iso(first) is not None
    return isinstance(first, date)


def _looks_like_times(cells: Sequence[Any]) -> bool:
    """Whether it begins with a date of another form or a time of day; how it is written is then asked."""
    first = _first(cells)
    return isinstance(first, str) and bool(DATE.fullmatch(first.strip()))


def _first(cells: Sequence[Any]) -> Any:
    return next((cell for cell in cells if not is_missing(cell, frozenset())), None)


def read_times(table: Table, header: str, settings: ReadSettings, step: float | None) -> Times:
    """The times of one recording.

    Args:
        table: its rows.
        header: of the column of times.
        settings: what the user said about times.
        step: length of the system's step, seconds; None where it has none.
    """
    marks = frozenset(word.lower() for word in settings.missing)
    cells = [None if is_missing(cell, marks) else cell for cell in table.cells(header)]
    there = [row for row, cell in enumerate(cells) if cell is not None]
    if not there:
        raise RecordingError(f"{table.name}: the time '{header}' is empty; name another column with --time.")
    first = cells[there[0]]
    if isinstance(first, timedelta):
        values = _each(table, header, cells, there, _duration, "a duration")
        return Times(values, True, None, "durations")
    words = isinstance(first, str)
    if not words and not isinstance(first, date | int | float | Decimal | np.number):
        raise RecordingError(
            f"{table.at(there[0])}: the time '{header}' is a {type(first).__name__}, '{first}'; give dates "
            "with their time of day, or numbers."
        )
    if isinstance(first, date) or (words and (settings.time_format or not _numeric(first))):
        return _wall(table, header, cells, there, settings)
    return _numbered(table, header, cells, settings, step)


def _numeric(word: str) -> bool:
    return bool(NUMBER.fullmatch(word.strip().replace(",", ".").replace("−", "-")))


def _each(
    table: Table,
    header: str,
    cells: Sequence[Any],
    there: Sequence[int],
    read: Callable[[Any], Any],
    wanted: str,
) -> Any:
    """Read the cells of these rows one by one; the first that cannot be read is an error."""
    found = list[Any]([math.nan] * len(cells))
    for row in there:
        value = read(cells[row])
        if value is None:
            raise RecordingError(f"{table.at(row)}: the time '{header}' is '{cells[row]}', not {wanted}.")
        found[row] = value
    return np.array(found) if isinstance(found[there[0]], float) else found


def _duration(cell: Any) -> float | None:
    return cell.total_seconds() if isinstance(cell, timedelta) else None


# Numbers


def _numbered(
    table: Table, header: str, cells: Sequence[Any], settings: ReadSettings, step: float | None
) -> Times:
    marks = frozenset(word.lower() for word in settings.missing)
    words = [cell for cell in cells if isinstance(cell, str)]
    values = numbers(table, header, decimal_mark(words, settings.decimal, table.name), marks, limit=math.inf)
    name, unit = split_header(header)
    unit = unit or table.unit(header)
    if not unit and seconds(ending(name)) is not None:
        unit = ending(name)
    if not unit and seconds(plain(name)) is not None and plain(name) != "t":
        unit = plain(name)
    size = UNITS[settings.time_unit] if settings.time_unit else seconds(unit)
    said = settings.time_unit or unit
    if size is not None:
        return Times(values * size, True, None, f"in {said}")
    if _like_dates(values):
        raise RecordingError(
            f"{table.name}: the numbers of '{header}' look like dates, e.g. {values[0]:.0f}. Say how they "
            "are written, e.g. --time-format %Y%m%d, or --time-unit if they are plain numbers."
        )
    if step is None:
        return Times(values, False, None, "numbers without a unit")
    apart = np.abs(np.diff(values[np.isfinite(values)]))
    own = float(np.median(apart[apart > 0])) if np.any(apart > 0) else math.nan
    if abs(own - step) <= settings.time_tolerance * step:
        return Times(values, True, None, "in s, as only these agree with the step of the system")
    fitting = [name for name, one in UNITS.items() if abs(own * one - step) <= settings.time_tolerance * step]
    if fitting:
        raise RecordingError(
            f"{table.name} has steps of {own:g} in '{header}', whose header gives no unit, and the step of "
            f"the system is {step:g} s. If the times are in {fitting[0]}, say --time-unit {fitting[0]}."
        )
    return Times(values, True, None, "in s unless --time-unit says otherwise")


def _like_dates(values: np.ndarray) -> bool:
    """Whether all numbers could be YYYYMMDD, with a time of day behind it or not."""
    whole = values[np.isfinite(values)]
    if not len(whole) or np.any(whole != np.floor(whole)) or np.any(whole < 1e7):
        return False
    for digits in (8, 10, 12, 14):
        if all(len(f"{value:.0f}") == digits for value in whole):
            return all(_dated(f"{value:.0f}") for value in whole)
    return False


def _dated(digits: str) -> bool:
    try:
        return 1900 <= datetime.strptime(digits[:8], "%Y%m%d").year <= 2100
    except ValueError:
        return False


# Wall clocks


def _iso(word: str) -> datetime | None:
    text = word.strip()
    for zone in (" UTC", " GMT"):
        text = text.removesuffix(zone) + "+00:00" if text.endswith(zone) else text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _wall(
    table: Table, header: str, cells: Sequence[Any], there: Sequence[int], settings: ReadSettings
) -> Times:
    def read(cell: Any) -> datetime | None:
        if isinstance(cell, datetime):
            return cell
        if isinstance(cell, date):
            return datetime.combine(cell, time())
        if not isinstance(cell, str):
            return None
        if not settings.time_format:
            return _iso(cell)
        try:
            return datetime.strptime(cell.strip(), settings.time_format)
        except ValueError:
            return None

    wanted = (
        f"a time as --time-format {settings.time_format} says"
        if settings.time_format
        else "an ISO time as 2024-01-31 14:00; say how it is written, e.g. --time-format '%d.%m.%Y %H:%M'"
    )
    stamps = _each(table, header, cells, there, read, wanted)
    for row in there:
        if not YEARS[0] <= stamps[row].year <= YEARS[1]:
            raise RecordingError(
                f"{table.at(row)}: the time '{header}' is '{cells[row]}', in no year of a recording."
            )
    zoned = [stamps[row].tzinfo is not None for row in there]
    if any(zoned) and not all(zoned):
        row = there[zoned.index(not zoned[0])]
        raise RecordingError(
            f"{table.at(row)}: the time '{header}' is '{cells[row]}', {'without' if zoned[0] else 'with'} a "
            "zone, where others are not; write all alike."
        )
    notes = list[str]()
    if all(zoned):
        text = "with their zones"
        exact = [stamps[row] for row in there]
        if len({stamp.utcoffset() for stamp in exact}) > 1:
            text = "with their zones; shown in that of the first row"
        if settings.time_zone:
            notes.append("The times have their own zones, so that --time-zone was not needed.")
    elif settings.time_zone:
        text = f"in {settings.time_zone}"
        exact = _localised(table, header, [stamps[row] for row in there], there, settings)
    else:
        text = "by a clock without a zone, which does not jump here"
        walls = [stamps[row] for row in there]
        _ask_zone(table, header, cells, walls, there, settings)
        exact = [wall.replace(tzinfo=UTC) for wall in walls]
    first = exact[0] if settings.time_zone else stamps[there[0]]
    exact = [stamp.astimezone(UTC) for stamp in exact]  # differences within one zone are those of its clock
    origin = exact[0]
    found = np.full(len(cells), math.nan)
    found[there] = [(stamp - origin) / timedelta(seconds=1) for stamp in exact]
    last = max(exact)
    if last > datetime.now(UTC) + timedelta(days=FAR):
        notes.append(f"The times end in the future, in {last.year}.")
    return Times(found, True, first, text, tuple(notes))


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise RecordingError(
            f"there is no time zone '{name}' here; name one as Europe/Berlin, or UTC."
        ) from None


def _localised(
    table: Table, header: str, walls: Sequence[datetime], rows: Sequence[int], settings: ReadSettings
) -> list[datetime]:
    """The moments that the clocks of a zone showed; of an hour that is shown twice, the order tells."""
    zone, name = _zone(settings.time_zone), settings.time_zone
    moments = [[wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1)] for wall in walls]
    shifts = [(second.utcoffset() or _NONE) - (first.utcoffset() or _NONE) for first, second in moments]
    for place, shift in enumerate(shifts):
        if shift > _NONE:
            raise RecordingError(
                f"{table.at(rows[place])}: {walls[place]} does not exist in {name}, where the clock is put "
                "forward then. Name the zone that the clock shows, e.g. --time-zone UTC."
            )
    folds = [0] * len(walls)
    turned = walls[-1] < walls[0]  # the newest first
    order = list(range(len(walls)))[:: -1 if turned else 1]
    night = list[int]()  # rows of one hour that the clock showed twice, in the order of time
    for place, following in zip(order, [*order[1:], None], strict=True):
        if shifts[place] == _NONE:
            continue
        night.append(place)
        near = following is not None and abs(walls[following] - walls[place]) < timedelta(hours=3)
        if following is not None and shifts[following] < _NONE and near:
            continue
        back = [row for row, before in zip(night[1:], night, strict=False) if walls[row] <= walls[before]]
        if len(back) != 1:
            raise RecordingError(
                f"{table.at(rows[night[0]])}: '{header}' is {walls[night[0]]}, which occurs twice in {name}, "
                "where the clock is put back then, and the rows do not tell which one it is. Give times "
                "with their offset, as 2024-10-27 02:30+01:00."
            )
        for row in night[night.index(back[0]) :]:
            folds[row] = 1
        night = []
    return [both[fold] for both, fold in zip(moments, folds, strict=True)]


def _ask_zone(
    table: Table,
    header: str,
    cells: Sequence[Any],
    walls: Sequence[datetime],
    rows: Sequence[int],
    settings: ReadSettings,
) -> None:
    """Refuse a clock without zone that jumps by an hour at night, as clocks do twice a year."""
    seconds_of = np.array([(wall - walls[0]) / timedelta(seconds=1) for wall in walls])
    apart = np.diff(seconds_of)
    if len(apart) and np.median(apart) < 0:
        apart = -apart
    forward = apart[apart > 0]
    if not len(forward):
        return
    usual = float(np.median(forward))
    slack = settings.time_tolerance * usual
    for place, size in enumerate(apart):
        before, after = sorted((walls[place], walls[place + 1]))
        changed = abs(abs(size - usual) - HOUR) <= slack
        if changed and before.month in SEASON and (before.hour in NIGHT or after.hour in NIGHT):
            raise RecordingError(
                f"{table.at(rows[place + 1])}: '{header}' goes from {cells[rows[place]]} to "
                f"{cells[rows[place + 1]]} in one step, which may be daylight saving. Name the zone that the "
                "clock shows, e.g. --time-zone Europe/Berlin, or --time-zone UTC if it is never put forward "
                "or back."
            )

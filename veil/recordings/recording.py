"""Recordings: named columns over time with units, cut into stretches without gaps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import SupportsIndex

import numpy as np
from jaxtyping import Float

from veil.recordings.tables import RecordingError
from veil.recordings.units import conversion, ending, split_header, units
from veil.results.text import Table, text_table
from veil.systems.base import Field
from veil.systems.series import Series, later

Stretch = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Signal:
    """One column of a recording.

    Attributes:
        name: of the field, or what the reader was told to call it.
        header: as it stands in the source.
        unit: of the values; empty where nobody said it.
        given: unit in the source; empty where it gives none.
        values: one per row.
        step: that the values are multiples of, by their digits; 0 where they look continuous.
        remarks: what people should know about it.
    """

    name: str
    header: str
    unit: str
    given: str
    values: Float[np.ndarray, " T"]
    step: float
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """Named columns over time, cut into stretches without gaps. `print(recording)` shows what was read.

    Attributes:
        name: what it is called in tables.
        source: where it comes from.
        signals: the columns, by name.
        times: of the rows since the first one, seconds; None without a column of times.
        clock: whether the times are in seconds; else they are numbers of an unknown unit.
        start: wall clock at the first row, with its zone where one is known; None for numbers.
        step: usual distance of two rows, in the unit of the times; None without times.
        time_header: of the column of times; empty without one.
        time_text: how the times were understood.
        stretches: first row and row behind the last one of each stretch; rows in one are a step apart.
        lines: number of each row in its source.
        counted: what these count, "line" from 1 or "row" from 0.
        notes: what was left out, put in order or understood, in sentences.
    """

    name: str
    source: str
    signals: Mapping[str, Signal]
    times: Float[np.ndarray, " T"] | None
    clock: bool
    start: datetime | None
    step: float | None
    time_header: str
    time_text: str
    stretches: tuple[Stretch, ...]
    lines: np.ndarray
    counted: str
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows there are, over all stretches."""
        return len(self.lines)

    def __getitem__(self, name: str) -> Float[np.ndarray, " T"]:
        """The values of a column."""
        if name not in self.signals:
            raise KeyError(f"{self.name} has no {name}; it has {', '.join(self.signals)}.")
        return self.signals[name].values

    def series(self, *names: str, fields: Sequence[Field] = (), start: int = 0) -> Series:
        """Columns as exogenous series of a system, one row per step.

        They keep the dates of the rows, by which recordings of the system find theirs. Series from several
        files are put together with `beside`.

        Args:
            names: of the columns; without names those of the fields, and without fields all columns.
            fields: of the series, e.g. `Building.exogenous_fields`: values are converted into their units and
                must lie within their ranges. Without fields they stay in the units of the recording.
            start: row of the first step, counted from 0.
        """
        if len(self.stretches) != 1:
            raise RecordingError(
                f"{self.name} has gaps: {len(self.stretches)} stretches. A series needs a value at every "
                "step; fill the gaps, or read the rows of one stretch."
            )
        wanted = names or tuple(field.name for field in fields) or tuple(self.signals)
        missing = [name for name in wanted if name not in self.signals]
        if missing:
            raise RecordingError(
                f"{self.name} has no column for {', '.join(missing)}; it has {', '.join(self.signals)}. Read "
                f"it with columns={{'{missing[0]}': ...}}."
            )
        known = {field.name: field for field in fields}
        found = {
            name: fitted(self.signals[name], known[name], self.at, self.source).values
            if name in known
            else self[name]
            for name in wanted
        }
        return Series(found, start=start, begins=self.start, seconds=self.step if self.clock else None)

    @property
    def end(self) -> datetime | None:
        """Wall clock at the last row; None for numbers."""
        if self.start is None or self.times is None:
            return None
        return later(self.start, float(self.times[-1]))

    def at(self, row: SupportsIndex) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, {self.counted} {self.lines[row]}"

    def table(self) -> Table:
        """The ranges and units of what was read."""
        return what_was_read([self])

    def __str__(self) -> str:
        shown = self.table()
        return "\n".join([shown.title, text_table(shown.heads, shown.rows), *self.notes])

    __repr__ = __str__


def fitted(signal: Signal, field: Field, at: Callable[[SupportsIndex], str], source: str) -> Signal:
    """A column in the unit of a field, within its range.

    Args:
        signal: as it was read.
        field: that it stands for.
        at: says where a row is.
        source: name of the source, for messages.
    """
    given, remarks = signal.unit, list(signal.remarks)  # what is in the unit of the field already stays so
    if not given:
        end = ending(split_header(signal.header)[0])
        if field.unit and end and conversion(end, field.unit) is not None:
            given = end
            remarks.append("unit by the end of its name")
        elif field.unit:
            remarks.append("unit assumed")
    factor, offset = 1.0, 0.0
    if given and field.unit:
        found = conversion(given, field.unit)
        if found is None:
            known = (
                "which measure different things"
                if units(given) and units(field.unit)
                else "which are not comparable"
            )
            raise RecordingError(
                f"{source}: '{signal.header}' is in {given}, and {field.name} is in {field.unit}, {known}. "
                f"Name another column with --columns {field.name}=COLUMN, or state the unit of this one with "
                f"--units {field.name}=UNIT."
            )
        factor, offset = found
    elif given and any(not unit.dimensions and unit.factor != 1.0 for unit in units(given)):
        raise RecordingError(
            f"{source}: '{signal.header}' is in {given}, and {field.name} has no unit. Say --units "
            f"{field.name}=1 if the numbers are to be taken as they are, or divide them."
        )
    elif given:
        remarks.append("the system gives no unit")
    values = signal.values if (factor, offset) == (1.0, 0.0) else factor * signal.values + offset
    outside = (values < field.low) | (values > field.high)
    if np.any(outside):
        row = int(np.argmax(outside))
        unit = f" in {field.unit}" if field.unit else ""
        same = "" if values is signal.values else f" ({values[row]:g} {field.unit})"
        raise RecordingError(
            f"{at(row)}: '{signal.header}' is {signal.values[row]:g}{same}, and {field.name}{unit} lies "
            f"between {field.low:g} and {field.high:g}. Is the unit right? State it with --units "
            f"{field.name}=UNIT."
        )
    return Signal(
        *(field.name, signal.header, field.unit, signal.given or given, values),
        *(factor * signal.step, tuple(remarks)),
    )


DIGITS = 12  # significant; a column that needs more looks continuous

FEWEST_VALUES = 4  # different ones; fewer lie on a coarser grid by chance

MOST_OFF = 0.01  # fraction of values that may lie off the grid, e.g. where gaps were filled

NEAR = 1e-6  # of a step: how far a multiple may be off by round-off of whoever wrote the file


def estimated_resolution(values: Float[np.ndarray, " T"]) -> float:
    """The largest step 1, 2 or 5 times a power of ten that practically all values are multiples of.

    Gives 0 where there is none, so that the values look continuous, and where there are too few different
    values to tell. A column with n different values is taken for one of twice the step with probability
    about 2⁻ⁿ.
    """
    values = np.asarray(values, float)
    largest = float(np.abs(values).max(initial=0.0))
    if len(np.unique(values)) < FEWEST_VALUES:
        return 0.0
    top = math.ceil(math.log10(largest))
    for power in range(top, top - DIGITS - 1, -1):
        for digit in (5, 2, 1):
            step = float(f"{digit}e{power}")  # the nearest number to the decimal one, as in the file
            multiples = values / step
            allowed = NEAR + 4 * np.finfo(float).eps * np.abs(multiples)
            if np.mean(np.abs(multiples - np.round(multiples)) > allowed) <= MOST_OFF:
                return step if np.any(np.round(multiples)) else 0.0
    return 0.0


# What people see

HEADS = ("field", "column", "unit in the file", "unit", "from", "to", "values in steps of", "remark")


def what_was_read(recordings: Sequence[Recording]) -> Table:
    """The columns with their units and ranges, over all recordings of a source."""
    rows, stretches = sum(one.rows for one in recordings), sum(len(one.stretches) for one in recordings)
    first = recordings[0]
    parts = [counted(len(recordings), "recording")] if len(recordings) > 1 else []
    parts += [counted(rows, "row"), counted(stretches, "stretch")]
    if first.step is not None:
        parts.append(f"steps of {first.step:g}{' s' if first.clock else ''}")
    names = list(dict.fromkeys(name for one in recordings for name in one.signals))
    return Table(
        f"What was read from {first.source}: {', '.join(parts)}",
        HEADS,
        [
            *([_time_row(recordings)] if first.time_header or first.times is not None else []),
            *(_row([one.signals[name] for one in recordings if name in one.signals]) for name in names),
        ],
    )


def _time_row(recordings: Sequence[Recording]) -> tuple[str, ...]:
    first, unit = recordings[0], "s" if recordings[0].clock else ""
    ends = [one.times[-1] for one in recordings if one.times is not None]
    low, high = "0", f"{max(ends):g}"
    if len(recordings) == 1 and first.start is not None:
        low, high = f"{first.start}", f"{first.end}"
    return "time", first.time_header, "", unit, low, high, "", first.time_text


def counted(number: int, noun: str) -> str:
    """A number with its noun; an "s" makes it plural, or "es" behind "ch"."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural * (number != 1)}"


def _row(signals: Sequence[Signal]) -> tuple[str, ...]:
    first = signals[0]
    steps = sorted({one.step for one in signals})
    shown = f"{steps[0]:g}" if len(steps) == 1 else f"{steps[0]:g} to {steps[-1]:g}"
    remarks = list(dict.fromkeys(remark for one in signals for remark in one.remarks))
    return (
        *(first.name, first.header, first.given, first.unit),
        f"{min(float(one.values.min()) for one in signals):g}",
        f"{max(float(one.values.max()) for one in signals):g}",
        "" if steps == [0.0] else shown,
        ", ".join(remarks),
    )

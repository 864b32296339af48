"""Values over time that no release changes: weather, a tariff, a drive cycle; and inputs read by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from veil.types import Scalar, Vector

HOUR, DAY = 3600.0, 24.0  # seconds, hours


@dataclass(frozen=True)
class Field:
    """Name, unit and range of one coordinate. Tables and messages show them, and inputs are checked by them.

    Attributes:
        name: by which streams and recordings look the value up.
        unit: such as "m/s"; empty for a number without unit.
        low: smallest value allowed.
        high: largest value allowed.
        resolution: of a state, the step of the sensor that reads it; of a release, the step of the public
            grid that it is emitted on. Same unit as the value; 0 for a continuous value, which only a
            simulation has.
        private: of an exogenous series, that only the owner knows it. Audits assume that the adversary
            knows it as well, which can only overstate the leakage.
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    resolution: float = 0.0
    private: bool = False

    def __post_init__(self) -> None:
        """Refuse a resolution that is none."""
        if not 0.0 <= self.resolution < math.inf:
            raise ValueError(f"The resolution of {self.name} is a step in its unit, 0 or more.")


CLOCK = Field("clock", "steps", 0.0)
"""The last number of w in a system with a clock: the row of its series, counted from 0."""

RESERVED = ("clock", "hour", "hours")


class ShortSeriesError(ValueError):
    """More steps are asked for than the series have rows; the message says how many there are."""


def elapsed(begin: datetime, end: datetime) -> float:
    """Seconds from one instant to another; clocks without a zone are taken for the same one, never put back.

    Raises:
        ValueError: where one of them has a zone and the other has none.
    """
    if (begin.tzinfo is None) != (end.tzinfo is None):
        raise ValueError(f"{begin} and {end} cannot be compared: one has a time zone and the other has none.")
    if begin.tzinfo is not None:  # Python subtracts the clocks, not the instants, of one zone
        begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    return (end - begin) / timedelta(seconds=1)


def later(at: datetime, seconds: float) -> datetime:
    """The wall clock so many seconds later, put forward and back as its zone says."""
    passed = timedelta(seconds=seconds)
    return at + passed if at.tzinfo is None else (at.astimezone(UTC) + passed).astimezone(at.tzinfo)


BESIDE = 0.1  # of a step: rows of two sources that are closer are of the same instant


class Series(eqx.Module):
    """Named values over time, one row per step, which no release changes.

    Attributes:
        names: of the columns.
        values: the rows.
        start: row of the first step, t = 1.
        hour: time of day of row 0, hours after midnight.
        begins: date and time of row 0; None where it has none.
        seconds: between two rows; None where it is not known.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[Array, "L S"]
    start: int = eqx.field(static=True)
    hour: float = eqx.field(static=True)
    begins: datetime | None = eqx.field(static=True)
    seconds: float | None = eqx.field(static=True)

    def __init__(
        self,
        columns: Mapping[str, ArrayLike | Sequence],
        *,
        start: int = 0,
        hour: float | None = None,
        begins: datetime | None = None,
        seconds: float | None = None,
    ):
        """Make a series from arrays.

        Args:
            columns: an array per name, all of one length. Without any there is only the clock.
            start: row of the first step, counted from 0.
            hour: time of day of row 0, hours after midnight; by default that of `begins`, else 0.
            begins: date and time of row 0, by which recordings find their rows.
            seconds: between two rows; needed with `begins`.
        """
        if begins is not None and (seconds is None or hour is not None):
            raise ValueError("With begins, give the seconds between two rows, and leave out hour.")
        if seconds is not None and not 0.0 < seconds < math.inf:
            raise ValueError(f"The time between two rows is a positive number of seconds, not {seconds:g}.")
        if begins is not None:
            hour = begins.hour + begins.minute / 60.0 + (begins.second + 1e-6 * begins.microsecond) / HOUR
        found = {name: np.asarray(values, float) for name, values in columns.items()}
        for name, values in found.items():
            if values.ndim != 1 or not len(values):
                raise ValueError(f"The series {name} has the shape {values.shape}; give one number per step.")
            wrong = np.flatnonzero(~np.isfinite(values))
            if len(wrong):
                raise ValueError(
                    f"The series {name} is not a finite number in row {wrong[0]} (counted from 0) and "
                    f"{len(wrong) - 1} others. Fill the gap, or give a stretch without one."
                )
        lengths = {name: len(values) for name, values in found.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise ValueError(f"All series need equally many rows, one per step: {listed}.")
        rows = next(iter(lengths.values()), 0)
        if start < 0 or (found and start >= rows):
            raise ValueError(
                f"The series begin at row 0 and end at row {rows - 1}; start={start} is not there."
            )
        self.names, self.start, self.hour = tuple(found), int(start), float(hour or 0.0)
        self.begins, self.seconds = begins, seconds
        self.values = jnp.asarray(
            np.stack(list(found.values()), axis=1) if found else np.zeros((0, 0)), float
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.values.shape[0]

    @property
    def span(self) -> str:
        """Date and time of the first and of the last row, for messages."""
        if self.begins is None or self.seconds is None:
            return f"row 0 to row {self.rows - 1}, without dates"
        return f"{self.begins} to {later(self.begins, self.seconds * (self.rows - 1))}"

    def row_at(self, at: datetime) -> int:
        """The row of an instant, counted from 0; it may lie before the first row or behind the last one.

        Raises:
            ValueError: where the rows have no dates, where only one of both has a time zone, and where the
                instant lies between two rows.
        """
        if self.begins is None or self.seconds is None:
            raise ValueError("These series have no dates. Give begins, the date and time of row 0.")
        rows = elapsed(self.begins, at) / self.seconds
        if abs(rows - round(rows)) > BESIDE:
            raise ValueError(
                f"{at} lies between two rows of the series ({self.span}, every {self.seconds:g} s). Resample "
                "one of both, so that their rows are of the same instants."
            )
        return round(rows)

    def starting(self, start: int | datetime) -> "Series":
        """The same series with another first step: a row, counted from 0, or its date and time."""
        row = self.row_at(start) if isinstance(start, datetime) else start
        if isinstance(start, datetime) and not 0 <= row < self.rows:
            raise ValueError(f"The series run from {self.span}; {start} is not there.")
        return self._made(self._columns(0, self.rows), 0, row)

    def beside(self, other: "Series") -> "Series":
        """The columns of both in the rows that both have: by their dates, or row by row without dates.

        The first step stays that of these series, or is the first row that is left.
        """
        mine, theirs = ", ".join(self.names), ", ".join(other.names)
        if set(self.names) & set(other.names):
            raise ValueError(f"{mine} and {theirs}: a series is in both. Leave it out of one.")
        if (self.begins is None) != (other.begins is None):
            raise ValueError(
                f"{mine} and {theirs}: one has dates and the other has none, so that it is not known which "
                "rows belong together. Give dates to both, or to none."
            )
        if self.seconds is not None and other.seconds is not None and self.seconds != other.seconds:
            raise ValueError(
                f"{mine} has a row every {self.seconds:g} s, and {theirs} every {other.seconds:g} s. "
                "Resample one of them."
            )
        if self.begins is None and self.rows != other.rows:
            raise ValueError(
                f"All series need equally many rows, one per step: {mine} has {self.rows}, {theirs} has "
                f"{other.rows}."
            )
        shift = 0 if other.begins is None else self.row_at(other.begins)
        first, last = max(0, shift), min(self.rows, shift + other.rows)
        if first >= last:
            raise ValueError(
                f"{mine} runs from {self.span}, and {theirs} from {other.span}: no row is in both."
            )
        columns = {**self._columns(first, last), **other._columns(first - shift, last - shift)}
        return self._made(columns, first, max(0, min(self.start, last - 1) - first))

    def _columns(self, first: int, last: int) -> dict[str, np.ndarray]:
        return dict(zip(self.names, np.asarray(self.values)[first:last].T, strict=True))

    def _made(self, columns: Mapping[str, np.ndarray], first: int, start: int) -> "Series":
        """Series whose row 0 has the time of row `first` of these."""
        if self.begins is None or self.seconds is None:
            return Series(columns, start=start, hour=self.hour, seconds=self.seconds)
        begins = later(self.begins, first * self.seconds)
        return Series(columns, start=start, begins=begins, seconds=self.seconds)

    def at(self, clock: Scalar, names: Sequence[str]) -> Vector:
        """The values of these columns in one row; after the end the last row is repeated.

        Args:
            clock: number of the row, counted from 0.
            names: of the columns, in the order wanted.
        """
        row = self.values[jnp.clip(clock.astype(jnp.int32), 0, max(self.rows - 1, 0))]
        return row[np.asarray([self.names.index(name) for name in names], int)]


class Inputs:
    """The external input w of one step, or of many, by the names of its fields.

    `inputs.outdoor` and `inputs["outdoor"]` are the value of the field "outdoor". A system with a clock has
    in addition `clock` (row of the series, from 0), `hours` (since the midnight before row 0) and `hour` (of
    the day, 0 to 24).
    """

    def __init__(
        self,
        fields: Sequence[Field],
        values: Float[Array, "*batch E"],
        first: float,
        seconds: ArrayLike | None,
    ):
        """Make the view.

        Args:
            fields: of the coordinates of w.
            values: w; a batch has leading axes.
            first: time of day of row 0, hours.
            seconds: length of a step; None where the system does not say.
        """
        self._places = {field.name: place for place, field in enumerate(fields)}
        self._values, self._first, self._seconds = values, first, seconds

    def __getitem__(self, name: str) -> Float[Array, "*batch"]:
        """The value of a field."""
        if name not in self._places:
            raise KeyError(f"w has no field {name}; it has {', '.join(self._places) or 'none'}.")
        return self._values[..., self._places[name]]

    def __getattr__(self, name: str) -> Float[Array, "*batch"]:
        """The value of a field."""
        if name.startswith("_"):  # the machinery of copying asks for such names
            raise AttributeError(name)
        if name not in self._places:
            raise AttributeError(f"w has no field {name}; it has {', '.join(self._places) or 'none'}.")
        return self[name]

    @property
    def hours(self) -> Float[Array, "*batch"]:
        """Hours since the midnight before row 0 of the series."""
        if self._seconds is None:
            raise ValueError(
                "State step_seconds, the length of a step in seconds, to read the time in hours."
            )
        return self._first + self["clock"] * (self._seconds / HOUR)

    @property
    def hour(self) -> Float[Array, "*batch"]:
        """Hour of the day, 0 to 24."""
        return jnp.mod(self.hours, DAY)

"""Values over time that no release changes: weather, a tariff, a drive cycle; and inputs read by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


class Series(eqx.Module):
    """Named values over time, one row per step, which no release changes.

    Attributes:
        names: of the columns.
        values: the rows.
        start: row of the first step, t = 1.
        hour: time of day of row 0, hours after midnight.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[Array, "L S"]
    start: int = eqx.field(static=True)
    hour: float = eqx.field(static=True)

    def __init__(self, columns: Mapping[str, ArrayLike | Sequence], *, start: int = 0, hour: float = 0.0):
        """Make a series from arrays.

        Args:
            columns: an array per name, all of one length. Without any there is only the clock.
            start: row of the first step, counted from 0.
            hour: time of day of row 0, hours after midnight.
        """
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
        self.names, self.start, self.hour = tuple(found), int(start), float(hour)
        self.values = jnp.asarray(
            np.stack(list(found.values()), axis=1) if found else np.zeros((0, 0)), float
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.values.shape[0]

    def starting(self, start: int) -> "Series":
        """The same series, begun at another row."""
        columns = dict(zip(self.names, np.asarray(self.values).T, strict=True))
        return Series(columns, start=start, hour=self.hour)

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

"""A recording in the terms of a system: rows of states and inputs, stretch by stretch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from veil.recordings.reader import time_step
from veil.recordings.recording import Recording, fitted
from veil.recordings.requirements import needs
from veil.recordings.tables import RecordingError
from veil.systems.base import Field, System, series_of
from veil.systems.series import Series


@dataclass(frozen=True)
class Rows:
    """One stretch of a recording.

    Attributes:
        states: x_1..x_T; coordinates that are not recorded hold a stand-in that nothing reads.
        external: w_1..w_T as recorded; inputs that the transition does not use hold their first value.
    """

    states: Float[np.ndarray, "T N"]
    external: Float[np.ndarray, "T E"]

    @property
    def steps(self) -> int:
        """T, the number of releases."""
        return len(self.states)


@dataclass(frozen=True)
class Bound:
    """A recording, complete where the system needs it.

    Attributes:
        name: what it is called in tables.
        stretches: in the order of time.
        seen: which coordinates of the state are recorded.
        checked: whether the times of the rows were compared with the system's step.
        resolution: step of each coordinate of the state by its digits; 0 where it looks continuous or is not
            recorded.
    """

    name: str
    stretches: tuple[Rows, ...]
    seen: tuple[bool, ...]
    checked: bool
    resolution: tuple[float, ...]

    @property
    def steps(self) -> int:
        """The number of releases, over all stretches."""
        return sum(one.steps for one in self.stretches)


def bind(system: System, recording: Recording) -> Bound:
    """The rows that a system is to explain, in the units of its fields and within their ranges."""
    used = needs(system)
    first = np.asarray(system.initial(system.prior.secrets[0]).mean)
    states, seen, steps = _columns(recording, system.state_fields, used.state, first)
    external = _external(system, recording, used.external)
    rows = tuple(Rows(states[begin:end], external[begin:end]) for begin, end in recording.stretches)
    checked = recording.clock and time_step(system) is not None
    return Bound(recording.name, rows, seen, checked, steps)


def _external(system: System, recording: Recording, used: tuple[bool, ...]) -> np.ndarray:
    """All of w. Series that are not recorded are those of the system; the clock follows from the times."""
    start, series, step = np.asarray(system.first_external(), float), series_of(system), time_step(system)
    first, last = len(system.external_fields), len(system.external_fields) + len(system.exogenous_fields)
    own, _, _ = _columns(recording, system.external_fields, used[:first], start[:first])
    if not system.has_clock:
        return own
    names, needed = [field.name for field in system.exogenous_fields], used[first:last]
    lost = [name for name, flag in zip(names, needed, strict=True) if flag and name not in recording.signals]
    clock = _clock(recording, step, series, int(start[-1]), lost)
    enough = series is not None and int(clock[-1]) < series.rows
    if lost and series is not None and not enough:
        raise RecordingError(
            f"{recording.name} has no column for {', '.join(lost)}, and the series of the system end after "
            f"row {series.rows - 1}, where row {clock[-1]} is needed. Name the columns with --columns "
            f"{lost[0]}=COLUMN, or give longer series."
        )
    flags = tuple(flag and not enough for flag in needed)
    found, _, _ = _columns(recording, system.exogenous_fields, flags, start[first:last])
    for place, name in enumerate(names):
        if series is not None and enough and name not in recording.signals:
            found[:, place] = np.asarray(series.values, float)[clock, series.names.index(name)]
    return np.concatenate([own, found, clock[:, None].astype(float)], axis=1)


DAY = 86400.0  # seconds


def _clock(
    recording: Recording, step: float | None, series: Series | None, first: int, lost: list[str]
) -> Int[np.ndarray, " T"]:
    """The row of the system's series at each row of a recording.

    Where both have dates, the instants tell. Else the recording is taken to begin with the first step of the
    system, and a time of day that says otherwise is an error. Where all series that matter are recorded and
    the dates do not agree, only the time of day counts.

    Args:
        recording: whose rows.
        step: of the system, seconds; None where it has none.
        series: of the system.
        first: row of the system's first step.
        lost: series that matter and are not recorded.
    """
    passed = np.arange(recording.rows)
    if recording.clock and recording.times is not None and step is not None:
        passed = np.round(recording.times / step).astype(int)
    elif lost and len(recording.stretches) > 1:
        raise RecordingError(
            f"{recording.name} has gaps and no times, so that it is not known which values of "
            f"{', '.join(lost)} belong to its rows. Give times (--time), or record these series."
        )
    at = recording.start
    if at is None or step is None:
        return first + passed
    if series is not None and series.begins is not None:
        rows = _by_instant(recording, series, passed, lost)
        if rows is not None:
            return rows
    hour = 0.0 if series is None else series.hour
    shown = 3600.0 * at.hour + 60.0 * at.minute + at.second
    off = (shown - 3600.0 * hour - first * step) % DAY
    if lost and min(off, DAY - off) > 0.5 * step:
        begins = (3600.0 * hour + first * step) % DAY
        raise RecordingError(
            f"{recording.name} begins at {at:%H:%M}, and the series of the system ({', '.join(lost)}) at "
            f"{int(begins // 3600):02d}:{int(begins % 3600 // 60):02d}. Record these series (--columns), or "
            "give the system series that begin when the recording does."
        )
    return first + round(off / step) * (not lost) + passed


def _by_instant(
    recording: Recording, series: Series, passed: Int[np.ndarray, " T"], lost: list[str]
) -> Int[np.ndarray, " T"] | None:
    """The rows of series with dates; None where they have none for these and nothing depends on it.

    Args:
        recording: that has dates as well.
        series: of the system.
        passed: steps since the first row.
        lost: series that matter and are not recorded.
    """
    assert recording.start is not None
    names = ", ".join(lost)
    try:
        rows = series.row_at(recording.start) + passed
    except ValueError as error:
        if not lost:
            return None
        zoned = (recording.start.tzinfo is None) != (series.begins is None or series.begins.tzinfo is None)
        where = "with --time-zone" if recording.start.tzinfo is None else "where you read the series"
        hint = f" Name the zone {where}, e.g. Europe/Berlin." if zoned else ""
        raise RecordingError(
            f"{recording.name} and the series of the system ({names}): {error}{hint}"
        ) from None
    if rows[0] >= 0 and rows[-1] < series.rows:
        return rows
    if not lost:
        return None
    raise RecordingError(
        f"{recording.name} runs from {recording.start} to {recording.end}, and the series of the system "
        f"({names}) from {series.span}, so that they do not cover it. Give series for that time, name "
        f"columns of the recording with --columns {lost[0]}=COLUMN, or leave out the rows that have none."
    )


def _columns(
    recording: Recording, fields: tuple[Field, ...], needed: tuple[bool, ...], otherwise: np.ndarray
) -> tuple[np.ndarray, tuple[bool, ...], tuple[float, ...]]:
    """The values of these fields, which there are, and their steps; what is not needed is filled."""
    found, there, steps = list[np.ndarray](), list[bool](), list[float]()
    for field, must, fill in zip(fields, needed, otherwise, strict=True):
        signal = recording.signals.get(field.name)
        if signal is None and must:
            raise RecordingError(
                f"{recording.name} has no column for {field.name}; it has {', '.join(recording.signals)}. "
                f"Read it with columns={{'{field.name}': ...}}."
            )
        signal = signal and fitted(signal, field, recording.at, recording.source)
        there.append(signal is not None)
        steps.append(0.0 if signal is None else signal.step)
        found.append(np.full(recording.rows, float(fill)) if signal is None else signal.values)
    rows = np.stack(found, axis=1) if found else np.zeros((recording.rows, 0))
    return rows, tuple(there), tuple(steps)

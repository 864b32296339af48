"""A recording in the terms of a system: rows of states and inputs, stretch by stretch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from veil.recordings.reader import time_step
from veil.recordings.recording import Recording, fitted
from veil.recordings.requirements import needs
from veil.recordings.tables import RecordingError
from veil.systems.base import Field, System, series_of


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
    passed = np.arange(recording.rows)
    if recording.clock and recording.times is not None and step is not None:
        passed = np.round(recording.times / step).astype(int)
    names = [field.name for field in system.exogenous_fields]
    recorded, began = [name in recording.signals for name in names], int(start[-1])
    if all(recorded) and recording.start is not None and step is not None:  # the wall clock tells the row
        at = recording.start
        seconds = 3600.0 * (at.hour - (0.0 if series is None else series.hour)) + 60.0 * at.minute + at.second
        began = round(seconds % 86400.0 / step)
    clock = began + passed
    enough = series is not None and int(clock[-1]) < series.rows
    needed = tuple(flag and not enough for flag in used[first:last])
    found, _, _ = _columns(recording, system.exogenous_fields, needed, start[first:last])
    for place, name in enumerate(names):
        if series is not None and enough and not recorded[place]:
            found[:, place] = np.asarray(series.values, float)[clock, series.names.index(name)]
    return np.concatenate([own, found, clock[:, None].astype(float)], axis=1)


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

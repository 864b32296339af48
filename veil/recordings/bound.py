"""A recording in the terms of a system: rows of states and inputs, stretch by stretch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from veil.recordings.reader import time_step
from veil.recordings.recording import Recording, fitted
from veil.recordings.requirements import needs
from veil.recordings.tables import RecordingError
from veil.systems.base import Field, System


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
    start = np.asarray(system.initial_external())
    external, _, _ = _columns(recording, system.external_fields, used.external, start)
    rows = tuple(Rows(states[begin:end], external[begin:end]) for begin, end in recording.stretches)
    checked = recording.clock and time_step(system) is not None
    return Bound(recording.name, rows, seen, checked, steps)


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
    return np.stack(found, axis=1), tuple(there), tuple(steps)

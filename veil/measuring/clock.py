"""Whether the rows of a recording are one step of the system apart."""

import numpy as np

from veil.measuring.log import LogError
from veil.measuring.table import Table
from veil.systems.base import System

USUAL = ("t", "time")  # columns that are taken for the time if none is named
SLACK = 0.02  # share of a step by which a difference of rounded times may be off


def time_step(system: System) -> float | None:
    """The length of a step in seconds, if the system or the one that it wraps has a `dt`."""
    while system is not None:
        step = getattr(system, "dt", None)
        if step is not None:
            return float(step)
        system = getattr(system, "inner", None)  # pyright: ignore[reportAssignmentType]
    return None


def check_clock(table: Table, column: str, step: float | None) -> None:
    """Refuse times that stand still, go back, jump, or are not the system's step apart."""
    times = table.numbers(column, " for the time")
    apart = np.diff(times)
    where = f"{table.path}, line "
    if np.any(apart <= 0):
        place = int(np.argmax(apart <= 0)) + 1
        raise LogError(
            f"{where}{table.lines[place]}: the time '{column}' does not grow.{_several(table, place)}"
        )
    own = float(np.median(apart))
    allowed = SLACK * own + 4 * np.finfo(float).eps * float(np.abs(times).max())
    off = np.abs(apart - own) > allowed
    if np.any(off):
        place = int(np.argmax(off)) + 1
        raise LogError(
            f"{where}{table.lines[place]}: {apart[place - 1]:g} after the row before, where steps of {own:g} "
            "are usual. Measure the stretches before and after such a gap apart, or fill it."
        )
    if step is not None and abs(own - step) > SLACK * step:
        raise LogError(
            f"{table.path} has a step of {own:g} in '{column}', and the system's is {step:g}. "
            + _advice(own, step)
        )


def _advice(own: float, step: float) -> str:
    ratio = step / own
    if ratio > 1.5 and abs(ratio - round(ratio)) < SLACK * ratio:
        return f"Keep one row in {round(ratio)}."
    unit = next(
        (name for name, size in (("milliseconds", 1e-3), ("hours", 3600.0)) if _same(own * size, step)), ""
    )
    if unit:
        return f"The times look like {unit}: divide or multiply them into seconds."
    return "Resample the recording to that step, or use a system with the step of the recording."


def _same(left: float, right: float) -> bool:
    return abs(left - right) <= SLACK * right


def _several(table: Table, place: int) -> str:
    """A guess at which column tells recordings apart, if the file holds several."""
    changed = [
        name
        for column, name in enumerate(table.header)
        if table.rows[place][column] != table.rows[place - 1][column]
        and len({row[column] for row in table.rows}) <= max(1, len(table.rows) // 4)
    ]
    if not changed:
        return " Put the rows in order, or choose some of them with --where COLUMN=VALUE."
    return (
        f" If the file holds several recordings, choose one with --where {changed[0]}="
        f"{table.rows[place][table.header.index(changed[0])]} or measure all with --each {changed[0]}."
    )

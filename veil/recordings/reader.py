"""Read recordings from a CSV file: which columns, which rows, which clock, and whether they make sense."""

import csv
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from veil.recordings.requirements import Needs, needs
from veil.systems.base import Field, System


class LogError(ValueError):
    """A file or a table that cannot be taken for a recording of this system; the message says what to do."""


@dataclass(frozen=True)
class Log:
    """A recording, complete where the system needs it.

    Attributes:
        name: what it is called in tables.
        states: x_1..x_T; coordinates that are not recorded hold a stand-in that nothing reads.
        external: w_1..w_T as recorded; inputs that the transition does not use hold their first value.
        seen: which coordinates of the state are recorded.
        checked: whether the times of the rows were compared with the system's step.
        resolution: step of each coordinate of the state by its digits (`estimated_resolution`); 0 where it
            looks continuous or is not recorded, empty where nobody looked.
    """

    name: str
    states: Float[np.ndarray, "T N"]
    external: Float[np.ndarray, "T E"]
    seen: tuple[bool, ...]
    checked: bool = False
    resolution: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no recording."""
        if len(self.states) < 2 or len(self.states) != len(self.external):
            raise LogError(
                f"{self.name}: a recording needs at least two rows, and as many of states as of inputs; got "
                f"{len(self.states)} and {len(self.external)}."
            )

    @property
    def steps(self) -> int:
        """T, the number of releases."""
        return len(self.states)


@dataclass(frozen=True)
class Table:
    """The rows of a file, as words.

    Attributes:
        path: of the file.
        header: names of the columns.
        rows: one list of words each.
        lines: line number of each row in the file.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def words(self, column: str, asked: str) -> list[str]:
        """One column as it stands; `asked` says who asked for it, for the message if there is none."""
        if column not in self.header:
            meant = guess(column, self.header)
            raise LogError(
                f"{self.path} has no column '{column}'{asked}. {meant}It has {', '.join(self.header)}."
            )
        place = self.header.index(column)
        return [row[place] for row in self.rows]

    def numbers(self, column: str, asked: str) -> np.ndarray:
        """One column as finite numbers."""
        found = []
        for word, line in zip(self.words(column, asked), self.lines, strict=True):
            try:
                found.append(float(word))
            except ValueError:
                found.append(math.nan)
            if not math.isfinite(found[-1]):
                shown = f"'{word.strip()}'" if word.strip() else "empty"
                raise LogError(
                    f"{self.path}, line {line}: '{column}' is {shown}, not a number. Correct or drop that "
                    "row; a recording must have no gaps."
                )
        return np.array(found)

    def chosen(self, keep: list[bool]) -> "Table":
        """Some of the rows."""
        rows = [row for row, kept in zip(self.rows, keep, strict=True) if kept]
        lines = [line for line, kept in zip(self.lines, keep, strict=True) if kept]
        return Table(self.path, self.header, rows, lines)


def load_table(path: Path) -> Table:
    """Read a file whose first line names its columns, separated by commas, semicolons or tabs."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise LogError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read as a text file ({error}).") from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=separator)
    filled = [(reader.line_num, row) for row in reader if any(word.strip() for word in row)]
    if len(filled) < 2:
        raise LogError(
            f"{path} holds no rows; its first line names the columns and each further one is a step."
        )
    header = [name.strip() for name in filled[0][1]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise LogError(f"{path} has two columns '{twice[0]}'; give each a name of its own.")
    for line, row in filled[1:]:
        if len(row) != len(header):
            raise LogError(
                f"{path}, line {line}: {len(row)} values for {len(header)} columns; correct that line."
            )
    return Table(path, header, [row for _, row in filled[1:]], [line for line, _ in filled[1:]])


def guess(name: str, names: list[str]) -> str:
    """A "Did you mean X?" for a column or field whose name is close to this one; empty if none is."""
    close = difflib.get_close_matches(name, names, 1, 0.4)
    return f"Did you mean '{close[0]}'? " if close else ""


USUAL = ("t", "time")  # columns that are taken for the time if none is named

SLACK = 0.02  # fraction of a step by which a difference of rounded times may be off


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


def read_recordings(
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
    table, given = load_table(Path(path)), dict(columns or {})
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
    steps = tuple(
        estimated_resolution(column) if there else 0.0 for column, there in zip(states.T, seen, strict=True)
    )
    return Log(name, states, external, seen, checked=time is not None, resolution=steps)


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

"""Tables as people have them: text files, Parquet, frames of pandas, polars or Arrow, and arrays of numpy.

Whatever the source, a `Table` has named columns of cells, and knows where in the source each row is. Cells
are words, numbers, times, or None where there is nothing; `numbers` makes numbers of them.
"""

import csv
import difflib
import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from veil.recordings.units import split_header, units

Cells = Sequence[Any]

Source = Any
"""Path of a CSV or Parquet file; frame of pandas, polars or Arrow; mapping or numpy array of columns."""

FRAMES = ("pandas", "polars", "pyarrow")

MISSING = {"", "nan", "na", "n/a", "#n/a", "null", "none", "nat", "-", "--", "?"}
"""Words that mark a missing value, in small letters."""

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

TRUTH = {"true": 1.0, "false": 0.0}

FEW_LINES = 4  # that a message or a note lists

SEPARATORS = ";\t|,"  # a comma last: it may be a decimal mark

LARGEST = 1e15  # no measured value is larger; numbers of this size are marks or mistakes


class RecordingError(ValueError):
    """A source that cannot be taken for a recording; the message names the place and says what to do."""


@dataclass(frozen=True)
class Table:
    """Named columns of cells.

    Attributes:
        name: of the source, for messages.
        header: names of the columns, as they stand there.
        columns: the cells of each column.
        lines: number of each row in its source.
        counted: what these numbers count, "line" (from 1) or "row" (from 0).
        units: by header, where a row below it gives them.
        parts: number of the part of each row; a header that stands once more begins a new one.
        notes: what was done on the way.
    """

    name: str
    header: tuple[str, ...]
    columns: tuple[Cells, ...]
    lines: np.ndarray
    counted: str
    units: Mapping[str, str]
    parts: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.lines)

    def at(self, row: SupportsIndex) -> str:
        """Where a row is, for messages."""
        return f"{self.name}, {self.counted} {self.lines[row]}"

    def places(self, rows: Sequence[int] | np.ndarray) -> str:
        """Where some rows are, for notes; a few of them."""
        listed = [str(self.lines[row]) for row in rows[:FEW_LINES]]
        more = f" and {len(rows) - FEW_LINES} more" if len(rows) > FEW_LINES else ""
        return f"{self.counted}{'s' if len(rows) > 1 else ''} {', '.join(listed)}{more}"

    def cells(self, header: str) -> Cells:
        """The cells of one column."""
        return self.columns[self.header.index(header)]

    def unit(self, header: str) -> str:
        """The unit that the header or the row below it gives; empty where there is none."""
        return split_header(header)[1] or self.units.get(header, "")

    def chosen(self, rows: Sequence[int] | np.ndarray) -> "Table":
        """Some of the rows, in this order."""
        picked = [int(row) for row in rows]
        columns = tuple([cells[row] for row in picked] for cells in self.columns)
        return replace(self, columns=columns, lines=self.lines[picked], parts=self.parts[picked])

    def find(self, wanted: str, asked: str) -> str:
        """The header of a column, however it was named; an error if there is none.

        Args:
            wanted: as it was named.
            asked: who asks, for the message.
        """
        found = self.look_for(wanted)
        if found is not None:
            return found
        there = ", ".join(name for name in self.header if name.strip())
        raise RecordingError(
            f"{self.name} has no column '{wanted}'{asked}.{quoted(wanted, self.header)} It has {there}."
        )

    def look_for(self, wanted: str) -> str | None:
        """The header of a column that is named in full, without its unit, or in another spelling."""
        spellings = (
            lambda name: name,
            lambda name: name.strip(),
            lambda name: split_header(name)[0],
            lambda name: plain(split_header(name)[0]),
        )
        for spelling in spellings:
            found = [name for name in self.header if spelling(name) == spelling(wanted)]
            if len(found) > 1:
                several = f"several columns that may be '{wanted}': {', '.join(found)}. Name one in full."
                twice = f"two columns '{found[0]}'; give each a name of its own."
                raise RecordingError(f"{self.name} has {twice if len(set(found)) == 1 else several}")
            if found:
                return found[0]
        return None


def quoted(name: str, names: Collection[str]) -> str:
    """The guess at what was meant, in quotation marks: names of columns may hold spaces."""
    close = difflib.get_close_matches(name, [one for one in names if one], 1, 0.4)
    return f" Did you mean '{close[0]}'?" if close else ""


def plain(name: str) -> str:
    """A name in small letters, all else as underscores, to compare spellings: indoor_temp."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def load(source: Source, name: str = "") -> Table:
    """The table of any source.

    Args:
        source: a path, a frame, a mapping or an array.
        name: what to call it in messages; a file has its own.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return _file(Path(source))
    library = type(source).__module__.partition(".")[0]
    if library in FRAMES:
        return _frame(source, library, name or f"the {library} table")
    if isinstance(source, Mapping):
        return _arrays(dict(source), name or "the recording")
    if isinstance(source, np.ndarray):
        return _arrays(_columns_of(source), name or "the array")
    raise RecordingError(
        f"a {type(source).__name__} is no recording; give the path of a CSV or Parquet file, a frame of "
        "pandas or polars, a dict of columns, or a numpy array."
    )


# Files


def _file(path: Path) -> Table:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordingError(f"{path}: no such file.") from None
    except (OSError, ValueError) as error:
        raise RecordingError(f"{path} cannot be read ({error}).") from None
    if content[:4] == b"PAR1" or path.suffix in (".parquet", ".pq"):
        return _parquet(path)
    if content[:4] == b"PK\x03\x04":
        raise RecordingError(f"{path} is an Excel or zip file; save the sheet as CSV.")
    text, notes = _decoded(content, str(path))
    return _text(text, str(path), notes)


def _decoded(content: bytes, name: str) -> tuple[str, list[str]]:
    """The text of a file: UTF-8, UTF-16 with its mark, or else the Windows letters of western Europe."""
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return content.decode("utf-16"), []
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        if b"\x00" not in content:
            try:
                return content.decode("cp1252"), [
                    "The file is not UTF-8; its letters were read as Windows-1252."
                ]
            except UnicodeDecodeError:
                pass
        raise RecordingError(f"{name} cannot be read as text ({error.reason}).") from None


def _text(text: str, name: str, notes: list[str]) -> Table:
    """A file of lines whose first one names the columns."""
    if "\x00" in text:
        raise RecordingError(f"{name} cannot be read as text: it holds bytes of value zero.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    skipped = next(
        (i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines)
    )
    separator = _separator(lines[skipped:])
    rows = _rows(lines, skipped, separator, name)
    if len(rows) < 2:
        raise RecordingError(
            f"{name} holds no rows; its first line names the columns and each further one is a step."
        )
    header = tuple(word.strip() for word in rows[0][1])
    if 2 * sum(bool(NUMBER.fullmatch(word.replace(",", "."))) for word in header) >= len(header):
        raise RecordingError(
            f"{name}, line {rows[0][0]}: the first line must name the columns, and this one holds numbers. "
            "Add a line of names above it."
        )
    kept, lines_of, parts, repeated = list[list[str]](), list[int](), list[int](), list[int]()
    for line, words in rows[1:]:
        words = _fitted(words, header, name, line, separator)
        if tuple(words) == header:
            repeated.append(line)
            continue
        kept.append(words)
        lines_of.append(line)
        parts.append(len(repeated))
    given = dict[str, str]()
    if kept and _unit_row(kept[0]):
        given = {column: word.strip("[]() ") for column, word in zip(header, kept[0], strict=True) if word}
        notes.append(f"Line {lines_of[0]} gives the units.")
        kept, lines_of, parts = kept[1:], lines_of[1:], parts[1:]
    if repeated:
        listed = ", ".join(str(line) for line in repeated[:FEW_LINES])
        notes.append(f"The header stands once more in line {listed}; it was left out.")
    columns = tuple([row[place] for row in kept] for place in range(len(header)))
    numbered, apart = np.array(lines_of, int), np.array(parts, int)
    return Table(name, header, columns, numbered, "line", given, apart, tuple(notes))


def _separator(lines: Sequence[str]) -> str:
    """The sign that parts all of the first lines into equally many words; the usual one if none does."""
    some = [line for line in lines[:200] if line.strip()]
    for sign in SEPARATORS:
        try:
            counts = {len(row) for row in csv.reader(some, delimiter=sign)}
        except csv.Error:
            continue
        if len(counts) == 1 and counts.pop() > 1:
            return sign
    first = some[0] if some else ""
    return max(SEPARATORS, key=lambda sign: (first.count(sign), sign == ","))


def _rows(lines: Sequence[str], skipped: int, separator: str, name: str) -> list[tuple[int, list[str]]]:
    """The words of each line that has some, with its number; a quoted word may hold a line break."""
    reader = csv.reader(io.StringIO("\n".join(lines[skipped:])), delimiter=separator, strict=True)
    found, before = list[tuple[int, list[str]]](), 0
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise RecordingError(
                f"{name}, line {skipped + before + 1}: {error}; correct the quotation marks there."
            ) from None
        if row is None:
            return found
        if any(word.strip() for word in row):
            found.append((skipped + before + 1, [word.strip() for word in row]))
        before = reader.line_num


def _fitted(words: list[str], header: tuple[str, ...], name: str, line: int, separator: str) -> list[str]:
    """As many words as there are columns; empty ones at the end may be too many."""
    while len(words) > len(header) and not words[-1]:
        words = words[:-1]
    if len(words) == len(header):
        return words
    hint = "correct that line."
    other = next(
        (
            sign
            for sign in SEPARATORS
            if sign != separator and separator not in "".join(words) and any(sign in word for word in words)
        ),
        "",
    )
    if len(words) > len(header) and separator == ",":
        hint = "correct that line; if commas are decimal marks, part the columns by semicolons."
    elif other and len(words) < len(header):
        hint = (
            f"correct that line; it may be parted by {_called(other)}, the header is by {_called(separator)}."
        )
    raise RecordingError(
        f"{name}, line {line}: {len(words)} value{'s' if len(words) > 1 else ''} for {len(header)} "
        f"column{'s' if len(header) > 1 else ''}; {hint}"
    )


def _called(sign: str) -> str:
    return {"\t": "tabs", ";": "';'", ",": "','", "|": "'|'"}[sign]


def _unit_row(words: Sequence[str]) -> bool:
    """Whether a row holds units instead of values."""
    some = [word.strip("[]() ") for word in words if word and word not in ("-", "1")]
    return bool(some) and all(units(word) for word in some)


_NO_PARQUET = "cannot be read as Parquet; it may have been cut, or be of another kind."


def _parquet(path: Path) -> Table:
    try:
        import pyarrow.parquet
    except ImportError:
        pass
    else:
        try:
            return _frame(pyarrow.parquet.read_table(path), "pyarrow", str(path))
        except (OSError, ValueError, pyarrow.ArrowException):
            raise RecordingError(f"{path} {_NO_PARQUET}") from None
    try:
        import polars
    except ImportError:
        raise RecordingError(
            f"{path}: reading Parquet needs pyarrow or polars: pip install 'veil[tables]'."
        ) from None
    try:
        return _frame(polars.read_parquet(path), "polars", str(path))
    except (OSError, polars.exceptions.PolarsError):
        raise RecordingError(f"{path} {_NO_PARQUET}") from None


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


# Frames and arrays


def _frame(frame: Any, library: str, name: str) -> Table:
    """Every column as a list of Python's own numbers, words and times; None where there is nothing."""
    if library == "pandas":
        if type(frame).__name__ == "Series":
            frame = frame.to_frame()
        named = any(label is not None for label in frame.index.names)
        if named or getattr(frame.index, "dtype", np.dtype(int)).kind in "mM":  # else only numbers of rows
            labels = [
                f"index {place}" if label is None else label for place, label in enumerate(frame.index.names)
            ]
            try:
                frame = frame.reset_index(names=["index"] if labels == ["index 0"] else labels)
            except ValueError as error:
                raise RecordingError(
                    f"{name}: the index cannot be made a column ({_first(error)})."
                ) from None
        labels = [str(label) for label in frame.columns]
        columns = [_pandas_cells(frame.iloc[:, place]) for place in range(len(labels))]
    elif library == "polars":
        frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
        labels, columns = list(frame.columns), [column.to_list() for column in frame.get_columns()]
    else:
        labels = [str(label) for label in frame.column_names]
        columns = [frame.column(place).to_pylist() for place in range(len(labels))]
    return _table(labels, columns, name)


def _pandas_cells(column: Any) -> list:
    cells = column.astype(object).where(column.notna(), None).tolist()
    return [_python(cell) for cell in cells]


def _python(cell: Any) -> Any:
    """A time of pandas as one of Python, which drops its nanoseconds."""
    if type(cell).__module__.startswith("pandas"):
        for method in ("to_pydatetime", "to_pytimedelta"):
            if hasattr(cell, method):
                return cell.to_pydatetime(warn=False) if method == "to_pydatetime" else cell.to_pytimedelta()
    return cell


def _columns_of(array: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a structured array by name, those of a plain one by number."""
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if array.ndim == 2:
        return {str(place): array[:, place] for place in range(array.shape[1])}
    raise RecordingError(
        f"an array of shape {array.shape} has no columns; give one row per step, or a dict of columns."
    )


def _arrays(columns: dict[Any, Any], name: str) -> Table:
    cells = list[Cells]()
    for label, values in columns.items():
        library = type(values).__module__.partition(".")[0]
        if library == "pandas":
            cells.append(_pandas_cells(values))
            continue
        array = values if isinstance(values, list | tuple) else np.asarray(values)
        if isinstance(array, np.ndarray):
            if array.ndim != 1:
                raise RecordingError(
                    f"{name}: '{label}' has the shape {array.shape}; give one value per row."
                )
            if array.dtype.kind in "mM":  # as times of Python; None where there is none
                array = array.astype(f"{array.dtype.kind}8[us]")
            array = array.tolist()
        cells.append(array)
    return _table([str(label) for label in columns], cells, name)


def _table(labels: Sequence[str], columns: Sequence[Cells], name: str) -> Table:
    lengths = {label: len(cells) for label, cells in zip(labels, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{label} has {length}" for label, length in lengths.items())
        raise RecordingError(f"{name}: all columns need equally many rows; {listed}.")
    count = next(iter(lengths.values()), 0)
    if not count:
        raise RecordingError(f"{name} holds no rows; each row is a step.")
    return Table(name, tuple(labels), tuple(columns), np.arange(count), "row", {}, np.zeros(count, int))


# Numbers


def decimal_mark(words: Sequence[str], given: str, name: str) -> str:
    """Whether numbers are written with a point or a comma; asked for where the words do not say.

    Args:
        words: all words that stand for numbers.
        given: what the user said; empty where nothing.
        name: of the source, for messages.
    """
    if given:
        return given
    commas = [word for word in words if "," in word]
    if not commas:
        return "."
    ask = "say which is the decimal mark (--decimal , or --decimal .), and take separators of thousands out"
    pointed = next((word for word in words if "." in word and NUMBER.fullmatch(word.replace(",", ""))), "")
    if pointed:
        raise RecordingError(
            f"{name} has numbers with commas and with points ('{commas[0]}', '{pointed}'); {ask}."
        )
    if not all(NUMBER.fullmatch(word.replace(",", ".")) for word in commas):
        return "."  # no numbers; whoever reads them says in which line
    if all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", word) for word in commas):
        raise RecordingError(f"{name} has '{commas[0]}', which may be a thousand or a decimal; {ask}.")
    return ","


def is_missing(cell: Any, marks: frozenset[str]) -> bool:
    """Whether there is no value: nothing, not a number, or a word that says so."""
    if cell is None:
        return True
    if isinstance(cell, str):
        word = cell.strip().lower()
        return word in MISSING or word in marks
    if isinstance(cell, float | Decimal | np.floating) and math.isnan(cell):
        return True
    return bool(marks) and not isinstance(cell, date | timedelta) and _same(str(cell), marks)


def _same(word: str, marks: frozenset[str]) -> bool:
    """Whether a number is one of the marks, however it is written."""
    return any(equal(word, mark) for mark in marks)


def equal(word: str, value: str) -> bool:
    """Whether two words are the same, or the same number."""
    if word.strip() == value.strip():
        return True
    both = [text.strip() for text in (word, value)]
    return all(NUMBER.fullmatch(text) for text in both) and float(both[0]) == float(both[1])


def numbers(
    table: Table, header: str, decimal: str, marks: frozenset[str], limit: float = LARGEST
) -> np.ndarray:
    """One column as numbers, NaN where a value is missing.

    Args:
        table: that it stands in.
        header: of the column.
        decimal: the decimal mark of words.
        marks: words, in small letters, that mark a missing value beside the usual ones.
        limit: what is larger is no value.
    """
    cells = table.cells(header)
    found = np.full(len(cells), math.nan)
    kinds = [
        type(cell) is bool or (isinstance(cell, str) and cell.strip().lower() in TRUTH) for cell in cells
    ]
    truths = any(kinds)
    for row, cell in enumerate(cells):
        if is_missing(cell, marks) or (marks and isinstance(cell, str) and _same(cell, marks)):
            continue
        value = TRUTH[str(cell).strip().lower()] if kinds[row] else _number(cell, decimal)
        if value is None or (truths and not kinds[row]):
            mixed = ", in a column of true and false" if value is not None else ""
            hint = "correct it, or say --missing with that word if it marks a missing value"
            raise RecordingError(
                f"{table.at(row)}: '{header.strip()}' is '{_short(cell)}', not a number{mixed}; {hint}."
            )
        if not abs(value) <= limit or math.isinf(value):
            raise RecordingError(
                f"{table.at(row)}: '{header.strip()}' is {value:g}, which no measurement is; correct it, or "
                f"say --missing {_short(cell)} if it marks a missing value."
            )
        found[row] = value
    return found


def _number(cell: Any, decimal: str) -> float | None:
    if isinstance(cell, str):
        word = cell.strip().replace("−", "-")
        if decimal == ",":
            word = "x" if "." in word else word.replace(",", ".")
        return float(word) if NUMBER.fullmatch(word) else None
    if isinstance(cell, int | float | Decimal | np.number):
        return float(cell)
    return None


def _short(cell: Any) -> str:
    text = " ".join(str(cell).split())
    return text if len(text) <= 30 else text[:27] + "..."

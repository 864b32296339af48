"""A CSV file as columns of words and numbers, with the line of every row for messages."""

import csv
import difflib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.measuring.log import LogError


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
                    f"{self.path}, line {line}: '{column}' is {shown}, not a number. Mend or drop that row; "
                    "a recording must have no gaps."
                )
        return np.array(found)

    def chosen(self, keep: list[bool]) -> "Table":
        """Some of the rows."""
        rows = [row for row, kept in zip(self.rows, keep, strict=True) if kept]
        lines = [line for line, kept in zip(self.lines, keep, strict=True) if kept]
        return Table(self.path, self.header, rows, lines)


def load(path: Path) -> Table:
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
                f"{path}, line {line}: {len(row)} values for {len(header)} columns; mend that line."
            )
    return Table(path, header, [row for _, row in filled[1:]], [line for line, _ in filled[1:]])


def guess(name: str, names: list[str]) -> str:
    """The sentence about the column or field that was probably meant, before a space; empty if none is near."""
    close = difflib.get_close_matches(name, names, 1, 0.4)
    return f"Did you mean '{close[0]}'? " if close else ""

"""Recordings as people have them, what they truly hold, and what the reader must do or say.

`python -m tests.recordings.awkward` writes the table of docs/recordings.md anew.
"""

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import veil
from veil.laws import diagonal_gaussian
from veil.recordings import RecordingError, read_recording
from veil.systems import Field, Prior, System, finite_prior

PAGE = Path(__file__).parents[2] / "docs" / "recordings.md"
BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"


class House(System):
    """A house that loses heat at a secret rate; one step is an hour."""

    prior: Prior

    secret_fields = (Field("loss", "1/step", 0.0, 1.0),)
    state_fields = (Field("indoor", "degC", -20.0, 50.0),)
    external_fields = (Field("outdoor", "degC", -40.0, 50.0), Field("heating", "kW", 0.0, 20.0))
    shared_fields = (Field("indoor", "degC"),)
    reaction_noise_size = 2
    step_seconds = 3600.0

    def initial(self, secret):
        return diagonal_gaussian(jnp.array([20.0]), jnp.array([1.0]))

    def initial_external(self):
        return jnp.array([5.0, 1.0])

    def transition(self, secret, state, external):
        mean = state + 0.5 * external[1:] - secret * (state - external[:1])
        return diagonal_gaussian(mean, jnp.array([0.1]))

    def react(self, external, shared, noise):
        return external + 0.1 * noise

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state


def house() -> House:
    """The house with three losses."""
    return House(finite_prior([0.05, 0.1, 0.2]))


# What the files truly hold.
INDOOR = [20.1, 20.3, 20.2, 19.9, 19.7, 19.8, 20.0, 20.4, 20.6, 20.5, 20.3, 20.2]
OUTDOOR = [4.5, 4.4, 4.2, 3.9, 3.5, 3.6, 4.1, 5.0, 6.2, 7.4, 8.1, 8.3]
HEATING = [1.5, 0.0, 2.25, 2.5, 2.5, 2.0, 1.75, 1.0, 0.5, 0.0, 0.25, 0.5]
ROWS = len(INDOOR)
ALL = tuple(range(ROWS))
MONDAY = datetime(2024, 1, 15)
BERLIN_SPRING = datetime(2024, 3, 30, 23, tzinfo=UTC)  # clocks go forward two hours later
BERLIN_AUTUMN = datetime(2024, 10, 26, 22, tzinfo=UTC)  # clocks go back three hours later


def clock(start=MONDAY, step=timedelta(hours=1), shape="%Y-%m-%d %H:%M"):
    return [(start + k * step).strftime(shape) for k in range(ROWS)]


HOURS = tuple(clock())


def berlin(start, offsets, zoned=False):
    """What clocks in Berlin show in the hours after a moment; `offsets` are those to UTC, hour by hour."""
    return [
        (start + timedelta(hours=k + offset)).strftime("%Y-%m-%d %H:%M") + f"+0{offset}:00" * zoned
        for k, offset in enumerate(offsets)
    ]


SPRING = [1, 1] + [2] * 10  # 00:00, 01:00, 03:00
AUTUMN = [2, 2, 2] + [1] * 9  # 00:00, 01:00, 02:00, 02:00, 03:00


def file(
    name="house.csv",
    *,
    time=("time", HOURS),
    indoor=INDOOR,
    outdoor=OUTDOOR,
    heating=HEATING,
    heads=("indoor", "outdoor", "heating"),
    separator=",",
    write: Callable[[Any], str] = str,
    change: Callable[[list[str]], list[str]] = lambda lines: lines,
    encode: Callable[[str], bytes] = lambda text: text.encode(),
) -> Callable[[], str]:
    """Writes a CSV file into the working directory; `change` works on its lines, `encode` on its text."""

    def make() -> str:
        columns = [list(indoor), list(outdoor), list(heating)]
        names = list(heads)
        if time is not None:
            names, columns = [time[0], *names], [list(time[1]), *columns]
        rows = [separator.join(map(write, row)) for row in zip(*columns, strict=True)]
        lines = change([separator.join(names), *rows])
        Path(name).write_bytes(encode("\n".join(lines) + "\n" * bool(lines)))
        return name

    return make


@dataclass(frozen=True)
class Case:
    """A recording and what must come of it.

    Attributes:
        title: what it has.
        make: makes the source, in the working directory.
        settings: how it is read.
        columns: where fields have other names.
        units: of columns.
        error: what the message says; None where it must be read.
        rows: rows of the truth that are read.
        stretches: rows of each stretch; all in one if None.
        truth: other values of fields, where the source has others.
        note: what the notes say.
        remark: what the table says of a column.
        needs: package that the source needs.
    """

    title: str
    make: Callable[[], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    rows: tuple[int, ...] = ALL
    stretches: tuple[int, ...] | None = None
    truth: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""
    remark: str = ""
    needs: str = ""

    def read(self):
        """The recording, or a `RecordingError`."""
        return read_recording(
            self.make(), house(), self.columns, units=self.units, settings=veil.ReadSettings(**self.settings)
        )

    def flags(self) -> list[str]:
        """The same on the command line."""
        words = list[str]()
        for name, value in self.settings.items():
            flag = "--" + name.replace("_", "-")
            words += (
                [flag] if value is True else [flag, *map(str, value if isinstance(value, tuple) else [value])]
            )
        for name, given in (("columns", self.columns), ("units", self.units)):
            words += [f"--{name}", *(f"{key}={value}" for key, value in given.items())] if given else []
        return words


def without(*rows):
    """Leaves out these rows of the truth."""
    return lambda lines: [line for place, line in enumerate(lines) if place - 1 not in rows]


def cell(row, column, word, separator=","):
    """Puts a word into one cell; columns are counted from 0, the time included."""

    def change(lines):
        words = lines[row + 1].split(separator)
        words[column] = word
        return [*lines[: row + 1], separator.join(words), *lines[row + 2 :]]

    return change


def every(changes):
    """Several changes one after another."""

    def change(lines):
        for one in changes:
            lines = one(lines)
        return lines

    return change


def comma(value):
    return str(value).replace(".", ",")


def frame(library, **kind):
    """The same columns as a frame."""

    def make():
        import importlib

        made = importlib.import_module(library)
        times = [MONDAY.replace(tzinfo=UTC) + timedelta(hours=k) for k in range(ROWS)]
        columns = {"time": times, "indoor": INDOOR, "outdoor": OUTDOOR, "heating": HEATING}
        found = made.table(columns) if library == "pyarrow" else made.DataFrame(columns)
        return kind["change"](found) if kind else found

    return make


def parquet():
    import pyarrow.parquet

    pyarrow.parquet.write_table(frame("pyarrow")(), "house.parquet")
    return "house.parquet"


def broken_parquet():
    Path("house.parquet").write_bytes(b"PAR1 and no more")
    return "house.parquet"


def pandas_berlin(found):
    """Times as index, on the clock of Berlin over the night when it goes back, and one value missing."""
    import pandas

    moments = pandas.date_range(BERLIN_AUTUMN, periods=ROWS, freq="h").tz_convert("Europe/Berlin")
    found = found.drop(columns="time").set_index(moments)
    found.iloc[5, 0] = None
    return found


def structured():
    kinds = [("time", "M8[s]"), ("indoor", float), ("outdoor", "f4"), ("heating", float)]
    rows = zip((MONDAY + timedelta(hours=k) for k in range(ROWS)), INDOOR, OUTDOOR, HEATING, strict=True)
    return np.array([tuple(row) for row in rows], kinds)


def content(name, data):
    """Writes a file of these bytes."""

    def make():
        Path(name).write_bytes(data)
        return name

    return make


GAP = {"rows": (0, 1, 2, 3, 7, 8, 9, 10, 11), "stretches": (4, 5)}
HOLE = {"rows": (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11), "stretches": (4, 7)}
IN_BERLIN = {"time_zone": "Europe/Berlin"}

CASES = [
    # Times
    Case("ISO times in UTC (`Z`)", file(time=("time", clock(shape="%Y-%m-%dT%H:%M:%SZ")))),
    Case("ISO times with an offset", file(time=("timestamp", clock(shape="%Y-%m-%d %H:%M:%S+01:00")))),
    Case(
        "offsets that change with daylight saving",
        file(time=("time", berlin(BERLIN_SPRING, SPRING, zoned=True))),
    ),
    Case(
        "an index without a name, as pandas writes it",
        file(time=("", clock(shape="%Y-%m-%d %H:%M:%S+00:00"))),
    ),
    Case("a clock without a zone that does not jump", file()),
    Case(
        "a clock without a zone, put forward",
        file(time=("time", berlin(BERLIN_SPRING, SPRING))),
        error="may be daylight saving",
    ),
    Case("the same, with its zone", file(time=("time", berlin(BERLIN_SPRING, SPRING))), IN_BERLIN),
    Case(
        "a clock without a zone, put back",
        file(time=("time", berlin(BERLIN_AUTUMN, AUTUMN))),
        error="may be daylight saving",
    ),
    Case("the same, with its zone", file(time=("time", berlin(BERLIN_AUTUMN, AUTUMN))), IN_BERLIN),
    Case(
        "the same, but the hour that is shown twice stands once",
        file(time=("time", berlin(BERLIN_AUTUMN, AUTUMN)), change=without(3)),
        IN_BERLIN,
        error="occurs twice in Europe/Berlin",
    ),
    Case(
        "a time that its zone does not have",
        file(time=("time", clock(datetime(2024, 3, 31)))),
        IN_BERLIN,
        error="does not exist in Europe/Berlin",
    ),
    Case(
        "a zone that there is not",
        file(),
        {"time_zone": "Europe/Berlim"},
        error="no time zone 'Europe/Berlim'",
    ),
    Case(
        "times with and without a zone",
        file(change=cell(4, 0, "2024-01-15 04:00Z")),
        error="line 6: the time 'time' is '2024-01-15 04:00Z', with a zone",
    ),
    Case("hours as numbers, with the unit in the header", file(time=("time [h]", range(ROWS)))),
    Case("hours as numbers, without a unit", file(time=("t", range(ROWS))), error="say --time-unit h"),
    Case("the same, with the unit", file(time=("t", range(ROWS))), {"time_unit": "h"}),
    Case("seconds as numbers, without a unit", file(time=("t", range(0, 3600 * ROWS, 3600)))),
    Case(
        "milliseconds since 1970",
        file(time=("timestamp", range(1705276800000, 1705276800000 + 3600000 * ROWS, 3600000))),
        {"time_unit": "ms"},
    ),
    Case(
        "dates as numbers",
        file(time=("date", [20240115 + k for k in range(ROWS)])),
        error="look like dates, e.g. 20240115",
    ),
    Case(
        "dates of another form",
        file(time=("Date", clock(shape="%d.%m.%Y %H:%M"))),
        error="line 2: the time 'Date' is '15.01.2024 00:00', not an ISO time",
    ),
    Case(
        "the same, under a name that is not known",
        file(time=("Zeitpunkt", clock(shape="%d.%m.%Y %H:%M"))),
        error="line 2: the time 'Zeitpunkt' is '15.01.2024 00:00', not an ISO time",
    ),
    Case(
        "the same, with the form",
        file(time=("Date", clock(shape="%d.%m.%Y %H:%M"))),
        {"time_format": "%d.%m.%Y %H:%M"},
    ),
    Case(
        "date and time of day in two columns",
        file(
            time=("date,time", clock(shape="%Y-%m-%d,%H:%M")),
        ),
        error="several columns that may be the time: 'date', 'time'",
    ),
    Case("no times at all", file(time=None), note="rows are taken for successive steps"),
    Case(
        "no times, and an empty cell",
        file(time=None, change=cell(4, 1, "")),
        note="into 2 stretches",
        **HOLE,
    ),
    Case(
        "no times, and the header once more in the middle",
        file(time=None, change=lambda lines: [*lines[:7], lines[0], *lines[7:]]),
        stretches=(6, 6),
        note="stands once more in line 8",
    ),
    Case(
        "times in the future",
        file(time=("time", clock(datetime(2999, 1, 1)))),
        note="end in the future, in 2999",
    ),
    Case(
        "a year that cannot be",
        file(change=cell(4, 0, "0024-01-15 04:00")),
        error="line 6: the time 'time' is '0024-01-15 04:00', in no year of a recording",
    ),
    Case(
        "half-hourly rows for a system of hourly steps",
        file(time=("time", clock(step=timedelta(minutes=30)))),
        error="Keep one row in 2",
    ),
    Case(
        "times that are irregular",
        file(time=("time [h]", [k + 0.05 * (k % 2) for k in range(ROWS)])),
        error="the times are irregular: 5 of 11 steps differ by more than 2%",
    ),
    Case(
        "the same, allowed for",
        file(time=("time [h]", [k + 0.05 * (k % 2) for k in range(ROWS)])),
        {"time_tolerance": 0.1},
    ),
    # Rows
    Case("a gap of three rows", file(change=without(4, 5, 6)), note="into 2 stretches", **GAP),
    Case("an empty cell", file(change=cell(4, 2, "")), note="1 row without a value of 'outdoor'", **HOLE),
    Case(
        "NaN, N/A and null for missing values",
        file(change=every([cell(4, 1, "NaN"), cell(5, 2, "N/A"), cell(6, 3, "null")])),
        note="3 rows without a value",
        **GAP,
    ),
    Case("-999 for a missing value", file(change=cell(4, 1, "-999")), error="Say --missing -999"),
    Case("the same, said", file(change=cell(4, 1, "-999")), {"missing": ("-999",)}, **HOLE),
    Case(
        "a row that is there twice",
        file(change=lambda lines: [*lines[:5], lines[4], *lines[5:]]),
        note="repeats",
    ),
    Case(
        "two rows of one time that differ",
        file(change=every([lambda lines: [*lines[:5], lines[4], *lines[5:]], cell(4, 1, "21.7")])),
        error="line 6: the time 'time' is that of line 5, and other values differ",
    ),
    Case(
        "rows in disorder",
        file(change=lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]]),
        error="line 5: the time 'time' goes back",
    ),
    Case(
        "the same, to be sorted",
        file(change=lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]]),
        {"sort": True},
        note="put in the order of their times",
    ),
    Case("the newest row first", file(change=lambda lines: [lines[0], *lines[:0:-1]]), note="turned around"),
    Case(
        "the header once more in the middle",
        file(change=lambda lines: [*lines[:7], lines[0], *lines[7:]]),
        note="stands once more in line 8",
    ),
    Case("a single row", file(change=lambda lines: lines[:2]), error="one row is no recording"),
    Case("a header and no rows", file(change=lambda lines: lines[:1]), error="holds no rows"),
    Case("an empty file", content("house.csv", b""), error="holds no rows"),
    Case("no header", file(change=lambda lines: lines[1:]), error="the first line must name the columns"),
    Case(
        "a last line that was cut",
        file(change=lambda lines: [*lines[:-1], lines[-1].rpartition(",")[0]]),
        error="line 13: 3 values for 4 columns",
    ),
    Case(
        "every second row missing in a column",
        file(change=every([cell(row, 1, "") for row in range(0, ROWS, 2)])),
        error="6 of 6 rows stand alone between gaps",
    ),
    # Headers and units
    Case(
        "headers with spaces and units",
        file(heads=("Indoor Temp [°C]", "Outdoor Temp (C)", "Heating Power [kW]")),
        columns={"indoor": "Indoor Temp [°C]", "outdoor": "Outdoor Temp", "heating": "heating power"},
    ),
    Case(
        "the names of the fields in other spellings",
        file(heads=("Indoor [°C]", "OUTDOOR (°C)", "heating / kW")),
    ),
    Case(
        "other units of the same quantity",
        file(
            indoor=[1.8 * value + 32.0 for value in INDOOR],
            outdoor=[value + 273.15 for value in OUTDOOR],
            heating=[1000.0 * value for value in HEATING],
            heads=("indoor [°F]", "outdoor [K]", "heating [W]"),
        ),
    ),
    Case(
        "a unit at the end of a name",
        file(indoor=[1.8 * value + 32.0 for value in INDOOR], heads=("temp_degF", "outdoor", "heating")),
        columns={"indoor": "temp_degF"},
        remark="unit by the end of its name",
    ),
    Case(
        "a unit of another quantity",
        file(heads=("indoor", "outdoor [kW]", "heating")),
        error="'outdoor [kW]' is in kW, and outdoor is in degC, which measure different things",
    ),
    Case(
        "a unit that is not known",
        file(heads=("indoor", "outdoor", "heating [clicks]")),
        error="'heating [clicks]' is in clicks, and heating is in kW, which are not comparable",
    ),
    Case("the same, stated", file(heads=("indoor", "outdoor", "heating [clicks]")), units={"heating": "kW"}),
    Case(
        "a wrong unit that no header tells",
        file(indoor=[value + 273.15 for value in INDOOR]),
        error="line 2: 'indoor' is 293.25, and indoor in degC lies between -20 and 50. Is the unit right?",
    ),
    Case("the same, stated", file(indoor=[value + 273.15 for value in INDOOR]), units={"indoor": "K"}),
    Case(
        "a line of units below the header",
        file(
            change=lambda lines: [lines[0], ",°C,°C,W", *lines[1:]],
            heating=[1000.0 * value for value in HEATING],
        ),
        note="Line 2 gives the units",
    ),
    Case(
        "two columns of one name",
        file(heads=("indoor", "outdoor", "indoor")),
        error="two columns 'indoor'",
    ),
    Case(
        "a column that is not there, and was 5 all the time",
        file(heads=("indoor", "outside", "heating")),
        columns={"outdoor": "5"},
        truth={"outdoor": [5.0] * ROWS},
        remark="constant",
    ),
    Case(
        "a column that is not there",
        file(heads=("inside", "outdoor", "heating")),
        error="no column 'indoor' for indoor in degC; name it with --columns indoor=COLUMN",
    ),
    # Numbers and signs
    Case("decimal commas, parted by semicolons", file(separator=";", write=comma), note="decimal commas"),
    Case(
        "decimal commas, parted by commas",
        file(write=comma),
        error="line 2: 7 values for 4 columns; correct that line; if commas are decimal marks",
    ),
    Case(
        "commas that may part thousands",
        file(
            separator=";",
            heads=("indoor", "outdoor", "heating [W]"),
            indoor=[20] * ROWS,
            outdoor=[4] * ROWS,
            heating=["1,500"] * ROWS,
        ),
        error="'1,500', which may be a thousand or a decimal",
    ),
    Case(
        "the same, said",
        file(
            separator=";",
            indoor=[20] * ROWS,
            outdoor=[4] * ROWS,
            heating=["1,500"] * ROWS,
        ),
        {"decimal": ","},
        truth={"indoor": [20.0] * ROWS, "outdoor": [4.0] * ROWS, "heating": [1.5] * ROWS},
    ),
    Case(
        "points and commas",
        file(separator=";", change=cell(4, 1, "19,7", ";")),
        error="numbers with commas and with points",
    ),
    Case("tabs", file(separator="\t")),
    Case(
        "a line that is parted otherwise",
        file(change=lambda lines: [*lines[:5], lines[5].replace(",", ";"), *lines[6:]]),
        error="line 6: 1 value for 4 columns; correct that line; it may be parted by ';'",
    ),
    Case(
        "the mark of an editor (BOM), Windows line ends",
        file(encode=lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()),
    ),
    Case("UTF-16", file(encode=lambda text: text.encode("utf-16"))),
    Case(
        "Windows letters (cp1252)",
        file(heads=("indoor [°C]", "outdoor [°C]", "heating"), encode=lambda text: text.encode("cp1252")),
        note="Windows-1252",
    ),
    Case("comments above the header", file(change=lambda lines: ["# logger 7", "# Kitchen, north", *lines])),
    Case(
        "a value with its unit in the cell",
        file(change=cell(4, 1, "19.7 °C")),
        error="line 6: 'indoor' is '19.7 °C', not a number",
    ),
    Case(
        "an underscore in a number",
        file(change=cell(4, 3, "1_0")),
        error="line 6: 'heating' is '1_0', not a number",
    ),
    Case(
        "an infinite value", file(change=cell(4, 1, "inf")), error="line 6: 'indoor' is 'inf', not a number"
    ),
    Case(
        "a huge value",
        file(change=cell(4, 1, "1e300")),
        error="line 6: 'indoor' is 1e+300, which no measurement is",
    ),
    Case(
        "true and false",
        file(heating=[value > 1.0 for value in HEATING]),
        truth={"heating": [float(value > 1.0) for value in HEATING]},
        remark="true is 1, false is 0",
    ),
    Case("a constant column", file(outdoor=[5.0] * ROWS), truth={"outdoor": [5.0] * ROWS}, remark="constant"),
    Case(
        "a quotation mark that is not closed",
        file(change=cell(4, 1, '"19.7')),
        error="line 6: unexpected end of data; correct the quotation marks",
    ),
    # Other sources
    Case("Parquet", parquet, needs="pyarrow"),
    Case("Parquet that was cut", broken_parquet, needs="pyarrow", error="cannot be read as Parquet"),
    Case("an Arrow table", frame("pyarrow"), needs="pyarrow"),
    Case("a frame of pandas", frame("pandas"), needs="pandas"),
    Case(
        "a frame of pandas: times of Berlin as index, put back; a value missing",
        frame("pandas", change=pandas_berlin),
        rows=(0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11),
        stretches=(5, 6),
        needs="pandas",
    ),
    Case("a frame of polars", frame("polars"), needs="polars"),
    Case(
        "a frame of polars whose times are times of day only",
        frame("polars", change=lambda found: found.with_columns(time=found["time"].dt.time())),
        error="row 0: the time 'time' is a time, '00:00:00'",
        needs="polars",
    ),
    Case("a structured numpy array", structured),
    Case(
        "a dict of lists",
        lambda: {
            "time": [f"{word}Z" for word in clock()],
            "indoor": INDOOR,
            "outdoor": OUTDOOR,
            "heating": HEATING,
        },
    ),
    Case(
        "a plain numpy array, with the numbers of its columns",
        lambda: np.stack([3600.0 * np.arange(ROWS), INDOOR, OUTDOOR, HEATING], axis=1),
        {"time": "0"},
        columns={"indoor": "1", "outdoor": "2", "heating": "3"},
    ),
    Case(
        "columns of unequal length",
        lambda: {"indoor": INDOOR, "outdoor": OUTDOOR[:-1], "heating": HEATING},
        error="all columns need equally many rows; indoor has 12, outdoor has 11",
    ),
    Case("an Excel file", content("house.xlsx", b"PK\x03\x04..."), error="is an Excel or zip file"),
    Case("a file that is no text", content("house.csv", b"\x81\x00\x8d"), error="cannot be read as text"),
]


def outcome(case: Case) -> str:
    """What the reader does or says, in a sentence or two."""
    try:
        found = case.read()
    except RecordingError as error:
        return f"Refused: {error}"
    title = found.table().title.partition(": ")[2]
    remarks = [f"{one.name}: {remark}" for one in found.signals.values() for remark in one.remarks]
    told = [remark for remark in remarks if "assumed" not in remark]
    units = [
        f"{one.name}: {one.given} to {one.unit}"
        for one in found.signals.values()
        if one.given and one.given.strip("°deg") != one.unit.strip("°deg")
    ]
    return " ".join([f"Reads {title}.", *found.notes, *(f"{one}." for one in (*units, *told))])


def table() -> str:
    """The table of the page."""
    lines = ["| the recording has | flags | what the reader does or says |", "|---|---|---|"]
    for case in CASES:
        flags = shlex.join(case.flags())
        said = re.sub(r"([|*_<])", r"\\\1", outcome(case))
        lines.append(f"| {case.title} | {f'`{flags}`' if flags else ''} | {said} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The table as it stands in a page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        made = table()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        f"{text.partition(BEGIN)[0]}{BEGIN}\n{made}\n{END}{text.partition(END)[2]}", encoding="utf-8"
    )
    print(f"{len(CASES)} recordings in {os.path.relpath(PAGE)}")

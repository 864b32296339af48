"""Numbers in words, and small tables: shared by all results, the command line and the report.

Files and code speak nats; bits are for people and appear in words only. What is said to leak at most is
rounded up, what is said to leak at least is rounded down.
"""

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from veil.results.parts import AttackResult, Quantity
from veil.stats import Mean
from veil.systems.base import Field

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COUNTS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    "twelve",
)

Rows = Sequence[Sequence[str]]


class Table(NamedTuple):
    """Rows of text under heads, with a title."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def at_most(value: float) -> str:
    """Three decimals, rounded up; a hair's breadth of rounding error does not cost a digit."""
    return f"{math.ceil(1e3 * value - 1e-7) / 1e3 + 0.0:.3f}"


def at_least(value: float) -> str:
    """Three decimals, rounded down."""
    return f"{math.floor(1e3 * value + 1e-7) / 1e3 + 0.0:.3f}"


def bits(value: float) -> float:
    """Nats in bits, for people."""
    return value / math.log(2)


def nats(value: float, *, up: bool | None = None) -> str:
    """Nats and bits to three decimals; rounded up, down, or to the nearest."""
    rounded = {True: at_most, False: at_least, None: "{:.3f}".format}[up]
    return f"{rounded(value)} nats ({rounded(bits(value))} bits)"


def interval_text(interval: tuple[float, float], entropy: float) -> str:
    """An interval of nats; its upper end is never said to be more than there is."""
    low, high = interval
    return f"{at_least(low)} to {at_most(high) if high < entropy else f'{entropy:.3f}'}"


def share_text(interval: tuple[float, float], entropy: float) -> str:
    """The same in per cent of all there is to know, rounded outwards to one decimal."""
    low, high = (1e3 * end / entropy for end in interval)
    return f"{math.floor(low + 1e-7) / 10 + 0.0:.1f} to {min(math.ceil(high - 1e-7) / 10, 100.0) + 0.0:.1f} %"


def charged(value: float) -> str:
    """Nats of a ledger, rounded up; what is next to nothing is said so."""
    return "less than 0.001 nats" if 0.0 < value < 1e-3 else f"{at_most(value)} nats"


CONTINUOUS = "States are taken to be real numbers; a real sensor rounds: audit with --resolution."


def sensing(states: Sequence[Field], shared: Sequence[Field]) -> str:
    """What the sensor and the releases round to, in a sentence."""
    read, sent = _steps(states), _steps(shared)
    if not read:
        return f"{CONTINUOUS} Releases are emitted in steps of {sent}." if sent else CONTINUOUS
    exact = [field.name for field in states if field.resolution == 0]
    rest = f" ({', '.join(exact)} is taken to be a real number)" if exact else ""
    steps = "the same steps" if sent == read else f"steps of {sent}"
    return f"States are read in steps of {read}{rest}, and releases are emitted in {steps}."


def _steps(fields: Sequence[Field]) -> str:
    """The steps with their units, each once; with the names where a unit does not tell them apart."""
    rounded = [field for field in fields if field.resolution > 0]
    steps = {(field.resolution, field.unit): field.name for field in rounded}
    told = len({unit for _, unit in steps}) == len(steps)
    words = [
        f"{step:g} {unit}".strip() + ("" if told else f" ({name})") for (step, unit), name in steps.items()
    ]
    return ", ".join(words[:-1]) + " and " * (len(words) > 1) + "".join(words[-1:])


def percent(fraction: float) -> str:
    """A fraction in per cent; with a decimal near the ends, so that nearly always is not always."""
    near_an_end = 0.0 < fraction < 0.01 or 0.99 < fraction < 1.0
    return f"{100 * fraction:.{1 if near_an_end else 0}f} %"


def count(number: int) -> str:
    """A small number in words."""
    return _COUNTS[number] if number < len(_COUNTS) else str(number)


def mean_text(value: Mean | None, decimals: int = 3) -> str:
    """A mean and its standard error; nothing where there is none."""
    if value is None:
        return ""
    if not math.isfinite(value.value):
        return "unknown"
    error = f"{value.error:.{decimals}f}" if math.isfinite(value.error) else "unknown"
    return f"{signed(value.value, decimals)} ± {error}"


def signed(value: float, decimals: int) -> str:
    """A number with a true minus sign, and without one before zero."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text.replace("-", "−")


def change_text(row: Quantity) -> str:
    """The change of a quantity against true data in per cent, with its sign and standard error."""
    if row.change is None:
        return ""
    if not math.isfinite(row.change.value):
        return "unknown"
    sign = "+" if row.change.value > 0 else ""
    error = f" ± {row.change.error:.2f}" if math.isfinite(row.change.error) else ""
    return f"{sign}{signed(row.change.value, 2)} %{error}"


def accuracy_text(row: AttackResult) -> str:
    """How often an attacker is right, with its interval."""
    low, high = (percent(end).removesuffix(" %") for end in (row.accuracy.low, row.accuracy.high))
    return f"{percent(row.accuracy.value)} ({low} to {high})"


def amount(value: float) -> str:
    """A number of any size in four digits."""
    return "unknown" if not math.isfinite(value) else f"{value:.4g}".replace("-", "−")


DURATIONS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """A length of time in its largest unit that makes it 1 or more, such as "0.2 s", "15 min" or "7 d"."""
    size, unit = next((one for one in DURATIONS if seconds >= one[0]), (1.0, "s"))
    return f"{seconds / size:.4g} {unit}"


def steps_text(steps: int, seconds: float | None) -> str:
    """A number of steps, and how long they take where that is known, as in "168 steps (7 d)".

    Args:
        steps: how many.
        seconds: length of a step.
    """
    return f"{steps} steps" if seconds is None else f"{steps} steps ({duration(steps * seconds)})"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"


def secret_text(fields: Sequence[Field], values: Iterable[float]) -> str:
    """A secret with the names and units of its parts, as in "loss 0.1 kW/K, capacity 6 kWh/K".

    Args:
        fields: of the secret, as a system has them.
        values: one per field.
    """
    pairs = zip(fields, values, strict=True)
    return ", ".join(
        f"{field.name.replace('_', ' ')} {value:g} {field.unit}".strip() for field, value in pairs
    )


def sentence(text: str) -> str:
    """With a capital letter at the beginning and a full stop at the end; names of files stay as they are."""
    first = text.partition(" ")[0]
    begun = text if "=" in first or "." in first else text[:1].upper() + text[1:]
    return begun if begun.endswith(".") else begun + "."


def text_table(heads: Sequence[str], rows: Rows) -> str:
    """Rows under heads, if there are any, in columns of equal width; columns without a word are left out."""
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    lines = [[row[place] for place in kept] for row in ([heads] if any(heads) else []) + [*rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def notebook_page(title: str, said: str, heads: Sequence[str], rows: Rows, figure: "Figure | None") -> str:
    """What a notebook shows of a result: a verdict, a small table and a picture, as one piece of HTML.

    Args:
        title: what the result is about.
        said: the verdict in a sentence or two.
        heads: of the table.
        rows: of the table.
        figure: the picture; None for none.
    """
    cell = '<{0} style="text-align:left">{1}</{0}>'.format
    lines = [f"<tr>{''.join(cell('th', html.escape(head)) for head in heads)}</tr>"] if any(heads) else []
    lines += [f"<tr>{''.join(cell('td', html.escape(one)) for one in row)}</tr>" for row in rows]
    parts = [f"<p><strong>{html.escape(title)}</strong><br>{html.escape(said)}</p>"]
    parts += [f"<table>{''.join(lines)}</table>"] if rows else []
    if figure is not None:
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=80)
        source = base64.b64encode(content.getvalue()).decode()
        parts.append(f'<img alt="{html.escape(title)}" src="data:image/png;base64,{source}">')
    return f"<div>{''.join(parts)}</div>"

"""What a page is made of. Sections say what; the template says how it looks."""

import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veil.plots import INK


class ReportError(ValueError):
    """A folder or a file that a report cannot be made of; the text says what to do."""


@dataclass(frozen=True)
class Text:
    """A paragraph of text."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]
    kind: str = "bullets"


@dataclass(frozen=True)
class Picture:
    """A drawing.

    Attributes:
        svg: its source.
        says: what is in it, for those who cannot see it.
        caption: what to see in it.
    """

    svg: str
    says: str
    caption: str
    kind: str = "picture"


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first column names them.

    Attributes:
        caption: what to see in it.
        heads: one per column.
        rows: cells as text.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kind: str = "table"


@dataclass(frozen=True)
class Missing:
    """Something that is not there yet, and the command that makes it."""

    text: str
    command: str = ""
    kind: str = "missing"


Block = Text | Bullets | Picture | Table | Missing


@dataclass(frozen=True)
class Column:
    """What a section says about one run."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A heading and what follows.

    Attributes:
        anchor: where links lead.
        title: in plain words.
        lead: the question that is answered.
        blocks: about all runs.
        columns: about each run, side by side where there is room.
    """

    anchor: str
    title: str
    lead: str
    blocks: tuple[Block, ...] = ()
    columns: tuple[Column, ...] = ()


ACCENT, SOFT, WARN, GREY = "#0b6e99", "#7fb6cf", "#c8501e", "#8a8f98"

WIDTH = 5.4  # inches; a phone shows this at about two thirds, so that text of 11 points stays readable

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "veil",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.edgecolor": "#b9bec6",
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
}


def canvas(height: float) -> Figure:
    """An empty drawing of the width that all have."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def quiet(panel: Axes, axis: str = "both") -> None:
    """A pale grid behind the numbers."""
    panel.grid(alpha=0.25, linewidth=0.8, axis=axis)  # pyright: ignore[reportArgumentType]
    panel.set_axisbelow(True)


def svg(figure: Figure) -> str:
    """The source; text stays text, in the reader's own fonts."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    return re.sub(r"'?DejaVu Sans'?[^\";]*sans-serif", FONTS.replace('"', "'"), drawn)


def styled():
    """The settings under which figures are made and saved."""
    return matplotlib.rc_context(STYLE)

"""Drawings as SVG text: narrow enough for a phone, and the same bytes for the same numbers."""

import io
import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veil.auditing.style import INK

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

"""The common style of all pictures."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, PALE = "#333333", "#999999"

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"  # safe for the colour-blind


def one_panel() -> tuple[Figure, Axes]:
    """A picture of one panel."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    panel = figure.subplots()
    panel.grid(alpha=0.2)
    return figure, panel

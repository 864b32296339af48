"""The picture of a training: leakage and distortion, update by update."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veil.plots import BLUE, INK, RED

PICTURE = "learning.png"  # in the folder of a run

NEAR = 2.0  # a limit within this factor of the largest distortion is drawn

LINEAR = 0.01  # nats; below, the scale is linear, because a good policy ends there

Lines = Sequence[dict[str, float]]


def training_figure(history: Lines, best: int, limit: float) -> Figure | None:
    """The picture that a run saves and shows; None where there is nothing to draw.

    Args:
        history: metrics of all updates.
        best: after how many updates the policy was kept.
        limit: of the mean distortion per step.
    """
    figure = Figure(figsize=(7, 5.4), layout="constrained")
    return figure if draw_training(figure, history, best, limit) else None


def draw_training(figure: Figure, history: Lines, best: int, limit: float) -> bool:
    """Leakage above, distortion below; whether there was anything to draw.

    Args:
        figure: empty.
        history: metrics of all updates.
        best: after how many updates the policy was kept.
        limit: of the mean distortion per step.
    """
    updates = [line for line in history if _known(line, "leakage", "distortion")]
    fresh = [line for line in history if _known(line, "upper", "lower", "fresh_distortion")]
    if not updates and not fresh:
        return False
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(*_curve(updates, "leakage"), color=BLUE, alpha=0.5, linewidth=1.2, label="in training")
    ends = [line["lower"] for line in fresh], [line["upper"] for line in fresh]
    times = [line["update"] for line in fresh]
    upper.vlines(times, *ends, color=BLUE, linewidth=6, alpha=0.9, label="fresh episodes")
    upper.set_yscale("symlog", linthresh=LINEAR)
    upper.axhline(0.0, color=INK, linewidth=0.8)
    upper.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    lower.plot(*_curve(updates, "distortion"), color=BLUE, alpha=0.5, linewidth=1.2)
    lower.plot(*_curve(fresh, "fresh_distortion"), "o", color=BLUE, markersize=6)
    highest = max([x["fresh_distortion"] for x in fresh] + [x["distortion"] for x in updates])
    if limit < NEAR * highest:
        lower.axhline(limit, color=RED, linestyle="--", linewidth=1.3, label=f"limit, {limit:g}")
    lower.set_ylim(bottom=0.0)
    for panel in (upper, lower):
        panel.axvline(best, color=INK, linestyle=":", linewidth=1.5, label="policy kept")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.grid(alpha=0.25, linewidth=0.8)
        panel.set_axisbelow(True)
    upper.set_ylabel("leakage (nats)")
    lower.set(ylabel="distortion per step", xlabel="updates")
    labels = {label: handle for panel in (lower, upper) for handle, label in _labelled(panel)}
    figure.legend(labels.values(), labels, loc="outside upper center", ncols=4, frameon=False)
    return True


def _labelled(panel: Axes) -> Iterable[tuple[Artist, str]]:
    return zip(*panel.get_legend_handles_labels(), strict=True)


def _known(line: dict[str, float], *names: str) -> bool:
    return all(isinstance(line.get(name), int | float) and math.isfinite(line[name]) for name in names)


def _curve(lines: Lines, name: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([line["update"] for line in lines]), np.array([line[name] for line in lines])

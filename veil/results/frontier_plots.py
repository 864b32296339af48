"""The picture of a frontier: leakage against distortion and against cost."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED
from veil.results.parts import SMALLEST, Point
from veil.settings import FAMILY_WORDS, FamilyName
from veil.stats import CONFIDENCE, ERRORS, Mean

Families = Mapping[FamilyName, list[Point]]

MARKS: dict[FamilyName, tuple[str, str]] = {
    "noise": (INK, "o"),
    "quantised": (ORANGE, "s"),
    "displacement": (BLUE, "^"),
    "transport": (GREEN, "D"),
    "plain": (RED, "v"),
}

BOTTOM = 0.8 * SMALLEST

SMALL = 13  # points of text, so that half the size can still be read

LINEAR = 0.1  # per cent of cost within which the scale is linear


def draw_frontier(families: Families, floor: Mean, entropy: float) -> Figure:
    """Leakage against distortion on the left, against the change of the cost on the right.

    Args:
        families: their points by distortion.
        floor: least distortion per step at which nothing leaks.
        entropy: H(q), nats.
    """
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.15, 1.0))
    for panel, axis in ((left, "distortion"), (right, "change")):
        for points in families.values():
            _family(panel, points, axis)
        panel.axhline(entropy, color=PALE, linestyle="--", linewidth=1.2, zorder=1)
        panel.grid(alpha=0.25)
        panel.tick_params(labelsize=SMALL)
    left.axvline(floor.value, color=INK, linestyle=":", linewidth=2.0, zorder=1)
    every = [point for points in families.values() for point in points]
    _leakage_axis(left, entropy)
    _distortion_axis(left, every, floor.value)
    _cost_axis(right, every)
    handles, labels = _legend(families)
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=SMALL)
    return figure


def _family(panel: Axes, points: list[Point], axis: str) -> None:
    """A line through what may be believed, an interval and a marker at the upper side for every point."""
    if not points:
        return
    colour, marker = MARKS[points[0].goal.kind]
    line = [one for one in points if one.trusted]
    panel.plot(_at(line, axis), _uppers(line), color=colour, linewidth=1.8, alpha=0.75, zorder=2)
    for one, place, upper in zip(points, _at(points, axis), _uppers(points), strict=True):
        ends = np.maximum([one.leakage.low, one.leakage.high], BOTTOM)
        panel.vlines(place, *ends, color=colour, linewidth=4.5, alpha=0.3, zorder=2)
        if axis == "change" and one.trusted and np.isfinite(one.change.error):
            sides = [one.change.low(ERRORS), one.change.high(ERRORS)]
            panel.plot(sides, [upper, upper], color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        face = colour if one.trusted else "white"
        look = {"markeredgecolor": colour, "markerfacecolor": face, "markeredgewidth": 1.6, "markersize": 8.5}
        panel.plot(place, upper, marker, zorder=3, **look)


def _at(points: list[Point], axis: str) -> list[float]:
    return [getattr(one, axis).value for one in points]


def _uppers(points: list[Point]) -> list[float]:
    """Clipped at the smallest leakage that is shown."""
    return [max(one.leakage.upper.value, SMALLEST) for one in points]


def _leakage_axis(panel: Axes, entropy: float) -> None:
    panel.set_yscale("log")
    panel.set_ylim(BOTTOM, 1.5 * max(entropy, 2 * SMALLEST))
    ticks = [tick for tick in (1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0) if tick < 1.2 * entropy]
    panel.yaxis.set_major_locator(FixedLocator(ticks))
    panel.yaxis.set_major_formatter(FuncFormatter(_clipped))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylabel("leakage of a run (nats)", fontsize=SMALL + 1)


def _clipped(tick: float, _: int) -> str:
    return f"≤ {tick:g}" if tick <= SMALLEST else f"{tick:g}"


def _distortion_axis(panel: Axes, points: list[Point], floor: float) -> None:
    positive = [value for value in (*(one.distortion.value for one in points), floor) if value > 0]
    panel.set_xscale("log")
    panel.set_xlim(min(positive) / 1.4, 1.4 * max(positive))
    panel.xaxis.set_major_locator(FixedLocator(_round_numbers(min(positive) / 1.4, 1.4 * max(positive))))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("mean distortion per step (units of the system)", fontsize=SMALL + 1)


def _round_numbers(low: float, high: float) -> list[float]:
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if np.log10(high / low) < 2.5 else (1, 3)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _cost_axis(panel: Axes, points: list[Point]) -> None:
    """Linear around zero, where most of it happens, and logarithmic beyond."""
    ends = [end for one in points for end in (one.change.low(ERRORS), one.change.high(ERRORS))]
    known = [end for end in ends if np.isfinite(end)]
    low, high = min([-0.3 * LINEAR, *known]), max([LINEAR, *known])
    panel.set_xscale("symlog", linthresh=LINEAR)
    panel.set_xlim(low - 0.1 * LINEAR if low > -LINEAR else 1.5 * low, 1.7 * high)
    decades = [LINEAR * 10.0**power for power in range(int(np.log10(max(high, -low) / LINEAR)) + 1)]
    sided = [sign * decade for decade in decades for sign in (-1, 1)]
    panel.xaxis.set_major_locator(FixedLocator([0.0, *(tick for tick in sided if low <= tick <= 1.7 * high)]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    panel.axvline(0.0, color=PALE, linewidth=1.0, zorder=1)
    panel.set_xlabel("change of the cost against true data (%)", fontsize=SMALL + 1)


def _legend(families: Families) -> tuple[list[Line2D], list[str]]:
    """Families, then what the other marks mean."""
    entries: dict[str, Line2D] = {}
    for kind in families:
        colour, marker = MARKS[kind]
        entries[FAMILY_WORDS[kind]] = Line2D(
            [], [], color=colour, marker=marker, markersize=8.5, linewidth=1.8
        )
    bar = Line2D([], [], color=PALE, linewidth=6, alpha=0.5)
    entries[f"interval, {CONFIDENCE} confidence (marker: upper side)"] = bar
    if not all(one.trusted for points in families.values() for one in points):
        hollow = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linestyle="", markersize=8.5)
        entries["not to be believed"] = hollow
    floor = Line2D([], [], color=INK, linestyle=":", linewidth=2.0)
    entries["least distortion at zero leakage (transport)"] = floor
    entries["all there is to know, H(q)"] = Line2D([], [], color=PALE, linestyle="--", linewidth=1.2)
    return list(entries.values()), list(entries)

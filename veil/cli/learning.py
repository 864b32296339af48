"""The course of a training as a picture: what leaks, and what it costs in distortion."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from veil.plots import BLUE, GREEN, INK, ORANGE, RED

PICTURE = "learning.png"

NEAR = 2.0  # a limit within this factor of the largest distortion is drawn

Lines = list[dict[str, float]]


def draw(lines: Lines, best: int, limit: float, path: Path) -> None:
    """Draw all updates and evaluations.

    Args:
        lines: metrics of all updates, before them those of the evaluation at the start.
        best: after which update the policy was kept.
        limit: of the distortion per step.
        path: where the picture goes.
    """
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    updates, evaluations = [x for x in lines if "leakage" in x], [x for x in lines if "upper" in x]
    _leakage(left, updates, evaluations)
    _distortion(right, updates, evaluations, limit)
    kept = [x for x in evaluations if x["update"] == best]
    for panel, name in ((left, "upper"), (right, "fresh_distortion")):
        panel.plot(
            *_curve(kept, name), "o", color=GREEN, markersize=13, fillstyle="none", label="policy kept"
        )
    for panel in (left, right):
        panel.set_xlabel("updates")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        panel.grid(alpha=0.2)
    handles, labels = left.get_legend_handles_labels()
    more = [
        (h, text) for h, text in zip(*right.get_legend_handles_labels(), strict=True) if text not in labels
    ]
    handles, labels = [*handles, *(h for h, _ in more)], [*labels, *(text for _, text in more)]
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def _leakage(panel: Axes, updates: Lines, evaluations: Lines) -> None:
    known = [x["leakage"] for x in updates] + [x["upper"] for x in evaluations]
    logarithmic = min(known) > 0.0
    times = [x["update"] for x in evaluations]
    panel.plot(*_curve(updates, "leakage"), color=BLUE, linewidth=1, alpha=0.8, label="in training")
    if logarithmic:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
    else:
        panel.axhline(0.0, color=INK, linewidth=0.8)
    floor = 0.5 * min(known) if logarithmic else min(x["lower"] for x in evaluations)
    ends = [max(floor, x["lower"]) for x in evaluations], [x["upper"] for x in evaluations]
    panel.vlines(
        times, *ends, color=ORANGE, linewidth=5, alpha=0.4, label="fresh episodes, lower to upper side"
    )
    panel.plot(times, ends[1], "v", color=ORANGE, markersize=5)
    panel.set_ylabel("leakage per episode (nats)")


def _distortion(panel: Axes, updates: Lines, evaluations: Lines, limit: float) -> None:
    panel.plot(*_curve(updates, "distortion"), color=BLUE, linewidth=1, alpha=0.8, label="in training")
    panel.plot(*_curve(evaluations, "fresh_distortion"), "v", color=ORANGE, markersize=5)
    highest = max(x["fresh_distortion"] for x in evaluations)
    if limit < NEAR * max([highest, *(x["distortion"] for x in updates)]):
        panel.axhline(limit, color=RED, linestyle="--", linewidth=1.2, label=f"limit, {limit:g}")
    panel.set_ylim(bottom=0.0)
    panel.set_ylabel("distortion per step")


def _curve(lines: Lines, name: str) -> tuple[list[float], list[float]]:
    return [x["update"] for x in lines], [x[name] for x in lines]

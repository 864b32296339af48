"""How the policy was learned."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from veil.learners.run import Result, Settings
from veil.plots import INK
from veil.report import wording as words
from veil.report.blocks import ACCENT, SOFT, WARN, Block, Missing, Picture, Section, Text, canvas, quiet, svg
from veil.report.gather import Material, own_columns
from veil.report.source import Source

LEAD = "A policy is learned by trying: what it told and what it cost, update by update."

NEAR = 2.0  # a limit within this factor of the largest distortion is drawn

Lines = tuple[dict[str, float], ...]


def section(material: Material) -> Section:
    """One column per run."""
    return Section("training", "How it was learned", LEAD, (), own_columns(material, _column))


def _column(source: Source) -> tuple[Block, ...]:
    run = source.run
    if run is None or run.result is None or not isinstance(run.settings, Settings):
        said = "Nothing was learned here: this way of sharing is ready at once. To learn one:"
        return (Missing(said, f"veil train {source.command_system}"),)
    drawn = _picture(source.history, run.result.best, run.settings.objective.distortion_limit)
    return (*(() if drawn is None else (drawn,)), Text(_said(run.settings, run.result)))


def _said(settings: Settings, result: Result) -> str:
    fresh = settings.training.evaluation_episodes
    return (
        f"{result.updates} updates took {words.clock(result.seconds)} and ended because: {result.reason}. "
        f"The policy that was kept is the one after update {result.best}; on {fresh} "
        f"fresh episodes it leaked {words.signless(result.lower, 3)} to {words.at_most(result.upper)} nats "
        f"at a distortion of {result.distortion:.3f} per step. It was chosen by these episodes, so the "
        "audit, on others, has the last word."
    )


def _picture(lines: Lines, best: int, limit: float) -> Picture | None:
    """Leakage above, distortion below."""
    updates = [line for line in lines if _known(line, "leakage", "distortion")]
    evaluations = [line for line in lines if _known(line, "upper", "lower", "fresh_distortion")]
    if not updates and not evaluations:
        return None
    figure = canvas(4.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(*_curve(updates, "leakage"), color=SOFT, linewidth=1.2, label="in training")
    times = [line["update"] for line in evaluations]
    ends = [line["lower"] for line in evaluations], [line["upper"] for line in evaluations]
    upper.vlines(times, *ends, color=ACCENT, linewidth=6, alpha=0.8, label="fresh episodes")
    _logarithmic(upper)
    lower.plot(*_curve(updates, "distortion"), color=SOFT, linewidth=1.2)
    lower.plot(*_curve(evaluations, "fresh_distortion"), "o", color=ACCENT, markersize=6)
    highest = max([x["fresh_distortion"] for x in evaluations] + [x["distortion"] for x in updates])
    if limit < NEAR * highest:
        lower.axhline(limit, color=WARN, linestyle="--", linewidth=1.3, label="limit")
    lower.set_ylim(bottom=0.0)
    for panel in (upper, lower):
        panel.axvline(best, color=INK, linestyle=":", linewidth=1.5, label="policy kept")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        quiet(panel)
    upper.set_ylabel("leakage (nats)")
    lower.set(ylabel="distortion per step", xlabel="updates")
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    caption = (
        "Above, what an episode leaks (close to zero the scale is linear); below, how far releases are from "
        "the truth. Pale lines are the episodes that were learned from, dark marks fresh ones that choose "
        "the policy."
    )
    return Picture(svg(figure), f"Leakage and distortion over {max(times, default=0):.0f} updates.", caption)


def _logarithmic(panel: Axes) -> None:
    """Linear close to zero, where a good policy ends, and logarithmic above."""
    panel.set_yscale("symlog", linthresh=0.01)
    panel.axhline(0.0, color=INK, linewidth=0.8)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))


def _known(line: dict[str, float], *names: str) -> bool:
    return all(isinstance(line.get(name), int | float) and math.isfinite(line[name]) for name in names)


def _curve(lines: list[dict[str, float]], name: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([line["update"] for line in lines]), np.array([line[name] for line in lines])

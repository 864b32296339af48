"""Figures 1 and 2 of the paper for one column, and the learning curves of all."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from paper.reproduction.courses import BLOCK, Course
from paper.reproduction.ending import FARTHEST
from paper.reproduction.stages import Arrays
from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED
from veil.results.parts import SMALLEST

COLOURS = (BLUE, RED, GREEN, ORANGE, INK, "#CC79A7", "#56B4E9", PALE)

LOW, HIGH = 0.05, 0.95  # quantiles of the band over episodes

DPI = 130

MOST = float(np.log(4.0))  # nats: what there is to know

Lines = list[dict[str, float]]


def figure_1(title: str, read: Arrays, secrets: np.ndarray, path: Path) -> Path:
    """For each true secret: its posterior mass over time on the left, misdetections on the right."""
    count = len(secrets)
    figure = Figure(figsize=(13, 2.9 * -(-count // 2) + 0.8), layout="constrained")
    panels = figure.subplots(-(-count // 2), 4, squeeze=False, width_ratios=(1.25, 1.0, 1.25, 1.0))
    groups = [read["log_masses"][read["index"] == secret] for secret in range(count)]
    for secret, own in enumerate(groups):
        row, side = divmod(secret, 2)
        left, right = panels[row, 2 * side], panels[row, 2 * side + 1]
        _posterior(left, np.exp(own[:, :, secret]), 1.0 / count)
        _misdetections(right, np.argmax(own[0], axis=1) != secret)
        left.set_title(f"θ$^{secret + 1}$ = {_name(secrets[secret])}", fontsize=11)
        missed = np.mean(np.argmax(own, axis=2) != secret)
        right.set_title(f"missed at {missed:.0%} of all steps", fontsize=10)
    figure.suptitle(title, fontsize=12)
    handles = [
        Line2D([], [], color=BLUE, linewidth=1.8, label=f"mean of {len(groups[0])} episodes"),
        Patch(color=BLUE, alpha=0.2, linewidth=0, label="5 to 95 % of the episodes"),
        Line2D([], [], color=ORANGE, linewidth=1.2, label="one episode, that of the right panels"),
        Line2D([], [], color=PALE, linestyle="--", label="prior"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    figure.savefig(path, dpi=DPI)
    return path


def _posterior(panel: Axes, masses: np.ndarray, prior: float) -> None:
    steps = np.arange(1, masses.shape[1] + 1)
    low, high = np.quantile(masses, [LOW, HIGH], axis=0)
    panel.fill_between(steps, low, high, color=BLUE, alpha=0.2, linewidth=0)
    panel.plot(steps, masses.mean(axis=0), color=BLUE, linewidth=1.8)
    panel.plot(steps, masses[0], color=ORANGE, linewidth=1.2)
    panel.axhline(prior, color=PALE, linestyle="--", linewidth=1.2)
    panel.set_ylim(0.0, 1.0)
    panel.set_ylabel("posterior on θ*")
    panel.set_xlabel("step")
    panel.grid(alpha=0.2)


def _misdetections(panel: Axes, wrong: np.ndarray) -> None:
    steps = np.arange(1, len(wrong) + 1)
    panel.plot(steps[wrong], np.ones(wrong.sum()), "|", color=RED, markersize=11, markeredgewidth=1.6)
    panel.plot(steps[~wrong], np.zeros((~wrong).sum()), "|", color=GREEN, markersize=11, markeredgewidth=1.6)
    panel.set_yticks([0.0, 1.0], ["right", "missed"])
    panel.set_ylim(-0.6, 1.6)
    panel.set_xlim(0, len(wrong) + 1)
    panel.set_xlabel("step")
    panel.grid(alpha=0.2, axis="x")


def figure_2(title: str, read: Arrays, secrets: np.ndarray, path: Path) -> Path:
    """True and estimated speed and spacing over time, one episode for each true secret."""
    count = len(secrets)
    figure = Figure(figsize=(3.3 * count, 5.2), layout="constrained")
    panels = figure.subplots(2, count, squeeze=False, sharex=True, sharey="row")
    for secret in range(count):
        row = int(np.argmax(read["index"] == secret))
        for axis, unit in enumerate(("speed (m/s)", "spacing (m)")):
            panel, steps = panels[axis, secret], np.arange(1, read["states"].shape[1] + 1)
            panel.plot(steps, read["shared"][row, :, axis], ".", color=PALE, markersize=4, label="shared")
            panel.plot(steps, read["states"][row, :, axis], color=INK, linewidth=1.8, label="true")
            panel.plot(
                steps, read["means"][row, :, axis], "--", color=ORANGE, linewidth=1.8, label="posterior mean"
            )
            panel.grid(alpha=0.2)
            if secret == 0:
                panel.set_ylabel(unit)
        panels[0, secret].set_title(f"θ$^{secret + 1}$ = {_name(secrets[secret])}", fontsize=11)
        panels[1, secret].set_xlabel("step")
    figure.suptitle(title, fontsize=12)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=DPI)
    return path


def learning(courses: dict[str, Lines], path: Path) -> Path:
    """Leakage and distortion at the evaluations of every training against the seconds taken by then."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (title, lines), colour in zip(courses.items(), COLOURS, strict=False):
        seen = evaluations(lines)
        times = [one["elapsed"] for one in seen]
        upper = [max(one["upper"], SMALLEST) for one in seen]
        counted = [max(one["leakage_counted"], SMALLEST) for one in seen]
        left.plot(times, upper, "v-", color=colour, linewidth=1.8, markersize=6, label=title)
        left.plot(times, counted, "o:", color=colour, linewidth=1.0, markersize=4, fillstyle="none")
        distortion = [one["fresh_distortion"] for one in seen]
        right.plot(times, distortion, "v-", color=colour, linewidth=1.8, markersize=6)
    left.set_ylabel("leakage of a run (nats)")
    right.set_ylabel("mean distortion per step")
    for panel in (left, right):
        _logarithmic(panel)
        panel.set_xlabel("seconds of training, compiling and evaluations included")
        panel.set_xlim(left=0.0)
        panel.grid(alpha=0.25)
    handles, labels = left.get_legend_handles_labels()
    handles += [
        Line2D([], [], color="0.6", marker="v", linewidth=1.8),
        Line2D([], [], color="0.6", marker="o", fillstyle="none", linestyle=":", linewidth=1.0),
    ]
    labels += ["upper side", f"what counts in training (both at least {SMALLEST:g})"]
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=10)
    figure.savefig(path, dpi=DPI)
    return path


def printed_courses(found: dict[str, Course], path: Path) -> Path:
    """Of the printed learner by updates: leakage at the looks, mean Q, and how far the releases are."""
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for (name, one), colour in zip(found.items(), COLOURS, strict=False):
        updates = [look.update for look in one.looks]
        upper, lower = ([getattr(look, side) for look in one.looks] for side in ("upper", "lower"))
        left.plot(
            updates,
            np.clip(upper, 0.0, MOST),
            "v-",
            color=colour,
            linewidth=1.6,
            markersize=5,
            label=f"{name}: {one.reason}",
        )
        left.plot(updates, np.clip(lower, 0.0, MOST), "^:", color=colour, linewidth=1.0, markersize=4)
        places = BLOCK * (np.arange(len(one.value)) + 1)
        middle.plot(places, one.value, color=colour, linewidth=1.6)
        right.plot(places, one.far, color=colour, linewidth=1.6)
    middle.set_yscale("symlog", linthresh=1.0)
    right.set_yscale("log")
    right.axhline(FARTHEST, color=PALE, linestyle="--", linewidth=1.2)
    left.set_ylabel("leakage at the looks (nats): upper ▾, lower ▴")
    middle.set_ylabel("mean Q, in units of ρ (mL/s where ρ = 0)")
    right.set_ylabel("mean distortion per step; dashed: diverged above")
    left.set_ylim(bottom=0.0)
    return _updates(figure, path)


def discrete_courses(found: dict[str, Course], path: Path) -> Path:
    """Of the discrete policies: leakage and distortion at the looks against the episodes played."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, one), colour in zip(found.items(), COLOURS, strict=False):
        each = one.episodes / max(one.updates, 1)
        episodes = [each * look.update for look in one.looks]
        upper = np.clip([look.upper for look in one.looks], 0.0, MOST)
        left.plot(episodes, upper, "v-", color=colour, linewidth=1.6, markersize=5, label=name)
        right.plot(episodes, [look.distortion for look in one.looks], "v-", color=colour, linewidth=1.6)
    left.set_ylabel("leakage at the looks, upper side (nats)")
    right.set_ylabel("mean distortion per step")
    left.set_ylim(bottom=0.0)
    right.set_ylim(bottom=0.0)
    return _updates(figure, path, "episodes")


def _updates(figure: Figure, path: Path, what: str = "updates") -> Path:
    """Save panels of what happened in trainings."""
    for panel in figure.axes:
        panel.set_xlabel(what)
        panel.set_xlim(left=0.0)
        panel.grid(alpha=0.25)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=10)
    figure.savefig(path, dpi=DPI)
    return path


def _logarithmic(panel: Axes) -> None:
    """Round numbers on the scale, however short it is."""
    known = np.concatenate([np.asarray(line.get_ydata(), float) for line in panel.get_lines()])
    known = known[np.isfinite(known)]
    panel.set_yscale("log")
    panel.set_ylim(known.min() / 1.6, 1.6 * known.max())
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def evaluations(lines: Lines) -> Lines:
    """The evaluations of a training, each with the seconds that had passed by then."""
    elapsed = np.cumsum([line["seconds"] for line in lines])
    return [line | {"elapsed": float(at)} for line, at in zip(lines, elapsed, strict=True) if "upper" in line]


def _name(secret: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:g}" for value in secret) + ")"

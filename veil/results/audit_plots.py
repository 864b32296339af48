"""Pictures of an audit: leakage, attackers, posteriors over time, reliability of the forecast."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED, one_panel
from veil.results.parts import AtStep, AttackResult, Curves, Verdict
from veil.stats import CONFIDENCE, ERRORS, Bins, Mean

PANELS = 9  # most secrets that get a panel each


def draw_posterior(curves: Curves, names: Sequence[str], prior: np.ndarray) -> Figure:
    """Mean mass on the true secret over time, for each true secret.

    Args:
        curves: over time.
        names: of the secrets.
        prior: (K,) masses before reading.
    """
    count = len(curves.posterior)
    if count > PANELS:
        return _many_posteriors(curves.posterior, prior)
    columns = 2 if count == 4 else min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(max(7.0, 3.8 * columns), 2.7 * rows + 0.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for panel, mean, spread, mass, name in zip(
        panels, curves.posterior, curves.spread, prior, names, strict=False
    ):
        times = np.arange(1, len(mean) + 1)
        low, high = np.clip(mean - spread, 0.0, 1.0), np.clip(mean + spread, 0.0, 1.0)
        panel.fill_between(times, low, high, color=BLUE, alpha=0.2, linewidth=0)
        panel.plot(times, mean, color=BLUE, linewidth=2, marker="o" if len(times) == 1 else None)
        panel.axhline(float(mass), color=INK, linestyle=":", linewidth=1.2)
        panel.set_title(name.replace(", ", "\n"), fontsize=10)
        panel.set_ylim(-0.03, 1.03)
        panel.grid(alpha=0.2)
    for place in range(count, rows * columns):
        panels[place].set_axis_off()
        panels[place - columns].tick_params(labelbottom=True)
    figure.supxlabel("releases seen", fontsize=10)
    figure.supylabel("mass on the true secret", fontsize=10)
    lines = [Line2D([], [], color=BLUE, linewidth=2), Line2D([], [], color=BLUE, linewidth=8, alpha=0.2)]
    lines.append(Line2D([], [], color=INK, linestyle=":"))
    labels = ["mean over episodes", "± 1 standard deviation", "before reading"]
    figure.legend(lines, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _many_posteriors(curves: np.ndarray, prior: np.ndarray) -> Figure:
    """One thin line per secret where there are too many for panels."""
    figure, panel = one_panel()
    times = np.arange(1, curves.shape[1] + 1)
    for colour, curve in zip(colormaps["viridis"](np.linspace(0, 0.9, len(curves))), curves, strict=True):
        panel.plot(times, curve, color=colour, linewidth=0.8, alpha=0.7)
    panel.plot(times, prior @ curves, color=INK, linewidth=2.5, label="mean over all secrets")
    panel.axhline(float(prior @ prior), color=INK, linestyle=":", label="before reading")
    panel.plot([], [], color="#21918c", linewidth=0.8, label=f"each of {len(curves)} true secrets")
    panel.set(xlabel="releases seen", ylabel="mass on the true secret", ylim=(-0.03, 1.03))
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw_final_posterior(
    posteriors: np.ndarray, index: np.ndarray, names: Sequence[str], prior: np.ndarray, horizon: int
) -> Figure:
    """Mass on the true secret at the end, where there is no curve over time.

    Args:
        posteriors: (E, K) after the last release.
        index: (E,) true secrets.
        names: of the secrets.
        prior: (K,) masses before reading.
        horizon: releases.
    """
    figure, panel = one_panel()
    count = posteriors.shape[1]
    for k in range(count):
        own = posteriors[index == k, k]
        own = own[np.isfinite(own)]
        if len(own):
            panel.errorbar(k, own.mean(), own.std(), fmt="o", color=BLUE, capsize=4, markersize=7)
        panel.plot([k - 0.3, k + 0.3], [prior[k]] * 2, color=INK, linestyle=":")
    panel.plot([], [], "o", color=BLUE, label="mean ± 1 standard deviation over episodes")
    panel.plot([], [], ":", color=INK, label="before reading")
    if count <= PANELS:
        panel.set_xticks(range(count), [name.replace(", ", "\n") for name in names])
    panel.set(xlabel="true secret", ylim=(-0.03, 1.03), xlim=(-0.6, count - 0.4))
    panel.set_ylabel(f"mass on the true secret after {horizon} releases")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def draw_reliability(bins: Bins) -> Figure:
    """How often a secret is true that the auditor gave a certain mass, and how often it gave that mass."""
    figure = Figure(figsize=(5.6, 6.2), layout="constrained")
    panel, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    panel.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.2, label="a perfect forecast")
    error = np.abs(np.stack([bins.rate - bins.low, bins.high - bins.rate]))
    label = "observed, 95 % binomial interval"
    panel.errorbar(bins.mean, bins.rate, error, fmt="o", color=BLUE, capsize=3, markersize=6, label=label)
    panel.set(ylabel="fraction of cases in which it is the true one", ylim=(-0.03, 1.03))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    middles, width = 0.5 * (bins.edges[1:] + bins.edges[:-1]), np.diff(bins.edges)
    below.bar(middles, bins.count, 0.9 * width, color=PALE)
    below.set(xlabel="mass that the auditor gives to a secret", ylabel="cases", xlim=(-0.03, 1.03))
    below.set_yscale("log" if bins.count.any() else "linear")
    below.set_ylim(0.7, 2.0 * max(1, bins.count.max()))
    for axes in (panel, below):
        axes.grid(alpha=0.2)
    return figure


ROLES = {"attack": BLUE, "assisted": ORANGE, "mismatched": PALE}

ROLE_WORDS = {
    "attack": "knows what the threat model grants",
    "assisted": "knows more",
    "mismatched": "believes something wrong",
}

CLOSE = 0.25  # a leakage below this fraction of H(q) is also shown close up


def draw_leakage(rows: Sequence[AtStep], curves: Curves | None, verdict: Verdict) -> Figure:
    """The interval at a few times, on the scale of all there is to know and, if it is small, close up.

    Args:
        rows: the leakage at a few times; the last one is that of the whole run.
        curves: a preview over time, None where there is none.
        verdict: whether the upper sides may be believed.
    """
    entropy, horizon = rows[-1].leakage.entropy, rows[-1].step
    tallest = max(row.leakage.high for row in rows)
    close = 0.0 < tallest < CLOSE * entropy
    figure = Figure(figsize=(10 if close else 7, 4.4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, 2 if close else 1))
    for panel in panels:
        _interval_bars(panel, rows, curves, verdict)
        panel.axhline(0.0, color=INK, linewidth=0.8)
        panel.axhline(
            entropy, color=INK, linestyle="--", linewidth=1, label=f"all there is to know, {entropy:.3f}"
        )
        panel.set(xlabel="releases seen", xlim=(0, 1.04 * horizon + 0.5))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        panel.grid(alpha=0.2)
    top = entropy if entropy > 0 else 1.0
    panels[0].set(ylim=(-0.04 * top, 1.06 * top), ylabel="leakage (nats)")
    if close:
        panels[1].set_ylim(-0.06 * tallest, 1.15 * tallest)
        panels[1].set_title("the same, close up", fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=3 if close else 2, frameon=False, fontsize=9
    )
    return figure


def _interval_bars(panel: Axes, rows: Sequence[AtStep], curves: Curves | None, verdict: Verdict) -> None:
    steps = [row.step for row in rows]
    ends = [(row.leakage.low, row.leakage.high) for row in rows]
    believed = "; upper side not to be believed" if verdict.refused else ""
    label = f"interval, {CONFIDENCE} confidence{believed}"
    colour = BLUE if verdict.certified else RED
    if curves is not None:
        times = np.arange(1, len(curves.score) + 1)
        panel.plot(times, curves.score, color=GREEN, linewidth=1.5, label="preview by Kalman filters")
    panel.vlines(steps, *zip(*ends, strict=True), color=colour, linewidth=5, alpha=0.35, label=label)
    for end in zip(*ends, strict=True):
        panel.plot(steps, end, "_", color=colour, markersize=11)
    lower, upper = ([getattr(row.leakage, side).value for row in rows] for side in ("lower", "upper"))
    panel.plot(steps, upper, "v", color=colour, markersize=6, label="mean of the upper side")
    panel.plot(
        steps, lower, "^", color=colour, markersize=6, fillstyle="none", label="mean of the lower side"
    )


def draw_attacks(attacks: Sequence[AttackResult], chance: float, high: float, verdict: Verdict) -> Figure:
    """What each attacker gained, in nats and in right guesses.

    Args:
        attacks: all of them.
        chance: accuracy of the best guess without reading.
        high: what may leak at most by the verdict, nats.
        verdict: whether that is proven.
    """
    rows = attacks[::-1]
    figure = Figure(figsize=(10, 0.42 * max(len(rows), 2) + 2.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, row in enumerate(rows):
        colour = ROLES.get(row.role, PALE)
        _bar(left, place, row.lower, colour)
        right.barh(place, row.accuracy.value, 0.62, color=colour, alpha=0.6)
        right.plot([row.accuracy.low, row.accuracy.high], [place] * 2, color=INK, linewidth=1.5)
    name = "upper bound" if verdict.certified else "no upper bound: H(q)"
    left.axvline(high, color=RED, linewidth=1.8, label=f"{name}, {high:.3f}")
    left.axvline(0.0, color=INK, linewidth=0.8)
    known = [row.lower.high(ERRORS) for row in rows if np.isfinite(row.lower.high(ERRORS))]
    reach = max([high, *known, 0.02 * max(high, 1.0)])
    floor = min([0.0, *(row.lower.low(ERRORS) for row in rows if np.isfinite(row.lower.low(ERRORS)))])
    left.set(xlim=(max(floor, -reach) - 0.03 * reach, 1.08 * reach))
    left.set_xlabel(f"lower bound on the leakage (nats), ± {ERRORS:g} standard errors")
    left.xaxis.set_major_locator(MaxNLocator(6))
    left.set_yticks(range(len(rows)), [row.name for row in rows])
    left.set_ylim(-0.6, max(len(rows), 2) - 0.4)
    right.axvline(chance, color=INK, linestyle=":", linewidth=1.5, label=f"chance, {chance:.3f}")
    right.set(xlabel="fraction of right guesses, 95 % interval", xlim=(0, 1.02))
    for panel in (left, right):
        panel.grid(alpha=0.2, axis="x")
    for role in [role for role in ROLES if any(row.role == role for row in rows)]:
        right.barh([-9], [0], color=ROLES[role], alpha=0.6, label=ROLE_WORDS[role])
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _bar(panel: Axes, place: int, bound: Mean, colour: str) -> None:
    if not np.isfinite(bound.value):
        panel.text(0.0, place, " unknown", va="center", color=INK, fontsize=9)
        return
    panel.barh(place, bound.value, 0.62, color=colour, alpha=0.6)
    if np.isfinite(bound.error):
        panel.plot([bound.low(ERRORS), bound.high(ERRORS)], [place] * 2, color=INK, linewidth=1.5)


def draw_realised(realised: np.ndarray, entropy: float, worst: float) -> Figure:
    """The information gained in single episodes, beside the average that the verdict is about.

    Args:
        realised: (E,) log(posterior/prior) of the true secret, nats.
        entropy: H(q), nats.
        worst: what one episode in a hundred exceeds, nats.
    """
    figure, panel = one_panel()
    known = realised[np.isfinite(realised)]
    floor = -2.0 * max(entropy, 1.0)
    shown = known[known >= floor]
    missing = len(realised) - len(shown)
    ends = (shown.min(), shown.max()) if len(shown) else (0.0, 0.0)
    middle, half = 0.5 * (ends[0] + ends[1]), max(0.5 * (ends[1] - ends[0]), 0.02)
    count = int(np.clip(2 * np.sqrt(len(shown)), 5, 60)) | 1  # odd: one value alone sits in the middle
    bins = np.linspace(middle - 1.02 * half, middle + 1.02 * half, count + 1)
    panel.hist(shown, bins.tolist(), color=BLUE, alpha=0.55)
    if len(shown):
        panel.axvline(
            shown.mean(), color=INK, linewidth=1.8, label=f"mean of the episodes shown, {shown.mean():.3f}"
        )
        label = f"worst per cent begins, {worst:.3f}"
        panel.axvline(worst, color=RED, linestyle="--", linewidth=1.8, label=label)
    if missing:
        panel.plot([], [], " ", label=f"{missing} episodes below {floor:.1f} or unknown: not shown")
    panel.set(xlabel="what one episode tells: log of posterior over prior of the true secret (nats)")
    panel.set_ylabel("episodes")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure

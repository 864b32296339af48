"""Pictures of the adversary's belief: where its mass goes over time, and whether it means what it says."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from veil.auditing.calibration import Bins, prior_of, reliability_bins
from veil.auditing.result import Audit
from veil.auditing.style import BLUE, INK, PALE, one_panel

PANELS = 9  # most secrets that get a panel each


def posterior(audit: Audit) -> Figure:
    """Mean mass on the true secret over time, for each true secret."""
    if audit.curves is None:
        return _final_posterior(audit)
    if len(audit.curves.posterior) > PANELS:
        return _many_posteriors(audit)
    count, prior = len(audit.curves.posterior), prior_of(audit)
    columns = 2 if count == 4 else min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(max(7.0, 3.8 * columns), 2.7 * rows + 0.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for panel, mean, spread, mass, name in zip(
        panels, audit.curves.posterior, audit.curves.spread, prior, _names(audit, count), strict=False
    ):
        times = np.arange(1, len(mean) + 1)
        low, high = np.clip(mean - spread, 0.0, 1.0), np.clip(mean + spread, 0.0, 1.0)
        panel.fill_between(times, low, high, color=BLUE, alpha=0.2, linewidth=0)
        panel.plot(times, mean, color=BLUE, linewidth=2, marker="o" if len(times) == 1 else None)
        panel.axhline(float(mass), color=INK, linestyle=":", linewidth=1.2)
        panel.set_title(name, fontsize=10)
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


def _many_posteriors(audit: Audit) -> Figure:
    """One thin line per secret where there are too many for panels."""
    assert audit.curves is not None
    figure, panel = one_panel()
    curves, prior = audit.curves.posterior, prior_of(audit)
    times = np.arange(1, curves.shape[1] + 1)
    for colour, curve in zip(colormaps["viridis"](np.linspace(0, 0.9, len(curves))), curves, strict=True):
        panel.plot(times, curve, color=colour, linewidth=0.8, alpha=0.7)
    panel.plot(times, prior @ curves, color=INK, linewidth=2.5, label="mean over all secrets")
    panel.axhline(float(prior @ prior), color=INK, linestyle=":", label="before reading")
    panel.plot([], [], color="#21918c", linewidth=0.8, label=f"each of {len(curves)} true secrets")
    panel.set(xlabel="releases seen", ylabel="mass on the true secret", ylim=(-0.03, 1.03))
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _final_posterior(audit: Audit) -> Figure:
    """Mass on the true secret at the end, where there is no curve over time."""
    figure, panel = one_panel()
    count, prior = audit.posteriors.shape[1], prior_of(audit)
    for k in range(count):
        own = audit.posteriors[audit.index == k, k]
        own = own[np.isfinite(own)]
        if len(own):
            panel.errorbar(k, own.mean(), own.std(), fmt="o", color=BLUE, capsize=4, markersize=7)
        panel.plot([k - 0.3, k + 0.3], [prior[k]] * 2, color=INK, linestyle=":")
    panel.plot([], [], "o", color=BLUE, label="mean ± 1 standard deviation over episodes")
    panel.plot([], [], ":", color=INK, label="before reading")
    if count <= PANELS:
        panel.set_xticks(range(count), _names(audit, count))
    panel.set(xlabel="true secret", ylim=(-0.03, 1.03), xlim=(-0.6, count - 0.4))
    panel.set_ylabel(f"mass on the true secret after {audit.horizon} releases")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def reliability(audit: Audit) -> Figure:
    """How often a secret is true that the auditor gave a certain mass, and how often it gave that mass."""
    bins: Bins = reliability_bins(audit)
    figure = Figure(figsize=(5.6, 6.2), layout="constrained")
    panel, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    panel.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.2, label="a perfect forecast")
    error = np.abs(np.stack([bins.rate - bins.low, bins.high - bins.rate]))
    label = "observed, 95 % binomial interval"
    panel.errorbar(bins.mean, bins.rate, error, fmt="o", color=BLUE, capsize=3, markersize=6, label=label)
    panel.set(ylabel="share of cases in which it is the true one", ylim=(-0.03, 1.03))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    middles, width = 0.5 * (bins.edges[1:] + bins.edges[:-1]), np.diff(bins.edges)
    below.bar(middles, bins.count, 0.9 * width, color=PALE)
    below.set(xlabel="mass that the auditor gives to a secret", ylabel="cases", xlim=(-0.03, 1.03))
    below.set_yscale("log" if bins.count.any() else "linear")
    below.set_ylim(0.7, 2.0 * max(1, bins.count.max()))
    for axes in (panel, below):
        axes.grid(alpha=0.2)
    return figure


def _names(audit: Audit, count: int) -> list[str]:
    """The secrets' names, or their numbers."""
    names = [row.name for row in audit.secrets]
    return names if len(names) == count else [f"secret {k + 1}" for k in range(count)]

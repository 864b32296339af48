"""A measurement as a picture: what is believed over time, and whether the model deserves it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import xlogy

from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED
from veil.results import measurement_text as words
from veil.results.measurement import Measurement

COLOURS = {"leak": RED, "no leak": GREEN, "not enough data": PALE, "model does not fit": ORANGE}

LAGS = 20  # of the autocorrelation that is drawn

NAMED = 9  # most secrets that get a name each


def draw(found: Sequence[Measurement], folder: Path) -> Path:
    """Draw measure.png: one recording in detail, or all of them beside each other."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "measure.png"
    figure = recording(found[0]) if len(found) == 1 else recordings(found)
    figure.savefig(path, dpi=130)
    return path


def recording(found: Measurement) -> Figure:
    """The posterior over time, what it tells, and the residuals of the best secret."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    belief, nats, residuals = figure.subplots(1, 3)
    _posterior(belief, found)
    _told(nats, found)
    _residuals(residuals, found)
    for panel in (belief, nats, residuals):
        panel.grid(alpha=0.2)
        panel.set_axisbelow(True)
    figure.suptitle(f"{found.name}: {found.verdict.name}", color=COLOURS[found.verdict.name], fontsize=11)
    return figure


def recordings(found: Sequence[Measurement]) -> Figure:
    """What each recording tells, and what is left of it when discounted."""
    figure = Figure(figsize=(8, 0.28 * len(found) + 2.0), layout="constrained")
    panel = figure.subplots()
    entropy = found[0].entropy
    for place, each in enumerate(found):
        panel.barh(place, each.told.value, 0.62, color=COLOURS[each.verdict.name], alpha=0.65)
        panel.plot([each.low, each.high], [place] * 2, color=INK, linewidth=1.5)
        panel.plot(each.honest_told.value, place, "D", color=INK, markersize=4)
    for name in dict.fromkeys(each.verdict.name for each in found):
        panel.barh(0, 0.0, color=COLOURS[name], alpha=0.65, label=name)
    panel.plot([], [], "D", color=INK, markersize=4, label="discounted for the misfit")
    panel.axvline(entropy, color=INK, linestyle="--", linewidth=1, label=f"H(q), {entropy:.3f}")
    panel.set_yticks(range(len(found)), [each.name for each in found], fontsize=8)
    panel.set(xlabel="told about the secret (nats)", ylim=(len(found) - 0.4, -0.6), xlim=(0, None))
    panel.grid(alpha=0.2, axis="x")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _posterior(panel: Axes, found: Measurement) -> None:
    times = np.arange(1, len(found.trail) + 1)
    named = found.trail.shape[1] <= NAMED
    shades = colormaps["viridis"](np.linspace(0, 0.9, found.trail.shape[1]))
    for index, (colour, masses) in enumerate(zip(shades, found.trail.T, strict=True)):
        label = words.secret(found, index) if named else None
        panel.plot(times, masses, color=colour, linewidth=1.6, label=label)
    by = " (Kalman filters)" if found.filtered else ""
    panel.set(xlabel="rows seen", ylabel="posterior mass", ylim=(-0.03, 1.03))
    panel.set_title(f"belief under the model{by}", fontsize=10)
    if named:
        panel.legend(frameon=False, fontsize=8, title="secret", title_fontsize=8)


def _told(panel: Axes, found: Measurement) -> None:
    times, prior = np.arange(1, len(found.trail) + 1), np.exp(found.log_prior)
    told = np.sum(xlogy(found.trail, found.trail / prior[None, :]), axis=1)
    # The trail is a mean over draws, which is less sure than each of them: only one draw has this curve.
    if not found.filtered:
        panel.plot(times, told, color=BLUE, linewidth=1.8, label="under the model")
    last, entropy = times[-1], found.entropy
    label = f"at the end, {found.told.value:.3f}"
    error = [[found.told.value - found.low], [max(0.0, found.high - found.told.value)]]
    panel.errorbar(last, found.told.value, error, fmt="o", color=BLUE, capsize=4, label=label)
    left = max(0.0, found.honest_told.value)
    panel.plot(last, left, "D", color=ORANGE, label=f"discounted for the misfit, {left:.3f}", clip_on=False)
    panel.axhline(entropy, color=INK, linestyle="--", linewidth=1, label=f"H(q), {entropy:.3f}")
    panel.set(xlabel="rows seen", ylabel="told about the secret (nats)", xlim=(0, 1.03 * last))
    panel.set_ylim(-0.04 * max(entropy, 0.1), 1.45 * max(entropy, 0.1))
    panel.set_title("what is told", fontsize=10)
    panel.legend(frameon=False, fontsize=8, loc="upper left")


def _residuals(panel: Axes, found: Measurement) -> None:
    count = len(found.scores)
    lags = np.arange(1, min(LAGS, count - 1) + 1)
    colours, lowest = (BLUE, PALE, GREEN, RED), -0.3
    for place, axis in enumerate(found.fit.axes):
        scores = found.scores[:, place]
        square = float(scores @ scores)
        if square == 0.0:
            continue
        follow = [float(scores[lag:] @ scores[:-lag]) / square for lag in lags]
        lowest = min(lowest, min(follow) - 0.05)
        label = f"{axis.name}: {axis.spread:.3g} times the noise" + ("" if axis.counts else " (not judged)")
        panel.plot(lags, follow, "o-", color=colours[place % 4], markersize=3.5, linewidth=1, label=label)
    band = 3.0 / np.sqrt(max(count, 1))
    panel.axhspan(-band, band, color=INK, alpha=0.1, linewidth=0, label="independent, ± 3 s.e.")
    panel.axhline(0.0, color=INK, linewidth=0.8)
    panel.set(xlabel="rows apart", ylabel="correlation of residuals", ylim=(min(lowest, -1.2 * band), 1.35))
    panel.set_title(f"residuals of {words.secret(found, found.fit.best)}", fontsize=10)
    panel.legend(frameon=False, fontsize=8, loc="upper right")

"""A measurement as a picture: what is believed over time, and whether the model deserves it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED

COLOURS = {"leak": RED, "no_leak": GREEN, "not_enough_data": PALE, "model_does_not_fit": ORANGE}

LAGS = 20  # of the autocorrelation that is drawn

NAMED = 9  # most secrets that get a name each


class Bar(NamedTuple):
    """One recording among several.

    Attributes:
        name: of the recording.
        verdict: its name.
        information: nats.
        interval: of that.
        discounted: what is left of it if it is discounted for the misfit.
    """

    name: str
    verdict: str
    information: float
    interval: tuple[float, float]
    discounted: float


def three_panels(title: str, verdict: str) -> tuple[Figure, np.ndarray]:
    """A wide picture with three panels, its title in the colour of the verdict."""
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for panel in panels:
        panel.grid(alpha=0.2)
        panel.set_axisbelow(True)
    figure.suptitle(title, color=COLOURS[verdict], fontsize=11)
    return figure, panels


def draw_recordings(rows: Sequence[Bar], entropy: float) -> Figure:
    """What each recording tells, and what is left of it when discounted."""
    figure = Figure(figsize=(8, 0.28 * len(rows) + 2.0), layout="constrained")
    panel = figure.subplots()
    for place, row in enumerate(rows):
        panel.barh(place, row.information, 0.62, color=COLOURS[row.verdict], alpha=0.65)
        panel.plot(row.interval, [place] * 2, color=INK, linewidth=1.5)
        panel.plot(row.discounted, place, "D", color=INK, markersize=4)
    for name in dict.fromkeys(row.verdict for row in rows):
        panel.barh(0, 0.0, color=COLOURS[name], alpha=0.65, label=name)
    panel.plot([], [], "D", color=INK, markersize=4, label="discounted for the misfit")
    panel.axvline(entropy, color=INK, linestyle="--", linewidth=1, label=f"H(q), {entropy:.3f}")
    panel.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    panel.set(xlabel="information about the secret (nats)", ylim=(len(rows) - 0.4, -0.6), xlim=(0, None))
    panel.grid(alpha=0.2, axis="x")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw_belief(panel: Axes, trail: np.ndarray, names: Sequence[str], *, filtered: bool) -> None:
    """Posterior masses after each row.

    Args:
        panel: to draw in.
        trail: (T, K) masses.
        names: of the secrets.
        filtered: whether particle filters gave the final posterior, so that this is a preview.
    """
    times = np.arange(1, len(trail) + 1)
    named = trail.shape[1] <= NAMED
    shades = colormaps["viridis"](np.linspace(0, 0.9, trail.shape[1]))
    for name, colour, masses in zip(names, shades, trail.T, strict=True):
        panel.plot(times, masses, color=colour, linewidth=1.6, label=name if named else None)
    by = " (Kalman filters)" if filtered else ""
    panel.set(xlabel="rows seen", ylabel="posterior mass", ylim=(-0.03, 1.03))
    panel.set_title(f"belief under the model{by}", fontsize=10)
    if named:
        # Below the curves, which may be anywhere.
        panel.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def draw_information(
    panel: Axes,
    curve: np.ndarray | None,
    rows: int,
    ends: tuple[float, float, float],
    discounted: float,
    entropy: float,
) -> None:
    """The information, over time where that is known, and at the end.

    Args:
        panel: to draw in.
        curve: (T,) nats after each row; None where it is not known.
        rows: T.
        ends: lower end, value and upper end after the last row, nats.
        discounted: what is left of it if it is discounted for the misfit.
        entropy: H(q), nats.
    """
    if curve is not None:
        panel.plot(np.arange(1, rows + 1), curve, color=BLUE, linewidth=1.8, label="under the model")
    low, value, high = ends
    error = [[value - low], [max(0.0, high - value)]]
    panel.errorbar(rows, value, error, fmt="o", color=BLUE, capsize=4, label=f"at the end, {value:.3f}")
    label = f"discounted for the misfit, {discounted:.3f}"
    panel.plot(rows, discounted, "D", color=ORANGE, label=label, clip_on=False)
    panel.axhline(entropy, color=INK, linestyle="--", linewidth=1, label=f"H(q), {entropy:.3f}")
    panel.set(xlabel="rows seen", ylabel="information about the secret (nats)", xlim=(0, 1.03 * rows))
    panel.set_ylim(-0.04 * max(entropy, 0.1), 1.45 * max(entropy, 0.1))
    panel.set_title("information", fontsize=10)
    panel.legend(frameon=False, fontsize=8, loc="upper left")


def draw_residuals(panel: Axes, scores: np.ndarray, labels: Sequence[str], secret: str) -> None:
    """Autocorrelation of the whitened residuals.

    Args:
        panel: to draw in.
        scores: (n, Y) residuals of the best secret.
        labels: one per axis.
        secret: name of the best secret.
    """
    count = len(scores)
    lags = np.arange(1, min(LAGS, count - 1) + 1)
    colours, lowest = (BLUE, PALE, GREEN, RED), -0.3
    for place, (label, own) in enumerate(zip(labels, scores.T, strict=True)):
        square = float(own @ own)
        if square == 0.0:
            continue
        correlations = [float(own[lag:] @ own[:-lag]) / square for lag in lags]
        lowest = min(lowest, min(correlations) - 0.05)
        panel.plot(
            lags, correlations, "o-", color=colours[place % 4], markersize=3.5, linewidth=1, label=label
        )
    band = 3.0 / np.sqrt(max(count, 1))
    panel.axhspan(-band, band, color=INK, alpha=0.1, linewidth=0, label="independent, ± 3 s.e.")
    panel.axhline(0.0, color=INK, linewidth=0.8)
    panel.set(xlabel="rows apart", ylabel="correlation of residuals", ylim=(min(lowest, -1.2 * band), 1.35))
    panel.set_title(f"residuals of {secret}".replace(", ", "\n"), fontsize=10)
    panel.legend(frameon=False, fontsize=8, loc="upper right")

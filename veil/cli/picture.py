"""The demo's pictures: the adversary's posterior over time, and leakage against distortion."""

from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from veil.demos import Measurement
from veil.demos.measurement import curve

INK = "#333333"
TICKS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
Colour = tuple[float, float, float, float]
MARKS = {"truth": "D", "noise": "o", "grid": "s"}
WORDS = {"truth": "as they are", "noise": "with Gaussian noise, sd", "grid": "rounded to steps of"}


def posterior(done: list[Measurement], path: Path) -> None:
    """One panel per true secret: mean mass on it per way of sharing, and two standard errors around."""
    secrets = np.unique(done[0].index)
    columns = 2
    rows = -(-len(secrets) // columns)
    figure = Figure(figsize=(11, 3.4 * rows + 1.2), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    colours = palette(done)
    for secret, panel in zip(secrets, axes, strict=False):
        for measured in done:
            _band(panel, measured, int(secret), colours[measured.way.name])
        panel.axhline(done[0].chance, color=INK, linestyle=":", linewidth=1.2)
        panel.set_title(f"True driver: {driver(done[0], int(secret))}", fontsize=10)
        panel.set_ylim(-0.02, 1.02)
        panel.grid(alpha=0.2)
    figure.supxlabel("step (0.2 s each)")
    figure.supylabel("posterior mass on the true driver")
    figure.suptitle("What the adversary believes about the true driver, by way of sharing", fontsize=13)
    handles = [Line2D([], [], color=colours[m.way.name], linestyle=_dash(m), linewidth=2) for m in done]
    handles.append(Line2D([], [], color=INK, linestyle=":"))
    labels = [*map(label, done), "guessing by the prior"]
    figure.legend(
        handles,
        labels,
        loc="outside right center",
        frameon=False,
        fontsize=9,
        title="mean ± 2 standard errors",
    )
    figure.savefig(path, dpi=130)


def trade(done: list[Measurement], path: Path) -> None:
    """Leakage against distortion, two standard errors either way."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    panel = figure.subplots()
    colours = palette(done)
    for family in ("noise", "grid"):
        line = [(m.distortion, m.leakage[0]) for m in done if m.way.family == family]
        panel.plot(*zip(*line, strict=True), color="#bbbbbb", linewidth=1, zorder=1) if line else None
    for measured in done:
        nats, error = measured.leakage
        look = {
            "fmt": MARKS[measured.way.family],
            "color": colours[measured.way.name],
            "label": label(measured),
        }
        panel.errorbar(measured.distortion, nats, 2 * error, capsize=3, markersize=8, **look)
    _trade_axes(panel, done[0].entropy, max(measured.distortion for measured in done))
    figure.legend(loc="outside right center", frameon=False, fontsize=9, title="± 2 standard errors")
    figure.savefig(path, dpi=130)


def palette(done: list[Measurement]) -> dict[str, Colour]:
    """One colour per way: dark for the truth, two ramps for the families."""
    colours: dict[str, Colour] = {}
    for family, ramp in (("truth", "Greys"), ("noise", "Blues"), ("grid", "Oranges")):
        members = [m.way.name for m in done if m.way.family == family]
        shades = np.linspace(0.95, 0.45, len(members))
        colours |= {name: colormaps[ramp](shade) for name, shade in zip(members, shades, strict=True)}
    return colours


def label(measured: Measurement) -> str:
    """The way of sharing in words, with units."""
    numbers = measured.way.name.partition("(")[2].rstrip(")").split(", ")
    amounts = f" ({numbers[0]} m/s, {numbers[1]} m)" if len(numbers) == 2 else ""
    return WORDS[measured.way.family] + amounts


def driver(measured: Measurement, secret: int) -> str:
    """The secret's values."""
    values = measured.secrets[secret]
    return "gains (" + ", ".join(f"{float(value):.1f}" for value in values) + ") per second"


def _dash(measured: Measurement) -> Literal["-", "--"]:
    return "--" if measured.way.family == "grid" else "-"


def _band(panel: Axes, measured: Measurement, secret: int, colour: Colour) -> None:
    mean, error = curve(measured, secret)
    times = np.arange(1, len(mean) + 1)
    panel.plot(times, mean, color=colour, linestyle=_dash(measured), linewidth=1.8)
    panel.fill_between(times, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.18, linewidth=0)


def _trade_axes(panel: Axes, entropy: float, furthest: float) -> None:
    panel.axhline(entropy, color=INK, linestyle="--", linewidth=1)
    note = "all there is to know: H(q)"
    panel.annotate(note, (0.99, entropy), (0, 4), panel.get_yaxis_transform(), "offset points", ha="right")
    panel.set_xscale("symlog", linthresh=0.05)
    ticks = [tick for tick in TICKS if tick <= furthest]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.set_xlim(-0.006, max(0.1, 1.3 * furthest))
    panel.set_xlabel("mean distortion of the shared data, sqrt(3 Δspeed² + Δspacing²)")
    panel.set_ylabel("leakage about the driver (nats)")
    panel.set_title("The more the data are changed, the less they tell", fontsize=13)
    panel.grid(alpha=0.2)

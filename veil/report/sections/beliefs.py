"""What the adversary believes over time, secret by secret, and what that amounts to in nats."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from veil.plots import INK
from veil.report import wording as words
from veil.report.audit_reader import Found
from veil.report.blocks import (
    ACCENT,
    GREY,
    SOFT,
    WARN,
    Block,
    Picture,
    Section,
    Table,
    Text,
    canvas,
    quiet,
    svg,
)
from veil.report.gather import Material, not_audited
from veil.report.source import Source
from veil.results.audit import Curves
from veil.results.audit_text import percent

LEAD = "Release by release: how sure does the adversary become of the right secret?"

PANELS = 8  # most secrets that get a panel each

CLOSE = 0.25  # a leakage below this share of all there is to know is also shown close up

FLAT = (
    "There is no curve over time for this way of sharing: its releases carry no noise of their own, so that "
    "a filter has no density to weigh them by."
)


def section(material: Material) -> Section:
    """One column per run."""
    return Section("beliefs", "What the adversary comes to believe", LEAD, (), material.columns(_column))


def _column(source: Source) -> tuple[Block, ...]:
    found = source.audit
    if found is None:
        return (not_audited(source),)
    blocks: list[Block] = [Text(FLAT)] if found.curves is None else [_posterior(found, found.curves)]
    blocks += [_leakage(found), Text(_single(found))]
    return (*blocks, _by_secret(found))


def _posterior(found: Found, curves: Curves) -> Picture:
    """Mean mass on the true secret, a panel for each, or a line for each where there are many."""
    count = len(curves.posterior)
    prior = [math.exp(-part.leakage.entropy) for part in found.secrets]
    names = [part.name for part in found.secrets]
    if count > PANELS or len(prior) != count:
        return _picture(_lines(curves), curves, found)
    columns = 1 if count == 1 else 2
    rows = -(-count // columns)
    figure = canvas(1.75 * rows + 0.9)
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for panel, mean, spread, mass, name in zip(
        panels, curves.posterior, curves.spread, prior, names, strict=False
    ):
        _band(panel, mean, spread)
        panel.axhline(mass, color=INK, linestyle=":", linewidth=1.3)
        panel.set_title(f"true secret {name}", fontsize=10.5)
    for panel in panels[count:]:
        panel.set_axis_off()
    figure.supxlabel("releases seen", fontsize=11)
    figure.supylabel("belief in the true secret", fontsize=11)
    handles = [
        Line2D([], [], color=ACCENT, linewidth=2.2),
        Line2D([], [], color=SOFT, linewidth=8, alpha=0.5),
    ]
    handles.append(Line2D([], [], color=INK, linestyle=":"))
    labels = ["mean", "± 1 sd", "before reading"]
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return _picture(svg(figure), curves, found)


def _picture(drawn: str, curves: Curves, found: Found) -> Picture:
    last = curves.posterior[:, -1]
    ends = [percent(float(end)) for end in (last.min(), last.max())]
    reach = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    says = f"Belief in the true secret over {found.horizon} releases; at the end {reach}."
    caption = (
        f"The belief that the adversary gives to the true secret, averaged over episodes: {reach} at the "
        f"end, where {percent(found.chance)} is what it began with. A line that stays on the dotted "
        "one learns nothing; one that climbs to 1 has found the secret."
    )
    return Picture(drawn, says, caption)


def _band(panel: Axes, mean: np.ndarray, spread: np.ndarray) -> None:
    times = np.arange(1, len(mean) + 1)
    low, high = np.clip(mean - spread, 0.0, 1.0), np.clip(mean + spread, 0.0, 1.0)
    panel.fill_between(times, low, high, color=SOFT, alpha=0.5, linewidth=0)
    panel.plot(times, mean, color=ACCENT, linewidth=2.2, marker="o" if len(times) == 1 else None)
    panel.set_ylim(-0.03, 1.03)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    quiet(panel)


def _lines(curves: Curves) -> str:
    figure = canvas(3.4)
    panel = figure.subplots()
    times = np.arange(1, curves.posterior.shape[1] + 1)
    panel.plot(times, curves.posterior.T, color=SOFT, linewidth=0.9)
    panel.plot(times, curves.posterior.mean(axis=0), color=ACCENT, linewidth=2.4, label="mean over secrets")
    panel.set(xlabel="releases seen", ylabel="belief in the true secret", ylim=(-0.03, 1.03))
    panel.legend(loc="upper left")
    quiet(panel)
    return svg(figure)


def _leakage(found: Found) -> Picture:
    """The interval at a few times, on the scale of all there is and, if it is small, close up."""
    entropy = found.leakage.entropy
    rows = {row.step: (row.leakage.low, row.leakage.high) for row in found.times}
    rows[found.horizon] = found.interval  # what the verdict stands for
    tallest = max(high for _, high in rows.values())
    close = 0.0 < tallest < CLOSE * entropy
    figure = canvas(4.6 if close else 2.9)
    panels = np.atleast_1d(figure.subplots(2 if close else 1, 1, sharex=True))
    for panel in panels:
        ends = [low for low, _ in rows.values()], [high for _, high in rows.values()]
        panel.vlines(list(rows), *ends, color=WARN if found.refused else ACCENT, linewidth=7, alpha=0.8)
        panel.plot(list(rows), ends[1], "_", color=ACCENT, markersize=11, markeredgewidth=2)
        if found.curves is not None:
            times = np.arange(1, len(found.curves.score) + 1)
            panel.plot(times, np.clip(found.curves.score, 0.0, None), color=GREY, linewidth=1.5)
        panel.set_xlim(0, 1.04 * found.horizon + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        quiet(panel)
    top = max(entropy, 1e-3)
    panels[0].axhline(entropy, color=INK, linestyle="--", linewidth=1.2)
    panels[0].set_ylim(-0.02 * top, 1.08 * top)
    panels[0].set_title(f"out of all there is to know, {entropy:.3f} nats", loc="left", fontsize=10.5)
    if close:
        panels[1].set_ylim(-0.02 * tallest, 1.25 * tallest)
        panels[1].set_title("the same, close up", loc="left", fontsize=10.5)
    figure.supylabel("leakage (nats)", fontsize=11)
    panels[-1].set_xlabel("releases seen")
    ends = f"{words.ends(found.interval, entropy)} nats"
    caption = (
        f"What has leaked after so many releases: bars are proven intervals ({ends} at the end, three "
        "standard errors included), the grey line is a quick preview by Kalman filters, the dashed line is "
        "everything."
    )
    return Picture(svg(figure), f"Leakage over time, {ends} after {found.horizon} releases.", caption)


def _single(found: Found) -> str:
    """Averages hide single runs, so these are told."""
    known = found.realised
    if found.refused or not all(
        math.isfinite(known.get(share, math.nan)) for share in (0.5, 0.95, 0.99, 1.0)
    ):
        return "What single runs told is not known here: the filter is not to be believed."
    half, twentieth, hundredth, most = (words.signless(known[share], 3) for share in (0.5, 0.95, 0.99, 1.0))
    return (
        f"An average hides single runs. Of the {found.episodes} that were played, half told less than {half} "
        f"nats, one in twenty more than {twentieth}, one in a hundred more than {hundredth}, and the one "
        f"that told most {most}."
    )


def _by_secret(found: Found) -> Table:
    rows = [
        (part.name, words.ends((part.leakage.low, part.leakage.high), part.leakage.entropy))
        for part in (*found.secrets, *found.components)
    ]
    caption = "The same by secret: no secret should be much worse off than the average."
    return Table(caption, ("secret", "leakage, nats"), tuple(rows))

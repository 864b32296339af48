"""The sections about use: what the receiver gets, what it costs the owner, and privacy against distortion."""

import shlex
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from veil.plots import INK
from veil.reports.blocks import (
    ACCENT,
    GREY,
    WARN,
    Block,
    Column,
    Missing,
    Picture,
    Section,
    Table,
    Text,
    canvas,
    quiet,
    svg,
)
from veil.reports.sources import Episode, Material, Source
from veil.results import Audit, Frontier
from veil.results import text as words
from veil.results.frontier_plots import MARKS
from veil.results.parts import SMALLEST, TRACKING, Quantity
from veil.settings import FAMILY_WORDS

Cells = dict[str, tuple[str, str]]  # unit and text by label

Pick = Callable[[tuple[Quantity, ...]], Cells]

RELEASE = "release error, "

AS_IS = "What goes out is what would be shared without protection, so the receiver makes no error at all."


def use_section(material: Material) -> Section:
    """What a receiver can still do with what is shared: a table of all runs, an episode of each."""
    lead = "How close the releases are to the true values."
    caption = (
        "Distortion is the mean distance between what is true and what is shared. The error as shared is "
        "that of the release itself, the error of the best estimate that of a receiver who knows the way of "
        "sharing and filters; both are root mean squares. ± is one standard error."
    )
    table = _combined(material, _use_rows, caption)
    columns = material.own_columns(lambda source: _episode(material, source))
    return Section("use", "What the receiver gets", lead, () if table is None else (table,), columns)


def _combined(material: Material, pick: Pick, caption: str) -> Table | None:
    """Some quantities of all audits in one table; None where none has any."""
    found = {name: pick(audit.utility) for name, audit in material.audited}
    labels: dict[str, str] = {}
    for rows in found.values():
        labels |= {label: unit for label, (unit, _) in rows.items() if label not in labels}
    if not labels:
        return None
    lines = tuple(
        (label, *(rows[label][1] if label in rows else "" for rows in found.values()), unit)
        for label, unit in labels.items()
    )
    return Table(caption, ("", *found, "unit"), lines)


def _use_rows(rows: tuple[Quantity, ...]) -> Cells:
    """Distortion, both errors per axis, releases out of range."""
    picked = {}
    for row in rows:
        if row.name == "distortion":
            picked["mean distortion"] = (row.unit, words.mean_text(row.value))
        for prefix, said in ((RELEASE, "error as shared"), (TRACKING, "error of the best estimate")):
            if row.name.startswith(prefix):
                axis = row.name.removeprefix(prefix)
                picked[f"{axis}, {said}"] = (row.unit, words.mean_text(row.value))
        if row.name == "releases out of range":
            picked["releases out of range"] = (row.unit, words.mean_text(row.value))
    return picked


def _episode(material: Material, source: Source) -> tuple[Block, ...]:
    episode = material.episodes.get(source.name)
    if episode is not None:
        return (_episode_picture(episode),)
    errors = [] if source.audit is None else [x for x in source.audit.utility if x.name.startswith(RELEASE)]
    if errors and all(row.value.value == 0.0 for row in errors):
        return (Text(AS_IS),)
    if source.run is not None:
        return ()
    run = source.audited_run
    if run:
        said = "An audit keeps no episode to draw. The folder of its run has what it takes to play one:"
        trust = ["--trust-code"] if ":" in source.place else []  # code, which the user must name
        return (Missing(said, shlex.join(["veil", "report", run, *trust])),)
    said = "An audit keeps no episode to draw. A folder of `veil train` has what it takes to play one:"
    return (Missing(said, shlex.join(["veil", "train", source.place, *source.policy_flags])),)


def _episode_picture(episode: Episode) -> Picture:
    """One panel per axis: the truth, what was shared, and the best estimate from it."""
    count = len(episode.names)
    figure = canvas(1.8 * count + 0.8)
    panels = np.atleast_1d(figure.subplots(count, 1, sharex=True))
    times = np.arange(1, len(episode.true) + 1)
    for axis, panel in enumerate(panels):
        panel.plot(times, episode.shared[:, axis], ".", color=WARN, markersize=6, label="shared")
        panel.plot(times, episode.true[:, axis], color=INK, linewidth=2.2, label="true")
        look = {"color": ACCENT, "linewidth": 1.8, "linestyle": (0, (4, 2))}
        panel.plot(times, episode.estimated[:, axis], label="best estimate", **look)
        unit = f" ({episode.units[axis]})" if episode.units[axis] else ""
        panel.set_ylabel(f"{episode.names[axis]}{unit}")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.tick_params(colors=INK, labelcolor=INK, color=GREY)
        quiet(panel)
    panels[-1].set_xlabel("step")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    off = np.sqrt(np.mean((episode.shared - episode.true) ** 2, axis=0))
    pairs = zip(off, episode.units, episode.names, strict=True)
    far = ", ".join(f"{value:.2g} {unit} in {name}".replace("  ", " ") for value, unit, name in pairs)
    explained = (
        "One simulated episode: dots are what goes out, the dark line is what is true, the dashed line what "
        f"a receiver makes of the dots. In this episode the dots are off by {far} (root mean square)."
    )
    caption = f"One simulated episode. {AS_IS}" if not off.any() else explained
    return Picture(svg(figure), "True, shared and estimated state over one episode.", caption)


def cost_section(material: Material) -> Section | None:
    """What sharing costs the owner beside true data; None before anything was audited, as others say."""
    if not material.audited:
        return None
    lead = "Others react to the releases, and their reaction changes the owner's cost."
    caption = (
        "Each number, and in brackets its change against sharing true data under the same random numbers (± "
        "one standard error of the change). A change within two or three standard errors of zero is none."
    )
    table = _combined(material, _cost_rows, caption + _weights(material))
    block = Text("No audit here could be compared with sharing true data.") if table is None else table
    return Section("cost", "What it costs the owner", lead, (block,))


def _weights(material: Material) -> str:
    """How the parts of the cost are added up, as a sentence; nothing where it has no parts."""
    parts = [row for _, audit in material.audited[:1] for row in audit.utility if row.weight is not None]
    if not parts:
        return ""
    terms = " + ".join(f"{row.weight:g} × {row.name}" for row in parts)
    return f" The cost is the sum {terms}, each in its unit."


def _cost_rows(rows: tuple[Quantity, ...]) -> Cells:
    """Everything that has a counterpart with true data."""
    picked = {}
    for row in rows:
        if row.true_data is not None and row.change is not None:
            picked[row.name] = (row.unit, f"{words.amount(row.value.value)} ({words.change_text(row)})")
    return picked


TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def frontier_section(material: Material) -> Section:
    """How much privacy costs how much distortion, with each run in the same picture."""
    title = "Privacy against distortion"
    lead = "Leakage against distortion, for several ways of sharing."
    if material.frontier is None:
        first = material.sources[0]
        place, name = shlex.join([first.place, *first.sensor_flags]), first.system
        said = (
            "No frontier was given. The command below makes one, in about half an hour. Then give "
            f"`--frontier frontier/{name}` to `veil report`."
        )
        return Section("frontier", title, lead, (Missing(said, f"veil frontier {place}"),))
    found = material.frontier
    blocks = (_frontier_picture(found, material.audited), Text(found.sentence))
    return Section("frontier", title, lead, (), (Column("", blocks),))


def _frontier_picture(found: Frontier, runs: list[tuple[str, Audit]]) -> Picture:
    """Upper sides against distortion, one line per family, a star per run."""
    figure = canvas(5.0)
    panel = figure.subplots()
    for kind in found.kinds:
        colour, marker = MARKS[kind]
        for trusted in (True, False):
            points = [one for one in found.family(kind) if one.trusted == trusted]
            places = [one.distortion.value for one in points]
            uppers = [max(one.leakage.upper.value, SMALLEST) for one in points]
            face, line = (colour, "-") if trusted else ("white", "")
            style = f"{marker}{line}"
            panel.plot(places, uppers, style, color=colour, markerfacecolor=face, linewidth=1.6, markersize=6)
    panel.axvline(found.floor.value, color=INK, linestyle=":", linewidth=1.8)
    panel.axhline(found.entropy, color=GREY, linestyle="--", linewidth=1.2)
    stars = {name: place for name, audit in runs if (place := _star(audit)) is not None}
    _frontier_axes(panel, found, list(stars.values()))
    _frontier_stars(panel, stars)
    _frontier_legend(figure, found, bool(stars))
    caption = (
        "Down and to the left is better: less leakage (upper side, logarithmic) at less distortion. The "
        "dotted line is the least distortion at which nothing leaks at all, the dashed one all there is to "
        f"know. Hollow marks are not to be believed. What leaks less than {SMALLEST:g} nats is drawn there."
    )
    return Picture(svg(figure), f"Leakage against distortion of {len(found.points)} policies.", caption)


def _star(audit: Audit) -> tuple[float, float] | None:
    """Where a run stands; true data have no distortion and are on no logarithmic scale."""
    distortion = audit.quantity("distortion")
    if distortion is None or not distortion.value.value > 0.0:
        return None
    return distortion.value.value, max(audit.leakage.upper.value, SMALLEST)


def _frontier_stars(panel: Axes, stars: dict[str, tuple[float, float]]) -> None:
    """A star per run and its name beside it; names that would lie on each other are moved down."""
    taken: list[tuple[float, float]] = []
    to_axes = panel.transAxes.inverted()
    for name, place in sorted(stars.items(), key=lambda row: -row[1][1]):
        panel.plot(*place, "*", color=INK, markersize=15)
        across, up = to_axes.transform(panel.transData.transform(place))
        right = across > 0.7  # the name goes to the left of its star
        text_at = up + 0.03
        while any(abs(text_at - y) < 0.06 and abs(across - x) < 0.4 for x, y in taken):
            text_at -= 0.06
        taken.append((across, text_at))
        look = {"fontsize": 10, "fontweight": "bold", "ha": "right" if right else "left", "va": "center"}
        panel.text(
            across - 0.03 if right else across + 0.03, text_at, name, transform=panel.transAxes, **look
        )


def _frontier_axes(panel: Axes, found: Frontier, stars: list[tuple[float, float]]) -> None:
    known = [one.distortion.value for kind in found.kinds for one in found.family(kind)]
    known = [x for x in (*known, found.floor.value, *(x for x, _ in stars)) if x > 0]
    panel.set_xscale("log")
    panel.set_yscale("log")
    low, high = min(known) / 1.5, 1.5 * max(known)
    panel.set(xlim=(low, high), ylim=(0.7 * SMALLEST, 1.7 * max(found.entropy, 2 * SMALLEST)))
    for axis, ends in ((panel.xaxis, (low, high)), (panel.yaxis, (SMALLEST, 1.5 * found.entropy))):
        axis.set_major_locator(FixedLocator([tick for tick in TICKS if ends[0] <= tick <= ends[1]]))
        axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axis.set_minor_formatter(NullFormatter())
    panel.set(xlabel="mean distortion per step", ylabel="leakage of a run (nats)")
    quiet(panel)


def _frontier_legend(figure: Figure, found: Frontier, starred: bool) -> None:
    entries = {
        FAMILY_WORDS[kind]: Line2D([], [], color=c, marker=m)
        for kind in found.kinds
        for c, m in [MARKS[kind]]
    }
    entries["nothing leaks (floor)"] = Line2D([], [], color=INK, linestyle=":", linewidth=1.8)
    if starred:
        entries["runs of this report"] = Line2D([], [], color=INK, marker="*", linestyle="", markersize=12)
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=2)

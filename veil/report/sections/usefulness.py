"""What a receiver can still do with what is shared."""

from collections.abc import Callable

import numpy as np
from matplotlib.ticker import MaxNLocator

from veil.plots import INK
from veil.report import wording as words
from veil.report.blocks import (
    ACCENT,
    GREY,
    WARN,
    Block,
    Missing,
    Picture,
    Section,
    Table,
    Text,
    canvas,
    quiet,
    svg,
)
from veil.report.gather import Episode, Material, own_columns
from veil.report.headline import TRACKING
from veil.report.source import Source
from veil.results.audit import Quantity

Cells = dict[str, tuple[str, str]]  # unit and text by label

Pick = Callable[[tuple[Quantity, ...]], Cells]

LEAD = "Privacy is easy for whoever shares nothing of use. How close to the truth is what goes out?"

RELEASE = "release error, "

AS_IS = "What goes out is the state as it is, so the receiver makes no error at all."

CAPTION = (
    "Distortion is the mean distance between what is true and what is shared. “As shared” is the error of "
    "the release itself, “best estimate” that of a receiver who knows the way of sharing and filters; both "
    "are root mean squares. ± is one standard error."
)


def section(material: Material) -> Section:
    """One table of all runs, an episode of each."""
    table = combined(material, _rows_of, CAPTION)
    blocks = () if table is None else (table,)
    columns = own_columns(material, lambda source: _column(material, source))
    return Section("use", "What the receiver gets", LEAD, blocks, columns)


def combined(material: Material, pick: Pick, caption: str) -> Table | None:
    """Some quantities of all audits in one table; None where none has any.

    Args:
        material: the runs.
        pick: which of an audit's quantities, and how they are told.
        caption: of the table.
    """
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


def _rows_of(rows: tuple[Quantity, ...]) -> Cells:
    """Distortion, both errors per axis, releases out of range."""
    picked = {}
    for row in rows:
        if row.name == "distortion":
            picked["mean distortion"] = (row.unit, words.mean(row.value))
        for prefix, said in ((RELEASE, "as shared"), (TRACKING, "best estimate")):
            if row.name.startswith(prefix):
                axis = row.name.removeprefix(prefix)
                picked[f"error of the {axis}, {said}"] = (row.unit, words.mean(row.value))
        if row.name == "releases out of range":
            picked["releases out of range"] = (row.unit, words.mean(row.value))
    return picked


def _column(material: Material, source: Source) -> tuple[Block, ...]:
    episode = material.episodes.get(source.name)
    if episode is not None:
        return (picture(episode),)
    errors = [] if source.audit is None else [x for x in source.audit.utility if x.name.startswith(RELEASE)]
    if errors and all(row.value.value == 0.0 for row in errors):
        return (Text(AS_IS),)
    if source.run is not None:
        return ()
    said = "An audit keeps no episode to draw. A folder of `veil train` has what it takes to play one:"
    return (Missing(said, f"veil train {source.command_system} --policy {source.policy}"),)


def picture(episode: Episode) -> Picture:
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
    told = (
        "One simulated episode: dots are what goes out, the dark line is what is true, the dashed line what "
        f"a receiver makes of the dots. In this episode the dots are off by {far} (root mean square)."
    )
    caption = f"One simulated episode. {AS_IS}" if not off.any() else told
    return Picture(svg(figure), "True, shared and estimated state over one episode.", caption)

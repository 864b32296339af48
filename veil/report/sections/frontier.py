"""How much privacy costs how much distortion, and where the runs stand."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from veil.plots import INK
from veil.report.audit_reader import Found
from veil.report.blocks import GREY, Column, Missing, Picture, Section, Text, canvas, quiet, svg
from veil.report.gather import Material
from veil.results.frontier import SMALLEST, Frontier
from veil.results.frontier_plots import LOOKS
from veil.settings import FAMILY_WORDS

LEAD = "Less leakage costs distortion. How much, for several ways of sharing, and where is the floor?"

TITLE = "Privacy against distortion"

TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def section(material: Material) -> Section:
    """The same picture for all runs, with each of them in it."""
    if material.frontier is None:
        name = material.sources[0].command_system
        folder = f"frontier/{name}"
        text = (
            "No frontier was given. It takes about half an hour; add --frontier to `veil report` then: "
            f"--frontier {folder}"
        )
        return Section("frontier", TITLE, LEAD, (Missing(text, f"veil frontier {name}"),))
    found, said = material.frontier
    blocks = (_picture(found, material.audited), Text(said))
    return Section("frontier", TITLE, LEAD, (), (Column("", blocks),))


def _picture(found: Frontier, runs: list[tuple[str, Found]]) -> Picture:
    """Upper sides against distortion, one line per family, a star per run."""
    figure = canvas(5.0)
    panel = figure.subplots()
    for kind in found.kinds:
        colour, marker = LOOKS[kind]
        for trusted in (True, False):
            points = [one for one in found.family(kind) if one.trusted == trusted]
            places = [one.distortion.value for one in points]
            uppers = [max(one.leakage.upper.value, SMALLEST) for one in points]
            face, line = (colour, "-") if trusted else ("white", "")
            style = f"{marker}{line}"
            panel.plot(places, uppers, style, color=colour, markerfacecolor=face, linewidth=1.6, markersize=6)
    panel.axvline(found.floor.value, color=INK, linestyle=":", linewidth=1.8)
    panel.axhline(found.entropy, color=GREY, linestyle="--", linewidth=1.2)
    shown = [row for row in runs if _place(row[1]) is not None]
    for name, audit in shown:
        panel.plot(*(_place(audit) or (0, 0)), "*", color=INK, markersize=15)
        look = {"textcoords": "offset points", "fontsize": 10, "fontweight": "bold"}
        panel.annotate(name, _place(audit) or (0, 0), (7, 6), **look)
    _axes(panel, found, [_place(audit) or (0, 0) for _, audit in shown])
    _legend(figure, found, bool(shown))
    caption = (
        "Down and to the left is better: less leakage (upper side, logarithmic) at less distortion. The "
        "dotted line is the least distortion at which nothing leaks at all, the dashed one all there is to "
        f"know. Hollow marks are not to be believed. What leaks less than {SMALLEST:g} nats is drawn there."
    )
    return Picture(svg(figure), f"Leakage against distortion of {len(found.points)} policies.", caption)


def _place(audit: Found) -> tuple[float, float] | None:
    """Where a run stands; true data have no distortion and are on no logarithmic scale."""
    distortion = audit.quantity("distortion")
    if distortion is None or not distortion.value.value > 0.0:
        return None
    return distortion.value.value, max(audit.leakage.upper.value, SMALLEST)


def _axes(panel: Axes, found: Frontier, stars: list[tuple[float, float]]) -> None:
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


def _legend(figure: Figure, found: Frontier, starred: bool) -> None:
    entries = {
        FAMILY_WORDS[kind]: Line2D([], [], color=c, marker=m)
        for kind in found.kinds
        for c, m in [LOOKS[kind]]
    }
    entries["nothing leaks (floor)"] = Line2D([], [], color=INK, linestyle=":", linewidth=1.8)
    if starred:
        entries["runs of this report"] = Line2D([], [], color=INK, marker="*", linestyle="", markersize=12)
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=2)

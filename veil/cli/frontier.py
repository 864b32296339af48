"""`veil frontier`: what privacy costs, for several ways of sharing, as a table and a picture."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, complain, grid, number, paragraphs, point_progress, written
from veil.cli.parser import Flag
from veil.cli.subject import build_system, check_system
from veil.registry import SYSTEMS, system_name
from veil.settings import FAMILY_WORDS, FrontierSettings

if TYPE_CHECKING:
    from veil.results.frontier import Frontier as Found
    from veil.results.parts import Point
    from veil.systems.base import System


FOLDER = "default: frontier/SYSTEM"

HEADS = (
    *("family", "strength", "lower ± s.e.", "upper ± s.e.", "interval, nats"),
    *("distortion", "cost, %", "note"),
)


@dataclass(frozen=True)
class Frontier:
    """Train and measure policies at several privacy weights: leakage against distortion and cost.

    Exit code 0: done; 2: a mistake on the command line; 130: stopped by Ctrl-C, after which the same
    command goes on where it was: every point is kept once it is measured.

    Example: `veil frontier platoon --weights 5 80 --kinds noise transport`
    """

    system: Annotated[str, Flag("[SYSTEM]", positional=True, names=SYSTEMS)] = "platoon"
    """System to share in: {names}, or your own as FILE.py:NAME"""
    extent: FrontierSettings = field(default_factory=FrontierSettings)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the points, the files and the picture"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        check_system(self.system)

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self.out or Path("frontier") / system_name(self.system)

    def run(self) -> None:
        """Measure what is missing, write, print."""
        try:
            system = self.build()
            self.folder.mkdir(parents=True, exist_ok=True)
        except (Mistake, OSError) as mistake:
            complain("frontier", mistake)
        from veil import frontier as engine

        try:
            with point_progress() as report:
                found = engine.trace_frontier(system, self.extent, folder=self.folder, report=report)
        except KeyboardInterrupt:
            kept = self.folder / "points"
            print(f"Stopped. Finished points are kept in {kept}; the same command goes on.", file=sys.stderr)
            sys.exit(130)
        publish(replace(found, system=system_name(self.system)), self.folder)

    def build(self) -> "System":
        """The system; checks what depends on it."""
        system = build_system(self.system)
        least = 2 * len(system.prior.secrets)
        if self.extent.episodes < least:
            raise Mistake(f"give at least --episodes {least}, two per secret; 512 for a narrow interval.")
        return system


def publish(found: "Found", folder: Path) -> None:
    """Write the files and the picture, print the table, the words and the paths."""
    paths = [*found.save(folder), found.save_picture(folder)]
    episodes = max(point.episodes for point in found.points)
    title = f"Frontier of {found.system}: {episodes} episodes of {found.horizon} releases per point"
    grid(title, HEADS, [line(point) for point in found.points])
    paragraphs(found.sentence)
    written(paths)


def line(point: "Point") -> tuple[str, ...]:
    """One row of the table."""
    from veil.results.frontier import strength

    goal, leakage = point.goal, point.leakage
    return (
        FAMILY_WORDS[goal.kind],
        strength(goal.kind, goal.value),
        number(leakage.lower),
        number(leakage.upper),
        f"[{leakage.low:.3f}, {leakage.high:.3f}]",
        number(point.distortion),
        number(point.change, 2),
        "" if point.trusted else point.verdict.replace("_", " "),
    )

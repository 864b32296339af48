"""`veil frontier`: what privacy costs, for several ways of sharing, as a table and a picture."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli import systems
from veil.cli.bars import bars
from veil.cli.mistakes import Mistake, complain
from veil.cli.own_system import short
from veil.settings import FAMILY_WORDS, FrontierSettings

if TYPE_CHECKING:
    from veil.results.frontier import Frontier as Found
    from veil.results.parts import Point
    from veil.systems.base import System


FOLDER = "(default: frontier/SYSTEM)"

HEADS = (
    *("family", "strength", "lower ± s.e.", "upper ± s.e.", "interval, nats"),
    *("distortion", "cost, %", "note"),
)

EVERY = 25  # updates between two lines about a training, where there is no terminal

Report = Callable[[str, str, int, int], None]


@dataclass(frozen=True)
class Frontier:
    """Train and measure policies at several privacy weights: leakage against distortion and cost.

    Exit code 0: done; 2: a mistake on the command line; 130: stopped by Ctrl-C, after which the same
    command goes on where it was: every point is kept once it is measured.

    Example: `veil frontier platoon --weights 5 80 --kinds noise transport`
    """

    system: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SYSTEM]")] = "platoon"
    """System to share in: platoon, coloured_platoon, idm_platoon, gain or FILE.py:NAME"""
    extent: FrontierSettings = field(default_factory=FrontierSettings)
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint=FOLDER)] = None
    """Folder for the points, the files and the picture"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        try:
            systems.check(self.system)
        except Mistake as mistake:
            complain("frontier", mistake)

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self.out or Path("frontier") / short(self.system)

    def run(self) -> None:
        """Measure what is missing, write, print."""
        try:
            system = self.build()
            self.folder.mkdir(parents=True, exist_ok=True)
        except (Mistake, OSError) as mistake:
            complain("frontier", mistake)
        from veil import frontier as engine

        try:
            with progress() as report:
                found = engine.trace_frontier(system, self.extent, folder=self.folder, report=report)
        except KeyboardInterrupt:
            kept = self.folder / "points"
            print(f"Stopped. Finished points are kept in {kept}; the same command goes on.", file=sys.stderr)
            sys.exit(130)
        publish(found, self.folder)

    def build(self) -> "System":
        """The system; checks what depends on it."""
        system = systems.build(self.system)
        least = 2 * len(system.prior.secrets)
        if self.extent.episodes < least:
            raise Mistake(f"give at least --episodes {least}, two per secret; 512 for a narrow interval.")
        return system


def publish(found: "Found", folder: Path) -> None:
    """Write the files and the picture, print the table, the words and the paths."""
    from veil.cli import audit_table

    paths = [*found.save(folder), found.save_picture(folder)]
    episodes = max(point.episodes for point in found.points)
    title = f"Frontier of {found.system}: {episodes} episodes of {found.horizon} releases per point"
    audit_table.grid(title, HEADS, [line(point) for point in found.points])
    audit_table.paragraphs(found.sentence)
    print("\nWritten to")
    for path in paths:
        print(f"  {path}")


def line(point: "Point") -> tuple[str, ...]:
    """One row of the table."""
    from veil.cli.audit_table import number
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


@contextmanager
def progress() -> Iterator[Report]:
    """One bar on a terminal, a line per point and every few updates elsewhere; both say the time elapsed."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with bars(transient=True) as shown:
        bar = shown.add_task("", total=None)
        yield lambda point, stage, done, total: shown.update(
            bar, description=f"{point}: {stage}", completed=done, total=total
        )


def _lines() -> Report:
    began, told = time.monotonic(), set()

    def report(point: str, stage: str, done: int, total: int) -> None:
        training = f", {stage} {done} of {total}" if stage == "training" and done % EVERY == 0 else ""
        if point + training not in told:
            print(f"{point}{training}, after {_clock(time.monotonic() - began)}", file=sys.stderr, flush=True)
            told.add(point + training)

    return report


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"

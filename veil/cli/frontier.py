"""`veil frontier`: what privacy costs, for several ways of sharing, as a table and a picture."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, check_owner, complain, grid, paragraphs, point_progress, written
from veil.cli.parser import Flag
from veil.cli.subject import SensorChoice, build_system, check_system
from veil.cli.workers import WorkerChoice
from veil.registry import SYSTEMS, system_name
from veil.settings import FrontierSettings

if TYPE_CHECKING:
    from veil.results.frontier import Frontier as Found
    from veil.systems.base import System


FOLDER = "default: frontier/SYSTEM"

OWNER = "fingerprint.txt"  # of the settings that made what the folder holds


@dataclass(frozen=True)
class Frontier:
    """Train and measure policies at several privacy weights: leakage against distortion and cost.

    Exit code 0: done; 2: a mistake on the command line; 130: stopped by Ctrl-C, after which the same
    command goes on where it was: every point is kept once it is measured.

    Example: `veil frontier platoon --weights 5 80 --kinds noise transport`
    """

    system: Annotated[str, Flag("[SYSTEM]", positional=True, names=SYSTEMS)] = "platoon"
    """System to share in: {names}, or your own as FILE.py:NAME"""
    sensor: SensorChoice = field(default_factory=SensorChoice)
    extent: FrontierSettings = field(default_factory=FrontierSettings)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the points, the files and the picture"""
    again: bool = False
    """Replace another frontier in the folder; points that fit are kept"""

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
            mark = self.fingerprint(system)
            if not self.again:
                path = self.folder / "frontier.json"
                check_owner(path, self.folder / OWNER, mark, "frontier", described(path))
            self.folder.mkdir(parents=True, exist_ok=True)
        except (Mistake, OSError) as mistake:
            complain("frontier", mistake)
        from veil import frontier as engine

        failed = list[str]()
        try:
            with self.where.executor() as executor, point_progress() as report:
                found = engine.trace_frontier(
                    system,
                    self.extent,
                    folder=self.folder,
                    report=report,
                    executor=executor,
                    failed=lambda point, reason: failed.append(f"{point} cannot be measured: {reason}"),
                )
        except KeyboardInterrupt:
            kept = self.folder / "points"
            print(f"Stopped. Finished points are kept in {kept}; the same command goes on.", file=sys.stderr)
            sys.exit(130)
        (self.folder / OWNER).write_text(mark, encoding="utf-8")
        publish(replace(found, system=system_name(self.system)), self.folder)
        if failed:
            raise Mistake(
                f"{' '.join(failed)} The frontier has the other points; the same command tries again."
            )

    def build(self) -> "System":
        """The system; checks what depends on it."""
        system = self.sensor.wrap(build_system(self.system))
        least = 2 * len(system.prior.secrets)
        if self.extent.episodes < least:
            raise Mistake(f"give at least --episodes {least}, two per secret; 512 for a narrow interval.")
        return system

    def fingerprint(self, system: "System") -> str:
        """Changes with anything that the frontier depends on."""
        from veil.executors.messages import whole_fingerprint
        from veil.version import __version__

        return whole_fingerprint(system, self.extent, __version__)


def described(path: Path) -> str:
    """What a frontier.json is about, in a few words."""
    from veil.results.frontier import Frontier
    from veil.results.parts import ResultError

    try:
        found = Frontier.load(path.parent)
    except ResultError:
        return "a file that cannot be read"
    kinds = ", ".join(found.kinds)
    return (
        f"{found.system}, {len(found.points)} points ({kinds}), {found.horizon} releases, seed {found.seed}"
    )


def publish(found: "Found", folder: Path) -> None:
    """Write the files and the picture, print the table, the words and the paths."""
    paths = [*found.save(folder), found.save_picture(folder)]
    grid(*found.points_table())
    paragraphs(found.sentence)
    written(paths)

"""`veil report`: what was trained, audited and shared, as one page for people and two files for programs."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli import systems
from veil.cli.mistakes import Mistake, complain
from veil.cli.policies import RUN

if TYPE_CHECKING:
    from veil.systems.base import System


NAMES = "(default: the names of the folders)"

TITLE = "(default: from the names)"


@dataclass(frozen=True)
class Report:
    """Write a report about one run, or about several side by side: one HTML file, JSON and CSV.

    A run is a folder of `veil train`, with its audit and its ledger if they are there, or of
    `veil audit`. Whatever is missing is said in the report with the command that makes it.

    Example: `veil report audit/platoon-truth runs/platoon-pathwise --names "true data" learned`
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Folders of `veil train` or `veil audit`, one column each"""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("report.html")
    """The page; the files for programs go beside it, with .json and .csv"""
    names: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint=NAMES)] = ()
    """What to call the runs, in their order"""
    title: Annotated[str, tyro.conf.arg(metavar="TEXT", help_behavior_hint=TITLE)] = ""
    """Title of the page"""
    frontier: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Folder of `veil frontier`, to show where the runs stand"""

    def __post_init__(self) -> None:
        """Refuse what cannot be reported on."""
        try:
            self.check()
        except Mistake as mistake:
            complain("report", mistake)

    def check(self) -> None:
        """All that can be checked without reading the folders."""
        if not self.runs:
            raise Mistake("give at least one folder of `veil train` or `veil audit`.")
        if self.out.suffix not in (".html", ".htm"):
            raise Mistake("--out is the page, e.g. --out report.html.")
        if self.names and len(self.names) != len(self.runs):
            raise Mistake(f"--names needs one name per run: {len(self.runs)}, not {len(self.names)}.")

    def run(self) -> None:
        """Read, write, say where."""
        try:
            paths = self.write()
        except Mistake as mistake:
            complain("report", mistake)
        print("Written to")
        for path in paths:
            print(f"  {path}")

    def write(self) -> list[Path]:
        """The files; what is wrong is a `Mistake`."""
        from veil.reports import ReportError, report

        try:
            for folder in self.runs:
                finished(folder)
            return report(
                self.runs,
                self.out,
                names=self.names,
                frontier=self.frontier,
                title=self.title,
                date=datetime.date.today().isoformat(),
                build=built,
            )
        except ReportError as mistake:
            raise Mistake(str(mistake)) from mistake
        except OSError as error:
            raise Mistake(f"{error.filename or self.out} cannot be written ({error.strerror}).") from error


def finished(folder: Path) -> None:
    """Refuse a training that is not finished, with the command that goes on."""
    from veil.cli.trained import command
    from veil.io import StoreError
    from veil.learners import run as runs

    if not (folder / RUN).exists():
        return
    try:
        run = runs.Run.load(folder)
    except StoreError as error:
        raise Mistake(str(error)) from error
    if not run.finished:
        raise Mistake(f"the run in {folder} is not finished. Go on with {command(run.settings, folder)}")


def built(name: str) -> "System | None":
    """A system of the command line; None for one that is not there any more."""
    try:
        return systems.build(name) if name else None
    except (Mistake, KeyError):
        return None

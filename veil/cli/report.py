"""`veil report`: what was trained, audited and shared, as one page for people and two files for programs."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, complain
from veil.cli.parser import Flag
from veil.cli.subject import RUN, build_system, is_own, train_command

if TYPE_CHECKING:
    from veil.systems.base import System


NAMES = "default: the names of the folders"

TITLE = "default: from the names"


@dataclass(frozen=True)
class Report:
    """Write a report about one run, or about several side by side: one HTML file, JSON and CSV.

    A run is a folder of `veil train`, with its audit and its ledger if they are there, or of
    `veil audit`. Whatever is missing is said in the report with the command that makes it.

    Example: `veil report audit/platoon-truth runs/platoon-pathwise --names "true data" learned`
    """

    runs: Annotated[tuple[Path, ...], Flag("RUN [RUN ...]", positional=True)]
    """Folders of `veil train` or `veil audit`, one column each"""
    out: Path = Path("report.html")
    """The page; the files for programs go beside it, with .json and .csv"""
    names: Annotated[tuple[str, ...], Flag("NAME [NAME ...]", default=NAMES)] = ()
    """What to call the runs, in their order"""
    title: Annotated[str, Flag("TEXT", default=TITLE)] = ""
    """Title of the page"""
    trust_code: bool = False
    """Run the Python file that a folder names as its system; only for folders of your own making"""
    frontier: Annotated[Path | None, Flag(default="")] = None
    """Folder of `veil frontier`, to show where the runs stand"""

    def __post_init__(self) -> None:
        """Refuse what cannot be reported on."""
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
                build=self.build,
            )
        except ReportError as mistake:
            raise Mistake(str(mistake)) from mistake
        except OSError as error:
            raise Mistake(f"{error.filename or self.out} cannot be written ({error.strerror}).") from error

    def build(self, name: str) -> "System | None":
        """The system of a run, to play it; None where it is code that nobody said to run."""
        return None if is_own(name) and not self.trust_code else built(name)


def finished(folder: Path) -> None:
    """Refuse a training that is not finished, with the command that goes on."""
    from veil.io import StoreError
    from veil.learners import run as runs

    if not (folder / RUN).exists():
        return
    try:
        run = runs.Run.load(folder)
    except StoreError as error:
        raise Mistake(str(error)) from error
    if not run.finished:
        raise Mistake(
            f"the run in {folder} is not finished. Go on with {train_command(run.settings, folder)}"
        )


def built(name: str) -> "System | None":
    """A system of the command line; None for one that is not there any more."""
    try:
        return build_system(name) if name else None
    except (Mistake, KeyError):
        return None

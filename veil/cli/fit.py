"""`veil fit`: parameters, noise and a prior from recordings, and whether the model predicts the rest."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import REFUSED, Mistake, check_owner, complain, grid, paragraphs, progress, written
from veil.cli.parser import Flag
from veil.cli.recordings import ColumnChoice, content, read, show
from veil.cli.subject import build_system, check_system
from veil.cli.workers import WorkerChoice
from veil.registry import SYSTEMS
from veil.settings import FitSettings, ReadSettings

if TYPE_CHECKING:
    from veil.results.fit import Fit as FitResult


FOLDER = "default: fits/LOG"

OWNER = "fingerprint.txt"  # of the settings that made what the folder holds


@dataclass(frozen=True)
class Fit:
    """Estimate parameters, noise and a prior from recordings, and examine the model on the rest.

    Exit code 0: the model explains at least one recording; 3: it explains none; 2: a mistake on the
    command line or in the file.

    Example: `veil fit house.csv --system building --columns indoor=Ti outdoor=Ta`
    """

    log: Annotated[Path, Flag("LOG.csv", positional=True)]
    """CSV or Parquet file with named columns and one row per step"""
    system: Annotated[str, Flag(names=SYSTEMS)] = "platoon"
    """Model of what was recorded: {names}, or your own as FILE.py:NAME"""
    chosen: ColumnChoice = field(default_factory=ColumnChoice)
    reading: ReadSettings = field(default_factory=ReadSettings)
    extent: FitSettings = field(default_factory=FitSettings)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the files and the picture; other commands take it as --system"""
    again: bool = False
    """Replace another fit in the folder"""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        check_system(self.system)

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self.out or Path("fits") / self.log.stem

    def run(self) -> None:
        """Read, fit, print, write."""
        from veil.executors.messages import whole_fingerprint
        from veil.fitting.fit import fit
        from veil.io import Store
        from veil.recordings import RecordingError
        from veil.results.fit import FILE
        from veil.version import __version__

        try:
            system = build_system(self.system)
            logs = read(self.log, system, self.chosen, self.reading)
            mark = whole_fingerprint(system, self.extent, content(logs), __version__)
            if not self.again:
                check_owner(
                    self.folder / FILE, self.folder / OWNER, mark, "fit", described(self.folder / FILE)
                )
            show(logs)
            store = Store(self.folder, mark)
            with self.where.executor() as executor, progress() as report:
                found = fit(system, logs, self.extent, store=store, progress=report, executor=executor)
        except KeyboardInterrupt:
            kept = f"Stopped. Finished individuals are kept in {self.folder}; the same command goes on."
            print(kept, file=sys.stderr)
            sys.exit(130)
        except (Mistake, RecordingError, OSError) as mistake:
            complain("fit", mistake)
        (self.folder / OWNER).write_text(mark, encoding="utf-8")
        publish(replace(found, system=self.system), self.folder)
        if not any(one.explained for one in found.individuals):
            sys.exit(REFUSED)


MOST_ROWS = 20  # of the table on the terminal; fit.json has all


def described(path: Path) -> str:
    """What a fit.json is about, in a few words."""
    from veil.results.fit import Fit as FitResult
    from veil.results.parts import ResultError

    try:
        found = FitResult.load(path.parent)
    except ResultError:
        return "a file that cannot be read"
    first = found.individuals[0].name
    count = len(found.individuals)
    return f"{found.system}, {first if count == 1 else f'{count} individuals'}"


def publish(found: "FitResult", folder: Path) -> None:
    """Write the files, print the table, the verdict, what to do next and the paths."""
    from veil.results.text import sentence

    paths = found.save(folder)
    heads, rows = found.table()
    more = f", first {MOST_ROWS} of {len(rows)} individuals" if len(rows) > MOST_ROWS else ""
    grid(f"Fit of {found.system}{more}", heads, rows[:MOST_ROWS])
    weak = [sentence(text) for one in found.individuals[:1] for text in one.undetermined]
    paragraphs("\n".join([found.summary(), *weak, "", next_step(found, folder)]))
    written(paths)


def next_step(found: "FitResult", folder: Path) -> str:
    """What to do with this fit, with a command that can be run as it is printed."""
    own = ":" in found.system
    place = f"{found.system}@{folder}" if own else f"{folder}"
    return f"{found.advice()}\n  veil audit {place} --policy truth"

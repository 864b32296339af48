"""`python -m paper.reproduction`: the paper's experiment again, side by side with its printed numbers."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from paper.reproduction.columns import NAMES
from paper.reproduction.options import DEFAULT, FAST
from veil.cli.console import complain, grid, known, point_progress, written
from veil.cli.parser import Flag
from veil.cli.workers import WorkerChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from paper.reproduction.engine import Work


Made = TypeVar("Made")

ALL = "(default: all)"

FOLDER = Path("reproduce")

Part = Literal["all", "figure_1", "figure_2", "table_1", "table_2", "learning_curves"]


@dataclass(frozen=True)
class Scope:
    """What to measure, and where it is kept."""

    fast: bool = False
    """Short trainings, few episodes and few particles: shows that all works, not what comes out (no unit)"""
    out: Path = FOLDER
    """Folder for the trainings, the stages, the page, the files and the pictures"""
    full: bool = False
    """Also the columns of the full run: five seeds of the printed learner, ρ = 0, a long A2C (no unit)"""
    only: Annotated[tuple[str, ...], Flag("NAME [NAME ...]", default=ALL)] = ()
    """Columns to measure, with those that they are compared with, e.g. --only pathwise ddpg (names)"""

    def __post_init__(self) -> None:
        """Refuse columns that there are not."""
        for name in self.only:
            known("column", name, NAMES)


@dataclass(frozen=True)
class Reproduce:
    """Do the paper's experiment again: train, drive, read and audit every column, and compare.

    Takes less than an hour on two cores, a few minutes with --fast, and up to two and a half hours with
    --full. Exit code 0: done; 2: a mistake on the command line; 130: stopped by Ctrl-C, after which the same
    command goes on where it was.

    Example: `python -m paper.reproduction --fast --only pathwise ddpg`
    """

    program: ClassVar[str] = "python -m paper.reproduction"

    scope: Scope = field(default_factory=Scope)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    part: Part = "all"
    """Figure or table to make by itself, from the stages that it needs"""
    publish: Annotated[Path | None, Flag(default="")] = None
    """Folder to copy RESULTS.md and its pictures to"""

    def run(self) -> None:
        """Do what is missing, write, print."""
        from paper.reproduction import files, parts

        if self.part != "all":
            written(made(self.scope, parts.PARTS[self.part]))
            return
        paths, claims = made(self.scope, _meanwhile(parts.everything, self.where))
        if self.publish is not None:
            try:
                paths += files.publish(paths, self.publish)
            except OSError as mistake:
                complain("reproduce", mistake)
        rows = [
            (one.text, one.policy, one.answer, one.evidence) for one in claims if one.answer != "not measured"
        ]
        grid("Claims of the paper and of ours", ("claim", "policy", "holds here", "numbers"), rows)
        written(paths)


def main(arguments: list[str]) -> None:
    """Run the reproduction as these words of a command line say."""
    from veil.cli.main import execute

    execute("reproduce", Reproduce, arguments)


def _meanwhile(make: "Callable[[Work], Made]", where: WorkerChoice) -> "Callable[[Work], Made]":
    """The same with columns done by workers, or the slowest ones by a second process meanwhile."""
    from paper.reproduction.background_worker import background, by_workers, meanwhile, measure
    from veil.cli.main import prepare

    def both(work: "Work") -> "Made":
        if where.any:
            with where.executor() as executor:
                by_workers(work, executor)
            return make(work)
        theirs = meanwhile(work)
        others = tuple(one.name for one in work.columns if not {one.name, one.like} & set(theirs))
        if cores() > 1 and theirs:
            with background(work, theirs, prepare):
                measure(work, others)
        return make(work)

    return both


def cores() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def made(scope: Scope, make: "Callable[[Work], Made]") -> "Made":
    """Make some part of the reproduction, with progress on stderr."""
    from paper.reproduction.engine import Work
    from paper.reproduction.files import sit_down

    try:
        scope.out.mkdir(parents=True, exist_ok=True)
        sit_down(scope.out)
        with point_progress() as report:
            return make(Work(FAST if scope.fast else DEFAULT, scope.out, scope.only, report, scope.full))
    except KeyboardInterrupt:
        print(f"Stopped. What is done is kept in {scope.out}; the same command goes on.", file=sys.stderr)
        sys.exit(130)
    except OSError as mistake:
        complain("reproduce", mistake)

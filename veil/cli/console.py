"""What people see of all commands: mistakes in one sentence, tables, paragraphs and progress."""

import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from veil.registry import guess

if TYPE_CHECKING:
    from rich.progress import Progress


WIDTH = 100  # of paragraphs

REFUSED = 3  # exit code where nothing can be certified, or a system is not ready

Rows = list[tuple[str, ...]]

Report = Callable[[str, int, int], None]


class Mistake(ValueError):
    """Something on the command line that cannot be done; the text says what can."""


def complain(command: str, mistake: Exception) -> NoReturn:
    """Say what is wrong and end; without a command it is about the program itself."""
    text = str(mistake)
    if isinstance(mistake, OSError) and mistake.strerror:  # a write that fails does not know its file
        what = mistake.filename or "a file cannot be written or read"
        text = f"{what}: {mistake.strerror}."
    print(f"{f'veil {command}'.strip()}: {text}", file=sys.stderr)
    sys.exit(2)


def known(kind: str, name: str, names: Collection[str], also: str = "") -> None:
    """Refuse a name that is not among these, with a guess at what was meant and what else could be.

    Args:
        kind: of the thing that is named.
        name: as given.
        names: that there are.
        also: what else could be given, as a sentence after a space.
    """
    if name not in names:
        raise Mistake(f"no {kind} '{name}'.{guess(name, names)} Choose {', '.join(names)}.{also}")


def check_owner(result: Path, owner: Path, mark: str, what: str, about: str) -> None:
    """Refuse to replace a result in a folder that other settings made.

    Args:
        result: the file that holds it; where there is none, nothing is refused.
        owner: the file that holds the fingerprint of the settings that made it.
        mark: the fingerprint of these settings.
        what: it is a result of.
        about: the result that is there, in a few words.
    """
    if not result.exists() or (owner.exists() and owner.read_text(encoding="utf-8") == mark):
        return
    raise Mistake(
        f"{result.parent} holds another {what}: {about}. Give another --out, or --again to replace it."
    )


def grid(title: str, heads: tuple[str, ...], rows: Rows) -> None:
    """Print one table; nothing where there are no rows. Columns without a word are left out.

    Args:
        title: above it.
        heads: of the columns.
        rows: as many cells each.
    """
    if not rows:
        return
    if not sys.stdout.isatty():
        from veil.results.text import text_table

        print(f"{title}\n{text_table(heads, rows)}\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    ruled = Table(*(heads[place] for place in kept), title=Text(title), title_justify="left")
    for row in rows:
        ruled.add_row(*(Text(row[place]) for place in kept))
    Console().print(ruled)


def paragraphs(text: str) -> None:
    """Print lines of prose, each filled to a readable width."""
    for line in text.splitlines():
        print(textwrap.fill(line, WIDTH))


def written(paths: Iterable[Path]) -> None:
    """Print where the files are."""
    print("\nWritten to")
    for path in paths:
        print(f"  {path}")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"


def bars(*, transient: bool = False) -> "Progress":
    """Bars on stderr, with description, count and time; a transient one leaves nothing behind."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=transient)


@contextmanager
def progress() -> Iterator[Report]:
    """A bar per stage on a terminal, a line per stage elsewhere. The first batch includes compiling."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    with bars() as shown:
        tasks = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total)
            elif done == 0:  # the same stage once more
                shown.reset(tasks[stage], total=total)
            shown.update(tasks[stage], completed=done, total=total)

        yield report


def _stage_lines() -> Report:
    """One line when a stage begins for the first time."""
    printed = set[str]()

    def report(stage: str, done: int, total: int) -> None:
        del done
        if stage not in printed:
            print(f"{stage} ({total})", file=sys.stderr, flush=True)
            printed.add(stage)

    return report


@contextmanager
def point_progress(every: int = 25) -> Iterator[Callable[[str, str, int, int], None]]:
    """One bar on a terminal, a line per point and every few updates elsewhere; both say the time elapsed."""
    if sys.stderr.isatty():
        with bars(transient=True) as shown:
            bar = shown.add_task("", total=None)
            yield lambda point, stage, done, total: shown.update(
                bar, description=f"{point}: {stage}", completed=done, total=total
            )
        return
    began, printed = time.monotonic(), set[str]()

    def report(point: str, stage: str, done: int, total: int) -> None:
        training = f", {stage} {done} of {total}" if stage == "training" and done % every == 0 else ""
        if point + training not in printed:
            print(f"{point}{training}, after {clock(time.monotonic() - began)}", file=sys.stderr, flush=True)
            printed.add(point + training)

    yield report

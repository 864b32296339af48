"""What people see of a training: its progress, and its result as a table."""

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veil.cli.audit_table import grid
from veil.settings import AuditSettings

if TYPE_CHECKING:
    from veil.learners.run import Result, Run, Settings


Line = dict[str, float]

Report = Callable[[Line], None]

FIRST = "compiling, and evaluating the policy to start from"


@contextmanager
def progress(updates: int, folder: Path) -> Iterator[Report]:
    """A live bar on a terminal, one line per evaluation elsewhere."""
    _warn(folder)
    if not sys.stderr.isatty():
        print(FIRST, file=sys.stderr, flush=True)
        yield _lines(updates)
        return
    seen: list[Line] = []
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    columns = (TextColumn("update"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns)
    bar = bars.add_task("", total=updates)
    with Live(Group(bars, Text(FIRST)), console=Console(stderr=True), refresh_per_second=4) as live:

        def report(line: Line) -> None:
            seen.append(line)
            bars.update(bar, completed=line["update"])
            live.update(Group(bars, Text(trade(seen))))

        yield report


def _warn(folder: Path) -> None:
    """Say so where a checkpoint is there and cannot be used."""
    from veil.io import StoreError, about
    from veil.learners.training import CHECKPOINT

    path = folder / CHECKPOINT
    try:
        if path.exists():
            about(path)
    except StoreError:
        print(f"{path} is damaged, so training begins again at the first update.", file=sys.stderr)


def _lines(updates: int) -> Report:
    began, told = time.monotonic(), list[Line]()

    def tell(line: Line) -> None:
        taken, told[len(told) :] = clock(time.monotonic() - began), [line]
        where = f"update {line['update']:.0f} of {updates}"
        if len(told) == 1 and line["update"] > 0:
            print(
                f"going on after {where}; best so far: {evaluation_text(line)}", file=sys.stderr, flush=True
            )
        elif "upper" in line:
            print(f"{where}: {evaluation_text(line)}, after {taken}", file=sys.stderr, flush=True)

    return tell


def trade(seen: list[Line]) -> str:
    """The trade-off as the last update saw it, and as the last evaluation did."""
    last, evaluations = seen[-1], [line for line in seen if "upper" in line]
    live = ""
    if "price" in last:
        live = f"training: leakage {last['leakage']:.4f} nats, distortion {last['distortion']:.3g}, "
        live += f"cost {last['cost']:.4g}, price {last['price']:.3g}\n"
    return f"{live}evaluation at {evaluations[-1]['update']:.0f}: {evaluation_text(evaluations[-1])}"


def evaluation_text(line: Line) -> str:
    """What an evaluation found, in words."""
    sides = f"leakage {line['lower']:.4f} to {line['upper']:.4f} nats"
    price = f", price {line['price']:.3g}" if "price" in line else ""
    return f"{sides}, distortion {line['fresh_distortion']:.3g}, cost {line['fresh_cost']:.4g}{price}"


def stopped(history: list[Line]) -> str:
    """After Ctrl-C: how far it came, and from where the next one goes on."""
    last = history[-1]["update"] if history else 0
    saved = max([line["update"] for line in history if "upper" in line], default=0)
    start = (
        f"goes on from update {saved:.0f}, the last evaluation"
        if saved
        else "begins again: no evaluation was reached"
    )
    return f"Stopped after update {last:.0f}. The same command {start}."


def show(run: "Run", folder: Path) -> None:
    """Print the result, the next command and the paths."""
    from veil.learners.run import Settings

    words, settings = ["veil", "audit", str(folder)], run.settings
    if isinstance(settings, Settings):
        assert run.result is not None
        episodes = settings.training.evaluation_episodes
        title = f"Policy on {settings.system}, {settings.steps} releases, {episodes} fresh episodes"
        grid(title, ("", "value"), rows(settings, run.result))
        words += [] if settings.steps == AuditSettings().steps else ["--steps", str(settings.steps)]
        print("The policy was chosen by these episodes; an audit on others has the last word:")
    else:
        print(f"The policy {settings.named.name} needs no training. An audit says what it tells:")
    print(f"  {shlex.join(words)}")
    print("\nWritten to")
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        print(f"  {path}")


def rows(settings: "Settings", result: "Result") -> list[tuple[str, ...]]:
    """The table."""
    limit, entropy = settings.objective.distortion_limit, result.entropy
    error = f" ± {result.standard_error:.4f}" if math.isfinite(result.standard_error) else ""
    ends = [f"{max(0.0, side) / entropy:.1%}" for side in (result.lower, result.upper)] if entropy > 0 else []
    shares = [(f"of H(q) = {entropy:.3f} nats", " to ".join(ends))] if ends else []
    return [
        ("leakage, nats", f"{result.lower:.4f} to {result.upper:.4f}{error}"),
        *shares,
        ("distortion per step", f"{result.distortion:.3f} (budget {limit:g})"),
        ("cost per episode", f"{result.cost:.4g}"),
        ("updates", f"{result.updates}, the best after {result.best}"),
        ("ended by", result.reason),
        ("time", clock(result.seconds)),
    ]


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"

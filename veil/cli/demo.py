"""`veil demo`: what plain ways of sharing platoon data tell about the driver, as a table and two pictures."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.demos import Measurement, Way

CHEAP = 16  # times as many episodes where no particles are needed


@dataclass(frozen=True)
class Demo:
    """Measure what sharing platoon data as they are, with noise or rounded tells about the driver."""

    out: Path = Path("demo")
    """Folder for the table and the pictures"""
    episodes: int = 256
    """Episodes per way of sharing that needs a particle filter; the others get sixteen times as many"""
    steps: int = 50
    """Releases per episode, each 0.2 s after the one before"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same numbers"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.episodes < 8 or self.steps < 1:
            print("veil demo: give at least --episodes 8 and --steps 1.", file=sys.stderr)
            sys.exit(2)

    def run(self) -> None:
        """Measure each way in turn; whatever is finished is written, also after Ctrl-C."""
        done: list[Measurement] = []
        stopped = False
        try:
            for measured in self.measurements():
                done.append(measured)
        except KeyboardInterrupt:
            stopped = True
        if done:
            self.publish(done)
        if stopped:
            raise KeyboardInterrupt

    def measurements(self) -> "Iterator[Measurement]":
        """One after the other, with progress."""
        import jax.random as jr

        from veil.demos import KalmanBank, Observer, compare, measure, ways
        from veil.systems import Platoon

        system, key = Platoon(), jr.key(self.seed)
        for way in ways(system):
            cheap = isinstance(way.adversary, KalmanBank | Observer)
            count = self.episodes * (CHEAP if cheap else 1)
            with progress(way, count) as report:
                measured = measure(system, way, count, self.steps, key=key, progress=report)
            if way.second is not None:
                other = replace(way, name=f"{way.name}, again by particles", adversary=way.second)
                few = max(8, self.episodes // 4)
                with progress(other, few) as report:
                    second = measure(system, other, few, self.steps, key=key, progress=report)
                measured = compare(measured, second)
            yield measured

    def publish(self, done: "list[Measurement]") -> None:
        """Write the files, print the table, the paths and what they mean."""
        from veil.cli import picture, table

        self.out.mkdir(parents=True, exist_ok=True)
        rows = [table.row(measured) for measured in done]
        table.write_csv(rows, self.out / "leakage.csv")
        table.write_json(rows, self.out / "leakage.json", steps=self.steps, seed=self.seed)
        picture.posterior(done, self.out / "posterior.png")
        picture.trade(done, self.out / "tradeoff.png")
        table.show(rows, self.steps)
        print(table.in_words(rows, self.steps))
        for name in ("leakage.csv", "leakage.json", "posterior.png", "tradeoff.png"):
            print(f"  {self.out / name}")


@contextmanager
def progress(way: "Way", total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, one line per way elsewhere. The first batch includes compiling."""
    text = f"{way.name}: {way.adversary.method}, {total} episodes"
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)

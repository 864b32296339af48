"""Where the work of a command is done: in this process, by workers on this machine, or on a cluster."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, clock
from veil.cli.parser import Flag

if TYPE_CHECKING:
    from veil.executors.base import Executor


@dataclass(frozen=True)
class WorkerChoice:
    """Where the work is done; the result is the same."""

    workers: Annotated[int, Flag(default="default: none")] = 0
    """Processes on this machine that share the work, by Ray"""
    ray: Annotated[str, Flag("ADDRESS", default="")] = ""
    """Ray cluster that shares the work: auto, or HOST:PORT"""

    def __post_init__(self) -> None:
        """Refuse what cannot be started."""
        if self.workers < 0 or (self.workers and self.ray):
            raise Mistake("give --workers, a number of processes here, or --ray, the address of a cluster.")

    @property
    def any(self) -> bool:
        """Whether there are workers."""
        return bool(self.workers or self.ray)

    @contextmanager
    def executor(self) -> "Iterator[Executor]":
        """Who computes; at the end, a line on stderr says how the time was spent."""
        from veil.executors import ChunkError, ExecutorError, InProcess, OnRay

        try:
            if not self.any:
                yield InProcess()
                return
            import jax

            # While this process compiles, workers may wait; it compiles hundreds of small programs.
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            with OnRay(self.workers, self.ray) as found:
                yield found
                told(found)
        except ExecutorError as error:
            raise Mistake(str(error)) from error
        except ChunkError as error:
            rest = "All else is kept: the same command tries these again." if self.any else ""
            raise Mistake(f"a part of the work failed. {error} {rest}".strip()) from error


def told(executor: "Executor") -> None:
    """Say how many chunks came, when the first did, and how much of the workers' time was not computing."""
    times, workers = executor.times, executor.workers
    if times.first is None:
        return
    busy = sum(times.seconds) / (workers * times.last)
    lost = f", {times.lost} lost with their workers and computed again" if times.lost else ""
    print(
        f"{len(times.seconds)} chunks by {workers} workers in {clock(times.last)}: the first after "
        f"{times.first:.1f} s; workers computed {busy:.0%} of the time{lost}.",
        *getattr(executor, "notes", ()),
        file=sys.stderr,
    )

"""Timing that is fair on a shared machine: contestants take turns, and the least time of each counts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax

Job = Callable[[], object]

REST = 0.02  # seconds between turns, so that idle threads of the one before stop spinning


@dataclass(frozen=True)
class Timed:
    """The best of several calls."""

    seconds: float
    """wall-clock seconds of the fastest call"""
    cores: float
    """processor seconds per wall-clock second in that call"""
    calls: int
    """number of calls that were timed"""
    noise: float
    """how much longer the second best of the turns took, as a fraction of the best"""
    result: object
    """what the last call returned"""


def once(job: Job) -> tuple[float, float, object]:
    """Wall-clock and processor seconds of one call, until its result is really there."""
    processor, start = time.process_time(), time.perf_counter()
    result = jax.block_until_ready(job())
    wall = time.perf_counter() - start
    return wall, time.process_time() - processor, result


def race(jobs: Mapping[str, Job], *, rounds: int, patience: float = 20.0) -> dict[str, Timed]:
    """Time jobs in turns.

    Every job runs once to warm up (compilation, caches), then twice per round. All see the same load of the
    machine, and a job that has used up its patience sits out.

    Args:
        jobs: by name.
        rounds: the most turns that each takes.
        patience: seconds after which a job takes no further turn.
    """
    for job in jobs.values():
        once(job)
    taken: dict[str, list[tuple[float, float, object]]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            spent = sum(wall for wall, _, _ in taken[name])
            if not taken[name] or spent < patience:
                time.sleep(REST)
                taken[name] += [(*once(job)[:2], None), once(job)]
    return {name: _best(calls) for name, calls in taken.items()}


def _best(calls: list[tuple[float, float, object]]) -> Timed:
    wall, processor, _ = min(calls, key=lambda call: call[0])
    turns = sorted(min(first[0], second[0]) for first, second in zip(calls[::2], calls[1::2], strict=True))
    noise = turns[1] / turns[0] - 1.0 if len(turns) > 1 else 0.1
    return Timed(wall, processor / wall, len(calls), noise, calls[-1][2])

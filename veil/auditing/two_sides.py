"""The two-sided measurement: which way to take, how many episodes, and how the leakage grows."""

import jax
import numpy as np

from veil.auditing.context import Context
from veil.auditing.episodes import PILOT, chosen
from veil.auditing.gate import width_limit
from veil.auditing.measure import Scored, score, unknown
from veil.auditing.result import AtStep
from veil.auditing.rungs import CoupledRung, Rung, ladder
from veil.auditing.sandwich import Sides
from veil.auditing.worlds import faithful
from veil.rollout import Record

PILOTS = 64  # episodes to choose a rung on
BLOCK = 256  # episodes between two looks at the stopping rule
MOMENTS = 5  # times along the run at which both sides are measured


def choose(context: Context, most: int | None = None) -> Rung | None:
    """The first rung that is narrow enough on pilot episodes, else the narrowest; None if none applies.

    Args:
        context: of the audit.
        most: how many rungs to try; those above take several times as long.
    """
    rungs = ladder(context.system, context.policy)[:most]
    if len(rungs) < 2:
        return rungs[0] if rungs else None
    numbers = np.arange(PILOT, PILOT + PILOTS)
    records = context.play(context.policy, faithful(context.system), numbers, "playing pilots")
    entropy = -float(np.exp(context.log_prior) @ context.log_prior)
    best = (np.inf, rungs[0])
    for rung in rungs:
        stage = f"pilot: {rung.name}, {rung.particles}"
        sides = context.sides(rung, records, numbers, context.options.steps, stage)
        scored = score(sides, np.asarray(records.index), context.log_prior)
        width = float(np.nan_to_num(scored.leakage.width, nan=np.inf) + scored.bad.mean())
        if width < 0.5 * width_limit(entropy):
            return rung
        best = min(best, (width, rung), key=lambda pair: pair[0])
    return best[1]


def measure(context: Context, rung: Rung | None, records: Record) -> tuple[Sides | None, Scored]:
    """Both sides, a block of episodes at a time until the interval or the time is reached."""
    index = np.asarray(records.index)
    if rung is None:
        return None, unknown(index, context.log_prior)
    blocks: list[Sides] = []
    while True:
        first = BLOCK * len(blocks)
        rows = np.arange(first, min(first + BLOCK, len(index)))
        stage = f"{rung.name}, {first + len(rows)} of {len(index)}"
        blocks.append(context.sides(rung, chosen(records, rows), rows, context.options.steps, stage))
        sides = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
        seen = index[: rows[-1] + 1]
        scored = score(sides, seen, context.log_prior, coupled=isinstance(rung, CoupledRung))
        leakage = scored.leakage
        narrow = leakage.high - leakage.low <= context.options.interval
        if narrow or context.late or len(seen) == len(index):
            return sides, scored


def over_time(context: Context, rung: Rung | None, records: Record, scored: Scored) -> tuple[AtStep, ...]:
    """Both sides at a few times along the run."""
    steps = context.options.steps
    last = AtStep(steps, scored.leakage)
    if rung is None:
        return (last,)
    rows = np.arange(min(BLOCK, len(records.index)))
    some, found = chosen(records, rows), []
    for length in sorted({-(-steps * part // MOMENTS) for part in range(1, MOMENTS)} - {steps}):
        sides = context.sides(rung, some, rows, length, f"first {length} releases")
        coupled = isinstance(rung, CoupledRung)
        at = score(sides, np.asarray(some.index), context.log_prior, coupled=coupled)
        found.append(AtStep(length, at.leakage))
    return (*found, last)

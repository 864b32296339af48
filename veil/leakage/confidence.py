"""An upper confidence bound on a bounded mean by betting.

A gambler bets against "the mean is at least m": with stakes λ in [0, 1), wealth Π (1 + λ (m − x_s)) is a
supermartingale under that claim, so by Ville's inequality it ever exceeds 1/δ with probability at most δ.
All m whose gambler has become that rich are rejected. The wealth of several stakes is averaged, which is
again a fair game; it grows with m, so the rejected m are an upper interval and bisection finds its edge.
Ville's inequality speaks of all times at once: one may look after every batch and stop when satisfied.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

STAKES = np.geomspace(0.002, 0.98, 14)


class Confidence(NamedTuple):
    """Upper bound on the mean, the sample mean and its standard error, and the draws taken."""

    upper: float
    mean: float
    standard_error: float
    samples: int


def upper_confidence(values: np.ndarray, delta: float) -> float:
    """Upper (1 − delta) confidence bound on the mean of i.i.d. values in [0, 1]."""
    values = np.asarray(values, float)

    def log_wealth(mean: float) -> float:
        growth = np.log1p(STAKES[:, None] * (mean - values)[None, :]).sum(axis=1)
        return float(np.logaddexp.reduce(growth)) - np.log(len(STAKES))

    if log_wealth(1.0) < -np.log(delta):
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-7:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if log_wealth(middle) >= -np.log(delta) else (middle, high)
    return high


def bounded_mean(
    draw: Callable[[int], np.ndarray], *, delta: float, width: float, most: int, first: int = 1024
) -> Confidence:
    """Draw values in [0, 1] until the bound is within `width` of the sample mean, or `most` are drawn.

    Args:
        draw: gives that many fresh i.i.d. values.
        delta: probability that the bound is wrong, over all looks together.
        width: wanted distance between bound and sample mean.
        most: largest number of draws.
        first: draws before the first look; they double from look to look.
    """
    best, values = 1.0, np.zeros(0)
    for size in _looks(first, most):
        values = np.concatenate([values, draw(size - len(values))])
        best = min(best, upper_confidence(values, delta))
        if best - values.mean() <= width:
            break
    error = values.std(ddof=1) / np.sqrt(len(values))
    return Confidence(best, float(values.mean()), float(error), len(values))


def _looks(first: int, most: int) -> Iterator[int]:
    size = min(first, most)
    yield size
    while size < most:
        size = min(2 * size, most)
        yield size

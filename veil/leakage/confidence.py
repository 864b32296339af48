"""An upper confidence bound on a bounded mean by betting.

A gambler bets against "the mean is at least m": with stakes λ in [0, 1), wealth Π (1 + λ (m − x_s)) is a
supermartingale under that claim, so by Ville's inequality it ever exceeds 1/δ with probability at most δ.
All m whose gambler has become that rich are rejected. The wealth of several stakes is averaged, which is
again a fair game; it grows with m, so the rejected m are an upper interval and bisection finds its edge.
Ville's inequality speaks of all times at once: one may look after every batch and stop when satisfied.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from veil.leakage.estimate import divergence_from_prior, negative_entropies, posteriors_at, whole_number
from veil.leakage.inputs import Labelled, Nats
from veil.registry import LEAKAGE

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


@LEAKAGE.register("confidence_bound")
@dataclass(frozen=True)
class ConfidenceBound:
    """An upper bound that holds with a stated probability, by betting on posteriors."""

    delta: float = 1e-6
    """Probability that the bound is wrong"""
    width: float = 0.01
    """Distance of the bound from the sample mean at which to stop, in nats"""
    samples: int = 2**17
    """Points at most"""
    seed: int = 0
    """Seed of the points (no unit)"""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {self.delta}.")

    def of_mixture(self, mixture: Labelled) -> Nats:
        """Betting on the divergence of the posterior from the prior.

        That divergence ranges up to log 1/min q. Where a secret is so rare that this is much more than
        log K, the bet is on the posterior's entropy instead.
        """
        generator, count = np.random.default_rng(self.seed), len(mixture.masses)
        if count == 1:
            return Nats(0.0, delta=self.delta, samples=0)
        rare, top = float(-np.log(mixture.masses.min())), float(np.log(count))
        by_entropy = rare > 1.5 * top
        scale, shift = (top, mixture.entropy - top) if by_entropy else (rare, 0.0)

        def draw(size: int) -> np.ndarray:
            index = generator.choice(len(mixture.weight), size, p=mixture.weight)
            noise = generator.standard_normal((size, mixture.mean.shape[1]))
            shares, _ = posteriors_at(mixture, index, noise, mixture.weight)
            known = top + negative_entropies(shares) if by_entropy else divergence_from_prior(mixture, shares)
            return np.clip(known / scale, 0.0, 1.0)

        result = bounded_mean(
            draw, delta=self.delta, width=self.width / scale, most=max(whole_number(self.samples), 2)
        )
        upper = max(min(result.upper * scale + shift, mixture.entropy), 0.0)
        return Nats(
            upper, standard_error=result.standard_error * scale, samples=result.samples, delta=self.delta
        )

"""Upper confidence bounds on means of values that are bounded above, by betting.

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

LOWEST = 20.0  # a value is taken to be at least minus this many times the largest one


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


BOLDEST = 0.95  # share of the wealth that a single value can cost at most


def stratified_limit(
    values: np.ndarray,
    index: np.ndarray,
    prior: np.ndarray,
    most: np.ndarray,
    *,
    delta: float,
    planned: int = 0,
) -> float:
    """Upper (1 − delta) confidence limit on Σ_k q_k E[value | secret k], for values at most `most[k]`.

    No lower end is needed, and no normal approximation: a value that is large and so rare that it was never
    seen is allowed for. Played are whole rounds, one episode per secret. With z = K q_k · value the gambler
    stakes the same λ on every z of a round, so that its wealth changes by Π_k (1 + λ (m − z_k)), in
    expectation Π_k (1 + λ (m − E z_k)) ≤ (1 + λ (m − mean_k E z_k))^K ≤ 1 by the inequality of arithmetic
    and geometric means if the limit m is too low a claim. λ may depend on earlier rounds: it is the stake
    that is best for their variance and the planned number of episodes. Ville's inequality makes the limit
    valid at the end of every round, also if one stops early for what was seen.

    Args:
        values: (E,) in the order of play.
        index: (E,) the true secrets. Episodes beyond the last whole round are left out.
        prior: (K,) masses of the secrets.
        most: (K,) the largest value that an episode of each secret can have.
        delta: probability that the limit is too low.
        planned: how many episodes were meant to be played; as many as there are by default.
    """
    from scipy.optimize import brentq  # slow to import, and not needed live

    count, top = len(prior), float(prior @ most)
    groups = [np.asarray(values, float)[index == k] for k in range(count)]
    rounds = min(len(group) for group in groups)
    scale = float(np.max(count * prior * most))
    if rounds == 0 or not np.all(np.isfinite(values)) or scale <= 0.0:
        return top
    z = np.stack([group[:rounds] for group in groups], axis=1) * (count * prior / scale)
    z = np.clip(z, -LOWEST, 1.0)  # from below this is on the safe side; above 1 there is only round-off
    known = np.clip(z, -1.0, 1.0)
    seen = count * np.arange(rounds)
    sums, squares = (np.cumsum(part.sum(axis=1)) - part.sum(axis=1) for part in (known, known**2))
    variance = (0.25 + np.maximum(squares - sums**2 / np.maximum(seen, 1), 0.0)) / (seen + 1)
    stakes = np.sqrt(-2.0 * np.log(delta) / (max(planned, count * rounds) * variance))

    def log_wealth(claim: float) -> float:
        fair = np.minimum(stakes, BOLDEST / (1.0 - claim))[:, None]
        return float(np.sum(np.log1p(fair * (claim - z))))

    low, high = -LOWEST, 1.0 - 1e-9
    if log_wealth(high) < -np.log(delta):
        return top
    # The wealth grows with the claim. What is added covers what the root finder may be off.
    end = brentq(lambda claim: log_wealth(claim) + np.log(delta), low, high, xtol=1e-8)
    return min((float(np.asarray(end)) + 2e-8) * scale, top)


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

"""Means over episodes with their errors, and what accuracy and information say about each other."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Mean:
    """A mean over episodes, each secret weighted by its prior, and its standard error."""

    value: float
    error: float

    def low(self, errors: float = 3.0) -> float:
        """`errors` standard errors below."""
        return self.value - errors * self.error

    def high(self, errors: float = 3.0) -> float:
        """`errors` standard errors above."""
        return self.value + errors * self.error


@dataclass(frozen=True)
class Rate:
    """A share of episodes with its 95 % Clopper-Pearson interval."""

    value: float
    low: float
    high: float


def stratified_mean(values: np.ndarray, index: np.ndarray, prior: np.ndarray) -> Mean:
    """Mean over the secrets by the prior and over the episodes of each.

    Episodes are played in equal numbers per secret, so a rare secret is not left to chance. A secret with
    one episode only has an unknown error, which is infinite here.
    """
    groups = [values[index == k] for k in range(len(prior))]
    present = [k for k, group in enumerate(groups) if len(group) and prior[k] > 0]
    if not present or not np.all(np.isfinite(values)):
        return Mean(math.nan, math.inf)
    weights = prior[present] / prior[present].sum()
    means = np.array([groups[k].mean() for k in present])
    squares = [
        np.var(groups[k], ddof=1) / len(groups[k]) if len(groups[k]) > 1 else math.inf for k in present
    ]
    return Mean(float(weights @ means), float(np.sqrt(weights**2 @ np.array(squares))))


def stratified_value(index: np.ndarray, prior: np.ndarray) -> Callable[[np.ndarray], float]:
    """The value of `stratified_mean` for many values of the same episodes, without its error."""
    groups = [np.flatnonzero(index == k) for k in range(len(prior))]
    present = [k for k, group in enumerate(groups) if len(group) and prior[k] > 0]
    weights = prior[present] / prior[present].sum()

    def value(values: np.ndarray) -> float:
        if not present or not np.all(np.isfinite(values)):
            return math.nan
        return float(weights @ np.array([values[groups[k]].mean() for k in present]))

    return value


def clopper_pearson(hits: int, count: int, confidence: float = 0.95) -> Rate:
    """A share and its exact two-sided interval."""
    result = stats.binomtest(hits, count)
    interval = result.proportion_ci(confidence, method="exact")
    return Rate(float(result.statistic), float(interval.low), float(interval.high))


def stratified_rate(hits: np.ndarray, index: np.ndarray, prior: np.ndarray) -> Rate:
    """Share of hits under the prior. Exact for equal masses; else a union bound over the secrets."""
    if np.ptp(prior) < 1e-12:
        return clopper_pearson(round(float(hits.sum())), len(hits))
    level = 1.0 - 0.05 / len(prior)
    rates = [
        clopper_pearson(round(float(hits[index == k].sum())), int((index == k).sum()), level)
        for k in range(len(prior))
    ]
    return Rate(*(float(prior @ [getattr(rate, end) for rate in rates]) for end in ("value", "low", "high")))


def binary_divergence(first: float, second: float) -> float:
    """KL between two coins in nats."""
    terms = ((first, second), (1.0 - first, 1.0 - second))
    return sum(p * math.log(p / q) if p > 0 else 0.0 for p, q in terms if p > 0 and q > 0)


def information_from_accuracy(accuracy: float, chance: float) -> float:
    """The least mutual information, in nats, with which a guess can be right this often.

    Data processing: I ≥ d(accuracy ‖ chance), the binary divergence; for a uniform prior this is Fano's
    inequality.
    """
    return binary_divergence(accuracy, chance) if accuracy > chance else 0.0


def accuracy_from_information(nats: float, chance: float) -> float:
    """The highest accuracy that this much information allows: the inverse of the above."""
    if nats >= -math.log(chance):
        return 1.0
    low, high = chance, 1.0
    for _ in range(60):  # bisection: the divergence rises with the accuracy
        middle = 0.5 * (low + high)
        low, high = (middle, high) if binary_divergence(middle, chance) < nats else (low, middle)
    return high if nats > 0 else chance


def several(tests: int, errors: float = 3.0) -> float:
    """Standard errors to subtract so that the best of several lower bounds is as safe as one (Bonferroni)."""
    return float(stats.norm.isf(stats.norm.sf(errors) / max(tests, 1)))


ERRORS = 3.0  # standard errors in every interval that is reported

MISSED = float(stats.norm.sf(ERRORS))  # how often one side of such an interval may be wrong: 0.135 %

CONFIDENCE = f"{100.0 * (1.0 - MISSED):.2f} %"  # of one side, for people


@dataclass(frozen=True)
class Leakage:
    """Mutual information between the secret and a transcript, from both sides, in nats.

    Attributes:
        lower: at most the leakage, in expectation.
        upper: at least the leakage, in expectation; the entropy where nothing better is known.
        entropy: H(q), the most that can leak.
        limit: upper end of the interval by a bound that holds for rare events as well, wrong with a
            probability of `MISSED`; None where only the mean and its standard error are known.
    """

    lower: Mean
    upper: Mean
    entropy: float
    limit: float | None = None

    @property
    def width(self) -> float:
        """Mean upper minus mean lower: the error of the filter."""
        return self.upper.value - self.lower.value

    @property
    def low(self) -> float:
        """Lower end of the interval, errors over episodes included."""
        return float(np.clip(np.nan_to_num(self.lower.low(ERRORS), neginf=0.0), 0.0, self.entropy))

    @property
    def high(self) -> float:
        """Upper end of the interval, errors over episodes included."""
        end = self.upper.high(ERRORS) if self.limit is None else self.limit
        return float(np.clip(np.nan_to_num(end, nan=np.inf), 0.0, self.entropy))


BINS = 10


@dataclass(frozen=True)
class Bins:
    """Cases by the mass that the auditor gave; the first four only where there are any.

    Attributes:
        mean: mean mass given.
        rate: fraction of cases that came true, with its 95 % binomial interval.
        low: lower end of the interval.
        high: upper end of the interval.
        count: cases in every bin, empty ones included.
        edges: of the bins, one more than bins.
    """

    mean: np.ndarray
    rate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    edges: np.ndarray


def reliability_bins(posteriors: np.ndarray, index: np.ndarray, prior: np.ndarray) -> Bins:
    """Every pair of an episode and a secret is one case; episodes are weighted by the prior of their secret.

    The weights matter because secrets are played equally often whatever their mass. Under unequal weights the
    interval is that of as many equal ones as carry the same information.

    Args:
        posteriors: (E, K) mass that the auditor gave to each secret in each episode.
        index: (E,) true secrets.
        prior: (K,) masses before reading.
    """
    count = posteriors.shape[1]
    weight = np.repeat(prior[index], count)
    true = (np.arange(count)[None, :] == index[:, None]).ravel()
    given = np.asarray(posteriors, float).ravel()
    known = np.isfinite(given)
    given, true, weight = given[known], true[known], weight[known]
    edges = np.linspace(0.0, 1.0, BINS + 1)
    place = np.clip(np.digitize(given, edges) - 1, 0, BINS - 1)
    rows = [
        _bin(given[own], true[own], weight[own]) for own in (place == j for j in range(BINS)) if own.any()
    ]
    mean, rate, low, high = np.array(rows).reshape(-1, 4).T
    return Bins(mean, rate, low, high, np.bincount(place, minlength=BINS), edges)


def _bin(given: np.ndarray, true: np.ndarray, weight: np.ndarray) -> tuple[float, float, float, float]:
    """Mean mass, rate, and the Clopper-Pearson interval of the effective number of cases."""
    share = weight / weight.sum()
    rate, effective = float(share @ true), 1.0 / float(share @ share)
    hits, misses = rate * effective, (1.0 - rate) * effective
    low = stats.beta.ppf(0.025, hits, misses + 1.0) if hits > 1e-9 else 0.0
    high = stats.beta.ppf(0.975, hits + 1.0, misses) if misses > 1e-9 else 1.0
    return float(share @ given), rate, float(low), float(high)

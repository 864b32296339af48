"""Whether the auditor's posterior means what it says: how often what it gave a mass to came true."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from veil.auditing.result import Audit

BINS = 10


@dataclass(frozen=True)
class Bins:
    """Cases by the mass that the auditor gave; the first four only where there are any.

    Attributes:
        mean: mean mass given.
        rate: share of cases that came true, with its 95 % binomial interval.
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


def reliability_bins(audit: Audit) -> Bins:
    """Every pair of an episode and a secret is one case; episodes are weighted by the prior of their secret.

    The weights matter because secrets are played equally often whatever their mass. Under unequal weights the
    interval is that of as many equal ones as carry the same information.
    """
    masses, count = np.asarray(audit.posteriors, float), audit.posteriors.shape[1]
    weight = np.repeat(prior_of(audit)[audit.index], count)
    true = (np.arange(count)[None, :] == audit.index[:, None]).ravel()
    given = masses.ravel()
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


def prior_of(audit: Audit) -> np.ndarray:
    """(K,) prior masses, read from posterior and realised leakage; uniform where these do not tell."""
    count = audit.posteriors.shape[1]
    episodes = np.arange(len(audit.index))
    with np.errstate(all="ignore"):
        masses = audit.posteriors[episodes, audit.index] / np.exp(audit.realised)
    found = [masses[(audit.index == k) & np.isfinite(masses)] for k in range(count)]
    prior = np.array([np.median(own) if len(own) else np.nan for own in found])
    return prior / prior.sum() if abs(prior.sum() - 1.0) < 1e-3 else np.full(count, 1.0 / count)

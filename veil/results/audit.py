"""What an audit found. Numbers only; words, files and pictures are made from this."""

from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from veil.stats import Leakage, Mean, Rate


@dataclass(frozen=True)
class AttackResult:
    """What one adversary got out of the transcripts.

    Attributes:
        name: a short name.
        role: "attack", "assisted" (knows more than the threat model grants) or "mismatched".
        accuracy: how often its first guess is right.
        lower: mean score of its repaired forecast, nats.
        raw: mean score of its forecast as it is.
        calibration: mean score minus what the forecast claims; negative if it is too sure.
        episodes: transcripts read.
        seconds: time taken, compiling and training included.
        note: anything the reader should know.
    """

    name: str
    role: str
    accuracy: Rate
    lower: Mean
    raw: Mean
    calibration: Mean
    episodes: int
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class AtStep:
    """The leakage of the first `step` releases."""

    step: int
    leakage: Leakage


@dataclass(frozen=True)
class Part:
    """The leakage about one secret, or about one component of the secret."""

    name: str
    leakage: Leakage


@dataclass(frozen=True)
class Curves:
    """Over the run, by one Kalman filter per secret: a preview, not a bound from above.

    Attributes:
        score: (T,) mean score in nats after each release.
        posterior: (K, T) mean mass on the true secret, for each true secret.
        spread: (K, T) its standard deviation over episodes.
    """

    score: np.ndarray
    posterior: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True)
class Quantity:
    """One line of the table of use: what sharing this way costs the owner and gives the receiver."""

    name: str
    unit: str
    value: Mean
    true_data: Mean | None = None
    change: Mean | None = None  # per cent against true data, paired


@dataclass(frozen=True)
class ScenarioResult:
    """The policy in a scenario that differs from its model."""

    name: str
    distortion: Mean
    attacks: tuple[AttackResult, ...]
    entropy: float
    chance: float


@dataclass(frozen=True)
class Verdict:
    """The gate's answer, why, and every number that it looked at."""

    name: str
    reasons: tuple[str, ...]
    inputs: dict[str, float | str | bool]

    @property
    def certified(self) -> bool:
        """Whether the upper bound may be believed."""
        return self.name == "certifiable"


@dataclass(frozen=True)
class Audit:
    """All that one audit found.

    Attributes:
        system: name of the system.
        policy: name of the policy.
        horizon: releases per episode.
        episodes: episodes of the two-sided measurement.
        particles: per secret, 0 where none were needed.
        method: how the two sides were found.
        verdict: the gate's.
        leakage: of the whole run.
        chance: accuracy of the best guess without reading.
        times: the leakage at a few times along the run.
        secrets: per true secret: what its transcripts tell about it.
        components: per component of the secret; empty where this says nothing.
        curves: over time, by Kalman filters; None where they do not apply.
        attacks: all adversaries.
        realised: (E,) log(posterior/prior) of the true secret per episode.
        posteriors: (E, K) final posterior of the auditor.
        index: (E,) true secrets.
        utility: what the sharing costs and gives.
        scenarios: the policy in scenarios that differ from its model.
        seeds: what reproduces this audit.
        seconds: by stage.
    """

    system: str
    policy: str
    horizon: int
    episodes: int
    particles: int
    method: str
    verdict: Verdict
    leakage: Leakage
    chance: float
    times: tuple[AtStep, ...]
    secrets: tuple[Part, ...]
    components: tuple[Part, ...]
    curves: Curves | None
    attacks: tuple[AttackResult, ...]
    realised: np.ndarray
    posteriors: np.ndarray
    index: np.ndarray
    utility: tuple[Quantity, ...]
    scenarios: tuple[ScenarioResult, ...] = ()
    seeds: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def lowest(self) -> float:
        """The best lower end over all attackers who know no more than the threat model grants."""
        return self.verdict.inputs.get("lower_best", self.leakage.low)  # pyright: ignore[reportReturnType]


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

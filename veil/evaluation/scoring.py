"""From the sides of many episodes to leakages: of the run, over time, per secret, per component."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy import stats

from veil.evaluation.bounds import MAIN, TwoSidedBound, component_upper, forecast_of, upper_scores
from veil.evaluation.forecasts import Forecast, repaired
from veil.results.parts import AtStep, Part
from veil.stats import ERRORS, Leakage, Mean, stratified_mean
from veil.systems.base import System


@dataclass(frozen=True)
class Scored:
    """Episodes with their scores from both sides.

    Attributes:
        forecast: the auditor's.
        lower: (E,) repaired scores.
        upper: (E,) charges.
        bad: (E,) episodes charged the most possible.
        coupled: whether the sides come from a coupling, whose error is a rate of disagreement.
    """

    forecast: Forecast
    lower: np.ndarray
    upper: np.ndarray
    bad: np.ndarray
    coupled: bool = False

    @property
    def entropy(self) -> float:
        """H(q)."""
        return float(-self.forecast.prior @ self.forecast.log_prior)

    @property
    def leakage(self) -> Leakage:
        """Of the whole."""
        index, prior = self.forecast.index, self.forecast.prior
        lower = stratified_mean(self.lower, index, prior)
        upper = stratified_mean(self.upper, index, prior)
        if self.coupled:
            upper = _coupled(self.bad, self.entropy)
        if not upper.value < self.entropy:  # never worse than knowing nothing
            upper = Mean(self.entropy, 0.0)
        return Leakage(lower, upper, self.entropy)


def score(sides: TwoSidedBound, index: np.ndarray, log_prior: np.ndarray, *, coupled: bool = False) -> Scored:
    """Scores of all episodes."""
    forecast = forecast_of(sides, index, log_prior)
    upper, bad = upper_scores(sides, index, log_prior)
    return Scored(forecast, repaired(forecast)[0], upper, bad, coupled)


def unknown(index: np.ndarray, log_prior: np.ndarray) -> Scored:
    """Nothing is known: every episode may tell all."""
    forecast = Forecast(np.zeros((len(index), len(log_prior))), index, log_prior)
    return Scored(forecast, np.zeros(len(index)), -log_prior[index], np.ones(len(index), bool))


def per_secret(scored: Scored, names: list[str]) -> tuple[Part, ...]:
    """What the transcripts of each secret tell about it: D(p(y|θ) ‖ p(y)), at most log 1/q(θ)."""
    parts = []
    for secret, name in enumerate(names):
        rows = scored.forecast.index == secret
        one = np.zeros(int(rows.sum()), int)
        most = float(-scored.forecast.log_prior[secret])
        lower = stratified_mean(scored.lower[rows], one, np.ones(1))
        upper = stratified_mean(scored.upper[rows], one, np.ones(1))
        parts.append(Part(name, Leakage(lower, upper if upper.value < most else Mean(most, 0.0), most)))
    return tuple(parts)


def per_component(sides: TwoSidedBound, scored: Scored, system: System) -> tuple[Part, ...]:
    """The leakage about each component of the secret; only where a component has values in common."""
    parts = []
    secrets, log_prior = np.asarray(system.prior.secrets), scored.forecast.log_prior
    for name, column in zip((field.name for field in system.secret_fields), secrets.T, strict=True):
        values, groups = np.unique(column, return_inverse=True)
        if not 1 < len(values) < len(secrets):
            continue
        index = groups[scored.forecast.index]
        masses = np.array([np.exp(log_prior)[groups == group].sum() for group in range(len(values))])
        grouped = np.stack(
            [
                np.logaddexp.reduce((log_prior + scored.forecast.log_likelihood)[:, groups == group], axis=1)
                for group in range(len(values))
            ],
            axis=1,
        ) - np.log(masses)
        forecast = Forecast(grouped, index, np.log(masses))
        upper = component_upper(sides, scored.forecast.index, log_prior, groups)
        parts.append(Part(name, Scored(forecast, repaired(forecast)[0], upper, scored.bad).leakage))
    return tuple(parts)


def shared_components(system: System) -> bool:
    """Whether any component of the secret takes a value twice, so that `per_component` says something."""
    secrets = np.asarray(system.prior.secrets)
    return any(1 < len(np.unique(column)) < len(secrets) for column in secrets.T)


def failed_share(sides: TwoSidedBound) -> float:
    """Share of episodes in which the main run gave a number that is not finite."""
    return float(np.mean(~np.isfinite(np.asarray(sides.plain)[:, MAIN]).all(axis=1)))


def _coupled(bad: np.ndarray, entropy: float) -> Mean:
    """P(transcripts differ) · H(q): the rate, and as its error what an exact binomial limit allows."""
    count, hits = len(bad), int(bad.sum())
    limit = float(stats.beta.ppf(stats.norm.cdf(ERRORS), hits + 1, max(count - hits, 1)))
    rate = hits / count
    return Mean(rate * entropy, max(limit - rate, 0.0) * entropy / ERRORS)


def refused(leakage: Leakage) -> Leakage:
    """What is left where the upper side cannot be believed: everything may leak."""
    return Leakage(leakage.lower, Mean(leakage.entropy, 0.0), leakage.entropy)


Lined = TypeVar("Lined", AtStep, Part)


def all_refused(lines: tuple[Lined, ...]) -> tuple[Lined, ...]:
    """The same for the lines of a table."""
    return tuple(replace(line, leakage=refused(line.leakage)) for line in lines)

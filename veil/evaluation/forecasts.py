"""Forecasts of the secret and their scores: a lower bound on the leakage, whatever made the forecast.

For any forecast q̂ computed from a transcript, E log(q̂(θ*)/q(θ*)) ≤ I(Θ; transcript), with equality for the
posterior (Barber and Agakov). A filter that is too sure of itself scores minus a hundred, so a forecast is
first repaired, (1 − e) softmax(log q + b · log-likelihood) + e q, with (b, e) fitted on one half of the
episodes and scored on the other.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, logsumexp

from veil.stats import Mean, stratified_mean

POWERS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0])

MIXES = np.array([1e-6, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0])


@dataclass(frozen=True)
class Forecast:
    """Log-likelihoods per episode and secret, and which secret was true.

    Attributes:
        log_likelihood: (E, K), nats, up to a constant per episode.
        index: (E,) the true secret.
        log_prior: (K,).
    """

    log_likelihood: np.ndarray
    index: np.ndarray
    log_prior: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        """Masses."""
        return np.exp(self.log_prior)

    def log_posterior(self, power: float = 1.0, mix: float = 0.0) -> np.ndarray:
        """Log of (1 − mix) softmax(log q + power · log-likelihood) + mix · q."""
        raw = log_softmax(self.log_prior + power * _readable(self.log_likelihood), axis=1)
        if mix == 0.0:
            return raw
        with np.errstate(divide="ignore"):  # mix = 1 leaves the prior alone
            return np.logaddexp(np.log1p(-mix) + raw, np.log(mix) + self.log_prior)

    def scores(self, power: float = 1.0, mix: float = 0.0) -> np.ndarray:
        """log(q̂(θ*)/q(θ*)) per episode."""
        rows = np.arange(len(self.index))
        return self.log_posterior(power, mix)[rows, self.index] - self.log_prior[self.index]

    def claims(self) -> np.ndarray:
        """KL(q̂ ‖ q) per episode: what the forecast believes to have learned."""
        found = self.log_posterior()
        return np.sum(np.exp(found) * (found - self.log_prior), axis=1)

    def hits(self) -> np.ndarray:
        """Episodes whose likeliest secret is the true one; ties count as their chance."""
        found = self.log_posterior()
        best = found >= found.max(axis=1, keepdims=True) - 1e-12
        return best[np.arange(len(self.index)), self.index] / best.sum(axis=1)

    def some(self, rows: np.ndarray) -> "Forecast":
        """The forecasts of some episodes."""
        return Forecast(self.log_likelihood[rows], self.index[rows], self.log_prior)


def repaired(forecast: Forecast) -> tuple[np.ndarray, tuple[tuple[float, float], ...]]:
    """Scores of the repaired forecast, each half by the fit of the other; and the two fits (power, mix)."""
    halves = np.arange(len(forecast.index)) // len(forecast.prior) % 2  # whole rounds of secrets together
    scores = np.zeros(len(forecast.index))
    fits = []
    for half in (0, 1):
        ours, theirs = np.flatnonzero(halves == half), np.flatnonzero(halves != half)
        power, mix = fit_repair(forecast.some(theirs)) if len(theirs) else (1.0, 0.0)
        scores[ours] = forecast.some(ours).scores(power, mix)
        fits.append((power, mix))
    return scores, tuple(fits)


def fit_repair(forecast: Forecast) -> tuple[float, float]:
    """The power and the mix with the best mean score, from a grid; a good filter keeps its power of 1."""
    best, chosen = -np.inf, (1.0, 0.0)
    for power in POWERS[::-1]:
        for mix in MIXES:
            score = stratified_mean(forecast.scores(power, mix), forecast.index, forecast.prior).value
            if score > best + 1e-9:
                best, chosen = score, (float(power), float(mix))
    return chosen


def lower_bound(forecast: Forecast) -> Mean:
    """Mean score of the repaired forecast: at most the leakage, in expectation."""
    return stratified_mean(repaired(forecast)[0], forecast.index, forecast.prior)


def calibration(forecast: Forecast) -> Mean:
    """Mean of score − claim: zero for a posterior that can be believed, negative if it is too sure."""
    return stratified_mean(forecast.scores() - forecast.claims(), forecast.index, forecast.prior)


def vulnerability(forecast: Forecast) -> Mean:
    """Bayes vulnerability: how often the forecast expects its own first guess to be right."""
    surest = np.exp(forecast.log_posterior().max(axis=1))
    return stratified_mean(surest, forecast.index, forecast.prior)


def pooled(log_likelihoods: np.ndarray) -> np.ndarray:
    """Mean of several unbiased estimates of the same likelihoods, (R, E, K) to (E, K), in logarithms."""
    return logsumexp(log_likelihoods, axis=0) - np.log(len(log_likelihoods))


def _readable(log_likelihood: np.ndarray) -> np.ndarray:
    """A secret whose likelihood is unknown or zero becomes very unlikely; all unknown, all equal."""
    values = np.where(np.isfinite(log_likelihood), log_likelihood, -np.inf)
    top = values.max(axis=1, keepdims=True)
    values = np.where(np.isfinite(top), values - np.where(np.isfinite(top), top, 0.0), 0.0)
    return np.maximum(values, -1e6)

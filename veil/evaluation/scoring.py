"""From the runs of filters to leakages: forecasts of the secret and their scores, and two-sided bounds.

For any forecast q̂ computed from a transcript, E log(q̂(θ*)/q(θ*)) ≤ I(Θ; transcript), with equality for the
posterior (Barber and Agakov). A filter that is too sure of itself scores minus a hundred, so a forecast is
first repaired, (1 − e) softmax(log q + b · log-likelihood) + e q, with (b, e) fitted on one half of the
episodes and scored on the other. The upper bound is explained in `veil.evaluation.bounds`.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from scipy import stats
from scipy.special import log_softmax, logsumexp

from veil.leakage.confidence import stratified_limit
from veil.results.parts import AtStep, Part
from veil.stats import ERRORS, MISSED, Leakage, Mean, stratified_mean, stratified_value
from veil.systems.base import System

PILOT_A, PILOT_B, MAIN, APART = range(4)

Method = Literal["filter", "exact", "coupling", "excess", "attack"]  # see `Scored`


class TwoSidedBound(eqx.Module):
    """One episode, or many of them (batched [E])."""

    plain: Float[Array, "*E R K"]  # runs: two pilots, the main one, and perhaps one apart from it
    pinned: Float[Array, "*E"]  # the conditional run, with the random numbers of the main one
    effective: Float[Array, "*E"]
    rank: Float[Array, "*E N"]  # of the true x_T among the particles of the true secret


DISAGREE = 1.5  # nats between two pilots in a log-likelihood that matters: the episode is not understood

NEGLIGIBLE = 20.0  # nats below the likeliest secret, at which both pilots see one that does not matter

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
        """Probabilities of the secrets."""
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
        return self.mixed_scores(power, np.array([mix]))[0]

    def mixed_scores(self, power: float, mixes: np.ndarray) -> np.ndarray:
        """(M, E) the same for several mixes; each is that of `log_posterior` at the true secret."""
        rows, own = np.arange(len(self.index)), self.log_prior[self.index]
        raw = self.log_posterior(power)[rows, self.index]
        with np.errstate(divide="ignore"):  # mix = 1 leaves the prior alone
            mixed = [
                raw if mix == 0.0 else np.logaddexp(np.log1p(-mix) + raw, np.log(mix) + own) for mix in mixes
            ]
        return np.stack(mixed) - own

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
    best, chosen, mean = -np.inf, (1.0, 0.0), stratified_value(forecast.index, forecast.prior)
    for power in POWERS[::-1]:
        for mix, scores in zip(MIXES, forecast.mixed_scores(power, MIXES), strict=True):
            score = mean(scores)
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


def bad_episodes(plain: np.ndarray) -> np.ndarray:
    """Episodes on which the two pilots disagree, or in which any number is not finite.

    They may disagree about secrets that both exclude: such a likelihood, however wrong, moves no posterior.
    """
    pilots = plain[:, (PILOT_A, PILOT_B)]
    with np.errstate(invalid="ignore"):  # infinite numbers are caught below
        excluded = np.all(pilots < pilots.max(axis=2, keepdims=True) - NEGLIGIBLE, axis=1)
        apart = np.where(excluded, 0.0, np.abs(pilots[:, 0] - pilots[:, 1])).max(axis=1)
    return ~np.isfinite(plain).all(axis=(1, 2)) | ~(apart < DISAGREE)


class Charges(NamedTuple):
    """What each episode is charged, (E,).

    Attributes:
        upper: the charge.
        excess: the part of it that is the error of the filter, log p̂* − log p̂(θ*). The rest is at most
            log 1/q(θ*), whatever the filter.
        bad: episodes on which the filter failed: they are charged the most possible, or what a reader gains
            who is told more.
    """

    upper: np.ndarray
    excess: np.ndarray
    bad: np.ndarray


@dataclass(frozen=True)
class Told:
    """The same episodes, read by somebody who is told more (`veil.evaluation.bounds.told_bounders`).

    Attributes:
        bound: both sides of what this reader learns.
        always: whether all episodes are charged by it, and not only those on which the filter failed.
    """

    bound: TwoSidedBound
    always: bool = False


def upper_scores(
    bound: TwoSidedBound, index: np.ndarray, log_prior: np.ndarray, told: Told | None = None
) -> Charges:
    """What each episode is charged; see `component_upper`."""
    return component_upper(bound, index, log_prior, np.arange(len(log_prior)), told)


def forecast_of(bound: TwoSidedBound, index: np.ndarray, log_prior: np.ndarray) -> Forecast:
    """The auditor's forecast: the mean of its runs."""
    plain = np.moveaxis(np.asarray(bound.plain)[:, :APART], 1, 0)
    with np.errstate(invalid="ignore"):
        return Forecast(pooled(plain), index, log_prior)


def component_upper(
    bound: TwoSidedBound,
    index: np.ndarray,
    log_prior: np.ndarray,
    groups: np.ndarray,
    told: Told | None = None,
) -> Charges:
    """What each episode is charged for one component of the secret.

    The numerator estimates p(y | group of θ*): the pinned run stands for θ*, runs with other random numbers
    for the rest of the group. Given y, the pair (θ*, path) is a draw from the posterior within the group, so
    the argument of the pinned run holds for the mixture as a whole.

    Args:
        bound: both sides of every episode.
        index: (E,) true secrets.
        log_prior: (K,).
        groups: (K,) value of the component per secret.
        told: the reader whose gain is charged where the filter fails; the most possible if None.
    """
    plain, pinned = np.asarray(bound.plain), np.asarray(bound.pinned)
    # Where each secret is a group of its own, no run apart is needed and none was made.
    others = plain[:, APART if plain.shape[1] > APART else MAIN]
    numbers = np.where(np.arange(len(groups))[None, :] == index[:, None], pinned[:, None], others)
    same = groups[None, :] == groups[index][:, None]
    log_group = np.logaddexp.reduce(np.where(same, log_prior, -np.inf), axis=1)

    def inside(log_likelihood: np.ndarray) -> np.ndarray:
        return np.logaddexp.reduce(np.where(same, log_prior + log_likelihood, -np.inf), axis=1) - log_group

    with np.errstate(invalid="ignore"):
        charged = inside(numbers) - np.logaddexp.reduce(log_prior + plain[:, MAIN], axis=1)
        excess = inside(numbers) - inside(plain[:, MAIN])
        # A number that is not finite counts as the worst too: never dropped, never helpful.
        bad = bad_episodes(plain[:, [PILOT_A, PILOT_B]]) | ~np.isfinite(charged) | ~np.isfinite(excess)
    if told is None:
        return Charges(np.where(bad, -log_group, charged), np.where(bad, 0.0, excess), bad)
    instead = component_upper(told.bound, index, log_prior, groups)
    by_reader = bad | told.always
    return Charges(
        np.where(by_reader, instead.upper, charged), np.where(by_reader, instead.excess, excess), bad
    )


@dataclass(frozen=True)
class Scored:
    """Episodes with their scores from both sides.

    Attributes:
        forecast: the auditor's.
        lower: (E,) repaired scores.
        charges: from above.
        method: "filter"; "exact" where the forecast is the posterior; "coupling", whose error is a rate of
            disagreement; "excess", whose charges are a divergence that bounds the leakage as a whole;
            "attack", which has a lower side only.
        planned: how many episodes were meant to be played; as many as there are if 0.
        told: the reader whose gain is charged where the filter fails.
    """

    forecast: Forecast
    lower: np.ndarray
    charges: Charges
    method: Method = "filter"
    planned: int = 0
    told: Told | None = None

    @property
    def upper(self) -> np.ndarray:
        """(E,) what each episode is charged."""
        return self.charges.upper

    @property
    def bad(self) -> np.ndarray:
        """(E,) episodes on which the filter failed."""
        return self.charges.bad

    @property
    def entropy(self) -> float:
        """H(q) in nats."""
        return float(-self.forecast.prior @ self.forecast.log_prior)

    @property
    def leakage(self) -> Leakage:
        """Of the whole."""
        index, prior = self.forecast.index, self.forecast.prior
        lower = stratified_mean(self.lower, index, prior)
        if self.method == "coupling":
            return _coupled(lower, self.bad, self.entropy)
        if self.method == "excess":
            return _divergence(self, lower, self.entropy, 1.0)
        if self.method == "attack":
            return Leakage(lower, Mean(self.entropy, 0.0), self.entropy)
        # Of an exact posterior, the divergence from the prior has the mean of the score and a smaller error.
        exact = self.method == "exact" and not self.bad.any()
        values = self.forecast.claims() if exact else None
        return _two_sided(
            lower, self.charges, index, prior, -self.forecast.log_prior, planned=self.planned, values=values
        )


def _two_sided(
    lower: Mean,
    charges: Charges,
    index: np.ndarray,
    prior: np.ndarray,
    most: np.ndarray,
    *,
    planned: int = 0,
    values: np.ndarray | None = None,
) -> Leakage:
    """The leakage with an upper end that holds for rare events as well.

    A charge is a bounded part, limited by betting, and the error of the filter. That has no largest value;
    its mean is taken with as many standard errors as a tenth of the error probability asks for.

    Args:
        lower: the lower side.
        charges: the upper side.
        index: (E,) true secrets.
        prior: (K,) their masses.
        most: (K,) what an episode of each secret can tell.
        planned: episodes that were meant to be played; as many as there are if 0.
        values: (E,) what to bet on in place of the bounded part: with the same mean, and at most the largest
            of `most`.
    """
    entropy = float(prior @ most)
    upper, excess = (stratified_mean(part, index, prior) for part in (charges.upper, charges.excess))
    if not upper.value < entropy:  # never worse than knowing nothing
        return Leakage(lower, Mean(entropy, 0.0), entropy)
    certain = excess.value == 0.0 and excess.error == 0.0
    bounded = charges.upper - charges.excess
    if values is not None:
        bounded, most = values, np.full_like(most, most.max())
    delta = MISSED if certain else 0.9 * MISSED
    limit = stratified_limit(bounded, index, prior, most, delta=delta, planned=planned)
    if not certain:
        limit += excess.high(float(stats.norm.isf(0.1 * MISSED)))
    return Leakage(lower, upper, entropy, float(np.clip(limit, 0.0, entropy)))


def score(
    bound: TwoSidedBound,
    index: np.ndarray,
    log_prior: np.ndarray,
    *,
    method: Method = "filter",
    planned: int = 0,
    told: Told | None = None,
) -> Scored:
    """Scores of all episodes.

    Args:
        bound: both sides of every episode.
        index: (E,) true secrets.
        log_prior: (K,).
        method: how the bound was found, see `Scored`.
        planned: episodes that were meant to be played.
        told: a reader whose gain bounds the leakage where the filter fails.
    """
    forecast = forecast_of(bound, index, log_prior)
    charges = upper_scores(bound, index, log_prior, told)
    return Scored(forecast, repaired(forecast)[0], charges, method, planned, told)


def unknown(index: np.ndarray, log_prior: np.ndarray) -> Scored:
    """Nothing is known: every episode may tell all."""
    forecast = Forecast(np.zeros((len(index), len(log_prior))), index, log_prior)
    zeros = np.zeros(len(index))
    return Scored(forecast, zeros, Charges(-log_prior[index], zeros, np.ones(len(index), bool)))


def per_secret(scored: Scored, names: list[str]) -> tuple[Part, ...]:
    """What the transcripts of each secret tell about it: D(p(y|θ) ‖ p(y)), at most log 1/q(θ).

    By a coupling: each transcript agrees with all others but for the share of episodes that do not, whatever
    the secret. The divergence is convex, so that it is at most this share of log 1/q(θ).
    """
    parts = []
    for secret, name in enumerate(names):
        rows = scored.forecast.index == secret
        one = np.zeros(int(rows.sum()), int)
        most = float(-scored.forecast.log_prior[secret])
        lower = stratified_mean(scored.lower[rows], one, np.ones(1))
        if scored.method == "coupling":
            parts.append(Part(name, _coupled(lower, scored.bad, most)))
            continue
        if scored.method == "excess":
            parts.append(Part(name, _divergence(scored, lower, most, 1.0 / np.exp(-most))))
            continue
        if scored.method == "attack":
            parts.append(Part(name, Leakage(lower, Mean(most, 0.0), most)))
            continue
        charges = Charges(*(part[rows] for part in scored.charges))
        parts.append(Part(name, _two_sided(lower, charges, one, np.ones(1), np.asarray([most]))))
    return tuple(parts)


def per_component(bound: TwoSidedBound, scored: Scored, system: System) -> tuple[Part, ...]:
    """The leakage about each component of the secret; only where a component has values in common."""
    parts = []
    secrets, log_prior = np.asarray(system.prior.secrets), scored.forecast.log_prior
    for name, column in zip((field.name for field in system.secret_fields), secrets.T, strict=True):
        values, groups = np.unique(column, return_inverse=True)
        if not 1 < len(values) < len(secrets):
            continue
        index, prior = scored.forecast.index, np.exp(log_prior)
        masses = np.array([prior[groups == group].sum() for group in range(len(values))])
        grouped = np.stack(
            [
                np.logaddexp.reduce((log_prior + scored.forecast.log_likelihood)[:, groups == group], axis=1)
                for group in range(len(values))
            ],
            axis=1,
        ) - np.log(masses)
        forecast = Forecast(grouped, groups[index], np.log(masses))
        # Averaged over secrets by the prior: within a group some may be rarer than others.
        lower = stratified_mean(repaired(forecast)[0], index, prior)
        most = -np.log(masses)[groups]
        if scored.method == "coupling":
            parts.append(Part(name, _coupled(lower, scored.bad, float(prior @ most))))
            continue
        if scored.method == "excess":
            parts.append(Part(name, _divergence(scored, lower, float(prior @ most), 1.0)))
            continue
        if scored.method == "attack":
            entropy = float(prior @ most)
            parts.append(Part(name, Leakage(lower, Mean(entropy, 0.0), entropy)))
            continue
        charges = component_upper(bound, index, log_prior, groups, scored.told)
        exact = forecast.claims() if scored.method == "exact" and not scored.bad.any() else None
        both = _two_sided(lower, charges, index, prior, most, planned=scored.planned, values=exact)
        parts.append(Part(name, both))
    return tuple(parts)


def shared_components(system: System) -> bool:
    """Whether any component of the secret takes a value twice, so that `per_component` says something."""
    secrets = np.asarray(system.prior.secrets)
    return any(1 < len(np.unique(column)) < len(secrets) for column in secrets.T)


def failed_fraction(bound: TwoSidedBound) -> float:
    """Fraction of episodes in which the main run gave a number that is not finite."""
    return float(np.mean(~np.isfinite(np.asarray(bound.plain)[:, MAIN]).all(axis=1)))


def _coupled(lower: Mean, bad: np.ndarray, most: float) -> Leakage:
    """P(transcripts differ) times what a transcript can tell; the limit of the rate is exact (binomial)."""
    count, hits = len(bad), int(bad.sum())
    limit = float(stats.beta.ppf(1.0 - MISSED, hits + 1, max(count - hits, 1)))
    rate = hits / count
    if not rate < 1.0:
        return Leakage(lower, Mean(most, 0.0), most)
    return Leakage(lower, Mean(rate * most, max(limit - rate, 0.0) * most / ERRORS), most, limit * most)


def _divergence(scored: Scored, lower: Mean, most: float, factor: float) -> Leakage:
    """The mean of the charges bounds the leakage; the one about a secret of mass q is at most 1/q of it.

    A divergence is not negative, but its estimate may be. The charges have no largest value; the limit is
    that of their mean by its standard error.
    """
    upper = stratified_mean(scored.upper, scored.forecast.index, scored.forecast.prior)
    limit = factor * max(upper.high(float(stats.norm.isf(MISSED))), 0.0)
    if scored.bad.any() or not limit < most:
        return Leakage(lower, Mean(most, 0.0), most)
    return Leakage(lower, Mean(factor * max(upper.value, 0.0), factor * upper.error), most, limit)


def refused(leakage: Leakage) -> Leakage:
    """What is left where the upper side cannot be believed: everything may leak."""
    return Leakage(leakage.lower, Mean(leakage.entropy, 0.0), leakage.entropy)


Lined = TypeVar("Lined", AtStep, Part)


def all_refused(lines: tuple[Lined, ...]) -> tuple[Lined, ...]:
    """The same for the lines of a table."""
    return tuple(replace(line, leakage=refused(line.leakage)) for line in lines)

"""The upper end of an interval on leaks that episodes seldom show: coverage over 1,000 audits, and widths.

The channels are exact, so that an audit is a sample of posteriors: the same functions score it as score an
audit whose likelihoods are exact, or one by filters.
"""

import numpy as np
import pytest
from scipy.stats import binom, norm

from veil.evaluation.scoring import Charges, Forecast, Method, Scored, per_secret
from veil.leakage.confidence import stratified_limit
from veil.stats import ERRORS, MISSED, stratified_mean

AUDITS, FEW, EPISODES, SECRETS = 1000, 300, 1024, 4
UNIFORM = np.full(SECRETS, -np.log(SECRETS))


def likelihoods_of_rare_leak(rate, rng, log_prior=UNIFORM, episodes=EPISODES):
    """With probability `rate` the release names the secret, else it says nothing: I = rate · H(q)."""
    index = np.arange(episodes) % len(log_prior)
    named = rng.random(episodes) < rate
    certain = np.where(np.arange(len(log_prior)) == index[:, None], 0.0, -np.inf)
    return np.where(named[:, None], certain, 0.0), index


def likelihoods_of_normals(step, rng, episodes=EPISODES):
    """Y ~ N(step · k, 1)."""
    index = np.arange(episodes) % SECRETS
    y = rng.normal(step * index, 1.0)
    return norm.logpdf(y[:, None], step * np.arange(SECRETS), 1.0), index


def audited(log_likelihood, index, log_prior=UNIFORM, method: Method = "exact"):
    forecast = Forecast(log_likelihood, index, log_prior)
    zeros = np.zeros(len(index))
    return Scored(forecast, zeros, Charges(forecast.scores(), zeros, zeros > 0.0), method)


def fewest_covered(delta=MISSED, audits=AUDITS):
    """What a limit that is wrong with probability delta covers at least, but for one time in ten thousand."""
    return audits - binom.ppf(0.9999, audits, delta)


@pytest.mark.parametrize(("rate", "method", "audits"), [(6.8e-4, "exact", AUDITS), (5e-3, "filter", FEW)])
def test_a_rare_leak_of_everything_is_covered(rate, method, audits):
    """Three standard errors above the mean lie below the truth in half of the audits; the limit does not."""
    rng, truth = np.random.default_rng(5), rate * np.log(SECRETS)
    old = new = 0
    for _ in range(audits):
        leakage = audited(*likelihoods_of_rare_leak(rate, rng), method=method).leakage
        new += leakage.high >= truth
        old += leakage.upper.high(ERRORS) >= truth
    assert new >= fewest_covered(audits=audits)
    if rate < 1e-3:
        assert old < 0.85 * audits, "this is what the limit is for"


def test_a_leak_of_one_rare_secret_only_is_covered():
    """Of masses (.98, .01, .01) the second is named in one of fifty episodes: I = .01 · .02 · log 100."""
    log_prior, rng = np.log([0.98, 0.01, 0.01]), np.random.default_rng(6)
    index, covered = np.arange(768) % 3, 0
    for _ in range(FEW):
        named = (index == 1) & (rng.random(768) < 0.02)
        certain = np.where(np.arange(3) == 1, 0.0, -np.inf)
        law = np.where(np.arange(3) == 1, np.log(0.98), 0.0)  # of the silent release
        found = audited(np.where(named[:, None], certain, law), index, log_prior, "filter")
        silent = np.exp(log_prior) @ np.exp(law)
        truth = 0.01 * 0.02 * np.log(100.0) - 0.01 * 0.98 * np.log(silent / 0.98) - 0.99 * np.log(silent)
        covered += found.leakage.high >= truth
    assert covered >= fewest_covered(audits=FEW)


@pytest.mark.parametrize("delta", [0.2, 0.05])
def test_the_limit_covers_at_its_level_and_is_not_idle(delta):
    """Rounds of two secrets whose values differ in law; the mean is 0.5 · 0.1 + 0.5 · 0.35."""
    rng, index = np.random.default_rng(7), np.arange(400) % 2
    covered, ends = 0, []
    for _ in range(AUDITS):
        values = np.where(index == 0, rng.random(400) < 0.1, 0.7 * rng.random(400)).astype(float)
        ends.append(
            stratified_limit(values, index, np.full(2, 0.5), np.ones(2), delta=delta, planned=len(index))
        )
        covered += ends[-1] >= 0.225
    assert covered >= fewest_covered(delta)
    error = np.sqrt((0.25 * 0.09 + 0.25 * 0.7**2 / 12) / 200)
    assert np.mean(ends) < 0.225 + 1.2 * np.sqrt(-2.0 * np.log(delta)) * error


def test_looking_after_every_block_does_not_break_the_limit():
    """One stops as soon as the limit lies below the truth: with a valid sequence that hardly ever happens."""
    rng, missed, truth = np.random.default_rng(8), 0, 0.02
    for _ in range(FEW):
        values, index = (rng.random(1024) < truth).astype(float), np.arange(1024) % 2
        ends = [
            stratified_limit(values[:n], index[:n], np.full(2, 0.5), np.ones(2), delta=0.05, planned=1024)
            for n in (128, 256, 512, 1024)
        ]
        missed += min(ends) < truth
    assert missed <= binom.ppf(0.9999, FEW, 0.05)


def test_no_episode_supports_less_than_its_number_allows():
    """Nothing was seen in E episodes: the limit is that of an exact binomial, within a tenth."""
    for episodes in (256, 1024, 4096):
        index = np.arange(episodes) % SECRETS
        found = audited(np.zeros((episodes, SECRETS)), index).leakage
        exact = np.log(SECRETS) * (1.0 - MISSED ** (1.0 / episodes))
        assert exact <= found.high <= 1.1 * exact
        assert found.upper.value == pytest.approx(0.0, abs=1e-12)


def test_ordinary_intervals_stay_narrow():
    """Against three standard errors: a fifth wider by filters, half as wide if exact."""
    for step in (0.5, 1.0, 2.0):
        old, filtered, exact = [], [], []
        for seed in range(8):
            sample = likelihoods_of_normals(step, np.random.default_rng(seed))
            plain, sharp = (audited(*sample, method=method) for method in ("filter", "exact"))
            claims = stratified_mean(sharp.forecast.claims(), sharp.forecast.index, sharp.forecast.prior)
            old.append(ERRORS * plain.leakage.upper.error)
            filtered.append(plain.leakage.high - plain.leakage.upper.value)
            exact.append(sharp.leakage.high - claims.value)
        assert np.mean(filtered) < 1.3 * np.mean(old), step
        assert np.mean(exact) < 0.6 * np.mean(old), step


def test_what_has_no_whole_round_or_is_not_finite_is_worth_everything():
    most = np.array([np.log(4.0), np.log(4.0 / 3.0)])
    prior = np.array([0.25, 0.75])
    for values, index in (([0.0, 0.0], [0, 0]), ([0.0, np.nan], [0, 1])):
        found = stratified_limit(np.array(values), np.array(index), prior, most, delta=0.01)
        assert found == pytest.approx(float(prior @ most))


def test_the_divergence_of_the_posterior_has_the_mean_of_the_score_and_a_smaller_error():
    """Two forms of the same information, by the auditor's posterior; the truth by quadrature."""
    log_likelihood, index = likelihoods_of_normals(0.5, np.random.default_rng(9), 16384)
    found = audited(log_likelihood, index).forecast
    score, claim = (stratified_mean(part, index, found.prior) for part in (found.scores(), found.claims()))
    y = np.linspace(-9.0, 11.0, 20001)
    laws = norm.pdf(y[:, None], 0.5 * np.arange(SECRETS), 1.0)
    terms = laws * np.log(laws / laws.mean(axis=1, keepdims=True))
    truth = float(np.trapezoid(terms, y, axis=0).mean())
    assert abs(score.value - truth) < 4 * score.error and abs(claim.value - truth) < 4 * claim.error
    assert claim.error < 0.5 * score.error


def test_by_secret_a_coupling_has_the_limit_of_its_rate_too():
    """No transcript of 256 differed: by secret as in all, what a rate of 1 − 0.00135^(1/256) allows."""
    index = np.arange(256) % SECRETS
    scored = audited(np.zeros((256, SECRETS)), index, method="coupling")
    rate = 1.0 - MISSED ** (1.0 / 256)
    assert scored.leakage.high == pytest.approx(rate * np.log(SECRETS), rel=1e-6)
    for part in per_secret(scored, ["a", "b", "c", "d"]):
        assert part.leakage.high == pytest.approx(rate * np.log(SECRETS), rel=1e-6)

"""The examination of residuals: right at its level, sharp where it must be; and the rules of the verdict."""

import numpy as np
import pytest
from scipy import stats

from tests.recordings import simulated as made
from veil.evaluation.fit_test import examine_residuals, free_fit
from veil.evaluation.verdict import recording_verdict
from veil.recordings.measure import summary
from veil.results.measurement import FEWEST_SAMPLES, LEAK_FRACTION
from veil.results.parts import LEVEL, VERDICTS
from veil.results.recording_fit import FEWEST, Axis, RecordingFit
from veil.stats import Mean

TRIALS, COUNT = 400, 200


def residuals(keep, scale, seed):
    rng = np.random.default_rng(seed)
    return [scale * made.ar1(COUNT, keep, rng)[:, None] for _ in range(TRIALS)]


def fitted(axis, count=COUNT, free_p=1.0):
    return RecordingFit((axis,), count, 0, np.zeros(1), 0.0, free_p)


def rejected(keep=0.0, scale=1.0, seed=0):
    found = [fitted(examine_residuals(z, ("speed",), (True,))[0]) for z in residuals(keep, scale, seed)]
    return sum(not fit.ok for fit in found)


def test_residuals_of_the_model_are_rejected_at_the_level():
    """Two of the three tests are made here, so that two thirds of the level are spent."""
    spent = 2.0 / 3.0 * LEVEL
    assert stats.binom.cdf(rejected(), TRIALS, spent) > 1e-4
    assert stats.binom.sf(rejected() - 1, TRIALS, 1.5 * spent) > 1e-4  # Ljung-Box is a little liberal


@pytest.mark.parametrize(("keep", "scale"), [(0.45, 1.0), (-0.45, 1.0), (0.0, 1.3), (0.0, 0.75)])
def test_coloured_residuals_and_a_wrong_noise_are_found_in_nineteen_cases_of_twenty(keep, scale):
    assert rejected(keep, scale, seed=1) >= 0.95 * TRIALS


def test_the_numbers_of_an_axis_are_those_of_the_textbook():
    z = made.ar1(150, 0.6, np.random.default_rng(2)) * 2.0
    (axis,) = examine_residuals(z[:, None], ("speed",), (True,))
    square = np.sum(z**2)
    correlations = np.array([np.sum(z[k:] * z[:-k]) / square for k in range(1, 6)])
    statistic = 150 * 152 * np.sum(correlations**2 / (150 - np.arange(1, 6)))
    assert axis.autocorrelation == pytest.approx(correlations[0])
    assert axis.autocorrelation_p == pytest.approx(stats.chi2.sf(statistic, 5))
    assert axis.std_ratio == pytest.approx(np.sqrt(square / 150))
    assert axis.effective_samples == pytest.approx(150 * (1 - correlations[0]) / (1 + correlations[0]))
    (weight,) = fitted(axis, 150).weights()
    assert weight == pytest.approx(axis.effective_samples / 150 / axis.std_ratio**2)


def test_the_effective_number_is_that_of_the_mean_of_coloured_residuals():
    """Var(mean of n values of AR(1)) = variance / n_eff; the truth by simulation."""
    rng = np.random.default_rng(3)
    series = np.stack([made.ar1(COUNT, 0.8, rng) for _ in range(2000)])
    truth = 1.0 / np.var(series.mean(axis=1))
    found = np.median(
        [examine_residuals(z[:, None], ("x",), (True,))[0].effective_samples for z in series[:200]]
    )
    # The truth is known to 3 %, the median to 2 %; and one autocorrelation is biased by −2 r/n, 4 % of n_eff.
    assert found == pytest.approx(truth, rel=0.15)


def test_a_noise_that_is_too_large_gives_no_extra_weight():
    (axis,) = examine_residuals(
        0.2 * np.random.default_rng(4).standard_normal((COUNT, 1)), ("speed",), (True,)
    )
    assert fitted(axis).weights() == pytest.approx(1.0)


def test_the_free_fit_is_least_squares_for_a_linear_model():
    rng = np.random.default_rng(5)
    terms, secrets = rng.standard_normal((80, 2)), np.array([[0.4, 0.5], [0.7, 0.8]])
    target = terms @ [0.45, 0.62] + rng.standard_normal(80)

    def log_likelihood(secret):
        return -0.5 * np.sum((target - terms @ secret) ** 2)

    found, gain, p = free_fit(log_likelihood, secrets, 0, [(0.0, np.inf)] * 2)
    solution = np.linalg.lstsq(terms, target)[0]
    np.testing.assert_allclose(found, solution, atol=2e-3)
    assert gain == pytest.approx(log_likelihood(solution) - log_likelihood(secrets[0]), abs=1e-3)
    assert p == pytest.approx(np.exp(-gain), rel=1e-6)  # chi-squared with two degrees of freedom
    bounded, _, _ = free_fit(log_likelihood, secrets, 1, [(0.6, np.inf)] * 2)
    assert np.all(bounded >= 0.6)


GOOD = Axis("speed", 1.0, 0.5, 0.0, 0.5, 100.0, True)
COLOURED = Axis("speed", 3.0, 0.0, 0.9, 0.0, 50.0, True)
ENTROPY = float(np.log(4.0))
LIMIT = LEAK_FRACTION * ENTROPY


def verdict(
    information, as_it_is=1.0, discounted=0.0, axis=GOOD, count=COUNT, error=0.0, free_p=1.0, entropy=ENTROPY
):
    return recording_verdict(
        Mean(information, error), as_it_is, Mean(discounted, 0.0), fitted(axis, count, free_p), entropy
    )


def test_the_verdict_follows_its_rules():
    assert verdict(1.2).name == "leak"
    assert verdict(0.01).name == "no_leak"
    assert verdict(0.01, as_it_is=0.05).name == "not_enough_data"
    assert verdict(LIMIT, error=0.01).name == "not_enough_data"
    assert verdict(LIMIT + 0.031, error=0.01).name == "leak"
    assert verdict(LIMIT - 0.031, error=0.01).name == "no_leak"
    assert verdict(1.2, count=FEWEST - 1).name == "not_enough_data"
    assert verdict(1.2, entropy=0.0).name == "no_leak"
    fit = fitted(GOOD)
    assert recording_verdict(Mean(1.2, 0.0), 1.2, Mean(1.2, 0.0), fit, ENTROPY, 0.3).name == "not_enough_data"
    assert verdict(1.2, free_p=1e-5).reasons == ("no secret of the prior is near the best fit, (0)",)


def test_every_verdict_is_of_the_one_vocabulary_and_shows_its_inputs():
    for found in (verdict(1.2), verdict(0.01), verdict(0.01, as_it_is=0.05), verdict(0.0, axis=COLOURED)):
        assert found.name in VERDICTS
        assert {"information_low", "information_high", "limit", "fit_p", "fit_limit"} <= found.inputs.keys()
        assert found.inputs["fit_limit"] == LEVEL


def test_filters_that_lost_the_releases_are_not_taken_for_privacy():
    prior = np.log(np.full(4, 0.25))
    good = np.tile(np.array([0.0, -1.0, -2.0, -3.0]), (2, 4, 1))
    assert summary(good, prior).disagreement == pytest.approx(0.0, abs=1e-12)
    lost = good.copy()
    lost[0] = -np.inf
    assert summary(lost, prior).disagreement == pytest.approx(0.5)
    assert summary(np.full((1, 4, 4), np.nan), prior).disagreement == 1.0
    certain = 1e3 * np.eye(4)[None]  # each filter is certain of another secret
    assert summary(certain, prior).disagreement == pytest.approx(0.75)
    assert summary(certain, prior).filter_error == pytest.approx(0.0, abs=1e-9)  # yet all claim as much


def test_the_error_of_a_mean_is_that_of_its_draws():
    rng, prior = np.random.default_rng(6), np.log(np.full(3, 1 / 3))
    given = rng.normal(0.0, 1.0, (50, 1, 3))
    posteriors = np.array([made.softmax(row[0]) for row in given])
    gained = np.sum(posteriors * np.log(3.0 * posteriors), axis=1)
    found = summary(given, prior)
    assert found.information.value == pytest.approx(gained.mean())
    assert found.information.error == pytest.approx(gained.std(ddof=1) / np.sqrt(50))
    np.testing.assert_allclose(found.masses, posteriors.mean(axis=0))


def test_a_misfit_comes_first_and_says_whether_the_leak_survives():
    assert verdict(0.0, axis=COLOURED).name == "model_does_not_fit"
    assert verdict(1.2, discounted=0.5, axis=COLOURED).inputs["survives"]
    assert not verdict(1.2, discounted=0.5 * LIMIT, axis=COLOURED).inputs["survives"]
    few = Axis("speed", 3.0, 0.0, 0.99, 0.0, 0.5 * FEWEST_SAMPLES, True)
    assert not verdict(1.2, discounted=0.5, axis=few).inputs["survives"]
    silent = Axis("spacing", 3.0, 0.0, 0.9, 0.0, 5.0, False)
    both = RecordingFit((GOOD, silent), COUNT, 0, np.zeros(1), 0.0, 1.0)
    assert recording_verdict(Mean(1.2, 0.0), 1.2, Mean(1.0, 0.0), both, ENTROPY).name == "leak"
    assert len(verdict(1.2, axis=COLOURED).reasons) == 2

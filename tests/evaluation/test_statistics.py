"""Scores, repairs and the arithmetic of accuracy and information, against closed forms."""

import numpy as np
import pytest
from scipy.stats import norm

from veil.evaluation.scoring import Forecast, calibration, lower_bound, pooled, repaired
from veil.stats import (
    accuracy_from_information,
    binary_divergence,
    clopper_pearson,
    information_from_accuracy,
    several,
    stratified_mean,
    stratified_rate,
)

COUNT = 4000


def two_normals(scale=1.0, episodes=COUNT, masses=(0.5, 0.5)):
    """Y ~ N(±1, 1): exact log-likelihoods times `scale`, in equal numbers per secret."""
    rng = np.random.default_rng(3)
    index = np.arange(episodes) % 2
    y = rng.normal(np.where(index == 0, -1.0, 1.0), 1.0)
    return Forecast(scale * norm.logpdf(y[:, None], [-1.0, 1.0], 1.0), index, np.log(masses))


def exact_information(masses=(0.5, 0.5)):
    y = np.linspace(-12, 12, 20001)
    laws = norm.pdf(y[:, None], [-1.0, 1.0], 1.0)
    mixed = laws @ masses
    terms = laws * np.log(laws / mixed[:, None])
    return float(np.asarray(masses) @ np.trapezoid(terms, y, axis=0))


@pytest.mark.parametrize("masses", [(0.5, 0.5), (0.9, 0.1)])
def test_an_exact_forecast_scores_the_information(masses):
    forecast = two_normals(masses=masses)
    found = lower_bound(forecast)
    assert abs(found.value - exact_information(masses)) < 4 * found.error + 1e-4
    fits = repaired(forecast)[1]
    assert all(power >= 0.8 and mix <= 0.03 for power, mix in fits), "a good filter is left alone"
    cons = calibration(forecast)
    assert abs(cons.value) < 4 * cons.error


def test_a_filter_that_is_too_sure_is_repaired_but_never_flattered():
    wild = two_normals(scale=30.0)
    raw = stratified_mean(wild.scores(), wild.index, wild.prior)
    found = lower_bound(wild)
    assert raw.value < -3.0
    assert 0.2 < found.value < exact_information() + 4 * found.error
    cons = calibration(wild)
    assert cons.value < -4 * cons.error - 0.01


def test_what_no_number_was_found_for_is_not_a_reason_for_hope():
    forecast = Forecast(
        np.array([[np.nan, -1.0], [-np.inf, -np.inf], [np.nan, np.nan]]), np.zeros(3, int), np.log([0.5, 0.5])
    )
    masses = np.exp(forecast.log_posterior())
    assert np.allclose(masses, [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    assert np.all(np.isfinite(forecast.scores()))


def test_garbage_is_worth_nothing_and_not_less():
    rng = np.random.default_rng(0)
    forecast = Forecast(rng.normal(size=(COUNT, 2)) * 50, np.arange(COUNT) % 2, np.log([0.5, 0.5]))
    found = lower_bound(forecast)
    assert abs(found.value) < 4 * found.error + 1e-3


def test_means_weigh_each_secret_by_its_prior():
    values = np.array([1.0, 3.0, 1.0, 3.0, 10.0, 10.0])
    found = stratified_mean(values, np.array([0, 0, 0, 0, 1, 1]), np.array([0.25, 0.75]))
    assert found.value == pytest.approx(0.25 * 2 + 0.75 * 10)
    assert found.error == pytest.approx(0.25 * np.std(values[:4], ddof=1) / 2)
    assert np.isnan(stratified_mean(np.array([1.0, np.nan]), np.array([0, 0]), np.ones(1)).value)


def test_accuracy_and_information_are_inverse_to_each_other():
    for chance in (0.25, 0.5, 0.9):
        for nats in (0.0, 0.01, 0.1, -np.log(chance) - 1e-3):
            accuracy = accuracy_from_information(nats, chance)
            assert information_from_accuracy(accuracy, chance) == pytest.approx(nats, abs=1e-9)
    assert accuracy_from_information(9.0, 0.25) == 1.0
    assert information_from_accuracy(0.2, 0.25) == 0.0
    # Fano for a uniform prior: H(Θ|Y) <= h(e) + e log(K − 1).
    accuracy, count = 0.6, 4
    fano = np.log(count) + accuracy * np.log(accuracy) + 0.4 * np.log(0.4) - 0.4 * np.log(count - 1)
    assert binary_divergence(accuracy, 1 / count) == pytest.approx(fano)


def test_intervals_of_rates():
    assert clopper_pearson(0, 100).high == pytest.approx(1 - 0.025 ** (1 / 100))
    hits = np.r_[np.ones(50), np.zeros(50)]
    rate = stratified_rate(hits, np.arange(100) % 2, np.array([0.5, 0.5]))
    assert rate.low < 0.5 < rate.high and rate.value == 0.5
    uneven = stratified_rate(np.r_[np.ones(50), np.zeros(50)], np.repeat([0, 1], 50), np.array([0.9, 0.1]))
    assert uneven.value == pytest.approx(0.9) and uneven.low < 0.9 < uneven.high


def test_the_best_of_several_needs_more_errors():
    assert several(1) == pytest.approx(3.0)
    assert norm.sf(several(8)) * 8 == pytest.approx(norm.sf(3.0))


def test_runs_are_pooled_in_probability():
    logs = np.log(np.array([[[1.0, 2.0]], [[3.0, 6.0]]]))
    assert np.allclose(np.exp(pooled(logs)), [[2.0, 4.0]])


def test_a_repair_is_never_scored_on_what_it_was_fitted_to():
    """Worthless forecasts, few at a time: fitted and scored on the same half they would gain on average."""
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(200):
        noise = Forecast(2.0 * rng.normal(size=(8, 2)), np.arange(8) % 2, np.log([0.5, 0.5]))
        gains.append(repaired(noise)[0].mean())
    assert np.mean(gains) < 3 * np.std(gains) / np.sqrt(len(gains))

"""Gaps: each stretch begins anew, log-likelihoods add up, and residuals across a gap are not neighbours."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import veil
from tests.recordings import simulated as made
from veil.evaluation.fit_test import examine_residuals
from veil.recordings import read_recording
from veil.recordings.measure import measure
from veil.settings import MeasureSettings

GONE = np.r_[23:31, 70]  # rows that are missing


def cut_drive(tmp_path, seed=1, steps=120):
    states, ahead = made.drive(made.DRIVERS[1], steps, np.random.default_rng(seed))
    keep = np.setdiff1d(np.arange(steps), GONE)
    times = np.round(made.DT * np.arange(steps), 6)
    columns = {"t": times, "v_lead": ahead, "v_fol": states[:, 0], "gap": states[:, 1]}
    path = made.write(tmp_path / "drive.csv", {name: values[keep] for name, values in columns.items()})
    return states, ahead, read_recording(path, veil.systems.Platoon(), made.COLUMNS)


def test_the_posterior_of_stretches_is_that_of_all_steps_that_lie_in_one(tmp_path, float64):
    states, ahead, log = cut_drive(tmp_path)
    assert log.stretches == ((0, 23), (23, 62), (62, 111))
    steps = made.drive_log_likelihoods(states, ahead)
    inside = [t for t in range(119) if not {t, t + 1} & set(GONE.tolist())]
    found = measure(veil.systems.Platoon(), log)
    np.testing.assert_allclose(found.masses, made.softmax(steps[inside].sum(axis=0)), atol=1e-9)
    assert found.stretches == (23, 39, 49) and found.steps == 111 and len(found.trail) == 111
    # The first row of a stretch says nothing: the posterior is that of the row before.
    np.testing.assert_allclose(found.trail[23], found.trail[22], atol=1e-12)
    np.testing.assert_allclose(
        found.trail[25], made.softmax(steps[[*range(22), 31, 32]].sum(axis=0)), atol=1e-9
    )
    assert found.fit.count == len(inside) and found.fit.ok and len(found.scores) == len(inside)
    assert any("3 stretches" in line and "independent" in line for line in found.assumptions)
    again = type(found).from_dict(found.to_dict())
    assert again.stretches == found.stretches and again.notes == found.notes == log.notes
    assert "into 3 stretches" in found.notes[0]


def test_filters_of_stretches_agree_with_exact_ones(float64):
    """Noise on the linear loop in two stretches: sub-sampling by one is exact, particles are near it."""
    level, push = made.loop(0.9, 60, np.random.default_rng(3))
    rows = {"t": np.r_[np.arange(30.0), 50.0 + np.arange(30.0)], "level": level[:, 0], "push": push[:, 0]}
    log, gain = read_recording(rows), veil.systems.Gain()
    assert log.stretches == ((0, 30), (30, 60))

    def noise(model):
        return veil.policies.GaussianNoise(model, jnp.array([0.3]))

    found = measure(gain, log, noise, MeasureSettings(filter_particles=64, draws=4))
    # The trail is by one Kalman filter per secret and draw, joined over the stretches; means of four.
    np.testing.assert_allclose(found.masses, found.trail[-1], atol=0.1)
    assert 0.0 < found.information.value < measure(gain, log).information.value
    exact = measure(gain, log, lambda model: veil.policies.Subsampled(veil.policies.Truth(model), 1))
    totals = [
        sum(stats.norm.logpdf(level[1:, 0] - g * level[:-1, 0] - push[:-1, 0], 0.0, 0.3)[np.r_[:29, 30:59]])
        for g in made.GAINS
    ]
    np.testing.assert_allclose(exact.masses, made.softmax(np.array(totals)), atol=1e-9)
    np.testing.assert_allclose(exact.trail[-1], exact.masses, atol=1e-9)


def test_residuals_of_two_stretches_are_pooled_without_the_pair_across_the_gap():
    rng = np.random.default_rng(2)
    parts = [made.ar1(90, 0.6, rng), made.ar1(40, 0.6, rng), made.ar1(3, 0.6, rng)]
    z = np.concatenate(parts)
    (axis,) = examine_residuals(z[:, None], ("speed",), (True,), [90, 40, 3])
    square, count = np.sum(z**2), 133
    products = [
        [np.sum(part[lag:] * part[:-lag]) for part in parts if len(part) > lag] for lag in range(1, 6)
    ]
    pairs = [sum(max(len(part) - lag, 0) for part in parts) for lag in range(1, 6)]
    correlations = np.array([sum(row) for row in products]) / square
    statistic = count * (count + 2) * np.sum(correlations**2 / np.array(pairs))
    assert axis.autocorrelation == pytest.approx(correlations[0])
    assert axis.autocorrelation_p == pytest.approx(stats.chi2.sf(statistic, 5))
    assert axis.std_ratio == pytest.approx(np.sqrt(square / count))


def test_white_residuals_in_many_short_stretches_are_rejected_at_the_level():
    """2,000 sets of 40 stretches of 6: the size of the pooled test, within its binomial error."""
    rng = np.random.default_rng(5)
    p = [
        examine_residuals(rng.standard_normal((240, 1)), ("x",), (True,), [6] * 40)[0].autocorrelation_p
        for _ in range(2000)
    ]
    low, high = stats.binom.interval(0.9999, 2000, 0.05)
    assert low <= np.sum(np.array(p) < 0.05) <= high * 1.2  # Ljung-Box is a little liberal

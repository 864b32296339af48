"""The episode of a report: the policy of the folder plays, and the estimate is that of a Kalman filter."""

import jax
import numpy as np
import pytest

from veil.learners import run as runs
from veil.learners.run import Ready
from veil.registry import POLICIES
from veil.reports.sources import play
from veil.rollout import rollout
from veil.systems import Gain

SD, STEPS = 0.3, 12


def folder_of(path, named):
    ready = Ready("gain", named)
    runs.begin(path, ready)
    runs.keep(path, ready, gain())
    return path


def gain():
    with jax.enable_x64(True):
        return Gain()


def filtered(shared, external, noise):
    """E[x_t | y_1..y_t] by one scalar Kalman filter per gain, mixed by their posterior."""
    gains = np.array([0.3, 0.6, 0.9])
    mean, spread, log_masses, means = np.zeros(3), np.ones(3), np.zeros(3), []
    for y, w in zip(shared, external, strict=True):
        total = spread + noise**2
        log_masses = log_masses - 0.5 * (y - mean) ** 2 / total - 0.5 * np.log(total)
        after, left = mean + spread / total * (y - mean), spread * noise**2 / total
        masses = np.exp(log_masses - log_masses.max())
        means.append(masses @ after / masses.sum())
        mean, spread = gains * after + w, gains**2 * left + 0.3**2
    return np.array(means)


def test_the_estimate_is_the_mixture_of_kalman_filters(tmp_path, monkeypatch):
    from importlib import import_module

    episode = import_module("veil.reports.sources")

    seen = []

    def spied(*arguments, **options):
        record = rolled(*arguments, **options)
        jax.debug.callback(lambda external: seen.append(np.asarray(external)), record.public.external)
        return record

    rolled = rollout
    monkeypatch.setattr(episode, "rollout", spied)
    found = play(folder_of(tmp_path / "noise", POLICIES["noise"](sd=(SD,))), gain(), STEPS)
    jax.effects_barrier()
    assert found.names == ("level",) and found.true.shape == found.shared.shape == (STEPS, 1)
    expected = filtered(found.shared[:, 0], seen[0][:, 0], SD)
    assert found.estimated[:, 0] == pytest.approx(expected, abs=1e-9)
    off = found.shared - found.true
    assert 0.0 < np.abs(off).max() < 5 * SD and not np.allclose(found.estimated, found.shared)


def test_where_releases_carry_no_noise_they_are_their_own_estimate(tmp_path):
    truth = play(folder_of(tmp_path / "truth", POLICIES["truth"]()), gain(), 4)
    assert np.array_equal(truth.true, truth.shared) and np.array_equal(truth.true, truth.estimated)
    copies = play(folder_of(tmp_path / "copies", POLICIES["counterfactual"]()), gain(), 4)
    assert np.array_equal(copies.shared, copies.estimated) and not np.array_equal(copies.true, copies.shared)

"""The resolution of a recording: found by its digits, and allowed for where it is given."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from tests.command_lines import quick, veil
from tests.hidden_plane import FIRST, SPREAD, hidden
from tests.recordings import simulated as made
from veil.policies import Subsampled, Truth
from veil.recordings import read_recording
from veil.recordings.measure import measure
from veil.recordings.recording import estimated_resolution
from veil.results.measurement import Measurement
from veil.systems import Gain, Platoon, with_resolution

STEPS = (1e-6, 0.001, 0.002, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0)


def column(seed=0, count=400, sd=40.0):
    return 15.0 + sd * np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("step", STEPS)
def test_the_step_of_a_rounded_column_is_found(step):
    multiples = np.round(column() / step)
    decimals = max(0, int(np.ceil(-np.log10(step))))
    written = np.array([float(f"{value:.{decimals}f}") for value in multiples * step])
    assert estimated_resolution(written) == step
    assert estimated_resolution(multiples * step) == step  # with the round-off of a product
    assert estimated_resolution(-written) == step


def test_what_was_filled_in_here_and_there_does_not_hide_the_step():
    values = np.round(column() * 100) / 100
    values[[7, 200, 333]] += 0.00123457
    assert estimated_resolution(values) == 0.01
    values[::20] += 0.00123457
    assert estimated_resolution(values) == pytest.approx(1e-8)  # one in twenty is no exception


@pytest.mark.parametrize(
    "values", [column(), np.full(50, 20.0), np.zeros(50), np.array([1.0, 2.0, 1.0, 3.0]), 1e-9 * column()]
)
def test_continuous_constant_and_few_values_have_no_step(values):
    assert estimated_resolution(values) == 0.0


def test_a_step_of_three_is_read_as_its_largest_decimal_part():
    """Thirds of a metre have no decimal step: no finer grid is claimed than digits show."""
    assert estimated_resolution(3.0 * np.arange(40)) == 1.0
    assert estimated_resolution(np.arange(1, 60) / 3.0) == 0.0


def rounded_loop(step, steps=12, seed=3):
    """Readings of the loop with gain 0.6, and its pushes."""
    level, push = made.loop(0.6, steps, np.random.default_rng(seed))
    return np.round(level / step) * step, push


def grid_log_masses(readings, push, gain, step, sd=0.3, points=400):
    """(T - 1,) log-probabilities of readings by the midpoint rule on the cells, from numpy alone.

    The first state is uniform in its cell.
    """
    inside = (np.arange(points) + 0.5) / points * step - step / 2
    log_weights, found = np.full(points, -np.log(points)), []
    for now, after, pushed in zip(readings[:-1, 0], readings[1:, 0], push[:-1, 0], strict=True):
        mean = gain * (now + inside) + pushed
        density = norm.logpdf((after + inside)[:, None], mean[None, :], sd)
        joint = logsumexp(density + log_weights[None, :], axis=1) + np.log(step / points)
        found.append(logsumexp(joint))
        log_weights = joint - found[-1]
    return np.array(found)


@pytest.mark.parametrize("step", [0.3, 0.9])
def test_given_the_resolution_the_posterior_is_that_of_the_cells(step):
    """At one and three times the step noise; taken as exact, the readings give another posterior."""
    readings, push = rounded_loop(step)
    log = made.recorded(Gain(), readings, push)
    expected = made.softmax(
        np.array([grid_log_masses(readings, push, gain, step).sum() for gain in made.GAINS])
    )
    found = measure(with_resolution(Gain(), step), log)
    np.testing.assert_allclose(found.masses, expected, atol=2e-3)
    np.testing.assert_allclose(np.log(found.masses), np.log(expected), atol=0.02)
    assert found.method == "probabilities of rounded readings" and found.system == "gain"
    exact = measure(Gain(), log)
    assert np.abs(np.log(exact.masses / expected)).max() > 0.1 and exact.method == "transition densities"


def test_a_resolution_far_below_the_noise_changes_nothing():
    level, push = made.loop(0.6, 60, np.random.default_rng(3))
    log = made.recorded(Gain(), np.round(level, 6), push)
    exact, rounded = measure(Gain(), log), measure(with_resolution(Gain(), 1e-6), log)
    np.testing.assert_allclose(rounded.masses, exact.masses, atol=1e-4)
    assert rounded.fit.best == exact.fit.best


def plane_path(secret, step, steps, seed):
    """Readings of the shared coordinate of the plane, and its inputs."""
    rng, inputs = np.random.default_rng(seed), 0.4 * np.random.default_rng(seed + 1).standard_normal(steps)
    state, rows = FIRST @ rng.standard_normal(2), []
    for w in inputs:
        rows.append(state)
        state = np.array([secret[0] * state[0] + state[1] + w, secret[1] * state[1]])
        state = state + SPREAD @ rng.standard_normal(2)
    shared = np.stack(rows)[:, 0]
    return np.round(shared / step) * step, inputs


def box_log_probability(secret, readings, inputs, step):
    """log P(later readings | the first), its state anywhere in its cell, by boxes of a joint Gaussian law."""
    steps, matrix = len(readings), np.array([[secret[0], 1.0], [0.0, secret[1]]])
    place, weight = np.polynomial.legendre.leggauss(4)
    rows, maps, push, pushed = np.zeros((2, 2 * steps)), [], np.zeros(2), []
    rows[1, 1] = FIRST[1, 1]  # the hidden start, independent of the reading
    lead, leads = np.eye(2)[:, 0], []
    for t in range(1, steps):
        rows, push, lead = matrix @ rows, matrix @ push + np.array([inputs[t - 1], 0.0]), matrix @ lead
        rows[:, 2 * t : 2 * t + 2] = SPREAD
        maps.append(rows[0].copy())
        pushed.append(push[0])
        leads.append(lead[0])
    maps = np.array(maps)
    total = 0.0
    for at, mass in zip(place, weight, strict=True):
        mean = np.array(pushed) + np.array(leads) * (readings[0] + 0.5 * step * at)
        settings: dict[str, Any] = {"seed": 1, "abseps": 1e-8, "releps": 1e-5, "maxpts": 50_000}
        law = multivariate_normal(mean, cov=maps @ maps.T, **settings)  # pyright: ignore[reportArgumentType]
        total += 0.5 * mass * law.cdf(readings[1:] + step / 2, lower_limit=readings[1:] - step / 2)
    return np.log(total)


@pytest.mark.parametrize(("step", "close"), [(0.15, 2e-3), (0.3, 0.01)])
def test_given_the_resolution_a_part_of_the_state_counts_with_its_cells(step, close):
    """At half and at the whole noise of a step, against boxes of a joint Gaussian law."""
    system, errors = hidden(), []
    for seed in range(4):
        readings, inputs = plane_path((0.6, 0.5), step, 5, seed)
        rows = np.stack([readings, np.zeros(5)], axis=1)
        log = made.recorded(system, rows, inputs[:, None], (True, False))
        secrets = np.asarray(system.prior.secrets)
        exact = made.softmax(np.array([box_log_probability(one, readings, inputs, step) for one in secrets]))
        found, taken = measure(with_resolution(system, step), log), measure(system, log)
        assert found.method.endswith("readings with the spread of their cells")
        errors.append([np.abs(one.masses - exact).max() for one in (found, taken)])
    ours, plain = np.mean(errors, axis=0)
    assert ours < close and ours < 0.5 * plain


def test_given_the_resolution_every_second_reading_counts_with_its_cell():
    """The level now and then, against a fine grid of states from cell to cell."""
    step, grid = 0.3, np.linspace(-5.0, 5.0, 2001)
    readings, push = rounded_loop(step)

    def log_probability(gain):
        law = (np.abs(grid - readings[0, 0]) < step / 2).astype(float)
        found, law = 0.0, law / law.sum()
        for t in range(len(readings) - 1):
            law = norm.pdf(grid[:, None], gain * grid[None] + push[t, 0], 0.3) @ law * (grid[1] - grid[0])
            if t % 2 == 1:
                law = np.where(np.abs(grid - readings[t + 1, 0]) < step / 2, law, 0.0)
                found, law = found + np.log(law.sum()), law / law.sum()
        return found

    exact = made.softmax(np.array([log_probability(gain) for gain in made.GAINS]))
    log = made.recorded(Gain(), readings, push)
    found = measure(with_resolution(Gain(), step), log, lambda model: Subsampled(Truth(model), 2))
    taken = measure(Gain(), log, lambda model: Subsampled(Truth(model), 2))
    assert found.method.endswith("readings with the spread of their cells")
    ours, plain = (np.abs(one.masses - exact).max() for one in (found, taken))
    assert ours < 0.01 and ours < 0.5 * plain


@pytest.fixture
def drives(tmp_path, monkeypatch):
    """A drive with its speed in steps of 0.05 m/s (noise 0.02), and its gap in millimetres."""
    monkeypatch.chdir(tmp_path)
    states, ahead = made.drive(made.DRIVERS[2], 60, np.random.default_rng(0))
    states = np.stack([np.round(states[:, 0] * 20) / 20, np.round(states[:, 1], 3)], axis=1)
    return made.write_drive(tmp_path / "drive.csv", states, ahead)


def test_a_file_tells_its_resolution(drives):
    log = read_recording(drives, Platoon(), made.COLUMNS)
    assert (log.signals["speed"].step, log.signals["spacing"].step) == (0.05, 0.001)


def test_a_coarse_column_is_a_warning_until_the_resolution_is_given(drives):
    words = ["measure", drives, "--columns", *(f"{name}={column}" for name, column in made.COLUMNS.items())]
    with quick():
        code, out, err = veil(*words)
        assert code in (0, 3), err
        said = " ".join(out.split())
        assert (
            "What was read" in said and "0.05 0.02 exact (too coarse)" in said and "0.001 0.1 exact" in said
        )
        hint = "--resolution speed=0.05,spacing=0.001"
        assert (
            "the noise of one step of the model is 0.02. Values are taken as exact" in said and hint in said
        )
        (line,) = json.loads((drives.parent / "measure/drive/measure.json").read_text())["recordings"]
        assert line["resolution"] == {"speed": 0.05, "spacing": 0.001} and hint in line["warning"]
        assert Measurement.load("measure/drive").warning == line["warning"]
        code, out, err = veil(*words, *hint.split(), "--out", "rounded")
    assert code in (0, 3), err
    said = " ".join(out.split())
    assert "Warning" not in said and "rounded to 0.05" in said and "probabilities of rounded readings" in said
    found = Measurement.load("rounded")
    assert found.warning == "" and [one.given for one in found.columns] == [0.05, 0.001]
    assert found.system == "platoon"

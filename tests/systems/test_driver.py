"""The driver against the platoon, whose drivers it contains, and against numbers computed by hand."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.checks.system import check_system
from veil.systems import ColouredPlatoon, Driver, IdmDriver, IdmPlatoon, Platoon, finite_prior
from veil.systems.driver import STYLES, fit_styles, idm_styles, stop_and_go
from veil.types import as_float64

STATE = np.array([14.2, 18.5, 0.07])


def w(system, speed, spacing, row):
    return jnp.concatenate([jnp.array([speed, spacing]), system.series.values[row], jnp.array([float(row)])])


def test_with_the_platoons_spacings_it_is_the_platoon_with_coloured_noise(float64):
    system = Driver(coloured_sd=0.1, correlation_time=3.0, acceleration_sd=0.02)
    other = as_float64(ColouredPlatoon())
    ours = system.transition(jnp.array([0.7, 0.8, 5.0, 35.0]), jnp.asarray(STATE), w(system, 14.9, 21.0, 7))
    theirs = other.transition(jnp.array([0.7, 0.8]), jnp.asarray(STATE), jnp.array([15.2, 14.9, 21.0]))
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-6)
    np.testing.assert_allclose(ours.scale, theirs.scale, rtol=1e-6)


def test_the_automated_vehicle_is_the_platoons(float64):
    system, other = Driver(), as_float64(Platoon())
    external = w(system, 14.9, 21.0, 7)
    leader, noise = float(system.inputs(external).leader_speed), jnp.array([0.3])
    for shared in (jnp.array([14.0, 19.0]), None):
        ours = system.react(external, shared, noise)
        theirs = other.react(jnp.array([leader, 14.9, 21.0]), shared, jnp.array([0.0, 0.3]))
        np.testing.assert_allclose(ours, theirs[1:], rtol=1e-6)


def test_fuel_is_the_platoons_rate_times_the_step(float64):
    system, after = Driver(), jnp.array([14.5, 18.6, 0.0])
    cost = system.cost(jnp.zeros(4), jnp.asarray(STATE), after, jnp.zeros(2), jnp.zeros(4))
    rate = as_float64(Platoon()).cost(
        jnp.zeros(2), jnp.asarray(STATE[:2]), after[:2], jnp.zeros(2), jnp.zeros(3)
    )
    assert float(cost["fuel"]) == pytest.approx(0.2 * float(rate), rel=1e-6)
    assert float(cost["acceleration effort"]) == pytest.approx(0.2 * (0.3 / 0.2) ** 2, rel=1e-6)


def test_the_idm_driver_accelerates_as_that_of_the_platoon_with_its_time_gap(float64):
    other = as_float64(IdmPlatoon())
    secret = jnp.array([1.0, 1.5, float(other.time_gap), 2.0])
    for ahead in (13.0, 15.0):
        ours = IdmDriver().push(secret, jnp.asarray(STATE), jnp.asarray(ahead))
        theirs = other.push(secret[:2], jnp.asarray(STATE[:2]), jnp.asarray(ahead))
        assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


@pytest.mark.parametrize("system", [Driver, IdmDriver])
def test_it_keeps_the_contract(system):
    report = check_system(system())
    assert report.ok and {finding.rule for finding in report.findings} <= {"partial-output", "nonlinear"}, (
        report
    )


def test_a_fit_finds_the_drivers_of_the_own_family():
    """Gains from least squares, spacings within the grid of the search; truth 4 to 36 m."""
    quiet = Driver(
        finite_prior([STYLES[1], STYLES[2]]), coloured_sd=0.01, acceleration_sd=0.01, spacing_sd=0.01
    )
    found = fit_styles(quiet, quiet, episodes=6, key=jr.key(1))
    np.testing.assert_allclose(found[:, :2], [[0.2, 0.6], [0.45, 0.7]], rtol=0.15)


def test_the_owner_takes_idm_drivers_for_drivers_of_its_model():
    scenario = idm_styles(Driver())
    assert scenario.believed.shape == (4, 4) and bool(jnp.all(jnp.isfinite(scenario.believed)))
    assert bool(jnp.all(scenario.believed[:, 3] > scenario.believed[:, 2]))


def test_the_leader_is_always_the_same():
    np.testing.assert_array_equal(stop_and_go().values, stop_and_go().values)
    speed = np.asarray(stop_and_go().values)[:, 0]
    assert 10.0 < speed.min() < 13.0 and 17.0 < speed.max() < 20.0

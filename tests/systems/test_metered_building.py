"""The metered building against a solver of differential equations, and against its steady state."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from veil.checks.system import check_system
from veil.systems import MeteredBuilding


def w(system, heat, cooling, row):
    return jnp.concatenate([jnp.array([heat, cooling]), system.series.values[row], jnp.array([float(row)])])


@pytest.mark.parametrize(
    "secret",
    [(0.15, 8.0, 0.25, 0.3, 1.5, 2.0), (0.3, 20.0, 0.5, 0.6, 6.0, 0.0), (0.1, 6.0, 0.25, 0.3, 0.5, 4.0)],
)
@pytest.mark.parametrize(("heat", "cooling", "row"), [(3.0, 0.0, 3), (0.0, 1.5, 12)])
def test_an_hour_is_the_solution_of_the_heat_balance(float64, secret, heat, cooling, row):
    """The emitters' power is averaged over half hours, which moves the room by some mK; the rest is exact."""
    system, start = MeteredBuilding(), np.array([19.0, 14.0, 2.0])
    external = w(system, heat, cooling, row)
    outdoor, sun, people = (float(one) for one in system.series.values[row])
    loss, capacity, share, resistance, lag, windows = secret

    def flow(_, state):
        room, shell, power = state
        through = loss / resistance * (shell - room)
        gains = power - cooling + 0.1 * people + windows * sun / 1000
        outside = loss / (1 - resistance) * (outdoor - shell)
        return [
            (through + gains) / (share * capacity),
            (outside - through) / ((1 - share) * capacity),
            (heat - power) / lag,
        ]

    wanted = solve_ivp(flow, (0.0, 1.0), start, rtol=1e-10, atol=1e-12).y[:, -1]
    law = system.transition(jnp.asarray(secret), jnp.asarray(start), external)
    np.testing.assert_allclose(law.mean[:2], wanted[:2], atol=5e-3)
    np.testing.assert_allclose(law.mean[2], wanted[2], rtol=1e-9)
    start[2] = heat
    wanted = solve_ivp(flow, (0.0, 1.0), start, rtol=1e-10, atol=1e-12).y[:, -1]
    steady = system.transition(jnp.asarray(secret), jnp.asarray(start), external)
    np.testing.assert_allclose(steady.mean, wanted, rtol=1e-7)


def test_heat_flows_out_as_fast_as_it_comes_in_once_the_building_has_settled(float64):
    system, secret = MeteredBuilding(), jnp.array([0.15, 8.0, 0.25, 0.3, 1.5, 2.0])
    outdoor, sun, people = (float(one) for one in system.series.values[12])
    external, state = w(system, 2.0, 0.0, 12), jnp.array([18.0, 10.0, 0.0])
    for _ in range(1500):
        state = system.transition(secret, state, external).mean
    gains = 2.0 + 0.1 * people + 2.0 * sun / 1000
    np.testing.assert_allclose(state, [outdoor + gains / 0.15, outdoor + 0.7 * gains / 0.15, 2.0], rtol=1e-9)


def test_a_room_of_almost_no_mass_stays_stable(float64):
    system, secret = MeteredBuilding(), jnp.array([2.0, 1.0, 0.01, 0.02, 0.02, 0.0])
    external, state = w(system, 2.0, 0.0, 3), jnp.array([30.0, 10.0, 0.0])
    outdoor = float(system.inputs(external).outdoor)
    for _ in range(3):
        before, state = state, system.transition(secret, state, external).mean
        assert abs(float(state[0]) - outdoor) < 0.6 * abs(float(before[0]) - outdoor) + 1.2


def test_the_service_heats_what_is_cold_and_cools_what_is_warm():
    system = MeteredBuilding()
    external = w(system, 2.0, 0.0, 3)
    cold, warm, hot = (system.react(external, jnp.array([told]), jnp.zeros(1)) for told in (15.0, 22.0, 35.0))
    assert cold[0] > warm[0] > 0 and cold[1] == warm[1] == 0
    assert hot[0] == 0 and 0 < hot[1] <= 8.0


def test_it_is_a_system():
    assert check_system(MeteredBuilding()).ok

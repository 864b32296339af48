"""The building against the heat balance in numpy, and against what its steady state must be."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.checks.system import check_system
from veil.evaluation.audit import audit
from veil.policies import Truth
from veil.rollout import rollout
from veil.settings import AuditSettings
from veil.step import sees_state
from veil.systems import Building, finite_prior
from veil.systems.building import winter_month

SECRET = np.array([0.15, 8.0, 21.0])


def w(system, shift, row):
    return jnp.concatenate([jnp.array([shift]), system.series.values[row], jnp.array([float(row)])])


def balance(state, shift, outdoor, people, hour, envelope, solar=0.0):
    """The next temperatures and the heating power, written out."""
    loss, capacity, wish = SECRET
    power = np.clip(loss * (wish + shift - outdoor) + 0.5 * (wish + shift - state[0]), 0.0, 8.0)
    heat = power + 0.1 * people + solar * max(np.sin(np.pi * (hour - 7.0) / 10.0), 0.0)
    state = np.array(state, float)
    for _ in range(4):
        if envelope:
            room, shell = state
            through = loss / 0.3 * (room - shell)
            flow = np.array([heat - through, through - loss / 0.7 * (shell - outdoor)])
            state = state + 0.25 * flow / (capacity * np.array([0.25, 0.75]))
        else:
            state = state + 0.25 * (heat - loss * (state - outdoor)) / capacity
    return state, power


@pytest.mark.parametrize("envelope", [True, False])
@pytest.mark.parametrize(("shift", "row", "solar"), [(0.0, 3, 0.0), (-1.5, 18, 0.0), (1.0, 36, 0.7)])
def test_a_step_is_the_heat_balance(float64, envelope, shift, row, solar):
    system = Building(envelope=envelope, solar=solar)
    state = [19.0, 14.0][: 1 + envelope]
    external = w(system, shift, row)
    now = system.inputs(external)
    wanted, power = balance(state, shift, float(now.outdoor), float(now.people), row % 24, envelope, solar)
    law = system.transition(jnp.asarray(SECRET), jnp.asarray(state), external)
    np.testing.assert_allclose(law.mean, wanted, rtol=1e-12)
    np.testing.assert_allclose(np.diag(law.scale), [0.1, 0.03][: 1 + envelope])
    after = law.mean
    cost = system.cost(jnp.asarray(SECRET), jnp.asarray(state), after, jnp.zeros(1), external)
    assert float(cost["heat"]) == pytest.approx(power)
    assert float(cost["bill"]) == pytest.approx(power * (0.4 if 17 <= row % 24 < 21 else 0.25))
    assert float(cost["discomfort"]) == pytest.approx(abs(wanted[0] - 21.0))
    total = system.total_cost(jnp.asarray(SECRET), jnp.asarray(state), after, jnp.zeros(1), external)
    assert float(total) == pytest.approx(float(cost["bill"]) + 0.2 * float(cost["discomfort"]))


def test_in_constant_weather_the_room_settles_at_its_set_point(float64):
    """The heating curve fits the building: with nobody at home Ti = S, and heat flows out at H (S − To)."""
    system = Building()
    quiet = w(system, 0.0, 3).at[3].set(0.0)
    state = jnp.array([18.0, 10.0])
    for _ in range(600):
        state = system.transition(jnp.asarray(SECRET), state, quiet).mean
    outdoor = float(system.inputs(quiet).outdoor)
    shell = 21.0 - 0.3 * (21.0 - outdoor)
    np.testing.assert_allclose(state, [21.0, shell], rtol=1e-9)


def test_the_aggregator_sheds_in_the_evening_and_asks_warm_rooms_for_more():
    system = Building()
    dear, cheap, still = w(system, 0.0, 18), w(system, 0.0, 3), jnp.zeros(1)
    assert float(system.react(dear, jnp.array([20.5]), still)[0]) == pytest.approx(-0.6, rel=1e-5)
    assert float(system.react(cheap, jnp.array([20.5]), still)[0]) == pytest.approx(0.15, rel=1e-5)
    assert float(system.react(cheap, jnp.array([21.5]), still)[0]) == pytest.approx(-0.15, rel=1e-5)
    assert float(system.react(cheap, None, jnp.ones(1))[0]) == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize("envelope", [True, False])
def test_it_keeps_the_contract(envelope):
    report = check_system(Building(envelope=envelope))
    assert report.ok and {finding.rule for finding in report.findings} <= {"partial-output", "nonlinear"}


def test_the_weather_is_always_the_same_and_plausible():
    first, again, other = winter_month(), winter_month(), winter_month(seed=1)
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values)
    outdoor = np.asarray(first.values)[:, first.names.index("outdoor")]
    assert first.rows == 744 and -12 < outdoor.min() < outdoor.mean() < 8 < outdoor.max() < 20


def test_rooms_stay_within_what_people_live_in():
    system = Building()
    for index in range(0, 8, 7):
        record = rollout(
            system,
            Truth(system),
            168,
            public_seed=jnp.asarray(0, jnp.int32),
            key=jr.key(index),
            index=jnp.asarray(index, jnp.int32),
        )
        room = np.asarray(record.states)[24:, 0]
        assert 17.0 < room.min() < room.max() < 24.0
        assert abs(room.mean() - float(record.secret[2])) < 1.0


def test_one_capacity_is_audited_exactly():
    system = Building(finite_prior([(0.1, 6.0, 20.0), (0.2, 12.0, 21.5)]), envelope=False)
    assert sees_state(system, Truth(system))
    found = audit(
        system, Truth(system), AuditSettings(steps=12, episodes=60, scenarios="none", assisted=False)
    )
    assert found.method == "exact transition densities" and found.verdict.certified
    assert found.nouns.candidate == "building" and found.private == ("people",)

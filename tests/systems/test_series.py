"""Exogenous series, the clock and a cost with parts: against a system that has them written out by hand."""

import re

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests.flats import HOURS, OUTDOOR, PEOPLE, START, TARIFF, Flat, by_hand, flat, log_likelihood
from veil.checks.system import check_system
from veil.evaluation.audit import audit
from veil.evaluation.evaluate import evaluate
from veil.learners.design import typical_scaling
from veil.policies import GaussianNoise, Transport, Truth
from veil.problem import Objective, Problem
from veil.rollout import rollout
from veil.settings import AuditSettings, ObjectiveWeights
from veil.systems import CostPart, Field, Series, WithNoise, nominal
from veil.systems.base import most_steps

STEPS = 9
SEED = jnp.asarray(3, jnp.int32)


def played(system, policy):
    return rollout(system, policy(system), STEPS, public_seed=SEED, key=jr.key(5))


def test_series_and_clock_in_w_are_those_that_had_to_be_hidden_there_by_hand(float64):
    def noise(system):
        return GaussianNoise(system, jnp.asarray([0.3]))

    ours, theirs = played(flat(), noise), played(by_hand(), noise)
    np.testing.assert_allclose(ours.public.external, theirs.public.external, rtol=1e-13)
    np.testing.assert_allclose(ours.states, theirs.states, rtol=1e-13)
    np.testing.assert_array_equal(ours.public.external[:, 1], OUTDOOR[START : START + STEPS])
    np.testing.assert_array_equal(ours.public.external[:, 4], np.arange(START, START + STEPS))


def test_wrapped_systems_keep_series_clock_and_cost():
    inner = flat()
    outer = WithNoise(inner, 1.0)
    assert outer.input_fields == inner.input_fields and outer.cost_fields == inner.cost_fields
    for one, other in zip(
        jax.tree.leaves(played(inner, Truth)), jax.tree.leaves(played(outer, Truth)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_posterior_of_an_audit_knows_the_series(float64):
    """Against transition densities in numpy, which read the arrays themselves."""
    system = flat()
    found = evaluate(system, Truth(system), settings=AuditSettings(steps=STEPS, episodes=30, seed=2))
    public = found.records.public
    for e in range(0, 30, 7):
        path, power = np.asarray(public.shared)[e, :, 0], np.asarray(public.external)[e, :, 0]
        exact = np.array([log_likelihood(loss, path, power) for loss in (0.05, 0.1, 0.3)])
        ours = np.asarray(found.forecast.log_likelihood)[e]
        np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=1e-8)


def test_the_time_of_day_follows_from_start_hour_and_step():
    system = Flat(
        flat().prior, Series({"tariff": TARIFF, "outdoor": OUTDOOR, "people": PEOPLE}, start=2, hour=21.5)
    )
    w = system.first_external()
    assert float(system.inputs(w).hours) == 23.5 and float(system.inputs(w).hour) == 23.5
    w = system.next_external(w, jnp.array([20.0]), jnp.zeros(1))
    now = system.inputs(w)
    assert (float(now.hours), float(now.hour), float(now.clock)) == (24.5, 0.5, 3.0)
    assert float(now["outdoor"]) == np.float32(OUTDOOR[3])
    with pytest.raises(AttributeError, match="no field wind; it has power, outdoor"):
        _ = now.wind
    later = system.inputs(jnp.stack([w, system.held_external(w)]))
    np.testing.assert_array_equal(later.clock, [3.0, 4.0])
    assert float(later.power[0]) == float(later.power[1]), "the environment stands still"


def test_a_run_longer_than_the_series_is_refused_with_the_number_of_steps_there_are():
    system = flat(start=25)
    assert most_steps(system) == 5
    with pytest.raises(ValueError, match=r"enough for 5 steps; asked for are 6. Take at most 5 steps"):
        Problem(nominal(system), 6)
    with pytest.raises(ValueError, match="asked for are 9"):
        played(system, Truth)
    with pytest.raises(ValueError, match="asked for are 12"):
        audit(system, Truth(system), AuditSettings(steps=12, episodes=30, scenarios="none"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1.0, 2.0], "b": [1.0]}, {}, "a has 2, b has 1"),
        ({"a": [1.0, np.nan]}, {}, "a is not a finite number in row 1"),
        ({"a": [[1.0]]}, {}, "one number per step"),
        ({"a": [1.0]}, {"start": 1}, "start=1 is not there"),
    ],
)
def test_series_that_are_none_are_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        Series(columns, **options)


def test_a_system_without_the_series_that_it_names_is_refused():
    with pytest.raises(ValueError, match=r"are outdoor, tariff, people.*given are outdoor"):
        Flat(flat().prior, Series({"outdoor": OUTDOOR}))


def test_costs_are_added_up_by_weight_and_reported_by_part():
    """The table of an audit against sums over the transcripts in numpy."""
    system = flat()
    made = evaluate(system, Truth(system), settings=AuditSettings(steps=STEPS, episodes=30, seed=2))
    found = audit(
        system,
        Truth(system),
        AuditSettings(steps=STEPS, episodes=30, seed=2, assisted=False, scenarios="none"),
    )
    states, external = np.asarray(made.records.states), np.asarray(made.records.public.external)
    parts = {
        "energy": external[:, :, 0],
        "bill": external[:, :, 0] * TARIFF[START : START + STEPS],
        "discomfort": np.abs(states[:, 1:, 0] - 21.0),
    }
    units = {"energy": "kWh per step", "bill": "EUR per step", "discomfort": "K h per step"}
    for name, values in parts.items():
        row = found.quantity(name)
        assert row is not None and row.unit == units[name] and row.own
        assert row.value.value == pytest.approx(values.mean(), rel=1e-6)
    cost = found.quantity("cost")
    assert cost is not None
    assert cost.value.value == pytest.approx((parts["bill"] + 2.0 * parts["discomfort"]).mean(), rel=1e-6)
    assert found.to_dict()["utility"]["cost_parts"]["bill"] == pytest.approx(parts["bill"].mean())
    assert "(9 h)" in found.sentence and found.step_seconds == 3600.0
    assert any("private series (people)" in line for line in found.threat_model)


def test_a_price_per_step_means_the_same_in_runs_of_any_length():
    """Telling all (log 3 nats, no cost) against telling nothing at 0.5 cost units per step.

    Privacy pays where its price exceeds 0.5 / log 3 = 0.455 per step, whatever the number of steps; a price
    per run does not have this property.
    """

    def better_private(weights, steps):
        return weights.price_of_a_nat(steps) * np.log(3.0) > 0.5 * steps

    for price, wanted in ((0.45, False), (0.46, True)):
        weights = ObjectiveWeights(privacy_per_step=price)
        assert [better_private(weights, steps) for steps in (24, 168)] == [wanted, wanted]
    assert [better_private(ObjectiveWeights(privacy_weight=20.0), steps) for steps in (24, 168)] == [
        True,
        False,
    ]
    with pytest.raises(ValueError, match="per step and nat"):
        ObjectiveWeights(privacy_per_step=-1.0)


def test_the_objective_of_a_long_run_is_the_sum_of_its_steps():
    outcome = Problem(nominal(flat()), 3).episode(
        Transport(flat(), jnp.asarray([0.3])), jnp.asarray(0, jnp.int32), key=jr.key(1)
    )
    totals = Objective(privacy_weight=7.0, distortion_price=0.5, distortion_limit=2.0).total(outcome)
    by_hand = 7.0 * outcome.leakage + outcome.cost + 0.5 * (outcome.distortion - 2.0)
    np.testing.assert_allclose(totals, by_hand, rtol=1e-6)


def test_networks_do_not_see_private_series_nor_the_clock():
    scaling = typical_scaling(flat(), STEPS, key=jr.key(0))
    w, time = flat().first_external(), jnp.asarray(1, jnp.int32)
    shown = scaling.public(w, time)
    for place, wanted in ((0, False), (1, False), (2, False), (3, True), (4, True)):
        same = np.array_equal(scaling.public(w.at[place].add(1.0), time), shown)
        assert same == wanted, place


class Nameless(Flat):
    exogenous_fields = (Field("outdoor"), Field("hour"))


class Secretive(Flat):
    state_fields = (Field("indoor", private=True),)


class Priceless(Flat):
    cost_fields = (CostPart("energy", "kWh"),)


class Timeless(Flat):
    step_seconds = -1.0


class Counting(Flat):
    quantity_fields = (Field("lowest"),)


class Verbose(Flat):
    def react(self, external, shared, noise):
        return external


@pytest.mark.parametrize(
    ("made", "rule", "message"),
    [
        (
            lambda: Nameless(flat().prior, Series({"outdoor": OUTDOOR, "hour": HOURS})),
            "fields",
            "'hour' is what",
        ),
        (lambda: Secretive(flat().prior, flat().series), "fields", "cannot be private"),
        (lambda: Priceless(flat().prior, flat().series), "cost", "for each of cost_fields, energy"),
        (lambda: Timeless(flat().prior, flat().series), "step", "positive number of seconds"),
        (lambda: Counting(flat().prior, flat().series), "quantities", "for 1 quantity_fields"),
        (lambda: Verbose(flat().prior, flat().series), "react", r"\(5,\) instead of \(1,\)"),
        (lambda: flat(outdoor=OUTDOOR + 90.0), "range", "exogenous 'outdoor'"),
    ],
)
def test_faults_of_the_contract_are_found(made, rule, message):
    found = [finding for finding in check_system(made()).findings if finding.rule == rule]
    assert found and any(re.search(message, finding.message) for finding in found), found


def test_a_sound_system_with_series_passes():
    report = check_system(flat())
    assert report.ok and not report.findings and all(report.supports.values()), str(report)

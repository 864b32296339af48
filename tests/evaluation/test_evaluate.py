"""The evaluation core, with true data of a gain loop: its bound is exact and quick to compute."""

import threading
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.shaky import Shaky
from veil.evaluation import evaluate as engine
from veil.evaluation.audit import audit
from veil.evaluation.bounds import LeakageBounder
from veil.evaluation.episodes import side_by_side
from veil.evaluation.evaluate import evaluate
from veil.executors import InProcess
from veil.policies import Counterfactual, GaussianNoise, Truth
from veil.settings import AuditSettings
from veil.systems import Gain, WithNoise
from veil.systems.base import Scenario
from veil.systems.scenarios import misjudged_secret, nominal

SYSTEM = Gain()
SETTINGS = AuditSettings(steps=12, episodes=240, seed=3, scenarios="none")


@pytest.fixture(scope="module")
def found():
    return evaluate(SYSTEM, Truth(SYSTEM), settings=SETTINGS, moments=3)


def same(first, second):
    return jax.tree.all(
        jax.tree.map(lambda a, b: bool(np.all(np.asarray(a) == np.asarray(b))), first, second)
    )


def test_an_audit_reports_what_its_evaluation_found(found):
    whole = audit(SYSTEM, Truth(SYSTEM), SETTINGS)
    assert whole.leakage == found.leakage and whole.method == found.method and whole.particles == 0
    np.testing.assert_array_equal(whole.index, found.index)
    np.testing.assert_array_equal(whole.realised, found.forecast.scores())
    assert whole.verdict.name == found.verdict().name == "certifiable"


def test_leakage_is_bounded_along_the_run_and_grows(found):
    assert [row.step for row in found.times] == [4, 8, 12]
    assert found.times[-1].leakage == found.leakage
    lower = [row.leakage.lower.value for row in found.times]
    assert lower[0] < lower[1] < lower[2]


def test_episodes_that_are_given_are_evaluated_as_if_they_had_been_played(found):
    again = evaluate(SYSTEM, Truth(SYSTEM), settings=SETTINGS, records=found.records)
    assert (
        again.leakage == found.leakage and same(again.use, found.use) and same(again.records, found.records)
    )


def test_other_numbers_are_other_episodes(found):
    later = evaluate(SYSTEM, Truth(SYSTEM), settings=SETTINGS, first_episode=600, candidates=0)
    np.testing.assert_array_equal(later.index, found.index)  # secrets take turns
    assert not np.any(np.isclose(later.records.states[:, 0], found.records.states[:, 0]))


def test_without_candidates_nothing_is_bounded_and_the_rest_is_the_same(found):
    bare = evaluate(SYSTEM, Truth(SYSTEM), settings=SETTINGS, candidates=0)
    assert bare.bounder is None and bare.method == "no method applies" and same(bare.use, found.use)
    assert bare.leakage.low == 0.0 and bare.leakage.high == pytest.approx(np.log(3.0))
    assert bare.verdict().name == "no_upper_bound"


def test_in_a_scenario_the_leakage_is_against_one_who_knows_the_plant():
    policy = GaussianNoise(SYSTEM, jnp.asarray([0.1]))
    alone, as_modelled = (
        evaluate(SYSTEM, policy, where, SETTINGS, candidates=1) for where in (None, nominal(SYSTEM))
    )
    assert as_modelled.leakage.upper.value == pytest.approx(alone.leakage.upper.value, rel=1e-6)
    quiet = Scenario("quiet", WithNoise(SYSTEM, 0.3), SYSTEM.prior.secrets)
    found = evaluate(SYSTEM, policy, quiet, SETTINGS, candidates=1)
    assert found.verdict().name == "certifiable" and found.leakage.width < 0.05
    assert found.leakage.lower.low(3.0) > alone.leakage.upper.high(3.0)  # less noise hides less


def test_where_the_owner_errs_at_random_nothing_bounds_the_leakage_from_above():
    found = evaluate(SYSTEM, Truth(SYSTEM), misjudged_secret(SYSTEM), SETTINGS)
    assert found.bounder is None and found.verdict().name == "no_upper_bound"


def test_a_policy_with_a_memory_is_bounded_by_a_coupling():
    found = evaluate(SYSTEM, Counterfactual(SYSTEM), settings=SETTINGS)
    assert found.coupled and found.leakage.lower.value == 0.0 and found.leakage.upper.value == 0.0


def test_an_interval_that_is_narrow_enough_ends_the_evaluation_early():
    wide = AuditSettings(steps=2, episodes=600, interval=10.0)
    found = evaluate(SYSTEM, Truth(SYSTEM), settings=wide)
    assert len(found.index) == 256 == len(found.records.index) == len(found.use.cost)


class Coarse(LeakageBounder):
    """Charges five nats too much."""

    inner: LeakageBounder

    @property
    def name(self):
        return "coarse"

    def bound(self, *given, **more):
        found = self.inner.bound(*given, **more)
        return eqx.tree_at(lambda one: one.pinned, found, found.pinned + 5.0)


@pytest.mark.parametrize(("interval", "episodes"), [(0.11, 512), (0.0, 1101)])
@pytest.mark.parametrize("first", [lambda exact: exact, Coarse], ids=["first way", "second way"])
def test_workers_stop_where_one_process_does_and_use_what_fits_of_what_they_did_beside_the_pilot(
    interval, episodes, first, monkeypatch
):
    real = engine.bounder_candidates
    monkeypatch.setattr(
        engine,
        "bounder_candidates",
        lambda *given: tuple(make(*real(*given)) for make in (first, lambda exact: exact)),
    )
    extent = replace(SETTINGS, steps=2, episodes=1101, interval=interval)
    one, two = InProcess(), Shaky(workers=2)
    here, there = (evaluate(SYSTEM, Truth(SYSTEM), settings=extent, executor=each) for each in (one, two))
    assert len(here.index) == episodes == len(there.index)
    assert here.leakage == there.leakage and same(here.records, there.records)
    assert len(two.times.seconds) - len(one.times.seconds) == (4 if first is Coarse else 0)


def test_stages_side_by_side_keep_their_order_and_overlap():
    """Two stages that wait for each other could not both end one after the other."""
    meet = threading.Barrier(2, timeout=30.0)

    def stage(number):
        def run(told):
            told(str(number), 0, 1)
            if number < 2:
                meet.wait()
            return number, jnp.zeros(()).dtype

        return run

    seen = []
    made = side_by_side([stage(0), stage(1), stage(2)], lambda *line: seen.append(line))
    assert made == [(0, jnp.float64), (1, jnp.float64), (2, jnp.float64)]
    assert sorted(seen) == [("0", 0, 1), ("1", 0, 1), ("2", 0, 1)]


def test_a_stage_that_fails_ends_the_others_with_their_next_batch():
    began, ended = threading.Event(), threading.Event()

    def fails(told):
        del told
        assert began.wait(30.0)
        raise ValueError("no")

    def endless(told):
        try:
            while True:
                told("endless", 0, 1)
                began.set()
        finally:
            ended.set()

    with pytest.raises(ValueError, match="no"):
        side_by_side([fails, endless], lambda *_: None)
    assert ended.is_set()

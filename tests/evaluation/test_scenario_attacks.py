"""What a brief look at other worlds finds, against the exact leakage there."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp

from veil.evaluation.audit import audit, try_scenarios
from veil.evaluation.evaluate import evaluate
from veil.policies import Counterfactual, GaussianNoise
from veil.results import Audit
from veil.settings import AuditSettings
from veil.systems import Gain, finite_prior
from veil.systems.scenarios import noise_by_secret
from veil.types import as_float64

GAIN = Gain(finite_prior([0.3, 0.6, 0.9]))
SMALL = AuditSettings(steps=12, episodes=24, assisted=False)
WORLDS = ["more noise", "noise by secret", "overrated secret", "telling start"]


def gained(found, name):
    """What regressions gain in a scenario, and the distortion there."""
    scenario = next(one for one in found if one.name == name)
    (row,) = scenario.attacks
    assert row.name == "regression bank" and row.episodes == 513
    return row.lower


def test_regressions_find_most_of_what_leaks_where_noise_depends_on_the_secret():
    """Releases are linear and Gaussian there too, so that one Kalman filter per secret is exact."""
    policy = GaussianNoise(GAIN, jnp.asarray([0.3]))
    asked = list[str]()

    def chosen(world):
        asked.append(world.name)
        return policy

    found = try_scenarios(GAIN, chosen, SMALL)
    assert sorted(asked) == sorted(one.name for one in found), "a policy for each world"
    assert [one.name for one in found] == [*WORLDS, "active adversary, binary sequence"]
    with jax.enable_x64(True):
        scenario = as_float64(noise_by_secret(GAIN))
        there = evaluate(GAIN, policy, scenario, replace(SMALL, episodes=1200))
    exact = there.leakage.lower
    mine = gained(found, "noise by secret")
    assert there.scored.method == "exact"
    assert 0.6 * exact.value < mine.value < exact.value + 3.0 * (mine.error + exact.error)


def test_a_policy_that_leaks_nothing_in_its_model_leaks_in_the_worst_world(tmp_path):
    found = audit(GAIN, Counterfactual(GAIN), SMALL)
    worst = found.worst_scenario
    assert found.leakage.lower.value < 1e-6
    assert worst is not None and worst.scenario.name == "noise by secret" and worst.low > 0.1
    assert "worst scenario of 5: noise by secret, where “regression bank” gains at least" in found.sentence
    found.save(tmp_path)
    assert json.loads((tmp_path / "audit.json").read_text())["worst_scenario"]["at_least"] == worst.low
    assert Audit.load(tmp_path) == found

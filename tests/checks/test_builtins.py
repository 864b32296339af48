"""What the library itself offers keeps the contracts that it asks of others."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from veil import registry
from veil.attacks import LeastSquares, PriorAttack
from veil.attacks.guides import Local
from veil.attacks.kalman import KalmanBank, Observer
from veil.attacks.particle_filter import Bayes
from veil.beliefs import KalmanBelief
from veil.checks.attack import check_attack
from veil.checks.learner import check_learner
from veil.checks.measure import check_measure
from veil.checks.policy import check_policy
from veil.evaluation.audit import audit
from veil.leakage import closed_form, coupled, estimate, estimate_per_component, matched, reference
from veil.leakage.live import live_bound
from veil.leakage.paper import kl_chernoff, regime_adaptive
from veil.leakage.per_step import Measure
from veil.learners import A2c, Pathwise, initial_policy
from veil.learners.ddpg import Ddpg
from veil.policies import Blind, Counterfactual, GaussianNoise, Quantised, Subsampled, Transport, Truth, Twin
from veil.settings import AuditSettings, PolicyDesign
from veil.systems import Gain

GAIN = Gain()
SD = jnp.array([0.2])
FIRST = jnp.asarray(1, jnp.int32)
POLICIES = {
    "truth": lambda: Truth(GAIN),
    "quantised": lambda: Quantised(GAIN, jnp.array([0.5])),
    "subsampled": lambda: Subsampled(GaussianNoise(GAIN, SD), 2),
    "blind": lambda: Blind(GAIN, SD),
    "transport": lambda: Transport(GAIN, SD),
    "counterfactual": lambda: Counterfactual(GAIN),
    "twin": lambda: Twin(GAIN),
}
LEARNED = {
    "residual": PolicyDesign(width=8),
    "neural": PolicyDesign(start="plain", width=8, parts=2),
    "grid": PolicyDesign(start="grid", encoder="mgf", proposal="bootstrap", particles=9, width=8),
}


def rules(report, level="warning"):
    return {finding.rule for finding in report.findings if finding.level == level}


def test_every_policy_that_has_a_name_has_a_row():
    assert set(registry.POLICIES) == {*POLICIES, "noise"}  # which is within the subsampled one


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_keeps_the_contract(name):
    report = check_policy(POLICIES[name]())
    assert report.ok and not report.findings, str(report)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.study) for name in LEARNED])
def test_a_learned_policy_keeps_the_contract(name):
    report = check_policy(initial_policy(LEARNED[name], GAIN, 4, key=jr.key(0)))
    assert report.ok and not report.findings, str(report)


# The paper's bounds, and entropies against entropies, stay positive where nothing leaks and know no H(q).
PAYS = {"nothing", "entropy"}
METHODS = {
    "matched": (lambda given, key: matched(given), "upper", set()),
    "coupled": (lambda given, key: coupled(given), "upper", set()),
    "regime_adaptive": (lambda given, key: regime_adaptive(given), "upper", PAYS),
    "per component": (lambda given, key: estimate_per_component(given, 8, key=key), "estimate", set()),
}
SLOW = {
    "closed_form": (lambda given, key: closed_form(given), "upper", set()),
    "reference": (lambda given, key: reference(given), "upper", PAYS),
    "live": (lambda given, key: live_bound(given), "upper", set()),
    "kl_chernoff": (lambda given, key: kl_chernoff(given), "upper", PAYS),
    "estimate": (lambda given, key: estimate(given, 64, key=key), "estimate", set()),
}


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.study) for name in SLOW)])
def test_a_leakage_method_keeps_the_contract(name):
    method, side, warned = {**METHODS, **SLOW}[name]
    report = check_measure(method, side)
    assert report.ok and rules(report) == warned, str(report)


ATTACKS = {
    "kalman": KalmanBank,
    "least squares": lambda system, policy: LeastSquares(system),
}


def bayes(system, policy):
    return Bayes(system, policy, Local(), 32)


@pytest.mark.parametrize("name", [*ATTACKS, pytest.param("bayes", marks=pytest.mark.study)])
def test_an_attack_keeps_the_contract(name):
    report = check_attack({**ATTACKS, "bayes": bayes}[name])
    assert report.ok and not report.findings, str(report)


def test_who_does_not_read_gains_nothing():
    report = check_attack(lambda system, policy: PriorAttack(system.prior))
    assert report.ok and rules(report) == {"gains"}


def test_a_measure_of_ones_own_charges_a_step():
    belief, kernel = (
        KalmanBelief.start(GAIN),
        GaussianNoise(GAIN, SD).kernel(jnp.zeros(0), jnp.zeros(1), FIRST),
    )
    own = Measure(own=lambda given, key: 2.0 * given.entropy)
    assert jnp.allclose(own(belief, kernel, key=jr.key(0)), 2.0 * GAIN.prior.entropy)


def test_an_attack_of_ones_own_joins_the_audit():
    """The very likelihood of true data again: it gains what the exact observer gains."""
    policy, options = Truth(GAIN), AuditSettings(steps=3, episodes=24, scenarios="none")
    found = audit(GAIN, policy, options, attacks={"mine": Observer(GAIN, policy)})
    scores = {row.name: row.lower.value for row in found.attacks}
    assert scores["mine"] == scores["exact observer"] != 0.0


@pytest.mark.study
def test_pathwise_learning_keeps_the_contract():
    report = check_learner(Pathwise(episodes=24, updates=30, learning_rate=0.03))
    assert report.ok and not report.findings, str(report)


@pytest.mark.study
@pytest.mark.parametrize("learner", [Ddpg(8, 60, 3e-3), A2c(24, 60, 2e-2)], ids=["ddpg", "a2c"])
def test_actors_and_critics_keep_the_contract(learner):
    design = (
        LEARNED["grid"] if isinstance(learner, A2c) else PolicyDesign(start="plain", particles=16, width=16)
    )
    with jax.enable_x64(False):
        policy = initial_policy(design, Gain(), 3, key=jr.key(0))
    report = check_learner(learner, policy, updates=60)
    assert report.ok and not report.findings, str(report)

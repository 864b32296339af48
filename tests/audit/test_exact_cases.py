"""The two-sided leakage against systems that are solved exactly by other means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from exact import Case, Folded, folded_on_a_grid, kalman

from veil.attacks.guides import Twisted
from veil.attacks.smc import Filter
from veil.audit.gate import width_limit
from veil.audit.measure import Scored, score
from veil.audit.reading import sides_batch
from veil.audit.rungs import ParticleRung
from veil.audit.sandwich import MAIN
from veil.audit.statistics import stratified_mean
from veil.audit.worlds import faithful, play
from veil.rollout import Record

EPISODES, STEPS, PARTICLES = 384, 10, 128
PLAY, OWN = jr.key(11), jr.key(12)

CASES = {
    "dynamics": Case(),
    "mean": Case(secrets=((0.5, -0.2, 0.3), (0.5, 0.0, 0.3), (0.5, 0.2, 0.3))),
    "noise level": Case(secrets=((0.5, 0.0, 0.1), (0.5, 0.0, 0.3), (0.5, 0.0, 0.6))),
    "tiny noise": Case(sd=(0.01, 0.01, 0.01)),
    "large noise": Case(sd=(3.0, 3.0, 3.0)),
    "far from zero": Case(
        secrets=((0.9, 2.0, 0.05), (0.9, 2.01, 0.05), (0.9, 2.02, 0.05)), mean=20.0, sd=(0.01,) * 3
    ),
    "rare secrets": Case(masses=(0.9, 0.09, 0.01)),
    "identical secrets": Case(secrets=((0.5, 0.0, 0.3),) * 3),
    "one secret twice": Case(secrets=((0.3, 0.0, 0.3), (0.3, 0.0, 0.3), (0.9, 0.0, 0.3))),
    "strong feedback": Case(reply=-0.8),
    "kernel offset": Case(
        secrets=((0.5, 0.0, 0.3), (0.5001, 0.0, 0.3), (0.5002, 0.0, 0.3)), offset=(-0.3, 0.0, 0.3)
    ),
    "kernel noise": Case(
        secrets=((0.5, 0.0, 0.3), (0.5001, 0.0, 0.3), (0.5002, 0.0, 0.3)), sd=(0.1, 0.3, 0.6)
    ),
    "nearly no process noise": Case(secrets=((0.3, 0.0, 0.01), (0.6, 0.0, 0.01), (0.9, 0.0, 0.01))),
    "known start": Case(spread=0.0),
}


@eqx.filter_jit
def played(system, policy) -> Record:
    def one(number):
        return play(faithful(system), policy, STEPS, number=number, key=PLAY)

    return jax.vmap(one)(jnp.arange(EPISODES, dtype=jnp.int32))


def measured(system, policy):
    """Records, sides and scores of one case; one program for the whole family."""
    records = played(system, policy)
    rung = ParticleRung("twisted", Filter(system, policy, Twisted(), PARTICLES))
    numbers = jnp.arange(EPISODES, dtype=jnp.int32)
    sides = jax.tree.map(
        np.asarray, sides_batch(rung, records, numbers, jnp.asarray(STEPS, jnp.int32), PLAY, OWN, False)
    )
    log_prior = np.asarray(system.prior.log_masses)
    return records, sides, score(sides, np.asarray(records.index), log_prior)


def exact_scores(scored: Scored, log_likelihood: np.ndarray) -> np.ndarray:
    """log p(y|θ*)/p(y) per episode."""
    log_prior, index = scored.forecast.log_prior, scored.forecast.index
    true = log_likelihood[np.arange(len(index)), index]
    return true - np.logaddexp.reduce(log_prior + log_likelihood, axis=1)


def gap(scored: Scored, values: np.ndarray):
    return stratified_mean(values, scored.forecast.index, scored.forecast.prior)


@pytest.mark.parametrize("name", CASES)
def test_the_interval_contains_the_exact_leakage_and_is_narrow(name, float64):
    case = CASES[name]
    system, policy = case.build()
    records, sides, scored = measured(system, policy)
    exact = kalman(case, np.asarray(records.public.external), np.asarray(records.public.shared))
    truth = exact_scores(scored, exact)
    below, above = gap(scored, truth - scored.lower), gap(scored, scored.upper - truth)
    assert below.value > -4 * below.error - 1e-9
    assert above.value > -4 * above.error - 1e-9
    leakage = scored.leakage
    assert leakage.width <= width_limit(leakage.entropy), "narrow enough for the gate"
    assert scored.bad.mean() <= 0.02
    if name == "identical secrets":
        assert leakage.upper.value <= 0.02 and abs(leakage.lower.value) < 1e-9
        assert np.max(np.abs(truth)) < 1e-12
    # The two identities that the bounds rest on, for the true secret; their mean is 1 exactly.
    true = exact[np.arange(EPISODES), scored.forecast.index]
    plain = np.exp(sides.plain[np.arange(EPISODES), MAIN, scored.forecast.index] - true)
    pinned = np.exp(true - sides.pinned)
    for ratios in (plain, pinned):
        assert abs(ratios.mean() - 1) < 4.5 * ratios.std(ddof=1) / np.sqrt(EPISODES) + 1e-9
    assert np.all(np.isfinite(sides.plain)) and np.all(np.isfinite(sides.pinned))


def test_a_folded_observation_is_enclosed_or_refused(float64):
    """Linearising finds one of two branches; the sides must stay on their sides all the same."""
    case = Case(secrets=((0.4, 0.0, 0.4), (0.6, 0.0, 0.4), (0.9, 0.0, 0.4)), reply=-0.1)
    system, _ = case.build()
    policy = Folded(system, 0.3)
    records, _, scored = measured(system, policy)
    some = slice(0, 48)
    public = records.public
    exact = folded_on_a_grid(case, 0.3, np.asarray(public.external)[some], np.asarray(public.shared)[some])
    few = Scored(
        scored.forecast.some(np.arange(48)), scored.lower[some], scored.upper[some], scored.bad[some]
    )
    truth = exact_scores(few, exact)
    below, above = gap(few, truth - few.lower), gap(few, few.upper - truth)
    assert below.value > -4 * below.error and above.value > -4 * above.error
    refused = scored.bad.mean() > 0.02 or scored.leakage.width > width_limit(scored.leakage.entropy)
    assert refused or above.value < 0.1

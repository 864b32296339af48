"""Both sides of an audit behind a coarse sensor, against exact sums over readings: `gain` by transport."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_exact_cases import OWN, PLAY, exact_scores, gap, played

from tests.rounded_gain import Solver
from veil.attacks.guides import Twisted, Unguided
from veil.attacks.particle_filter import ParticleFilter
from veil.evaluation.bounds import ParticleBounder, bounder_candidates
from veil.evaluation.evaluate import bound_batch
from veil.evaluation.scoring import MAIN, score
from veil.policies import GaussianNoise, Transport
from veil.systems import Gain, with_resolution

EPISODES, STEPS = 240, 10


@pytest.mark.parametrize(
    ("step", "policy", "guide"),
    [(0.6, Transport, Twisted()), (1.2, Transport, Unguided()), (0.6, GaussianNoise, Twisted())],
    ids=["transport, 2 sd", "transport, 4 sd", "noise, 2 sd"],
)
def test_the_interval_contains_the_exact_leakage_of_the_rounded_law(step, policy, guide, float64):
    """The filters weigh the law of what is emitted; the unrounded law would fail the two identities."""
    system = with_resolution(Gain(), step)
    made = policy(system, jnp.asarray([0.2]))
    records = played(system, made, EPISODES)
    bounder = ParticleBounder("one", ParticleFilter(system, made, guide, 512))
    assert {type(one) for one in bounder_candidates(system, made)} == {ParticleBounder}
    numbers = jnp.arange(EPISODES, dtype=jnp.int32)
    length = jnp.asarray(STEPS, jnp.int32)
    bound = bound_batch(bounder, False, records, numbers, length, PLAY, OWN)
    bound = jax.tree.map(np.asarray, bound)
    scored = score(bound, np.asarray(records.index), np.asarray(system.prior.log_masses))
    solve = Solver(system, made)
    rows = [jax.tree.map(lambda leaf, e=e: leaf[e], records.public) for e in range(EPISODES)]
    density = STEPS * np.log(step)  # filters have densities, sums have probabilities of grid points
    exact = np.stack([solve(row).log_likelihood for row in rows]) - density
    truth = exact_scores(scored, exact)
    below, above = gap(scored, truth - scored.lower), gap(scored, scored.upper - truth)
    assert below.value > -4 * below.error - 1e-9 and above.value > -4 * above.error - 1e-9
    assert scored.leakage.high >= gap(scored, truth).value
    true = exact[np.arange(EPISODES), scored.forecast.index]
    plain = np.exp(bound.plain[np.arange(EPISODES), MAIN, scored.forecast.index] - true)
    pinned = np.exp(true - bound.pinned)
    for ratios in (plain, pinned):
        assert abs(ratios.mean() - 1) < 4.5 * ratios.std(ddof=1) / np.sqrt(EPISODES) + 1e-4

"""A model that fits is left alone, as often as the level says; wrong noise and coloured noise are found."""

import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.evaluation.episodes import play_batch
from veil.evaluation.fit_test import examine_places, examine_transcripts, release_places
from veil.evaluation.verdict import with_fit
from veil.policies import GaussianNoise, Truth
from veil.results.parts import LEVEL, Verdict
from veil.systems import ColouredPlatoon, Gain, Platoon, WithNoise
from veil.systems.scenarios import nominal

TRIALS = 1000


def public(plant, policy, episodes=64, steps=30, seed=4):
    numbers = jnp.arange(episodes, dtype=jnp.int32)
    return play_batch(nominal(plant), policy, steps, numbers, jr.key(seed)).public


def noisy(system):
    return GaussianNoise(system, jnp.full(len(system.shared_fields), 0.3))


@pytest.mark.parametrize("kind", [Truth, noisy])
def test_the_places_of_releases_are_uniform_and_independent_under_the_model(kind, float64):
    system = Gain()
    policy = kind(system)
    transcripts = public(system, policy, 256)
    fit = examine_transcripts(system, policy, transcripts, exact=isinstance(policy, Truth))
    assert fit.ok and fit.p_value > LEVEL and not fit.reasons
    correlations = [one.statistic for one in fit.tests if one.test.startswith("correlation")]
    assert len(correlations) == 5 and np.all(np.abs(correlations) < 4.0)
    for factor in (0.8, 1.25):
        model = WithNoise(system, factor)
        other = examine_transcripts(model, policy, transcripts, exact=isinstance(policy, Truth))
        assert not other.ok and "spread otherwise" in other.reasons[0]


@pytest.mark.parametrize(
    ("model", "kind", "episodes", "steps"),
    [(Gain, Truth, 6, 12), (Gain, noisy, 6, 12), (Platoon, noisy, 8, 12)],
    ids=["gain", "gain with noise", "platoon with noise"],
)
def test_data_of_the_model_are_rejected_about_once_in_a_hundred_times(model, kind, episodes, steps, float64):
    """Fresh transcripts of the model, a thousand sets of them; all tests of a set together at their level."""
    system = model()
    policy, names = kind(system), [field.name for field in system.shared_fields]
    transcripts = public(system, policy, TRIALS * episodes, steps, seed=11)
    places = np.asarray(release_places(system, policy, transcripts, isinstance(policy, Truth)))
    sets = places.reshape(TRIALS, episodes, *places.shape[1:])
    rejected = sum(not examine_places(one, names).ok for one in sets)
    low, high = stats.binom.ppf([1e-4, 1 - 1e-4], TRIALS, LEVEL)
    assert low <= rejected <= high


def test_a_forecast_without_noise_that_comes_true_is_not_tested():
    places = np.stack([np.full((4, 6), 0.5), np.random.default_rng(0).uniform(size=(4, 6))], axis=-1)
    found = examine_places(places, ["clock", "level"])
    assert found.ok and {one.test.split(" of ")[1].split(" at ")[0] for one in found.tests} == {"level"}
    assert examine_places(places[:, :1], ["clock", "level"]).ok  # one release is no test


def test_coloured_drivers_are_told_apart_from_white_ones(float64):
    model = Platoon()
    policy = GaussianNoise(model, jnp.asarray([0.02, 0.02]))
    assert examine_transcripts(model, policy, public(model, policy), exact=False).ok
    coloured = ColouredPlatoon(Platoon(acceleration_sd=0.02), coloured_sd=0.1)
    fit = examine_transcripts(model, policy, public(coloured, policy), exact=False)
    assert not fit.ok and any("are correlated" in reason for reason in fit.reasons)


def test_a_verdict_on_recorded_data_shows_every_test_and_comes_back_from_its_file(float64):
    system = Gain()
    policy = noisy(system)
    found = examine_transcripts(WithNoise(system, 0.5), policy, public(system, policy), exact=False)
    verdict = with_fit(Verdict("certifiable", (), {"width": 0.01}), found)
    assert verdict.name == "model_does_not_fit" and verdict.reasons == found.reasons
    assert verdict.inputs["fit_p"] == found.p_value < LEVEL == verdict.inputs["fit_limit"]
    line = {"verdict": verdict.name, "reasons": verdict.reasons, "gate": verdict.inputs}
    line |= {"examination": verdict.examination.to_dict()}
    assert Verdict.from_dict(json.loads(json.dumps(line))) == verdict
    kept = with_fit(Verdict("certifiable", (), {}), examine_places(np.zeros((2, 1, 1)), ["level"]))
    assert kept.name == "certifiable"

"""A model that fits is left alone; wrong noise and coloured noise are found."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.evaluation.episodes import play_batch
from veil.evaluation.fit_test import LEVEL, examine_transcripts
from veil.policies import GaussianNoise, Truth
from veil.systems import ColouredPlatoon, Gain, Platoon, WithNoise
from veil.systems.scenarios import nominal


def public(plant, policy, episodes=64, steps=30):
    return play_batch(nominal(plant), policy, steps, jnp.arange(episodes, dtype=jnp.int32), jr.key(4)).public


@pytest.mark.parametrize("kind", [Truth, lambda system: GaussianNoise(system, jnp.asarray([0.3]))])
def test_the_places_of_releases_are_uniform_and_independent_under_the_model(kind, float64):
    system = Gain()
    policy = kind(system)
    fit = examine_transcripts(system, policy, public(system, policy, 256), exact=isinstance(policy, Truth))
    assert fit.ok and fit.p_value > 100 * LEVEL
    assert np.all(np.abs(fit.follow) < 4.0)
    for factor in (0.8, 1.25):
        other = examine_transcripts(
            WithNoise(system, factor), policy, public(system, policy, 256), exact=isinstance(policy, Truth)
        )
        assert not other.ok and "spread otherwise" in other.reasons(system)[0]


def test_coloured_drivers_are_told_apart_from_white_ones(float64):
    model = Platoon()
    policy = GaussianNoise(model, jnp.asarray([0.02, 0.02]))
    assert examine_transcripts(model, policy, public(model, policy), exact=False).ok
    coloured = ColouredPlatoon(Platoon(acceleration_sd=0.02), coloured_sd=0.1)
    fit = examine_transcripts(model, policy, public(coloured, policy), exact=False)
    assert not fit.ok and any("follow each other" in reason for reason in fit.reasons(model))

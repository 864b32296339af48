"""The Gymnasium door: Gymnasium's own checker, and what an episode charges."""

import subprocess
import sys
import warnings

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from veil.environment import Sharing
from veil.policies import GaussianNoise
from veil.problem import problem


@pytest.fixture(scope="module")
def made():
    return gymnasium.make("veil/Gain-v0", steps=4)


def test_gymnasium_finds_and_accepts_it(made):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped, skip_render_check=True)
    assert made.action_space.shape == (2 * 3,) and made.spec.id == "veil/Gain-v0"
    platoon = gymnasium.make("veil/Platoon-v0")
    assert platoon.action_space.shape == (4 * 2 * 2,)
    assert platoon.observation_space.shape == (4 * (1 + 2 + 2) + 3 + 1,)


def test_an_episode_is_as_long_as_it_should_and_the_reward_is_the_objective(made):
    seen, info = made.reset(seed=3)
    assert info == {} and seen[:3] == pytest.approx(
        np.exp(made.unwrapped.problem.scenario.plant.prior.log_masses)
    )
    assert seen[-1] == 0.0
    for t in range(1, 5):
        seen, reward, ended, cut, info = made.step(np.zeros(6, np.float32))
        expected = 80.0 * info["leakage"] + info["cost"] + 0.2 * (info["distortion"] - 4.0)
        assert reward == pytest.approx(-expected, rel=1e-5) and not cut and ended == (t == 4)
        assert seen[-1] == pytest.approx(t / 4)
    with pytest.raises(RuntimeError, match="reset"):
        made.unwrapped.step(np.zeros(6, np.float32))


def test_the_same_seed_gives_the_same_episode_and_secrets_follow_the_prior(made):
    ways = []
    for seed in (5, 5, 6):
        first, _ = made.reset(seed=seed)
        ways.append(np.concatenate([first, *(made.step(0.1 * np.ones(6, np.float32))[0] for _ in range(4))]))
    assert np.array_equal(ways[0], ways[1]) and not np.array_equal(ways[0], ways[2])
    seeds = [int(made.unwrapped._seed) % 3 for _ in range(300) if made.reset() is not None]
    masses = np.exp(made.unwrapped.problem.scenario.plant.prior.log_masses)
    error = np.sqrt(masses * (1 - masses) / 300)
    assert np.all(np.abs(np.bincount(seeds, minlength=3) / 300 - masses) < 4 * error)


def test_an_action_without_offsets_is_gaussian_noise(made):
    """Mean charges of such episodes agree with those of the policy that adds this noise."""
    env, level = made.unwrapped, 0.4
    spread = np.asarray(env.policy.scaling.output.spread)
    low, high = float(env.policy.limits.low), float(env.policy.limits.high)
    sd = spread * low * (high / low) ** (0.5 * (level + 1.0))
    action, found = np.tile([0.0, level], 3).astype(np.float32), []
    env.reset(seed=0)
    for _ in range(400):
        env.reset()
        found.append(
            np.sum([[row[-1][name] for name in ("leakage", "distortion")] for row in play(env, action)], 0)
        )
    with jax.enable_x64(False):
        policy = GaussianNoise(env.problem.scenario.plant, jnp.asarray(sd))
        outcome = eqx.filter_jit(lambda: other(env, policy))()
    expected = np.stack([np.asarray(part).sum(1) for part in (outcome.leakage, outcome.distortion)], 1)
    error = np.sqrt(np.var(found, 0) / 400 + np.var(expected, 0) / expected.shape[0])
    assert np.all(np.abs(np.mean(found, 0) - expected.mean(0)) < 4 * error)


def play(env, action):
    return [env.step(action) for _ in range(4)]


def other(env, policy):
    """The same system under a policy of the library, judged by a Kalman bank."""
    measured = eqx.tree_at(
        lambda one: one.leakage_belief,
        problem(policy.system, 4),
        env.policy.tracker,
        is_leaf=lambda x: x is None,
    )
    return measured.episodes(policy, jnp.arange(1200, dtype=jnp.int32), key=jr.key(1))


def test_gymnasium_imports_the_module_that_its_name_begins_with():
    """And without Gymnasium, nothing of it is loaded."""
    code = "import gymnasium; print(gymnasium.make('veil.environment:veil/Gain-v0').spec.id)"
    other = "import veil, sys; veil.__version__; print('gymnasium' in sys.modules)"
    ran = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True) for text in (code, other)
    ]
    assert [one.stdout.strip() for one in ran] == ["veil/Gain-v0", "False"]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="Platoon, Gain"):
        Sharing("train")

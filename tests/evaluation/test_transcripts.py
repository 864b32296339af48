"""Transcripts on disk: what comes back, and what is said about files that are not what they should be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.beliefs.particles import ParticleSpec
from veil.evaluation.episodes import play_batch, replay_batch
from veil.evaluation.transcript_file import TranscriptError, load, save
from veil.policies import GaussianNoise, Transport
from veil.systems import Gain
from veil.systems.scenarios import nominal

STEPS = 6


@pytest.fixture(scope="module")
def episodes():
    """Six episodes of a policy whose features depend on the public seed."""
    with jax.enable_x64(True):
        system = Gain()
        policy = Transport(system, jnp.asarray([0.1]), ParticleSpec(16))
        numbers = jnp.arange(6, dtype=jnp.int32)
        return system, policy, play_batch(nominal(system), policy, STEPS, numbers, jr.key(0))


def test_what_is_saved_comes_back_bit_for_bit_and_replays(episodes, tmp_path, float64):
    system, policy, records = episodes
    save(records, tmp_path / "some.npz", system)
    again = load(tmp_path / "some.npz", system, policy)
    for one, other in zip(jax.tree.leaves(records), jax.tree.leaves(again), strict=True):
        assert np.array_equal(one, other)
    with np.load(tmp_path / "some.npz") as file:
        assert file["state"].shape == (6, STEPS, 1) and file["secret"].shape == (6,)
    assert not np.any(replay_batch(policy, again.public))


def test_a_wrong_seed_an_edited_release_and_an_edited_feature_are_seen(episodes, float64):
    _, policy, records = episodes
    public = records.public

    def changed(where, new):
        return np.asarray(replay_batch(policy, eqx.tree_at(where, public, new))).tolist()

    seeds = changed(lambda it: it.public_seed, public.public_seed.at[2].add(1))
    assert seeds == [False, False, True, False, False, False]
    features = public.features.at[4, 3, 0].set(np.nextafter(public.features[4, 3, 0], 9.0))
    assert changed(lambda it: it.features, features) == [False] * 4 + [True, False]
    edited = changed(lambda it: it.shared, public.shared.at[1, 2, 0].add(1e-9))
    assert edited == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda arrays: arrays.pop("external"), "no array external"),
        (lambda arrays: arrays.update(shared=arrays["shared"][:0]), "no episode"),
        (lambda arrays: arrays.update(shared=arrays["shared"][:, :4]), "has shape"),
        (lambda arrays: arrays.update(state=arrays["state"][:, :, :0]), "has shape"),
        (
            lambda arrays: arrays["shared"].__setitem__((3, 1, 0), np.nan),
            r"not a finite number at \(3, 1, 0\)",
        ),
        (lambda arrays: arrays["secret"].__setitem__(0, 7), "index from 0 to 2"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused_with_a_reason(episodes, tmp_path, damage, message, float64):
    system, policy, records = episodes
    save(records, tmp_path / "good.npz", system)
    with np.load(tmp_path / "good.npz") as file:
        arrays = {name: np.array(file[name]) for name in file.files}
    damage(arrays)
    np.savez(tmp_path / "bad.npz", **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TranscriptError, match=message):
        load(tmp_path / "bad.npz", system, policy)


def test_missing_empty_and_truncated_files(episodes, tmp_path, float64):
    system, policy, records = episodes
    with pytest.raises(TranscriptError, match="no such file"):
        load(tmp_path / "none.npz", system, policy)
    save(records, tmp_path / "whole.npz", system)
    content = (tmp_path / "whole.npz").read_bytes()
    for size in (0, 10, len(content) // 2):
        (tmp_path / "cut.npz").write_bytes(content[:size])
        with pytest.raises(TranscriptError, match="cut short"):
            load(tmp_path / "cut.npz", system, policy)
    assert not list(tmp_path.glob("*.partial"))


def test_features_of_another_policy_are_refused(episodes, tmp_path, float64):
    system, _, records = episodes
    save(records, tmp_path / "some.npz", system)
    with pytest.raises(TranscriptError, match="'features' has shape"):
        load(tmp_path / "some.npz", system, GaussianNoise(system, jnp.asarray([0.1])))

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
from veil.laws import diagonal_gaussian
from veil.policies import GaussianNoise, Transport
from veil.rollout import replay
from veil.systems import Field, Gain, Prior, System, finite_prior
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
    assert not np.any(replay_batch(nominal(system), policy, again.public))


def test_a_wrong_seed_an_edited_release_and_an_edited_feature_are_seen(episodes, float64):
    system, policy, records = episodes
    public = records.public

    def changed(where, new):
        return np.asarray(replay_batch(nominal(system), policy, eqx.tree_at(where, public, new))).tolist()

    seeds = changed(lambda it: it.public_seed, public.public_seed.at[2].add(1))
    assert seeds == [False, False, True, False, False, False]
    features = public.features.at[4, 3, 0].set(np.nextafter(public.features[4, 3, 0], 9.0))
    assert changed(lambda it: it.features, features) == [False] * 4 + [True, False]
    edited = changed(lambda it: it.shared, public.shared.at[1, 2, 0].add(1e-9))
    assert edited == [False, True, False, False, False, False]


class HeatedFloor(System):
    """A room on a heated floor. A heat pump gives less the warmer the floor is: a product of coordinates."""

    prior: Prior
    secret_fields = (Field("loss", "kW/K", 0.0, 1.0), Field("capacity", "kWh/K", 1.0, 50.0))
    state_fields = (Field("room", "degC", 0.0, 40.0), Field("floor", "degC", 0.0, 60.0))
    external_fields, shared_fields = (Field("shift", "K", -5.0, 5.0),), (Field("room", "degC"),)
    reaction_noise_size = 1

    def initial(self, secret):
        return diagonal_gaussian(jnp.array([21.0, 25.0]), jnp.array([0.5, 1.5]))

    def initial_external(self):
        return jnp.zeros(1)

    def transition(self, secret, state, external):
        (loss, capacity), (room, floor) = secret, state
        power = jnp.clip(0.9 * (21.0 + external[0] - room) + 7.0 * loss, 0.0, 2.5)
        heat, flow = (5.0 - 0.05 * (floor - 7.0)) * power, 0.35 * (floor - room)
        mean = jnp.stack([room + (flow - loss * (room - 7.0)) / 4.0, floor + (heat - flow) / capacity])
        return diagonal_gaussian(mean, jnp.array([0.08, 0.05]))

    def react(self, external, shared, noise):
        return (0.0 if shared is None else -0.25 * (shared[0] - 21.0)) + 0.05 * noise

    def cost(self, secret, state, after, shared, external):
        return jnp.abs(after[0] - 21.0)

    def distortion(self, state, shared):
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state[:1]


@pytest.mark.usefixtures("optimised")
def test_every_bit_is_replayed_where_the_compiler_fuses_public_and_private_arithmetic(float64):
    """Played and replayed by two programs, two of these six episodes differed in a last bit."""
    system = HeatedFloor(finite_prior([(0.08, 5.0), (0.11, 9.0), (0.15, 9.0)]))
    policy = Transport(system, jnp.asarray([0.1]))
    records = play_batch(nominal(system), policy, 100, jnp.arange(6, dtype=jnp.int32), jr.key(0))
    assert records.public.features.shape[-1] > 0
    assert not np.any(replay_batch(nominal(system), policy, records.public))
    apart = eqx.filter_jit(lambda policy, public: jax.lax.map(lambda one: replay(policy, one), public))
    other = apart(policy, records.public)
    assert np.allclose(other, records.public.features, rtol=1e-9, atol=1e-9)


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

"""Worlds that are not the model: each against a formula or a library that knows nothing of Veil."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from veil.attacks.twin_reader import TwinReader
from veil.evaluation import episodes
from veil.evaluation.episodes import play_batch
from veil.policies import Truth, Twin
from veil.rollout import play
from veil.systems import (
    Building,
    Field,
    Gain,
    System,
    WithDrift,
    WithHeavyTails,
    WithNoiseBySecret,
    WithPrior,
    brief_scenarios,
    finite_prior,
    nominal,
    other_scenarios,
    with_resolution,
)
from veil.systems.scenarios import (
    active_adversary,
    coarse_sensor,
    coloured_noise,
    drifting_secret,
    heavy_tails,
    noise_by_secret,
    pushes,
)

GAIN = Gain(finite_prior([0.3, 0.6, 0.9]))
KINDS = ("steps", "sines", "binary sequence")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def played(scenario, policy=None, steps=12, count=6, seed=0):
    """Episodes of a scenario, compiled together."""
    policy = Truth(scenario.plant) if policy is None else policy
    run = jax.jit(jax.vmap(lambda number: play(scenario, policy, steps, number=number, key=jr.key(seed))))
    return run(jnp.arange(count, dtype=jnp.int32))


def wide(system: System = GAIN) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), system)


# Heavy tails


def moment(plant, power):
    """E s^power of the factor of a step's noise, by quadrature over the hidden normal number."""

    @jax.jit
    @jax.vmap
    def factor(number):
        state = jnp.stack([jnp.zeros_like(number), number])
        return plant.transition(plant.prior.secrets[0], state, jnp.zeros(1)).scale[0, 0] / 0.3

    grid = np.linspace(-7.9, 7.9, 2001)
    return integrate.simpson(np.asarray(factor(grid)) ** power * stats.norm.pdf(grid), x=grid)


@pytest.mark.parametrize("degrees", [5.0, 12.0])
def test_heavy_tails_have_the_variance_of_the_model_and_the_kurtosis_of_students_t(degrees):
    """E s² = 1, and 3 E s⁴ = 3 (ν − 2)/(ν − 4), the kurtosis of t with ν degrees of freedom."""
    plant = WithHeavyTails(wide(), degrees)
    assert moment(plant, 2.0) == pytest.approx(1.0, rel=2e-3)
    kurtosis = 3.0 + float(np.asarray(stats.t.stats(degrees, moments="k")))
    assert 3.0 * moment(plant, 4.0) == pytest.approx(kurtosis, rel=0.03)


def test_a_step_of_heavy_tails_has_students_law_and_its_size_is_forgotten():
    plant = heavy_tails(wide()).plant
    secret, external = plant.prior.secrets[1], jnp.zeros(1)

    @jax.jit
    @jax.vmap
    def two(key):
        keys = jr.split(key, 3)
        start = jnp.stack([0.0, jr.normal(keys[0], ())])
        first = plant.transition(secret, start, external).sample(jr.normal(keys[1], (2,)))
        second = plant.transition(secret, first, external).sample(jr.normal(keys[2], (2,)))
        return jnp.stack([first[0], second[0] - secret[0] * first[0]]) / 0.3

    noise = np.asarray(two(jr.split(jr.key(3), 20000)))
    law = stats.t(5.0, scale=np.sqrt(3.0 / 5.0))
    for column in noise.T:
        assert stats.kstest(column, law.cdf).pvalue > 1e-3
    assert stats.kstest(noise[:, 0], "norm").pvalue < 1e-6
    assert abs(stats.spearmanr(*np.abs(noise.T))[0]) < 4 / np.sqrt(20000)  # pyright: ignore
    assert GAIN.state_fields == plant.state_fields[:1] and len(plant.state_fields) == 2


def test_a_reader_of_a_twin_does_not_take_heavy_tails_for_gaussian():
    """The scale depends on a number that nobody reads, although the mean does not."""
    twin, gain = Twin(wide()), wide()
    assert TwinReader(gain, twin, gain.prior.secrets).exact
    assert not TwinReader(heavy_tails(gain).plant, twin, gain.prior.secrets).exact


def test_a_variance_is_asked_for():
    with pytest.raises(ValueError, match="more than 2 degrees"):
        WithHeavyTails(GAIN, 2.0)


# A secret that drifts


def test_a_drifting_secret_moves_in_equal_steps_and_ends_a_fifth_higher():
    """Without noise x' = θ_t x + w, so that θ_t can be read off two states."""
    quiet = Gain(finite_prior([0.3, 0.6, 0.9]), sd=0.0)
    records = played(drifting_secret(wide(quiet), 12))
    states, external = np.asarray(records.states), np.asarray(records.public.external)
    found = (states[:, 1:, 0] - external[:, :, 0]) / states[:, :-1, 0]
    expected = np.asarray(records.secret) * np.linspace(1.0, 1.2, 12)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_drift_ends_where_the_range_of_the_secret_does():
    class Narrow(Gain):
        secret_fields = (Field("gain", "", 0.0, 0.95),)

    plant = WithDrift(Narrow(), 0.1)
    np.testing.assert_allclose(plant.drifted(jnp.array([0.9]), jnp.array(3.0)), [0.95])
    np.testing.assert_allclose(plant.drifted(jnp.array([0.3]), jnp.array(3.0)), [0.39])


# Colour, size by secret


def test_coloured_noise_has_the_size_of_the_model_and_forgets_itself_geometrically():
    """Variance 1 and autocorrelation 0.7 · 0.8^k in units of the model's noise."""
    still = Gain(finite_prior([0.0]), reply=0.0, reaction_sd=0.0)
    records = played(coloured_noise(wide(still)), steps=8, count=6000)
    noise = np.asarray(records.states)[:, 1:, 0] / 0.3
    expected = np.where(np.arange(8) == 0, 1.0, 0.7 * 0.8 ** np.arange(8))
    found = noise.T @ noise[:, 0] / len(noise)
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(2 / 6000))
    np.testing.assert_allclose(noise.var(axis=0), 1.0, atol=4 * np.sqrt(2 / 6000))


def test_noise_by_secret_doubles_from_the_first_secret_to_the_last():
    shuffled = Gain(finite_prior([0.9, 0.3, 0.6]))
    records = played(noise_by_secret(wide(shuffled)), steps=3, count=9000)
    states, external = np.asarray(records.states)[..., 0], np.asarray(records.public.external)[..., 0]
    secret = np.asarray(records.secret)
    noise = (states[:, 1:] - secret * states[:, :-1] - external) / 0.3
    for value, factor in ((0.3, 2**-0.5), (0.6, 1.0), (0.9, 2**0.5)):
        own = noise[secret[:, 0] == value]
        assert own.std() == pytest.approx(factor, rel=4 / np.sqrt(2 * own.size))


def test_one_factor_per_secret_is_asked_for():
    with pytest.raises(ValueError, match="one factor per secret, 3"):
        WithNoiseBySecret(GAIN, [1.0, 2.0])


# The sensor, and the active adversary


def test_a_coarse_sensor_rounds_what_the_owner_reads_and_not_the_state():
    scenario = coarse_sensor(wide())
    assert scenario.coarse == (pytest.approx(0.15),)
    records = played(scenario)
    shared, states = np.asarray(records.public.shared), np.asarray(records.states)[:, :-1]
    np.testing.assert_allclose(shared, 0.15 * np.round(states / 0.15), atol=1e-12)
    assert np.ptp(states / 0.15 - np.round(states / 0.15)) > 0.5
    stated = with_resolution(wide(), 0.4)
    assert coarse_sensor(stated).coarse == (0.8,)
    shared = np.asarray(played(coarse_sensor(stated)).public.shared) / 0.8
    np.testing.assert_allclose(shared, np.round(shared), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_an_active_adversary_adds_what_it_says_and_no_more(kind):
    """The random numbers are the same as without it, so that w' + 0.2 y differs by what was added."""
    quiet, active = (played(one, steps=40) for one in (nominal(wide()), active_adversary(wide(), 40, kind)))
    answers = [
        np.asarray(one.public.external[:, 1:] + 0.2 * one.public.shared[:, :-1]) for one in (quiet, active)
    ]
    added = (answers[1] - answers[0])[..., 0]
    push = pushes(wide(), 40, kind)
    np.testing.assert_allclose(added, np.broadcast_to(push[1:, 0], added.shape), atol=1e-6)
    np.testing.assert_array_equal(active.public.external[:, 0], quiet.public.external[:, 0])
    # The change of w under true data, in another simulation.
    rng, level, input_, changes = np.random.default_rng(0), np.zeros(30000), np.zeros(30000), []
    level = rng.standard_normal(30000)
    for _ in range(39):
        answer = -0.2 * level + 0.5 * rng.standard_normal(30000)
        level = rng.choice([0.3, 0.6, 0.9], 30000) * level + input_ + 0.3 * rng.standard_normal(30000)
        changes.append(answer - input_)
        input_ = answer
    assert np.abs(push).max() == pytest.approx(3.0 * np.std(changes), rel=0.06)


def test_the_binary_sequence_is_one_of_maximal_length():
    """Of 127 signs one kind has one more, and every shift has the product −1."""
    signs = np.sign(pushes(wide(), 254, "binary sequence")[::2, 0])
    assert abs(signs.sum()) == 1
    for shift in (1, 2, 7, 60):
        assert signs @ np.roll(signs, shift) == -1


def test_an_active_adversary_stays_in_the_ranges_and_leaves_private_series_alone():
    house = wide(Building())
    scenario = active_adversary(house, 24, "binary sequence")
    names = [field.name for field in house.input_fields]
    assert scenario.push is not None
    assert scenario.push.shape == (24, len(names) - 1) and np.all(
        scenario.push[:, names.index("people")] == 0
    )
    assert np.all(np.abs(scenario.push[:, names.index("shift")]) > 0)
    hot = jnp.asarray([4.9, 44.9, 4.9, 3.0, 7.0])
    for time in (1, 2, 9):
        moved = np.asarray(scenario.pushed(hot, jnp.asarray(time, jnp.int32)))
        assert np.all(moved[3:] == [3.0, 7.0]), "private series and clock"
        assert np.all(moved[:3] <= [5.0, 45.0, 5.0])
    alone = nominal(house)
    assert alone.pushed(hot, jnp.asarray(1, jnp.int32)) is hot


# What is tried


def test_the_brief_scenarios_are_one_program_but_for_the_other_plant(monkeypatch):
    traced = []

    def counted(*arguments, **named):
        traced.append(arguments[0])
        return play(*arguments, **named)

    monkeypatch.setattr(episodes, "play", counted)
    system = wide()
    found = brief_scenarios(system, 4)
    names = ["more noise", "noise by secret", "overrated secret", "telling start"]
    assert [one.name for one in found] == [*names, "active adversary, binary sequence"]
    numbers = jnp.arange(3, dtype=jnp.int32)
    states = [play_batch(one, Truth(system), 4, numbers, jr.key(0)).states for one in found]
    assert len(traced) == 1
    assert len({np.asarray(one).tobytes() for one in states if one is not states[2]}) == 4


def test_an_overrated_secret_moves_as_the_model_does_and_is_taken_for_a_fifth_more():
    system = wide()
    overrated = brief_scenarios(system, 4)[2]
    np.testing.assert_allclose(played(overrated, Truth(system)).states, played(nominal(system)).states)
    np.testing.assert_allclose(overrated.believed, [[0.36], [0.72], [1.08]])


def test_without_inputs_that_move_nobody_can_excite_them():
    still = Gain(finite_prior([0.3, 0.6]), reply=0.0, reaction_sd=0.0)
    names = [one.name for one in (*brief_scenarios(still, 6), *other_scenarios(still, 6))]
    assert not any(name.startswith("active") for name in names)
    assert len(other_scenarios(WithPrior(GAIN, finite_prior([0.2, 0.7])), 1)) > 8

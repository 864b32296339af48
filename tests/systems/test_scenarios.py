import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.evaluation.attackers import attackers
from veil.evaluation.utility import table, use
from veil.laws import Kernel, Point
from veil.learners.base import plants
from veil.policies import GaussianNoise, PlainPolicy, Truth
from veil.rollout import play, rollout
from veil.stats import Mean
from veil.step import release_kind
from veil.systems import (
    ColouredPlatoon,
    Field,
    Gain,
    IdmPlatoon,
    KnownStart,
    Nouns,
    Platoon,
    System,
    WithInitial,
    WithNoise,
    finite_prior,
)
from veil.systems.base import Scenario
from veil.systems.platoon import coloured_noise, fit_gains
from veil.systems.probes import true_data_path
from veil.systems.scenarios import (
    brief_scenarios,
    misjudged_secret,
    more_noise,
    nominal,
    other_scenarios,
    secrets_between,
    secrets_outside,
    telling_start,
)

GAIN = Gain(finite_prior([0.3, 0.6, 0.9]))


class Confession(PlainPolicy):
    """Shares what the owner takes its secret for."""

    system: System

    def kernel(self, features, external, time):
        return ConfessionKernel()


class ConfessionKernel(Kernel):
    def __call__(self, secret, state):
        return Point(secret)


@partial(jax.jit, static_argnames="steps", compiler_options={"xla_backend_optimization_level": "0"})
def plays(scenario, policy, numbers, key, steps=4):
    return jax.vmap(lambda number: play(scenario, policy, steps, number=number, key=key))(numbers)


def gain_plays(error=0.0, seed=1):
    scenario = Scenario("gain", GAIN, GAIN.prior.secrets, error)
    return plays(scenario, Truth(GAIN), jnp.arange(7), jr.key(seed))


def test_secrets_take_turns_and_the_number_is_the_public_seed():
    records = gain_plays()
    np.testing.assert_array_equal(records.index, [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(records.secret, GAIN.prior.secrets[jnp.array([0, 1, 2, 0, 1, 2, 0])])
    np.testing.assert_array_equal(records.public.public_seed, jnp.arange(7))


def test_a_scenario_without_error_is_a_rollout_of_the_plant():
    @jax.jit
    def run(number, index):
        key = jr.split(jr.fold_in(jr.key(1), number))[1]
        return rollout(GAIN, Truth(GAIN), 4, public_seed=number, key=key, index=index)

    records = gain_plays()
    for number, index in ((0, 0), (5, 2)):
        found = jax.tree.map(lambda leaf, at=number: leaf[at], records)
        expected = run(jnp.asarray(number, jnp.int32), jnp.asarray(index, jnp.int32))
        assert eqx.tree_equal(found, expected, rtol=1e-5, atol=1e-6)


def test_the_nominal_scenario_is_the_model():
    scenario = nominal(GAIN)
    assert scenario.plant is GAIN and scenario.error == 0.0
    np.testing.assert_array_equal(scenario.believed, GAIN.prior.secrets)


def test_an_episode_can_be_played_again_and_no_two_are_alike():
    records = gain_plays()
    assert eqx.tree_equal(records, gain_plays())
    assert len(np.unique(records.states[:, 0])) == 7
    assert not np.any(np.isclose(gain_plays(seed=2).states, records.states))


def test_one_after_the_other_or_all_at_once():
    scenario, policy = nominal(GAIN), Truth(GAIN)
    mapped = jax.jit(lambda n: jax.lax.map(lambda i: play(scenario, policy, 4, number=i, key=jr.key(1)), n))
    np.testing.assert_allclose(mapped(jnp.arange(7)).states, gain_plays().states, atol=1e-5)


def test_scenarios_played_with_one_key_share_their_random_numbers():
    np.testing.assert_array_equal(gain_plays().states, gain_plays(error=0.1).states)


def confessions(believed, error):
    """What the owner took its secret for in each step of 4000 episodes, and the records."""
    scenario = Scenario("platoon", Platoon(), believed, error)
    records = plays(scenario, Confession(Platoon()), jnp.arange(4000), jr.key(0))
    return np.asarray(records.public.shared), records


def test_the_owner_acts_on_what_it_believes():
    believed = 10.0 * Platoon().prior.secrets + 1.0
    taken, records = confessions(believed, 0.0)
    np.testing.assert_allclose(taken[:8, 0], jnp.tile(believed, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(records.secret[:8], jnp.tile(Platoon().prior.secrets, (2, 1)))


def test_an_error_is_relative_and_drawn_per_episode_and_number():
    taken, records = confessions(Platoon().prior.secrets, 0.1)
    assert np.all(taken == taken[:, :1])  # one error for the whole episode
    errors: np.ndarray = taken[:, 0] / np.asarray(records.secret) - 1.0
    np.testing.assert_allclose(errors.mean(0), 0.0, atol=4 * 0.1 / np.sqrt(4000))
    np.testing.assert_allclose(errors.std(0), 0.1, atol=4 * 0.1 / np.sqrt(2 * 4000))
    assert abs(np.corrcoef(errors.T)[0, 1]) < 4 / np.sqrt(4000)
    assert abs(np.corrcoef(errors[:, 0], records.states[:, 0, 0])[0, 1]) < 4 / np.sqrt(4000)


def test_a_misjudged_secret_is_off_by_a_tenth():
    scenario = misjudged_secret(Platoon())
    np.testing.assert_allclose(scenario.error, 0.1)
    np.testing.assert_array_equal(scenario.believed, Platoon().prior.secrets)


@pytest.fixture(scope="module")
def platoon_scenarios():
    began = time.perf_counter()
    scenarios = {scenario.name: scenario for scenario in other_scenarios(Platoon())}
    assert time.perf_counter() - began < 15  # about 2 s on a free core
    return scenarios


def test_the_fit_recovers_the_gains_of_a_driver_who_follows_the_law():
    fit = fit_gains(Platoon(), Platoon(), key=jr.key(0))
    assert np.all(np.abs(fit.gains - np.asarray(Platoon().prior.secrets)) < 4 * fit.standard_errors)
    np.testing.assert_allclose(fit.residual_sd, 0.1, atol=4 * 0.1 / np.sqrt(2 * 64 * 50))
    assert np.all(fit.standard_errors < 0.01)


@pytest.mark.parametrize("plant", [IdmPlatoon(), ColouredPlatoon(), GAIN], ids=lambda it: type(it).__name__)
def test_a_path_of_true_data_is_the_one_that_playing_the_truth_gives(plant):
    numbers = jnp.arange(6, dtype=jnp.int32)
    played = plays(nominal(plant), Truth(plant), numbers, jr.key(3), steps=20)
    path = jax.jit(jax.vmap(lambda number: true_data_path(plant, 20, number=number, key=jr.key(3))))
    states, external = path(numbers)
    np.testing.assert_allclose(states, played.states, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(external, played.public.external, rtol=1e-5, atol=1e-6)


def test_the_gains_of_idm_drivers_keep_their_digits():
    """Figures of an audit in the scenario of IDM drivers depend on them."""
    expected = [[0.0312477, 0.537641], [0.0563831, 0.629568], [0.0984592, 0.717143], [0.151555, 0.754825]]
    fit = fit_gains(Platoon(), IdmPlatoon(), key=jr.key(0))
    np.testing.assert_allclose(fit.gains, expected, rtol=2e-5)
    np.testing.assert_allclose(fit.residual_sd, [0.102362, 0.100598, 0.102872, 0.106262], rtol=2e-5)


def test_idm_drivers_are_taken_for_distinct_drivers_who_do_not_quite_fit(platoon_scenarios):
    scenario, fit = platoon_scenarios["idm drivers"], fit_gains(Platoon(), IdmPlatoon(), key=jr.key(0))
    assert isinstance(scenario.plant, IdmPlatoon)
    np.testing.assert_allclose(scenario.believed, fit.gains, rtol=1e-5)
    assert np.all(np.diff(fit.gains[:, 0]) > 4 * fit.standard_errors[1:, 0])
    # The linearised law at equilibrium: d a/d spacing = a·2·(s*)²/s³ with (s*)² = 375, s = 20; V' = π/2.
    slopes = np.array([0.5, 1.0, 1.7, 2.6]) * 2 * 375 / 20**3
    np.testing.assert_allclose(fit.gains[:, 0] * np.pi / 2, slopes, rtol=0.2)
    assert np.all(fit.residual_sd > 0.099) and np.all(fit.residual_sd < 0.25)


def test_coloured_noise_keeps_the_total():
    platoon = Platoon(acceleration_sd=0.3, controller="F")
    plant = coloured_noise(platoon).plant
    assert isinstance(plant, ColouredPlatoon)
    np.testing.assert_allclose(plant.coloured_sd**2 + plant.inner.acceleration_sd**2, 0.09, rtol=1e-6)
    assert plant.coloured_sd > 4 * plant.inner.acceleration_sd
    assert eqx.tree_equal(plant.inner.controller, platoon.controller)


def test_secrets_between_and_outside():
    order = [2, 0, 3, 1]  # the order of a prior does not matter
    platoon = Platoon(finite_prior(np.array([[0.4, 0.5], [0.7, 0.8], [1.0, 1.1], [1.3, 1.4]])[order]))
    between, outside = secrets_between(platoon), secrets_outside(platoon)
    np.testing.assert_allclose(between.believed, [[0.55, 0.65], [0.85, 0.95], [1.15, 1.25]], rtol=1e-6)
    np.testing.assert_allclose(outside.believed, [[0.28, 0.35], [1.69, 1.82]], rtol=1e-6)
    for scenario in (between, outside):
        np.testing.assert_array_equal(scenario.believed, scenario.plant.prior.secrets)
    signs = secrets_outside(Gain(finite_prior([-1.0, -0.5]))).believed
    np.testing.assert_allclose(signs, [[-1.3], [-0.35]], rtol=1e-6)
    with pytest.raises(ValueError, match="at least two"):
        secrets_between(Gain(finite_prior([0.5])))


@pytest.mark.parametrize("initial_sd", [(0.5, 1.0), (0.0, 0.0)], ids=["spread", "point"])
def test_a_telling_start_moves_by_half_its_sd_over_the_prior(initial_sd):
    plant = telling_start(Platoon(initial_sd=initial_sd)).plant
    means = jax.vmap(lambda secret: plant.initial(secret).mean)(plant.prior.secrets)
    unit = np.hypot(initial_sd, [0.02, 0.1])
    np.testing.assert_allclose(means.mean(0), [15.0, 20.0], rtol=1e-6)
    np.testing.assert_allclose(means.std(0), 0.5 * unit, rtol=1e-3)


def test_a_telling_start_ignores_a_number_that_all_secrets_share():
    plant = telling_start(Platoon(finite_prior([[0.4, 1.0], [0.8, 1.0]]))).plant
    means = jax.vmap(lambda secret: plant.initial(secret).mean)(plant.prior.secrets)
    np.testing.assert_allclose(means.std(0), 0.5 * np.hypot([0.5, 1.0], [0.02, 0.1]), rtol=1e-3)


GENERAL = [
    *("misjudged secret", "overrated secret", "secrets between", "secrets outside", "telling start"),
    "more noise",
    *("noise by secret", "coloured noise", "heavy tails", "drifting secret", "coarse sensor"),
    *(f"active adversary, {kind}" for kind in ("steps", "sines", "binary sequence")),
]


def test_a_platoon_has_its_own_other_scenarios_and_the_general_ones(platoon_scenarios):
    general = [name for name in GENERAL if name != "coloured noise"]
    assert list(platoon_scenarios) == ["idm drivers", "coloured noise", *general]


@pytest.mark.parametrize("name", ["idm drivers", "secrets between"])
def test_other_scenarios_of_a_platoon_can_be_played(platoon_scenarios, name):
    records = plays(platoon_scenarios[name], Truth(Platoon()), jnp.arange(4), jr.key(0), steps=10)
    assert records.public.shared.shape == (4, 10, 2)
    assert bool(jnp.all(jnp.isfinite(records.states)))


def test_an_owner_sees_the_leading_coordinates_of_a_larger_state(platoon_scenarios):
    records = plays(platoon_scenarios["coloured noise"], Truth(Platoon()), jnp.arange(4), jr.key(0))
    assert records.states.shape == (4, 5, 3)
    np.testing.assert_array_equal(records.public.shared, records.states[:, :-1, :2])


def test_any_system_has_other_scenarios():
    scenarios = other_scenarios(GAIN)
    assert [scenario.name for scenario in scenarios] == GENERAL
    law = more_noise(GAIN).plant.transition(jnp.array([0.5]), jnp.array([1.0]), jnp.array([0.0]))
    np.testing.assert_allclose(law.scale, [[1.5 * 0.3]], rtol=1e-6)


def test_a_belief_per_secret_is_asked_for():
    with pytest.raises(ValueError, match="one believed secret per secret"):
        Scenario("wrong", GAIN, jnp.ones((2, 1)))


class Offering(Gain):
    """A gain loop that offers scenarios, wrong models, quantities and nouns of its own."""

    quantity_fields = (Field("largest level", "m"), Field("mean push", "N"))
    nouns = Nouns("the tank", "the leak rate", "leak")

    def quantities(self, states, external, shared):
        return jnp.stack([jnp.max(states[:, 0]), jnp.mean(external[:, 0])])

    def scenarios(self):
        return (Scenario("quiet", WithNoise(self, 0.5), self.prior.secrets),)

    def misspecified_models(self):
        return {"noise is tripled": WithNoise(self, 3.0)}


def test_a_system_may_offer_its_own_scenarios():
    assert [scenario.name for scenario in other_scenarios(Offering())] == ["quiet", *GENERAL]
    assert [scenario.name for scenario in brief_scenarios(Offering(), 6)][:2] == ["quiet", "noise by secret"]
    assert [scenario.name for scenario in plants(Offering())][2:] == ["quiet"]


def test_a_system_may_offer_wrong_models_to_readers():
    system = Offering()
    kind = release_kind(system, policy := GaussianNoise(system, (0.25,)))
    names = [attacker.name for attacker in attackers(system, policy, kind, assisted=False)]
    assert "thinks noise is tripled" in names and "thinks noise is double" in names


def test_the_quantities_of_a_system_come_with_their_units_and_survive_a_variant():
    system = WithInitial(Offering(), shift=1.0)
    records = plays(nominal(system), Truth(system), jnp.arange(6), jr.key(0), steps=5)
    used = jax.tree.map(np.asarray, vars(jax.vmap(lambda record: use(system, record))(records)))
    rows = {row.name: row for row in table(system, used, used, None, np.asarray(records.index))}
    assert rows["largest level"].unit == "m" and rows["mean push"].unit == "N"
    assert rows["largest level"].value.value == pytest.approx(
        np.asarray(records.states).max(axis=(1, 2)).mean()
    )
    assert rows["mean push"].value.value == pytest.approx(
        np.asarray(records.public.external).mean(), abs=1e-6
    )
    assert rows["mean push"].change == Mean(0.0, 0.0)  # against itself
    assert system.nouns == Nouns("the tank", "the leak rate", "leak")


def test_a_system_that_offers_nothing_has_general_words():
    assert KnownStart(Gain(), [0.0]).nouns.candidate == "gain" and System.nouns.owner == "the system"
    assert Platoon().nouns.candidate == IdmPlatoon().nouns.candidate == "driver"
    assert System.quantity_fields == Gain().quantity_fields == () and Gain().scenarios() == ()

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.systems import (
    AcceleratingLeader,
    ColouredPlatoon,
    Controller,
    IdmPlatoon,
    Platoon,
    fuel_rate,
    optimal_velocity,
)

REST = jnp.array([15.0, 15.0, 20.0])
SECRET = jnp.array([0.7, 0.8])
QUIET = jnp.zeros(2)


def drive(system, secret, key, steps=50):
    """Accelerations and fuel of one episode with the truth shared."""
    start_key, move_key, react_key = jr.split(key, 3)
    size = len(system.state_fields)

    def step(carry, noises):
        state, external = carry
        shared = system.output(state)
        after = system.transition(secret, state, external).sample(noises[0])
        seen = (after[0] - state[0]) / 0.2, system.cost(secret, state, after, shared, external), after
        return (after, system.react(external, shared, noises[1])), seen

    start = system.initial(secret).sample(jr.normal(start_key, (size,)))
    noises = jr.normal(move_key, (steps, size)), jr.normal(react_key, (steps, 2))
    return jax.lax.scan(step, (start, system.initial_external()), noises)[1]


@eqx.filter_jit
def true_data_table(system, keys):
    """E[a²], E[(Δa)²] and fuel per secret."""

    def episode(secret, key):
        acceleration, fuel, _ = drive(system, secret, key)
        return jnp.stack([jnp.mean(acceleration**2), jnp.mean(jnp.diff(acceleration) ** 2), jnp.mean(fuel)])

    every = jax.vmap(jax.vmap(episode, (None, 0)), (0, None))(system.prior.secrets, keys)
    return jnp.mean(every, axis=1)


PRINTED = [[0.04, 0.05, 0.06, 0.08], [0.03, 0.04, 0.06, 0.09], [1.24, 1.24, 1.25, 1.26]]
MEASURED = [[0.031, 0.046, 0.063, 0.082], [0.029, 0.043, 0.065, 0.096], [1.234, 1.244, 1.253, 1.264]]


def test_true_data_from_equilibrium_give_the_printed_figures():
    table = true_data_table(Platoon(initial_sd=0), jr.split(jr.key(0), 4000)).T
    np.testing.assert_allclose(table, PRINTED, atol=0.015)
    # An independent simulation, without noise on the automated vehicle's spacing: three digits agree.
    np.testing.assert_allclose(table[:2], MEASURED[:2], atol=0.003)
    np.testing.assert_allclose(table[2], MEASURED[2], atol=0.004)


@pytest.mark.parametrize(
    ("reading", "leader", "expected"),
    [("B", "independent", [0.041, 0.054, 0.067, 0.085]), ("F", "accelerating", [0.029, 0.043, 0.060, 0.078])],
)
def test_other_readings_give_their_known_accelerations(reading, leader, expected):
    system = Platoon(initial_sd=0, controller=reading, leader=leader)
    table = true_data_table(system, jr.split(jr.key(1), 2000)).T
    np.testing.assert_allclose(table[0], expected, atol=0.003)


def test_equilibrium_stays_without_noise():
    system = Platoon()
    law = system.transition(SECRET, jnp.array([15.0, 20.0]), REST)
    np.testing.assert_allclose(law.mean, [15.0, 20.0], atol=1e-5)
    np.testing.assert_allclose(jnp.diagonal(law.scale), [0.02, 0.1], rtol=1e-6)
    np.testing.assert_allclose(system.react(REST, jnp.array([15.0, 20.0]), QUIET), REST, atol=1e-5)


def test_the_wanted_speed_is_half_a_cosine_wave():
    thresholds, top = jnp.array([5.0, 35.0]), jnp.array(30.0)
    spacing = jnp.array([0.0, 5.0, 12.5, 20.0, 35.0, 60.0])
    wanted = jax.vmap(lambda s: optimal_velocity(s, thresholds, top))(spacing)
    np.testing.assert_allclose(wanted, [0, 0, 15 * (1 - np.sqrt(0.5)), 15, 30, 30], atol=1e-5)
    slope = jax.grad(optimal_velocity)(jnp.array(20.0), thresholds, top)
    np.testing.assert_allclose(slope, np.pi / 2, rtol=1e-5)


def test_the_driver_follows_by_hand_computed_numbers():
    # V(12.5) = 15 (1 − √½) = 4.39340; a = 0.7 (4.39340 − 6) + 0.8 (8 − 6) = 0.475379
    law = Platoon().transition(SECRET, jnp.array([6.0, 12.5]), jnp.array([30.0, 8.0, 3.0]))
    np.testing.assert_allclose(law.mean, [6.0 + 0.2 * 0.475379, 12.5 + 0.2 * 2.0], rtol=1e-6)


def test_the_automated_vehicle_reacts_by_hand_computed_numbers():
    # u = 0.5·1 − 0.5·2 − 0.2·(−3) + 0.2·1 = 0.3 under reading C; spacing moves by 14 − 17, noise in m.
    external, shared, noise = jnp.array([14.0, 17.0, 21.0]), jnp.array([16.0, 17.0]), jnp.array([2.0, -1.0])
    after = Platoon().react(external, shared, noise)
    np.testing.assert_allclose(after, [15.0 + 2.0 * np.sqrt(0.1), 17.06, 21.0 - 0.6 - 0.1], rtol=1e-6)


@pytest.mark.parametrize(("reading", "push"), [("B", -1.3), ("C", 0.3), ("D", -0.25), ("F", -0.1)])
def test_each_reading_has_its_gains(reading, push):
    external, shared = jnp.array([14.0, 17.0, 21.0]), jnp.array([16.0, 17.0])
    after = Platoon(controller=reading).react(external, shared, QUIET)
    np.testing.assert_allclose(after[1], 17.0 + 0.2 * push, rtol=1e-6)


def test_a_missing_release_removes_the_follower_terms():
    external = jnp.array([14.0, 17.0, 21.0])
    missing = Platoon().react(external, None, QUIET)
    deaf = Platoon(controller=Controller((0.5, -0.5), (0.0, 0.0))).react(
        external, jnp.array([3.0, 9.0]), QUIET
    )
    np.testing.assert_array_equal(missing, deaf)
    np.testing.assert_allclose(missing[1], 17.0 + 0.2 * (0.5 - 1.0), rtol=1e-6)


def test_leaders_move_as_their_names_say():
    noise = jnp.array([1.5, 0.0])
    external = jnp.array([12.0, 15.0, 20.0])
    for leader, expected in (
        ("independent", 15.0 + 1.5 * np.sqrt(0.1)),
        ("accelerating", 12.0 + 0.2 * (0.3 + 1.5)),
        ("random_walk", 12.0 + 0.2 * 1.5),
        (AcceleratingLeader(pull=1.0, sd=0.0), 12.0 + 0.2 * 3.0),
    ):
        after = Platoon(leader=leader).react(external, None, noise)
        np.testing.assert_allclose(after[0], expected, rtol=1e-6)


def test_limits_clip_the_mean_and_noise_comes_after():
    system = Platoon()
    braking = system.transition(jnp.array([1.3, 1.4]), jnp.array([15.0, 5.0]), jnp.array([15.0, 5.0, 20.0]))
    np.testing.assert_allclose(braking.mean[0], 15.0 - 0.2 * 5.0)
    stopped = system.transition(SECRET, jnp.array([0.1, 3.0]), jnp.array([0.0, 0.0, 20.0]))
    assert stopped.mean[0] >= 0 and stopped.sample(jnp.array([-20.0, 0.0]))[0] < -0.2
    topped = system.transition(SECRET, jnp.array([29.9, 60.0]), jnp.array([30.0, 60.0, 20.0]))
    assert topped.mean[0] == 30.0
    rushing = system.react(jnp.array([15.0, 15.0, 200.0]), None, QUIET)
    np.testing.assert_allclose(rushing[1], 15.0 + 0.2 * 5.0)


@pytest.mark.parametrize(
    ("speed", "acceleration", "expected"),
    [(15.0, 0.0, 1.2216), (15.0, -2.0, 0.444), (10.0, 1.0, 0.444 + 0.9 * 1.641 + 0.54), (20.0, -0.1, 1.605)],
)
def test_fuel_meets_hand_computed_figures(speed, acceleration, expected):
    np.testing.assert_allclose(fuel_rate(jnp.array(speed), jnp.array(acceleration)), expected, rtol=1e-4)


def test_cost_is_fuel_at_the_old_speed_and_the_realised_acceleration():
    cost = Platoon().cost(SECRET, jnp.array([10.0, 20.0]), jnp.array([10.2, 19.0]), jnp.zeros(2), REST)
    np.testing.assert_allclose(cost, 0.444 + 0.9 * 1.641 + 0.54, rtol=1e-4)


def test_distortion_weighs_speed_by_three_and_has_a_gradient_at_the_truth():
    system, state = Platoon(), jnp.array([15.0, 20.0])
    np.testing.assert_allclose(system.distortion(state, jnp.array([17.0, 22.0])), 4.0, rtol=1e-6)
    value, slope = jax.value_and_grad(system.distortion, argnums=1)(state, state)
    assert value == 0.0
    np.testing.assert_array_equal(slope, [0.0, 0.0])


def test_the_start_spreads_as_told_and_may_be_a_point():
    np.testing.assert_allclose(jnp.diagonal(Platoon().initial(SECRET).scale), [0.5, 1.0])
    np.testing.assert_array_equal(Platoon(initial_sd=0).initial(SECRET).scale, jnp.zeros((2, 2)))
    np.testing.assert_array_equal(Platoon().initial_external(), REST)


def test_coloured_errors_keep_their_spread_and_decay_over_the_correlation_time():
    system = ColouredPlatoon(coloured_sd=0.3, correlation_time=2.0)
    errors = jax.jit(jax.vmap(lambda key: drive(system, SECRET, key, steps=40)[2][:, 2]))(
        jr.split(jr.key(2), 8000)
    )
    assert errors.std(axis=0) == pytest.approx(0.3, abs=4 * 0.3 / np.sqrt(2 * 8000))
    for lag in (1, 10, 25):
        correlation = float(jnp.corrcoef(errors[:, 39], errors[:, 39 - lag])[0, 1])
        assert correlation == pytest.approx(np.exp(-0.1 * lag), abs=4 / np.sqrt(8000))


def test_the_coloured_error_is_part_of_the_acceleration_and_is_not_shared():
    system = ColouredPlatoon(Platoon(acceleration_sd=0.02))
    state = jnp.array([15.0, 20.0, 0.5])
    law = system.transition(SECRET, state, REST)
    np.testing.assert_allclose(law.mean, [15.1, 20.0, 0.5 * np.exp(-0.2 / 3.0)], rtol=1e-5)
    assert bool(jnp.all(jnp.diagonal(law.scale) > 0))
    np.testing.assert_array_equal(system.output(state), state[:2])
    assert len(system.state_fields) == 3


def test_the_quantities_of_an_episode_by_hand():
    """Speeds 10, 11, 10.6 at dt 0.2: accelerations 5 and −2; it closes in by 1 m/s at a gap of 8 m."""
    states = jnp.array([[10.0, 9.0], [11.0, 8.0], [10.6, 8.5]])
    external = jnp.array([[0.0, 12.0, 0.0], [0.0, 10.0, 0.0]])
    for system in (Platoon(), ColouredPlatoon(), IdmPlatoon()):
        found = system.quantities(states, external, states[:-1])
        np.testing.assert_allclose(found, [14.5, 49.0, 8.0, 8.0], rtol=1e-5)
        assert len(system.quantity_fields) == 4
    calm = Platoon().quantities(states, external + 5.0, states[:-1])
    assert calm[3] == 100.0  # nobody closes in


def test_a_wrong_name_is_refused_with_the_right_ones():
    with pytest.raises(ValueError, match="B, C, D, F"):
        Platoon(controller="A")
    with pytest.raises(ValueError, match="independent, accelerating, random_walk"):
        Platoon(leader="none")


def test_tuning_a_number_does_not_compile_again():
    traces = []

    @eqx.filter_jit
    def fuel(system):
        traces.append(0)
        return system.cost(SECRET, jnp.ones(2), jnp.ones(2), jnp.ones(2), REST)

    for sd in (0.1, 0.2, 1):
        fuel(Platoon(acceleration_sd=sd))
    assert len(traces) == 1

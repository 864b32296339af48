"""The law of the next reading against textbook filters, joint densities and SciPy's distributions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.beliefs.self_model import LONGEST, ResidualLaw, SelfModel, Sensor, standard_log_density, white
from veil.fitting.estimate import Likelihood, Parameters, log_scores
from veil.fitting.predictor import padded_length, rows_of
from veil.recordings.bound import Bound, Rows
from veil.systems import Building, Driver, Gain
from veil.types import as_float64

STEPS = 40


def bound(system, states, external, seen, resolution=None, cuts=()):
    """A recording in the terms of its system, cut before the given rows."""
    parts = zip(np.split(states, cuts), np.split(external, cuts), strict=True)
    steps = resolution or (0.0,) * states.shape[1]
    return Bound("made", tuple(Rows(*one) for one in parts), seen, False, steps)


def house_path(seed, steps=STEPS, step=0.0):
    """Readings of the indoor temperature of a building with a hidden envelope, and its inputs."""
    system = as_float64(Building())
    rng, secret = np.random.default_rng(seed), np.asarray(system.prior.secrets[3], float)
    state, rows, inputs = np.array([20.5, 15.0]), [], []
    for t in range(steps):
        external = np.array([0.2 * rng.standard_normal(), 4.0 - 0.1 * t, 0.3, 2.0, float(t)])
        rows.append(state)
        inputs.append(external)
        law = system.transition(jnp.asarray(secret), jnp.asarray(state), jnp.asarray(external))
        state = np.asarray(law.mean) + np.asarray(law.scale) @ rng.standard_normal(2)
    states = np.array(rows)
    if step:
        states[:, 0] = step * np.round(states[:, 0] / step)
    return system, jnp.asarray(secret), states, np.array(inputs)


def textbook_filter(system, secret, states, inputs, step=0.0, envelope=None, wider=1.0):
    """Means and variances of the indoor readings by a Kalman filter in matrix form, written for this test.

    A reading of a sensor with steps says that the temperature is in a cell, by SciPy's truncated normal law.
    The last column is the mean of both temperatures in the end.
    """
    start = system.initial(secret)
    mean = np.array([states[0, 0], float(start.mean[1]) if envelope is None else envelope])
    covariance = np.diag([step**2 / 12, (wider * float(start.scale[1, 1])) ** 2])
    found = []
    for t in range(len(states) - 1):

        def on(x, w=inputs[t]):
            return system.transition(secret, x, jnp.asarray(w)).mean

        slope = np.asarray(jax.jacrev(on)(jnp.asarray(mean)))
        scale = np.asarray(system.transition(secret, jnp.asarray(mean), jnp.asarray(inputs[t])).scale)
        mean, covariance = np.asarray(on(jnp.asarray(mean))), slope @ covariance @ slope.T + scale @ scale.T
        found.append((mean[0], covariance[0, 0]))
        gain, sd = covariance[:, 0] / covariance[0, 0], np.sqrt(covariance[0, 0])
        ends = (states[t + 1, 0] + np.array([-0.5, 0.5]) * step - mean[0]) / sd
        cell = stats.truncnorm(*ends, loc=mean[0], scale=sd) if step else None
        inside, left = (cell.mean(), cell.var()) if cell else (states[t + 1, 0], 0.0)
        mean = mean + gain * (inside - mean[0])
        covariance = covariance - np.outer(gain, gain) * (covariance[0, 0] - left)
    return np.array([*found, mean]).T


def test_hidden_states_are_followed_like_by_a_textbook_kalman_filter(float64):
    system, secret, states, inputs = house_path(1)
    likelihood = Likelihood(system, rows_of(system, bound(system, states, inputs, (True, False))))
    here = Parameters((secret - likelihood.centre) / likelihood.spread, jnp.zeros(2), white(1))
    lines = np.asarray(log_scores(likelihood, here)[0])[: STEPS - 1]
    mean, variance = textbook_filter(system, secret, states, inputs, 0.0)[:, :-1]
    truth = stats.norm.logpdf(states[1:, 0], mean, np.sqrt(variance))
    assert np.allclose(lines, truth, atol=1e-9)


def test_a_rounded_reading_has_the_probability_of_its_cell(float64):
    step = 0.25
    system, secret, states, inputs = house_path(2, step=step)
    log = bound(system, states, inputs, (True, False), (step, 0.0))
    likelihood = Likelihood(system, rows_of(system, log))
    here = Parameters((secret - likelihood.centre) / likelihood.spread, jnp.zeros(2), white(1))
    lines = np.asarray(log_scores(likelihood, here)[0])[: STEPS - 1]
    mean, variance = textbook_filter(system, secret, states, inputs, step)[:, :-1]
    place, sd = states[1:, 0] - mean, np.sqrt(variance)
    truth = np.log(stats.norm.cdf(place + step / 2, scale=sd) - stats.norm.cdf(place - step / 2, scale=sd))
    assert np.allclose(lines + np.log(step), truth, atol=1e-5), "six points per cell of up to three sd"


@pytest.mark.parametrize("wide", [0.7, 1.3, 2.0])
def test_a_coarse_sensor_has_the_likelihood_of_quadrature_over_the_hidden_state(wide, float64):
    """x' = g x + w + 0.3 ν, read in cells of `wide` sd of the noise; the truth sums over a fine grid."""
    system, gain, sd, steps = as_float64(Gain()), 0.6, 0.3, 400
    step, rng = 0.3 * wide, np.random.default_rng(9)
    push, level = 0.2 * rng.standard_normal(steps), np.zeros(steps)
    for t in range(steps - 1):
        level[t + 1] = gain * level[t] + push[t] + sd * rng.standard_normal()
    seen = step * np.round(level / step)
    log = bound(system, seen[:, None], push[:, None], (True,), (step,))
    likelihood = Likelihood(system, rows_of(system, log))
    assert likelihood.data.sensor.rounded

    def truth(size):
        places = (np.arange(-20, 20) + 0.5) / 40  # of the state in its cell
        weights, total = np.full(40, 1 / 40), 0.0
        for t in range(steps - 1):
            means = gain * (seen[t] + step * places) + push[t]
            weights = weights @ stats.norm.pdf(seen[t + 1] + step * places, means[:, None], size) * step / 40
            total += np.log(weights.sum())
            weights = weights / weights.sum()
        return total - (steps - 1) * np.log(step)

    def found(size):
        own = float(system.transition(*at(system)).scale[0, 0])
        here = Parameters(
            (jnp.asarray([gain]) - likelihood.centre) / likelihood.spread,
            jnp.log(jnp.asarray([size / own])),
            white(1),
        )
        return float(np.sum(np.asarray(log_scores(likelihood, here)[0])[: steps - 1]))

    sizes = np.array([0.97, 1.0, 1.03]) * sd
    heights = np.array([[float(f(size)) for size in sizes] for f in (truth, found)])
    assert abs(heights[0] - heights[1]).max() < 0.5, heights
    slopes = heights @ [-1.0, 0.0, 1.0] / 0.06  # by the log of the noise
    curve = -heights[0] @ [1.0, -2.0, 1.0] / 0.03**2
    assert abs(slopes[0] - slopes[1]) / curve < 0.005, "shift of the estimated noise"


def test_coloured_noise_has_the_joint_density_of_its_path(float64):
    """x' = g x + w + σ n, n an autoregression that starts at zero: a linear map of normal numbers."""
    system = as_float64(Gain())
    gain, sd, memory = 0.6, float(system.transition(*at(system)).scale[0, 0]), (0.5, -0.3)
    rng = np.random.default_rng(3)
    level, push = np.zeros(STEPS), 0.3 * rng.standard_normal(STEPS)
    noise = rng.standard_normal(STEPS - 1)
    colour = np.linalg.inv(
        np.eye(STEPS - 1) - memory[0] * np.eye(STEPS - 1, k=-1) - memory[1] * np.eye(STEPS - 1, k=-2)
    )
    for t, one in enumerate(sd * colour @ noise):
        level[t + 1] = gain * level[t] + push[t] + one
    likelihood = Likelihood(system, rows_of(system, bound(system, level[:, None], push[:, None], (True,))))
    law = white(1)
    law = ResidualLaw(law.memory.at[0, :2].set(jnp.asarray(memory)), law.level, law.mixing, law.tail)
    here = Parameters((jnp.asarray([gain]) - likelihood.centre) / likelihood.spread, jnp.zeros(1), law)
    lines = np.asarray(log_scores(likelihood, here)[0])[: STEPS - 1]
    loop = np.linalg.inv(np.eye(STEPS - 1) - gain * np.eye(STEPS - 1, k=-1))
    covariance = sd**2 * loop @ colour @ colour.T @ loop.T
    factor = np.linalg.cholesky(covariance)
    rest = np.linalg.solve(factor, level[1:] - loop @ push[:-1])
    truth = stats.norm.logpdf(rest).sum() - np.log(np.diag(factor)).sum()
    assert abs(lines.sum() - truth) < 1e-8


def at(system):
    """Arguments of a transition."""
    return system.prior.secrets[0], system.initial(system.prior.secrets[0]).mean, system.first_external()


def test_after_a_gap_the_noise_begins_anew_and_what_is_hidden_may_be_elsewhere(float64):
    """The envelope is expected where it was, with ten times the uncertainty of a start."""
    system, secret, states, inputs = house_path(4)

    def lines(states, inputs, cuts=(), memory=(0.0, 0.0, 0.0)):
        log = bound(system, states, inputs, (True, False), cuts=cuts)
        data, law = rows_of(system, log), white(1)
        law = ResidualLaw(law.memory.at[0, :3].set(jnp.asarray(memory)), law.level, law.mixing, law.tail)
        likelihood = Likelihood(system, data)
        here = Parameters((secret - likelihood.centre) / likelihood.spread, jnp.zeros(2), law)
        return np.asarray(log_scores(likelihood, here)[0])[np.asarray(data.used)]

    whole = lines(states, inputs, (17,))
    assert np.allclose(whole[:16], lines(states[:17], inputs[:17]), atol=1e-12)
    *_, end = textbook_filter(system, secret, states[:17], inputs[:17], 0.0).T
    found = textbook_filter(system, secret, states[17:], inputs[17:], 0.0, envelope=end[1], wider=10.0)
    mean, variance = found[:, :-1]
    assert np.allclose(whole[16:], stats.norm.logpdf(states[18:, 0], mean, np.sqrt(variance)), atol=1e-9)
    coloured = lines(states, inputs, (17,), (0.3, 0.2, 0.1))
    assert np.isclose(coloured[16], whole[16], atol=1e-9), "no error is remembered over a gap"
    assert not np.isclose(coloured[17], whole[17])


@pytest.mark.parametrize("tail", [0.0, 0.05, 0.3])
def test_standard_densities_are_those_of_scipy(tail, float64):
    places = np.linspace(-8, 8, 33)
    truth = stats.norm.logpdf(places) if tail == 0 else stats.t.logpdf(places, 1 / tail)
    found = standard_log_density(jnp.asarray(places)[:, None], jnp.asarray([tail]))[:, 0]
    assert np.allclose(found, truth, atol=1e-10)


def made_model(step=0.0, tail=0.0, steps=300, seed=5):
    """A self-model of the building with all parts of its law, and readings that its own noise made."""
    system = as_float64(Building())
    law = ResidualLaw(
        jnp.zeros((1, LONGEST)).at[0, :2].set(jnp.asarray([0.4, -0.2])),
        jnp.asarray([[0.2]]),
        jnp.zeros(0),
        jnp.asarray([tail]),
    )
    sensor = Sensor((True, False), jnp.asarray([step, 0.0]), step > 0)
    model = SelfModel(system, system.prior.secrets[3], sensor, law, jnp.asarray([20.5]), jnp.asarray([0.5]))
    external = jnp.asarray(house_path(seed, 2)[3][0])

    def run(memory, noise):
        memory, reading = model.invert(memory, external, noise)
        return memory, reading

    noise = jr.normal(jr.key(seed), (steps, 1))
    first = jnp.asarray([20.5, 15.0])
    _, readings = jax.lax.scan(run, model.begin(first), noise)
    return model, external, first, np.asarray(noise), readings


def whitened(model, external, first, readings, seed=9):
    """Noise and log densities of readings."""

    def run(memory, now):
        found = model.whiten(memory, external, *now)
        return found.memory, (found.noise, found.log_density)

    uniform = jr.uniform(jr.key(seed), (len(readings), len(model.sensor.axes)))
    last, found = jax.lax.scan(run, model.begin(first), (readings, uniform))
    return last, np.asarray(found[0]), np.asarray(found[1])


@pytest.mark.parametrize("tail", [0.0, 0.2])
def test_exact_readings_return_the_noise_that_made_them(tail, float64):
    model, external, first, noise, readings = made_model(tail=tail)
    found = whitened(model, external, first, readings)[1]
    assert np.allclose(found, noise, atol=1e-6)


@pytest.mark.parametrize(("step", "tail"), [(0.05, 0.0), (0.4, 0.0), (0.4, 0.2)])
def test_rounded_readings_become_independent_normal_numbers_and_come_back_from_them(step, tail, float64):
    model, external, first, _, readings = made_model(step, tail, steps=1500)
    noise = whitened(model, external, first, readings)[1][:, 0]
    assert stats.kstest(noise, "norm").pvalue > 0.01
    lags = [abs(np.mean(noise[k:] * noise[:-k])) for k in (1, 2, 3)]
    assert max(lags) < 3.5 / np.sqrt(len(noise))

    def back(memory, now):
        memory, reading = model.invert(memory, external, now)
        return memory, reading[0]

    again = jax.lax.scan(back, model.begin(first), jnp.asarray(noise)[:, None])[1]
    assert np.allclose(again, readings[:, 0], atol=1e-9), "the same cell"


def test_whitening_step_by_step_is_the_likelihood_of_the_whole_recording(float64):
    model, external, first, _, readings = made_model(tail=0.2, steps=60)
    rows = np.concatenate([np.asarray(first)[None], np.asarray(readings)])
    log = bound(model.system, rows, np.tile(np.asarray(external), (61, 1)), (True, False))
    likelihood = Likelihood(model.system, rows_of(model.system, log))
    scale = model.spread[0] / likelihood.sd[0]  # the law is in the units of the model
    assert np.isfinite(float(scale))
    law = ResidualLaw(model.law.memory, jnp.zeros((1, 1)), model.law.mixing, model.law.tail)
    plain = SelfModel(model.system, model.secret, model.sensor, law, model.centre, model.spread)
    here = Parameters((model.secret - likelihood.centre) / likelihood.spread, jnp.zeros(2), law)
    lines = np.asarray(log_scores(likelihood, here)[0])[:60]
    assert np.allclose(whitened(plain, external, first, readings)[2], lines, atol=1e-9)


def test_two_coordinates_are_whitened_together_and_come_back(float64):
    """Speed and spacing of a driver, with noise that they share: all steps at once, one by one, and back."""
    system = as_float64(Driver())
    law = ResidualLaw(
        jnp.zeros((2, LONGEST)).at[:, 0].set(jnp.asarray([0.5, -0.3])),
        jnp.zeros((2, 2)),
        jnp.asarray([0.7]),
        jnp.zeros(2),
    )
    sensor = Sensor((True, True, False), jnp.zeros(3), False)
    secret, external = system.prior.secrets[1], jnp.asarray([15.0, 20.0, 15.5, 3.0])
    model = SelfModel(system, secret, sensor, law, jnp.zeros(2), jnp.ones(2))
    first, noise = jnp.asarray([15.0, 22.0, 0.0]), jr.normal(jr.key(1), (30, 2))

    def make(memory, now):
        return model.invert(memory, external, now)

    readings = jax.lax.scan(make, model.begin(first), noise)[1]
    _, found, densities = whitened(model, external, first, readings)
    assert np.allclose(found, noise, atol=1e-9)
    rows = np.concatenate([np.asarray(first)[None], np.asarray(readings)])
    log = bound(system, rows, np.tile(np.asarray(external), (31, 1)), sensor.seen)
    likelihood = Likelihood(system, rows_of(system, log))
    here = Parameters((secret - likelihood.centre) / likelihood.spread, jnp.zeros(3), law)
    lines, batch = (np.asarray(one)[:30] for one in log_scores(likelihood, here)[:2])
    assert np.allclose(batch, noise, atol=1e-9) and np.allclose(lines, densities, atol=1e-9)


def test_a_saved_memory_goes_on_with_the_same_numbers(float64):
    model, external, first, _, readings = made_model(steps=40)
    last, noise, _ = whitened(model, external, first, readings)
    half, _, _ = whitened(model, external, first, readings[:20])
    row = np.asarray(model.pack(half)).copy()
    memory = model.unpack(jnp.asarray(row))
    step = jax.jit(lambda memory, reading: model.whiten(memory, external, reading, jnp.zeros(1)))
    for t in range(20, 40):
        found = step(memory, readings[t])
        assert np.allclose(found.noise, noise[t], atol=1e-12)
        memory = found.memory
    assert np.allclose(model.pack(memory), model.pack(last), atol=1e-12)


def test_the_first_reading_is_whitened_by_the_initial_law(float64):
    model = made_model(steps=2)[0]
    start = model.system.initial(model.secret)
    found = model.whiten_first(jnp.asarray([21.0, 0.0]), jnp.asarray([0.3]))
    sd = float(start.scale[0, 0])
    assert np.allclose(found.noise, (21.0 - float(start.mean[0])) / sd)
    assert np.allclose(found.log_density, stats.norm.logpdf(21.0, float(start.mean[0]), sd))


def test_a_step_that_was_not_read_widens_the_next_prediction(float64):
    model, external, first, _, _ = made_model(steps=2)
    memory = model.begin(first)
    after = model.skip(memory, external)
    law = model.system.transition(model.secret, first, external)
    assert np.allclose(after.known.mean, law.mean)
    assert float(after.known.covariance[0, 0]) > float(law.scale[0, 0]) ** 2


def test_recordings_of_similar_length_share_a_program():
    assert [padded_length(n) for n in (1, 64, 65, 97, 129, 193, 1000)] == [64, 64, 96, 128, 192, 256, 1024]

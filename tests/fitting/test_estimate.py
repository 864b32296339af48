"""Estimates, standard errors, rivals and populations against closed forms and repeated draws."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import veil
from tests.shaky import Shaky
from veil.fitting.estimate import (
    Likelihood,
    _local,
    _Map,
    _objective,
    estimate_white,
    ravel,
    uncertainty,
    unravel,
)
from veil.fitting.examine import examine, gaussianised, rival_of, rivals_of, towards
from veil.fitting.fitted import as_well_known, autocovariance, fitted_system, self_model
from veil.fitting.population import population
from veil.fitting.predictor import rows_of
from veil.laws import diagonal_gaussian
from veil.policies import Twin
from veil.recordings.bound import Bound, bind
from veil.recordings.bound import Rows as TimeRows
from veil.results.fit import Family, Rival
from veil.settings import FitSettings
from veil.systems import Driver, Gain, IdmDriver
from veil.systems.base import Field, System
from veil.systems.variants import Variant, WithNoise
from veil.types import as_float64


def loop(gain, steps, seed, step=0.0):
    """Levels and pushes of x' = gain x + push + noise, as a recording."""
    rng = np.random.default_rng(seed)
    push, level = 0.3 * rng.standard_normal(steps), np.zeros(steps)
    for t in range(steps - 1):
        level[t + 1] = gain * level[t] + push[t] + 0.3 * rng.standard_normal()
    if step:
        level = np.round(step * np.round(level / step), 6)
    return level, push, veil.read_recording({"level": level, "push": push}, Gain())


def test_the_estimate_of_a_linear_loop_is_least_squares_with_its_standard_error():
    level, push, log = loop(0.7, 400, 1)
    found = veil.fit(Gain(), log).individuals[0]
    goal, past = level[1:] - push[:-1], level[:-1]
    slope = float(goal @ past / (past @ past))
    rest = goal - slope * past
    error = np.sqrt(rest @ rest / (len(goal) - 2) / (past @ past))
    (one,) = found.parameters
    assert found.family.order == 0 and not found.family.heavy
    assert abs(one.value - slope) < 1e-4 * error
    assert abs(one.standard_error / error - 1) < 1e-3
    assert one.interval is not None
    assert np.allclose(one.interval, slope + 1.96 * error * np.array([-1, 1]), atol=2e-3 * error)
    assert not one.skewed
    assert abs(found.noise[0].value - np.sqrt(rest @ rest / len(goal))) < 1e-3


def test_a_coarse_sensor_does_not_move_the_estimates():
    """Steps of one sd of the noise: whoever takes the readings as exact finds noise that is too large."""
    level, push, log = loop(0.7, 3000, 2, step=0.3)
    found = veil.fit(Gain(), log).individuals[0]
    (one,) = found.parameters
    assert abs(one.value - 0.7) < 3 * one.standard_error
    assert abs(found.noise[0].value - 0.3) < 3 * found.noise[0].standard_error
    rest = level[1:] - push[:-1] - 0.7 * level[:-1]
    assert rest.std() > 0.3 + 3 * found.noise[0].standard_error, "rounding is not small here"
    assert found.explained, found.examination.reasons


def test_derivatives_of_the_likelihood_are_those_of_the_whole_formula(float64):
    """By blocks and the chain rule, against automatic derivatives of the sum over all steps at once."""
    system, rng = as_float64(Driver()), np.random.default_rng(3)
    states = np.array([15.0, 20.0, 0.0]) + 0.3 * rng.standard_normal((150, 3))
    external = np.array([15.0, 20.0, 15.5, 0.0]) + 0.3 * rng.standard_normal((150, 4))
    parts = tuple(TimeRows(states[a:b], external[a:b]) for a, b in ((0, 63), (63, 150)))
    data = rows_of(system, Bound("made", parts, (True, True, False), False, (0.05, 0.2, 0.0)))
    assert data.sensor.rounded and not data.fine and len(data.used) == 192
    likelihood = Likelihood(system, data)
    weights = jnp.asarray(np.asarray(data.used) & (np.arange(192) < 134), float)
    row = jnp.asarray(ravel(likelihood.start()) + 0.2 * rng.standard_normal(len(ravel(likelihood.start()))))
    row = row.at[-2:].set(jnp.asarray([0.15, 0.0]))  # one axis with heavy tails

    @jax.jit
    def truth(row):
        here = unravel(likelihood.start(), row)
        base, slope = jax.linearize(likelihood.forecasts, here.secret, here.log_noise)

        def whole(one):
            there = unravel(likelihood.start(), one)
            away = slope(there.secret - here.secret, there.log_noise - here.log_noise)
            found = jax.tree.map(jnp.add, base, away)
            return _objective(likelihood.by_step(found, there.law)[0], there.log_noise, weights)

        return whole(row), jax.grad(whole)(row), jax.hessian(whole)(row)

    found, expected = _local(likelihood.until(weights), row, weights), truth(row)
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, rtol=1e-8, atol=1e-10)


def test_a_fit_does_not_depend_on_who_computes_it_and_hardly_on_who_else_is_in_the_file(float64):
    short, long = loop(0.7, 200, 1)[2], loop(0.4, 300, 2)[2]
    here, there = veil.fit(Gain(), [short, long]), veil.fit(Gain(), [short, long], executor=Shaky(loses=0.3))
    assert json.dumps(here.to_dict()) == json.dumps(there.to_dict())
    alone = veil.fit(Gain(), short).individuals[0]
    (one,), (other,) = here.individuals[0].parameters, alone.parameters
    assert abs(one.value - other.value) < 1e-6 and abs(one.standard_error - other.standard_error) < 1e-6
    assert abs(here.individuals[0].score - alone.score) < 1e-6


def test_smooth_maps_keep_limits_and_know_their_derivatives():
    low, high = np.array([0.0, -1.0, -np.inf, -np.inf]), np.array([np.inf, 2.0, 3.0, np.inf])
    range_, u = _Map(low, high), np.array([0.3, -0.7, 1.1, 5.0])
    value, first, second = range_.inside(u)
    assert np.all(value > low) and np.all(value < high)
    assert np.allclose(range_.line(value), u)
    ahead, behind = range_.inside(u + 1e-5), range_.inside(u - 1e-5)
    assert np.allclose(first, (ahead[0] - behind[0]) / 2e-5, atol=1e-8)
    assert np.allclose(second, (ahead[1] - behind[1]) / 2e-5, atol=1e-8)


@pytest.mark.parametrize("memory", [(0.6, -0.3), (1.2, 0.1), (0.0, 1.4)])
def test_autocovariances_solve_the_yule_walker_equations_after_growing_noise_is_damped(memory):
    found = autocovariance(np.array(memory))
    radius = max(np.abs(np.roots([1.0, -memory[0], -memory[1]])).max(), 0.98) / 0.98
    first, second = memory[0] / radius, memory[1] / radius**2
    equations = np.array([[1.0, -first, -second], [-first, 1.0 - second, 0.0], [-second, -first, 1.0]])
    truth = np.linalg.solve(equations, [1.0, 0.0, 0.0])
    assert np.allclose(found, truth, rtol=1e-3)


def test_a_population_with_equal_errors_is_shrunk_by_the_closed_form():
    """With equal covariances C the estimate of the spread is the sample covariance minus C."""
    rng = np.random.default_rng(4)
    truth, errors = rng.standard_normal((400, 2)) @ [[1.0, 0.5], [0.0, 0.8]], np.diag([0.3, 0.1])
    values = truth + rng.standard_normal((400, 2)) @ np.sqrt(errors)
    fields = (Field("one", ""), Field("two", ""))
    law = population(values, np.tile(errors, (400, 1, 1)), fields, 16)
    between = np.cov(values.T, bias=True) - errors
    assert np.allclose(law.mean, values.mean(0), atol=1e-3)
    assert np.allclose(law.covariance, between, atol=0.02 * between.max())
    gain = between @ np.linalg.inv(between + errors)
    assert np.allclose(law.shrunk, values.mean(0) + (values - values.mean(0)) @ gain.T, atol=0.02)
    closer = np.mean((law.shrunk - truth) ** 2, 0) < np.mean((values - truth) ** 2, 0)
    assert closer.all()


def test_parameters_drawn_to_the_population_are_scored_against_ones_own():
    """Six loops with one gain, 90 steps each. The score of a gain from the first part is a closed form."""
    logs = [loop(0.7, 91, 20 + number) for number in range(6)]
    found = veil.fit(Gain(), [log for *_, log in logs]).individuals
    own, common, gains = [], [], []
    for level, push, _ in logs:
        goal, past = level[1:] - push[:-1], level[:-1]
        own.append(goal[:63] @ past[:63] / (past[:63] @ past[:63]))
    for (level, push, _), slope, one in zip(logs, own, found, strict=True):
        goal, past = level[1:] - push[:-1], level[:-1]
        size = np.mean((goal[:63] - slope * past[:63]) ** 2)
        squares = [np.sum((goal[63:] - each * past[63:]) ** 2) for each in (slope, np.mean(own))]
        common.append((squares[0] - squares[1]) / (2.0 * size))
        (rival,) = [each for each in one.rivals if each.name == "parameters drawn to the population"]
        gains.append(rival.gain * rival.steps)
        assert one.family.order == 0
    assert np.corrcoef(gains, common)[0, 1] > 0.9


def test_the_error_of_a_short_fit_is_not_taken_for_a_wrong_model():
    """The size of the noise is estimated from 50 steps and examined on 100 others, 400 times."""
    rng, level, times = np.random.default_rng(8), 0.05, 400
    rejected = dict.fromkeys(["calibration of level", "size of level"], 0)
    for _ in range(times):
        seen = rng.standard_normal((150, 1))
        noise = (seen[50:] - seen[:50].mean()) / seen[:50].std()
        for one in examine(noise, 50, ["level"], None, ()):
            if one.test in rejected:
                rejected[one.test] += one.p < level
    assert max(rejected.values()) / times < level + 3 * np.sqrt(level / times), rejected


def test_right_models_are_rejected_at_most_at_the_level():
    """White noise, 400 times: each test and all of them together."""
    level, rejected, times = 0.05, 0, 400
    rng, held = np.random.default_rng(5), np.arange(300) >= 210
    for _ in range(times):
        noise, inputs = rng.standard_normal((300, 1)), rng.standard_normal((300, 2))
        noise[:210] -= noise[:210].mean()  # as if a constant had been estimated
        rivals = rivals_of(noise, inputs, held, None)
        tests = examine(noise[held], 210, ["level"], None, rivals)
        rejected += min(one.p for one in tests) * len(tests) < level
    assert rejected / times < level + 3 * np.sqrt(level / times)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("square of the input", "a quadratic regression"),
        ("tenth error before", "a longer memory"),
        ("input three steps ago", "past states and inputs"),
        ("size", "noise of changing size"),
        ("day", "a season"),
    ],
)
def test_each_rival_finds_what_it_is_made_for(kind, name):
    rng, steps = np.random.default_rng(6), 1000
    noise, inputs = rng.standard_normal((steps, 1)), rng.standard_normal((steps, 2))
    if kind == "square of the input":
        noise[:, 0] += 0.4 * (inputs[:, 0] ** 2 - 1)
    if kind == "tenth error before":
        for t in range(10, steps):
            noise[t] += 0.45 * noise[t - 10]
    if kind == "input three steps ago":
        noise[3:, 0] += 0.4 * inputs[:-3, 1]
    if kind == "size":
        noise[:, 0] *= np.exp(0.4 * inputs[:, 1])
    if kind == "day":
        noise[:, 0] += 0.6 * np.sin(2 * np.pi * np.arange(steps) / 24)
    held = np.arange(steps) >= 700
    rivals = {one.name: one for one in rivals_of(noise, inputs, held, 3600.0)}
    assert rivals[name].p < 1e-4, rivals
    assert rivals[name].gain > 0.03


def test_a_rival_cannot_reject_by_a_gain_that_the_likelihood_ratio_does_not_support():
    tiny = rival_of("steady and small", np.full(300, 1e-3) + 1e-5 * np.sin(np.arange(300)))
    assert tiny.gain / tiny.standard_error > 100
    assert tiny.p == pytest.approx(np.exp(-0.3), rel=1e-3)
    assert Rival("none", -0.1, 0.01, 300).p == 1.0


def test_rounded_and_heavy_tailed_noise_becomes_standard_normal():
    rng = np.random.default_rng(7)
    exact = rng.standard_t(4, (4000, 1))
    half = np.full_like(exact, 0.6)
    rounded = 1.2 * np.round(exact / 1.2)
    found = gaussianised(rounded, half, np.array([0.25]), 0)[:, 0]
    assert stats.kstest(found, "norm").pvalue > 0.01
    taken_as_exact = gaussianised(rounded, 0 * half, np.array([0.25]), 0)[:, 0]
    assert stats.kstest(taken_as_exact, "norm").pvalue < 1e-6
    assert stats.kstest(gaussianised(rounded, half, np.array([0.0]), 0)[:, 0], "norm").pvalue < 1e-4


class Reversed(Variant):
    """The same loop, pushed the other way."""

    inner: System

    def __init__(self, inner: System):
        self.inner = inner

    @property
    def prior(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.prior

    def initial(self, secret):
        return self.inner.initial(secret)

    def transition(self, secret, state, external):
        return self.inner.transition(secret, state, -external)


class WithRival(Reversed):
    """The loop itself, which names the other one as a law of motion that it might be taken for."""

    def __init__(self, inner: System):
        super().__init__(inner)

    def transition(self, secret, state, external):
        return self.inner.transition(secret, state, external)

    def misspecified_models(self):
        return {"pushed the other way": Reversed(self.inner)}


def test_another_law_is_compared_on_all_steps_that_come_after_those_it_was_fitted_to():
    """Least squares: of the other law on the first 20, 30, 50 and 70 %, of the model on all steps."""
    level, push, log = loop(0.7, 1001, 5)
    found = veil.fit(WithRival(Gain()), log).individuals[0]
    assert found.family.order == 0 and not found.family.heavy and not found.family.level

    def least_squares(sign, steps):
        goal, past = level[1:] - sign * push[:-1], level[:-1]
        slope = goal[:steps] @ past[:steps] / (past[:steps] @ past[:steps])
        rest = goal - slope * past
        return sign * push[:-1] + slope * past, np.sqrt(np.mean(rest[:steps] ** 2)), level[1:]

    own, sd, after = least_squares(1.0, 1000)
    apart = np.zeros(1000)
    for begin, end in ((200, 300), (300, 500), (500, 700), (700, 1000)):
        apart[begin:end] = ((least_squares(-1.0, begin)[0] - own) / sd)[begin:end]
    unlike = apart - level[:-1] * (apart @ level[:-1]) / (level[:-1] @ level[:-1])
    score = (after - own) / sd @ apart / np.linalg.norm(unlike)
    rival = {one.name: one for one in found.rivals}["pushed the other way"]
    assert rival.score == pytest.approx(score, rel=2e-3)
    scores = [stats.norm.logpdf(after, *least_squares(sign, 700)[:2])[700:] for sign in (1.0, -1.0)]
    gains = scores[1] - scores[0]
    assert rival.steps == len(gains) == 300
    assert abs(rival.gain - gains.mean()) < 0.01 * rival.standard_error


def test_a_law_that_is_near_is_found_more_often_by_its_differences_than_by_its_gain():
    """Regression on x against regression on x and a bent x, 500 times: the level, and the power of both."""
    rng, steps, level = np.random.default_rng(12), 400, 0.05
    rejected = {"right": 0, "by score": 0, "by gain": 0}
    for _ in range(500):
        x = rng.standard_normal(steps)
        bend, noise = 0.1 * (x**2 - 1) + 0.3 * x, rng.standard_normal(steps)
        for wrong in (False, True):
            seen = noise + bend * wrong
            slope = x @ seen / (x @ x)
            size = np.sqrt(np.mean((seen - slope * x) ** 2))
            z, apart = (seen - slope * x) / size, (bend - slope * x) / size
            score = towards(
                z[:, None], apart[:, None], x[:, None, None] / size, np.array([[x @ x]]) / size**2
            )
            p = stats.norm.sf(score)
            if wrong:
                rejected["by score"] += int(p < level)
                rejected["by gain"] += int(np.exp(-np.sum(z * apart - 0.5 * apart**2)) < level)
            else:
                rejected["right"] += int(p < level)
    error = 3 * np.sqrt(level / 500)
    assert abs(rejected["right"] / 500 - level) < error, rejected
    assert rejected["by score"] > rejected["by gain"] + 50, rejected


def test_the_second_chance_of_a_law_of_motion_is_paid_for():
    assert Rival("a", 0.0, 0.1, 100, 3.0).p == pytest.approx(2 * stats.norm.sf(3.0))
    assert Rival("a", 0.1, 0.1, 100, 0.0).p == pytest.approx(2 * np.exp(-10.0))
    assert Rival("a", -0.1, 0.1, 100, -5.0).p == 1.0


class Bent(Gain):
    """x' = θ1² x + θ2 w + sd ε: the likelihood of θ1 is not a parabola near zero."""

    secret_fields = (Field("root", "", 0.0, 1.0), Field("share"))

    def transition(self, secret, state, external):
        return diagonal_gaussian(secret[0] ** 2 * state + secret[1] * external, self.sd[None])


@pytest.mark.parametrize("seed", [1, 4])
def test_where_the_likelihood_is_no_parabola_intervals_invert_the_likelihood_ratio(seed, float64):
    """Both parameters on a fine grid, the size of the noise in closed form; they are correlated."""
    rng, steps = np.random.default_rng(seed), 151
    level, push = np.zeros(steps), np.zeros(steps)
    for t in range(steps - 1):
        push[t] = -0.5 * level[t] + 0.3 * rng.standard_normal()
        level[t + 1] = 0.05 * level[t] + push[t] + 0.3 * rng.standard_normal()
    system = as_float64(Bent(prior=veil.systems.finite_prior([(0.1, 0.5), (0.3, 1.0), (0.5, 1.5)])))
    table = {"level": level, "push": push}
    likelihood = Likelihood(system, rows_of(system, bind(system, veil.read_recording(table, system))))
    weights = jnp.asarray(np.asarray(likelihood.data.used), float)
    estimate = estimate_white(likelihood, weights)
    found = uncertainty(likelihood, estimate, likelihood.free(Family()), weights)

    squares, shares = np.linspace(0.0, 1.0, 1001)[:, None] ** 2, np.linspace(0.0, 2.0, 1001)[None]
    x, w, after = level[:-1], push[:-1], level[1:]
    rest = after @ after + squares**2 * (x @ x) + shares**2 * (w @ w)
    rest = rest - 2 * squares * (x @ after) - 2 * shares * (w @ after) + 2 * squares * shares * (x @ w)
    height = 0.5 * (steps - 1) * np.log(rest)
    values, few = np.asarray(likelihood.secret(estimate)), np.sqrt(150 / 147)
    for place, grid in enumerate((np.sqrt(squares[:, 0]), shares[0])):
        profile = height.min(axis=1 - place) - height.min()
        inside = grid[profile < 0.5 * stats.norm.ppf(0.975) ** 2]
        truth = np.maximum(values[place] + few * (inside[[0, -1]] - values[place]), 0.0)
        length = truth[1] - truth[0]
        assert np.allclose(found.interval[place], truth, atol=(0.05, 0.1)[place] * length), (place, truth)
    assert abs(found.interval[0].mean() - values[0]) > 0.02, "it is skewed"


@pytest.fixture(scope="module")
def drivers():
    """Two drivers of the Intelligent Driver Model, and the fit of another law of motion to them."""
    from veil.systems.driver import stop_and_go
    from veil.systems.probes import true_data_path

    quiet = Driver(series=stop_and_go(701), coloured_sd=0.02, acceleration_sd=0.02)
    plant, logs = IdmDriver(quiet), []
    play = jax.jit(lambda number: true_data_path(plant, 700, number=number, key=jax.random.key(3)))
    for number in (1, 2):
        states, external = (np.asarray(one, float) for one in play(np.int32(number)))
        table = {"speed": states[:-1, 0], "spacing": states[:-1, 1], "automated_speed": external[:, 0]}
        logs.append(veil.read_recording(table, quiet))
    return quiet, veil.fit(quiet, logs, FitSettings(seed=1))


def test_another_law_of_motion_is_found_by_the_rivals_that_the_system_names(drivers):
    for one in drivers[1].individuals:
        assert not one.explained
        rival = {each.name: each for each in one.rivals}["drivers are IDM"]
        assert rival.p < 1e-6 and rival.gain > 0.02
        assert "parameters drawn to the population" in {each.name for each in one.rivals}


def test_the_self_model_of_a_fit_has_the_estimates_and_the_sensor_of_one_individual(drivers):
    system, fit = drivers
    name = fit.individuals[0].name
    with pytest.raises(ValueError, match="Say whose"):
        self_model(system, fit)
    model = self_model(system, fit, name)
    assert model.sensor.seen == (True, True, False)
    assert np.allclose(model.secret, fit.individuals[0].values, rtol=1e-6)
    assert len(fitted_system(system, fit).prior.secrets) == FitSettings().candidates
    assert json.dumps(fit.to_dict())


def test_owners_of_a_twin_know_themselves_as_well_as_the_fit_does(float64):
    """Errors of their parameters and of the size of their noise have the spread that the fit states."""
    found = veil.fit(Gain(), loop(0.6, 400, 3)[2])
    one = found.individuals[0]
    many = veil.systems.finite_prior(np.linspace(0.3, 0.7, 400))
    twin = as_well_known(Twin(as_float64(Gain(prior=many))), found)
    assert twin.models is not None and twin.preroll == 0
    off = np.asarray(twin.models.secret)[:, 0] - np.asarray(many.secrets)[:, 0]
    assert abs(off.std() / one.parameters[0].standard_error - 1.0) < 4.0 / np.sqrt(800)
    assert isinstance(twin.models.system, WithNoise)
    size = np.log(np.asarray(twin.models.system.factor)[:, 0])
    stated = one.noise[0].standard_error / one.noise[0].value
    assert abs(size.std() / stated - 1.0) < 4.0 / np.sqrt(800)
    own = twin.self_model(many.secrets[7])
    assert float(own.secret[0]) == float(twin.models.secret[7, 0]), "each owner uses its own"

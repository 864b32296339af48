"""Learning along the stream: against batch regression, its closed forms, and the exact reader."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.attacks.twin_reader import TwinReader
from veil.beliefs.online import learner
from veil.beliefs.self_model import ResidualLaw, SelfModel, Sensor, white
from veil.evaluation.episodes import play_episodes, private_key
from veil.evaluation.scoring import APART, TwoSidedBound, score
from veil.policies import Twin
from veil.policies.twin import TwinSettings
from veil.stats import stratified_mean
from veil.systems import Gain, Platoon, finite_prior
from veil.systems.base import Scenario


def in_turn(prior, features, errors):
    """Posterior, and mean and sd of each error, one after the other."""

    @eqx.filter_jit
    def run(prior, features, errors):
        def step(learned, now):
            return learned.after(*now), learned.correction(now[0])

        return jax.lax.scan(step, prior, (features, errors))

    return run(prior, jnp.asarray(features), jnp.asarray(errors))


def test_learning_in_turn_is_bayesian_linear_regression_in_one_go(float64):
    rng = np.random.default_rng(0)
    features, errors = rng.normal(size=(40, 2, 3)), rng.normal(size=(40, 2))
    known, (means, sds) = in_turn(learner([0.5, 1.0, 2.0], 2, readings=7.0).start, features, errors)
    for place in range(2):
        x, y = features[:, place], errors[:, place]
        precision = np.diag([4.0, 1.0, 0.25])
        covariance = np.linalg.inv(precision + x.T @ x)
        mean = covariance @ x.T @ y
        shape = 1.5 + 3.5 + 20.0
        rate = 1.5 + 3.5 - 1.0 + 0.5 * (y @ y - mean @ (precision + x.T @ x) @ mean)
        np.testing.assert_allclose(known.covariance[place], covariance, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(known.mean[place], mean, rtol=1e-9)
        np.testing.assert_allclose(known.shape[place], shape, rtol=1e-9)
        np.testing.assert_allclose(known.rate[place], rate, rtol=1e-9)
        # The next error is Student-t; the prediction has its mean and sd.
        ahead = rng.normal(size=3)
        law = stats.t(2 * shape, ahead @ mean, np.sqrt(rate / shape * (1 + ahead @ covariance @ ahead)))
        one = jax.tree.map(lambda leaf, place=place: leaf[place], known)
        np.testing.assert_allclose(one.correction(jnp.asarray(ahead)), [law.mean(), law.std()], rtol=1e-9)
    np.testing.assert_allclose([means[0], sds[0] ** 2 - 1.0], [[0, 0], (features[0] ** 2) @ [0.25, 1, 4]])


def test_the_excess_grows_like_a_logarithm(float64):
    count, numbers, size, known_size = 4000, 3, 200, 1e9
    rng = np.random.default_rng(1)
    features = rng.normal(size=(size, numbers))
    weights = rng.normal(size=(count, numbers))
    errors = weights @ features.T + rng.normal(size=(count, size))
    prior = learner(np.ones(numbers), 1, readings=known_size).start
    rows = np.broadcast_to(features[:, None], (size, 1, numbers))
    means, sds = jax.vmap(lambda row: in_turn(prior, rows, row[:, None])[1])(jnp.asarray(errors))
    means, sds = np.asarray(means)[..., 0], np.asarray(sds)[..., 0]
    right = stats.norm.logpdf(errors, weights @ features.T, 1.0)
    excess = np.cumsum(right - stats.norm.logpdf(errors, means, sds), axis=1)
    for steps in (20, 200):
        told = excess[:, steps - 1]
        some = features[:steps]
        truth = 0.5 * np.linalg.slogdet(np.eye(numbers) + some.T @ some)[1]
        assert abs(told.mean() - truth) < 4.0 * told.std() / np.sqrt(count)
    later = excess[:, 199] - excess[:, 19]
    law = 0.5 * numbers * np.log((1 + 200) / (1 + 20))
    assert abs(later.mean() - law) < 0.2 * law  # the rest is how this design differs from its mean


HALF = np.array(0.5)


def own_model(system, secret, seen, *, law=None, spread=HALF, **more):
    """The system at a secret as a self-model that learns."""
    count, size, own = sum(seen), len(system.state_fields), np.asarray(spread)
    usual = system.initial(jnp.asarray(secret)).mean[jnp.asarray(np.flatnonzero(seen))]
    return SelfModel(
        *(system, jnp.asarray(secret), Sensor(seen, jnp.zeros(size), False)),
        *(law or white(count), usual, jnp.ones(count)),
        heavy=False,
        learner=learner(own if own.ndim else np.full(len(secret), own), count, **more),
    )


@pytest.mark.parametrize(("keep", "level"), [(0.0, 0.0), (0.7, 0.1)])
def test_what_is_learned_is_the_regression_on_the_parameter_also_where_noise_has_memory(float64, keep, level):
    rng, steps = np.random.default_rng(2), 60
    w, noise, x = rng.normal(size=steps), 0.0, np.zeros(steps)
    for t in range(steps - 1):
        noise = keep * noise + np.exp(level * x[t]) * rng.normal()
        x[t + 1] = 0.8 * x[t] + w[t] + 0.3 * noise
    law = ResidualLaw(
        jnp.zeros((1, 6)).at[0, 0].set(keep), jnp.full((1, 1), level), jnp.zeros(0), jnp.zeros(1)
    )
    model = own_model(Gain(), [0.5], (True,), law=law, spread=2.0 * np.ones(1), readings=10.0)
    learned, memory = eqx.filter_jit(model.learn)(jnp.asarray(x)[:, None], jnp.asarray(w)[:, None])
    # e = (x' − 0.5 x − w) / 0.3 without what it remembers, regressed on x / 0.3 without what that remembers
    score, slope = (x[1:] - 0.5 * x[:-1] - w[:-1]) / 0.3, x[:-1] / 0.3
    size = np.exp(level * x[:-1])
    e, own = (
        (score - keep * np.append(0, score[:-1])) / size,
        (slope - keep * np.append(0, slope[:-1])) / size,
    )
    precision = 1 / 4.0 + own @ own
    mean, shape = own @ e / precision, 1.5 + 5.0 + 0.5 * len(e)
    variance = (1.5 + 5.0 - 1.0 + 0.5 * (e @ e - mean**2 * precision)) / (shape - 1.0)
    assert memory.learned is not None and learned.learner is not None
    np.testing.assert_allclose(memory.learned.mean[0, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(memory.learned.covariance[0, 0, 0], 1 / precision, rtol=1e-6)
    assert abs(0.5 + mean - 0.8) < 4.0 / np.sqrt(precision)
    np.testing.assert_array_equal(learned.learner.start.mean, memory.learned.mean)
    # The law of the next reading has the mean and the sd of the regression's prediction.
    ahead, scale = x[-1] / 0.3 - keep * slope[-1], 0.3 * np.exp(level * x[-1])
    centre = 0.5 * x[-1] + 0.2 + 0.3 * (keep * score[-1] + ahead * mean)
    wide = np.sqrt(variance * (1 + (ahead / np.exp(level * x[-1])) ** 2 / precision))
    found = eqx.filter_jit(model.whiten)(memory, jnp.full(1, 0.2), jnp.full(1, 0.9), jnp.full(1, 0.5))
    np.testing.assert_allclose(found.log_density, stats.norm.logpdf(0.9, centre, scale * wide), rtol=1e-6)


def test_noise_becomes_the_reading_again_and_the_memory_is_the_same(float64):
    spread = np.full(2 + 1 + 2 + 3, 0.4)  # two gains, a constant, two readings, three inputs
    rough = ResidualLaw(jnp.full((2, 6), 0.1), jnp.full((2, 2), 0.05), jnp.full(1, 0.3), jnp.zeros(2))
    model = own_model(Platoon(), [0.7, 0.8], (True, True), law=rough, spread=spread, linear=True)
    rng = np.random.default_rng(3)
    external = np.array([15.0, 15.0, 20.0]) + 0.3 * rng.normal(size=(8, 3))

    @eqx.filter_jit
    def run(model, external, noise):
        def step(memory, now):
            after, reading = model.invert(memory, *now)
            found = model.whiten(memory, now[0], reading, jnp.full(2, 0.5))
            return found.memory, (found.noise, model.pack(after), model.pack(found.memory))

        return jax.lax.scan(step, model.begin(model.system.initial(model.secret).mean), (external, noise))[1]

    noise = jnp.asarray(rng.normal(size=(8, 2)))
    again, made, read = run(model, jnp.asarray(external), noise)
    np.testing.assert_allclose(again, noise, atol=1e-8)
    np.testing.assert_allclose(made, read, atol=1e-8)
    fields = model.unpack(read[-1])
    assert fields.learned is not None and float(jnp.max(jnp.abs(fields.learned.mean))) > 0.0


def test_the_density_is_that_of_the_noise_per_unit_of_the_reading(float64):
    model = own_model(Gain(), [0.5], (True,), readings=4.0)
    readings, external = np.random.default_rng(4).normal(size=(2, 7, 1))
    memory = model.learn(jnp.asarray(readings), jnp.asarray(external))[1]

    @eqx.filter_jit
    def noise(value):
        found = model.whiten(memory, jnp.ones(1), value[None], jnp.full(1, 0.5))
        return found.noise[0], found.log_density

    (z, line), slope = noise(jnp.asarray(0.3)), jax.grad(lambda x: noise(x)[0])(jnp.asarray(0.3))
    np.testing.assert_allclose(line, stats.norm.logpdf(z) + np.log(slope), rtol=1e-9)


@eqx.filter_jit
def read(reader, records, numbers, length, key):
    """The exact reader on all episodes."""

    def one(both):
        own = private_key(key, both[1])
        return reader(both[0], length, APART, play_key=own, key=jr.fold_in(jr.key(9), both[1]))

    return jax.lax.map(one, (records, numbers), batch_size=64)


def test_owners_who_err_learn_and_leak_less_than_their_excess_which_follows_the_law(float64):
    plant, steps, preroll, episodes = Gain(prior=finite_prior([0.3, 0.8])), 12, 30, 512
    believed = jnp.asarray([[0.5], [0.6]])
    models = [own_model(plant, np.asarray(one), (True,), spread=np.array(0.4)) for one in believed]
    twin, key, numbers = Twin(plant, models, believed, preroll=preroll), jr.key(6), np.arange(episodes)
    records = play_episodes(Scenario("learns", plant, believed), twin, preroll + steps, numbers, key=key)
    reader = TwinReader(plant, twin, believed)
    told = read(reader, records, jnp.asarray(numbers, jnp.int32), preroll + steps, key)
    index = np.asarray(records.index)
    sides = TwoSidedBound(told.runs, told.pinned, jnp.ones(episodes), jnp.full((episodes, 1), 0.5))
    leakage = score(sides, index, np.full(2, -np.log(2.0))).leakage
    excess = stratified_mean(np.asarray(told.excess), index, np.full(2, 0.5))
    slack = 4.0 * (leakage.upper.error + excess.error)
    assert leakage.lower.value - slack < leakage.upper.value < excess.value + slack
    # Two numbers, the gain and the size of the noise, and thirty steps of warm-up.
    assert abs(excess.value - np.log(1 + steps / preroll)) < 0.1 + 4.0 * excess.error
    # Who stays at a gain that is off by 0.2 has (0.2)² E[x²] / (2 · 0.3²) per step, with E[x²] above 0.3².
    assert excess.value + 4.0 * excess.error < steps * 0.5 * 0.2**2 * 2.0


def test_what_was_learned_is_in_the_private_memory_and_goes_into_the_next_run(float64):
    system = Gain(prior=finite_prior([0.3, 0.9]))
    twin = TwinSettings(learn=True, preroll=4).build(system)
    assert twin.start_by == "public" and TwinSettings(learn=True).build(system).preroll == 25

    @eqx.filter_jit
    def run(twin, readings, inputs):
        secret, key = jnp.full(1, 0.9), jr.key(0)
        memory = twin.init_memory(secret, readings[0], key=key)
        for now, after, w in zip(readings[:-1], readings[1:], inputs[:-1], strict=True):
            memory = twin.update_memory(memory, secret, now, w, after, key=key)
        last = twin.unpack(memory).own
        later = twin.unpack(twin.carried_memory(twin.coast_memory(memory, inputs[-1]))).own
        alone = twin.self_model(secret).learn(readings, inputs)[1]
        return last.learned, later.learned, alone.learned

    readings, inputs = np.random.default_rng(7).normal(size=(2, 3, 1))
    last, later, alone = run(twin, jnp.asarray(readings), jnp.asarray(inputs))
    for one, other, third in zip(*map(jax.tree.leaves, (last, later, alone)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_allclose(one, third, rtol=1e-9)
    assert float(last.shape[0]) == 1.5 + 0.5 * 10.0 + 0.5 * 2
    assert 0.0 < float(last.covariance[0, 0, 0]) < 0.3**2  # the prior's spread is 0.3


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="one spread"):
        learner([-1.0], 1)
    with pytest.raises(ValueError, match="number of readings"):
        learner([1.0], 1, readings=-1.0)

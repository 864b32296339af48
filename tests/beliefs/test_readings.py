import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.beliefs.readings import CellFilter
from veil.laws import Gaussian, to_grid
from veil.policies import Counterfactual
from veil.rollout import rollout
from veil.systems import Gain, Platoon, WithResolution, finite_prior, with_resolution
from veil.types import as_float64

MEAN, MOVE = np.asarray([0.2, -0.1]), np.asarray([[0.7, 0.2], [-0.3, 0.5]])
ROOT = np.asarray([[0.4, 0.0], [0.25, 0.3]])


class Pair(Gain):
    """Two coordinates whose noise within a step is correlated."""

    state_fields = (*Gain.state_fields, *Gain.state_fields)

    def initial(self, secret):
        del secret
        return Gaussian(jnp.asarray(MEAN), jnp.asarray(ROOT))

    def transition(self, secret, state, external):
        return Gaussian(secret[0] * jnp.asarray(MOVE) @ state + external[0], jnp.asarray(ROOT))


def rounded(system, states):
    """Only the states have a resolution; what is released does not matter here."""
    return WithResolution(system, states, [1e-9] * len(system.shared_fields))


def path_law(system, secret, external):
    """Mean and covariance of a whole linear Gaussian path x_1..x_T, by building it up step by step."""
    law = system.initial(secret)
    mean, cov = np.asarray(law.mean), np.asarray(law.covariance)
    size = len(mean)
    zero = jnp.zeros(size)
    means, total = [mean], cov
    for now in external[:-1]:
        step = system.transition(secret, zero, now)
        slope = np.asarray(jax.jacfwd(lambda x, now=now: system.transition(secret, x, now).mean)(zero))
        means.append(slope @ means[-1] + np.asarray(step.mean))
        cross = slope @ total[-size:, :]
        last = slope @ total[-size:, -size:] @ slope.T + np.asarray(step.covariance)
        total = np.block([[total, cross.T], [cross, last]])
    return np.concatenate(means), total


def log_box(mean, covariance, low, high):
    """Log-probability of a box under a multivariate normal law, by scipy's quasi-Monte Carlo."""
    accuracy = {"abseps": 1e-10, "releps": 1e-7, "maxpts": 1_000_000, "seed": 0}
    law = stats.multivariate_normal(mean, covariance, **accuracy)  # pyright: ignore[reportArgumentType]
    return np.log(law.cdf(high, lower_limit=low))


@pytest.mark.parametrize("step", [0.1, 0.5, 1.2])
def test_the_probability_of_readings_is_that_of_their_cells(float64, step):
    """Against the multivariate normal probability of the box of cells, up to four sd of a step wide."""
    system = rounded(Gain(), [step])
    secret, external = jnp.asarray([0.6]), jnp.asarray([[0.0], [0.4], [-0.7], [0.2]])
    readings = to_grid(jnp.asarray([[0.9], [0.7], [1.1], [-0.3]]), (step,))
    found = np.sum(CellFilter(system).log_masses(secret, readings, external))
    mean, covariance = path_law(Gain(), secret, external)
    low, high = (np.asarray(readings).ravel() + side * step for side in (-0.5, 0.5))
    truth = log_box(mean, covariance, low, high)
    assert abs(found - truth) < 2e-4


def test_a_box_of_correlated_axes_is_met_closely(float64):
    """Within a step the axes are conditioned by the moments of a cell: good to a part in ten thousand."""
    system = rounded(Pair(), [0.3, 0.3])
    secret, external = jnp.asarray([0.9]), jnp.asarray([[0.1], [0.0], [0.0]])
    readings = to_grid(jnp.asarray([[0.3, 0.1], [0.5, -0.4], [-0.2, 0.0]]), (0.3, 0.3))
    found = np.sum(CellFilter(system).log_masses(secret, readings, external))
    mean, covariance = path_law(Pair(), secret, external)
    low, high = (np.asarray(readings).ravel() + side * 0.3 for side in (-0.5, 0.5))
    assert abs(found - log_box(mean, covariance, low, high)) < 2e-3


def whitened(system, policy, episodes, steps, index):
    """The noise of all readings of one secret, (episodes, steps, axes), in the closed loop of a policy."""
    cells, grid = CellFilter(system), tuple(field.resolution for field in system.state_fields)

    def one(number):
        key = jr.fold_in(jr.key(5), number)
        record = rollout(
            system, policy, steps, public_seed=number, key=key, index=jnp.asarray(index, jnp.int32)
        )
        readings = jax.vmap(lambda state: to_grid(state, grid))(record.states[:-1])
        uniform = jr.uniform(jr.fold_in(key, 9), readings.shape)
        first = cells.whiten(cells.first(record.secret), readings[0], uniform[0])

        def step(weights, now):
            before, after, external, uniform = now
            found = cells.whiten(cells.predict(record.secret, before, weights, external), after, uniform)
            return found.log_weights, found.noise

        rows = readings[:-1], readings[1:], record.public.external[:-1], uniform[1:]
        rest = jax.lax.scan(step, first.log_weights, rows)[1]
        return jnp.concatenate([first.noise[None], rest])

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(episodes, dtype=jnp.int32)))


@pytest.mark.parametrize(("kind", "step"), [(Gain, 0.9), (Platoon, 0.06)])
def test_recovered_noise_is_standard_normal_and_white(float64, kind, step):
    """At three sd of a step, where reading a state as exact gives noise that is neither."""
    system = with_resolution(as_float64(kind()), step)
    noise = whitened(system, Counterfactual(system), 400, 25, 1)
    count = noise[..., 0].size
    for axis in range(noise.shape[2]):
        column = noise[..., axis]
        assert stats.kstest(column.ravel(), "norm").pvalue > 1e-3
        for lag in (1, 2):
            assert abs(np.mean(column[:, lag:] * column[:, :-lag])) < 4.0 / np.sqrt(count)
            # Not of the squares either: the place in a cell tells about the next step if it is forgotten.
            squares = column**2 - 1.0
            assert abs(np.mean(squares[:, lag:] * squares[:, :-lag])) < 4.0 * 2.0 / np.sqrt(count)
    if noise.shape[2] == 2:
        assert abs(np.mean(noise[..., 0] * noise[..., 1])) < 4.0 / np.sqrt(count)


def test_forgetting_the_place_in_the_cell_is_noticed(float64):
    """The same test fails for a filter that takes the state to be at the reading itself."""
    system = with_resolution(as_float64(Gain()), 0.9)
    cells = CellFilter(system, 1)
    readings = to_grid(jnp.asarray([[0.0], [0.9], [0.0]]), (0.9,))
    external = jnp.zeros((3, 1))
    right = CellFilter(system).log_masses(jnp.asarray([0.6]), readings, external)
    assert abs(np.sum(cells.log_masses(jnp.asarray([0.6]), readings, external)) - np.sum(right)) > 0.05


def test_without_a_resolution_the_noise_is_that_of_the_step(float64):
    system = WithResolution(Pair(), [0.0, 0.0], [1e-9])
    cells, secret = CellFilter(system), jnp.asarray([0.9])
    state, external = jnp.asarray([0.3, -0.2]), jnp.asarray([0.1])
    law = system.transition(secret, state, external)
    noise = jnp.asarray([1.3, -0.7])
    found = cells.whiten(
        cells.predict(secret, state, jnp.zeros(1), external), law.sample(noise), jnp.full(2, 0.5)
    )
    assert np.allclose(found.noise, noise, atol=1e-12)
    assert np.isclose(found.log_mass, law.log_prob(law.sample(noise)))


def test_far_readings_and_axes_without_noise_give_numbers(float64):
    system = with_resolution(as_float64(Platoon(initial_sd=0.0)), 0.01)
    cells, secret = CellFilter(system), system.prior.secrets[0]
    half = jnp.full(2, 0.5)
    start = cells.whiten(cells.first(secret), jnp.asarray([15.0, 20.0]), half)
    assert np.all(np.isfinite(start.noise)) and np.all(np.isfinite(start.log_weights))
    prediction = cells.predict(
        secret, jnp.asarray([15.0, 20.0]), start.log_weights, system.initial_external()
    )
    far = cells.whiten(prediction, jnp.asarray([25.0, 3.0]), half)
    assert np.all(np.isfinite(far.noise)) and np.all(np.isfinite(far.log_weights))
    assert np.all(np.abs(far.noise) > 30)


def test_a_resolution_is_given_for_every_field():
    with pytest.raises(ValueError, match=r"spacing is missing.*speed=0\.01,spacing=0\.01"):
        with_resolution(Platoon(), {"speed": 0.1})
    with pytest.raises(ValueError, match="no field pace"):
        with_resolution(Platoon(), {"speed": 0.1, "spacing": 0.1, "pace": 1.0})
    with pytest.raises(ValueError, match="0 or more"):
        with_resolution(Gain(prior=finite_prior([0.1, 0.2])), -1.0).state_fields  # noqa: B018

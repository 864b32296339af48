"""Aiming by quadrature: draws have the density that they are weighed by, and tables are likelihoods."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import ndtri

from tests.hidden_plane import SPREAD, Hidden, hidden
from veil.attacks.ahead import Tabulated, ahead_by_quadrature
from veil.attacks.guides import DEFENCE
from veil.attacks.particle_filter import public_steps
from veil.laws import Gaussian
from veil.policies import GaussianNoise, Subsampled, Truth
from veil.rollout import rollout
from veil.systems import Gain


class Bent(Hidden):
    """x' = a x + sin(3 h) + w, h' = b h + tanh(x)."""

    def transition(self, secret, state, external) -> Gaussian:
        moved = [secret[0] * state[0] + jnp.sin(3.0 * state[1]) + external[0], secret[1] * state[1]]
        return Gaussian(jnp.stack([moved[0], moved[1] + jnp.tanh(state[0])]), jnp.asarray(SPREAD))


def bell(value, mean, sd):
    return np.exp(-0.5 * ((value - mean) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))


def log_future(secret, shared, external, grid):
    """log p(y_2..y_T | x_1 = (y_1, h)) at every h of a dense grid, by sums over it."""
    width, future = grid[1] - grid[0], np.ones_like(grid)
    for t in range(len(shared) - 2, -1, -1):
        x, after = shared[t, 0], shared[t + 1, 0]
        mean = secret[0] * x + np.sin(3.0 * grid) + external[t, 0]
        moved = secret[1] * grid + np.tanh(x) + SPREAD[1, 0] / SPREAD[0, 0] * (after - mean)
        kernel = bell(grid[None], moved[:, None], SPREAD[1, 1]) * width
        future = bell(after, mean, SPREAD[0, 0]) * (kernel @ future)
    return np.log(future)


def test_the_tables_are_likelihoods_of_what_comes(float64):
    system = hidden(Bent)
    policy = Truth(system)
    record = rollout(system, policy, 8, public_seed=jnp.asarray(0), key=jr.key(3))
    guide = ahead_by_quadrature(system, policy)
    assert guide is not None and guide.axis == 1
    secret = record.secret
    plan = jax.jit(lambda public: guide.plan(system, policy, secret, public))(public_steps(record.public))
    first = jax.tree.map(lambda leaf: leaf[0], plan)
    grid = np.linspace(-5.0, 5.0, 1601)
    shared, external = np.asarray(record.public.shared), np.asarray(record.public.external)
    exact = log_future(np.asarray(secret), shared, external, grid)
    places = float(first.first) + float(first.spacing) * np.arange(len(first.values))
    wanted = np.interp(places, grid, exact)
    likely = wanted > wanted.max() - 12.0
    assert likely.sum() > 20 and np.ptp(wanted[likely]) > 5.0, "there is something to aim at"
    apart = (np.asarray(first.values) - wanted)[likely]
    assert np.ptp(apart) < 0.05
    assert not np.any(plan.values[-1]), "nothing comes after the last release"


@pytest.mark.parametrize("axis", [0, 1])
def test_draws_have_the_density_that_they_are_weighed_by(float64, axis):
    """Weighted draws have the moments of N(0, I), by quadrature over the noise along the direction."""
    values = jnp.asarray(np.sin(3.0 * np.arange(40)) * 2.0 - 0.01 * (np.arange(40) - 25.0) ** 2)
    table = Tabulated(jnp.asarray(-3.0), jnp.asarray(0.15), values, axis)
    scale = np.array([[0.8, 0.0], [0.6, 0.7]])
    aimed = table.aim(Gaussian(jnp.asarray([0.3, -0.2]), jnp.asarray(scale)))
    along = scale[axis] / np.linalg.norm(scale[axis])
    across = np.array([-along[1], along[0]])
    count = 40_000
    along_noise = ndtri(jnp.asarray((np.arange(count) + 0.5) / count))
    noise = np.asarray(along_noise)[:, None] * along + 0.7 * across

    def weighed(uniform):
        z = jax.vmap(lambda one: aimed.draw(one, jnp.asarray(uniform)))(jnp.asarray(noise))
        return np.asarray(z), np.exp(np.asarray(jax.vmap(aimed.log_correction)(z)))

    parts = [(1.0 - DEFENCE, *weighed(0.9)), (DEFENCE, *weighed(0.5 * DEFENCE))]
    for power, moment in enumerate((1.0, 0.0, 1.0)):
        found = sum(share * np.mean(weight * (z @ along) ** power) for share, z, weight in parts)
        assert abs(found - moment) < 5e-3, power
    _, z, _ = parts[0]
    assert np.allclose(z @ across, 0.7), "nothing else is moved"
    assert np.abs(z @ along - along_noise).max() > 0.1, "and this is"
    cells = np.exp(np.asarray(aimed.log_shares))
    assert cells.sum() == pytest.approx(1.0)


def test_a_coordinate_without_noise_is_left_alone(float64):
    table = Tabulated(jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray([0.0, -1.0, -4.0]), 1)
    aimed = table.aim(Gaussian(jnp.asarray([0.0, 0.5]), jnp.asarray([[0.3, 0.0], [0.0, 0.0]])))
    noise = jnp.asarray([0.4, -1.2])
    assert np.array_equal(aimed.draw(noise, jnp.asarray(0.9)), noise)
    assert float(aimed.log_correction(noise)) == 0.0 and float(aimed.log_mass) == pytest.approx(-0.5)


def test_it_applies_where_one_coordinate_is_open_and_all_others_are_copied():
    system = hidden()
    assert ahead_by_quadrature(system, Truth(system)) is not None
    assert ahead_by_quadrature(system, GaussianNoise(system, jnp.asarray([0.1]))) is None
    assert ahead_by_quadrature(system, Subsampled(Truth(system), 2)) is None, "then two are open"
    assert ahead_by_quadrature(Gain(), Truth(Gain())) is None, "then none is"

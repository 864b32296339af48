import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.laws import (
    Finite,
    Gaussian,
    GridGaussian,
    Mixture,
    Point,
    Rounded,
    SwitchedLaw,
    diagonal_gaussian,
    to_grid,
)

STEP = 0.25
MEAN, ROOT = np.asarray([0.113, -0.37]), np.asarray([[0.6, 0.0], [-0.35, 0.3]])


def masses(law, reach=24):
    """The probabilities of grid points by enumeration: the density there, normalised axis by axis."""
    axis = STEP * np.arange(-reach, reach + 1)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    dense = np.exp(np.asarray(jax.jit(jax.vmap(law.log_prob))(jnp.asarray(points))))
    return points, dense * STEP**2


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("root", [ROOT, np.diag([0.25, 2.0])])
def test_draws_have_the_gaussian_density_as_probability(float64, root):
    law = Gaussian(jnp.asarray(MEAN), jnp.asarray(root)).on_grid((STEP, STEP))
    points, expected = masses(law, 60)
    assert abs(expected.sum() - 1.0) < 2e-8  # so that the density needs no constant of its own
    noise = jr.normal(jr.key(0), (200_000, law.noise_size))
    drawn = np.asarray(jax.jit(jax.vmap(law.sample))(noise))
    assert np.array_equal(drawn, np.asarray(jax.jit(jax.vmap(lambda one: to_grid(one, (STEP, STEP))))(drawn)))
    count = np.zeros(len(expected))
    side = round(len(points) ** 0.5)
    where = np.round(drawn / STEP).astype(int) + side // 2
    np.add.at(count, where[:, 0] * side + where[:, 1], 1)
    often = expected * len(drawn) > 10
    rest = np.append(count[often], count[~often].sum()), np.append(expected[often], expected[~often].sum())
    chi = np.sum((rest[0] - rest[1] * len(drawn)) ** 2 / (rest[1] * len(drawn)))
    assert stats.chi2.sf(chi, len(rest[0]) - 1) > 1e-3


def test_the_sum_over_a_grid_does_not_depend_on_where_the_mean_lies(float64):
    """The exact statement behind it: with an sd of one step the sum is one up to 2 exp(−2π²)."""
    for offset in np.linspace(0.0, 1.0, 11):
        total = np.sum(stats.norm.pdf(np.arange(-30, 31), offset, 1.0))
        assert abs(total - 1.0) < 2.0 * np.exp(-2.0 * np.pi**2) * 1.001


@pytest.mark.usefixtures("optimised")
def test_no_low_bit_of_a_release_depends_on_the_mean(float64):
    """Without a grid a third of wrong means cannot have made a release: no noise leads from them to it."""
    other = 0.517

    def reachable(value, mean):
        """Whether some floating-point noise leads from the mean to the value."""
        noise = (value - mean) / 0.3
        near = [noise]
        for direction in (-np.inf, np.inf):
            one = noise
            for _ in range(4):
                one = np.nextafter(one, direction)
                near.append(one)
        return any(mean + 0.3 * one == value for one in near)

    noise = np.asarray(jr.normal(jr.key(1), (2000,)), float)
    plain = 0.3 + 0.3 * noise
    assert np.mean([reachable(value, other) for value in plain]) < 0.99
    law = diagonal_gaussian(jnp.asarray([0.3]), jnp.asarray([0.3])).on_grid((0.01,))
    drawn = np.asarray(jax.jit(jax.vmap(law.sample))(jr.normal(jr.key(1), (20_000, 2))))[:, 0]
    wrong = diagonal_gaussian(jnp.asarray([other]), jnp.asarray([0.3])).on_grid((0.01,))
    theirs = np.asarray(jax.jit(jax.vmap(wrong.sample))(jr.normal(jr.key(2), (20_000, 2))))[:, 0]
    # Every value that both make often is the same number to the last bit.
    ours, others = set(drawn.tolist()), set(theirs.tolist())
    likely = {value for value in ours if abs(value - other) < 0.6}
    assert len(likely - others) < 0.02 * len(likely)


def test_noise_is_at_least_one_step(float64):
    law = diagonal_gaussian(jnp.asarray([0.3, 1.0]), jnp.asarray([1e-3, 0.5])).on_grid((0.1, 0.1))
    assert np.allclose(np.diag(law.scale), [0.1, 0.5])
    assert isinstance(law.blurred(jnp.asarray([0.3, 0.0])), GridGaussian)


def test_a_draw_has_the_derivative_of_the_gaussian(float64):
    noise = jr.normal(jr.key(3), (4,))

    def drawn(mean):
        return Gaussian(mean, jnp.asarray(ROOT)).on_grid((STEP, STEP)).sample(noise)

    for slope in (jax.jacfwd, jax.jacrev):
        assert np.allclose(jax.jit(slope(drawn))(jnp.asarray(MEAN)), np.eye(2))


def test_other_laws_go_to_the_grid(float64):
    grid = (0.1, 0.1)
    point = Point(jnp.asarray([0.234, 1.0])).on_grid(grid)
    assert np.allclose(point.sample(jnp.zeros(0)), [0.2, 1.0])
    assert point.log_prob(to_grid(jnp.asarray([0.2, 1.0]), grid)) == 0.0
    assert point.log_prob(jnp.asarray([0.3, 1.0])) == -np.inf
    coarse = Rounded(jnp.asarray([0.234, 1.0]), jnp.asarray([0.25, 0.04])).on_grid(grid)
    assert np.allclose(coarse.step, [0.3, 0.1])
    finite = Finite(jnp.asarray([[0.11, 0.0], [0.52, 1.01]]), jnp.log(jnp.asarray([0.5, 0.5]))).on_grid(grid)
    assert np.allclose(finite.atoms, [[0.1, 0.0], [0.5, 1.0]])
    held = SwitchedLaw(jnp.asarray(False), jnp.asarray([0.44, 0.0]), point).on_grid(grid)
    assert np.allclose(held.sample(jnp.zeros(0)), [0.4, 0.0])
    parts = Gaussian(jnp.zeros((2, 2)), jnp.broadcast_to(jnp.eye(2), (2, 2, 2)))
    mixed = Mixture(jnp.log(jnp.asarray([0.3, 0.7])), parts).on_grid(grid)
    drawn = mixed.sample(jr.normal(jr.key(4), (mixed.noise_size,)))
    assert np.array_equal(drawn, to_grid(drawn, grid))

"""The charge of a live release: never below the truth, and nearly the truth for Kalman beliefs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.leakage.mixtures import sampled_information
from veil.laws import Components, Gaussian, grouped
from veil.leakage.closed_forms import coupled, paired
from veil.leakage.entropy import round_tilt, standardised
from veil.leakage.live import _alike_entropies, _any_entropies, live_bound
from veil.leakage.mutual_information import mutual_information
from veil.leakage.quadrature import quadrature

bound = jax.jit(live_bound)


def blocks(masses, mean, scale):
    """Components [K, M, ...] with equal weights within each secret."""
    count = mean.shape[1]
    log_weights = np.log(np.repeat(np.asarray(masses)[:, None], count, axis=1) / count)
    return grouped(jnp.asarray(log_weights), Gaussian(jnp.asarray(mean), jnp.asarray(scale)))


def truth(masses, mean, scale):
    count, each, size = mean.shape
    weights = np.repeat(np.asarray(masses) / each, each)
    covariance = (scale @ np.swapaxes(scale, -1, -2)).reshape(-1, size, size)
    return quadrature(np.repeat(np.arange(count), each), weights, mean.reshape(-1, size), covariance).value


def random_scales(rng, count, size, spread):
    scale = np.tril(rng.normal(size=(count, 1, size, size))) * 0.3
    for i in range(size):
        scale[:, :, i, i] = np.exp(spread * rng.normal(size=(count, 1)))
    return scale


@pytest.mark.parametrize("size", [1, 2])
def test_one_gaussian_per_secret_is_charged_nearly_its_information_and_never_less(size, float64):
    """Nearly: to a thousandth where spreads are alike; elsewhere at least not less, and at most H(q)."""
    rng = np.random.default_rng(size)
    for trial in range(60):
        masses = rng.dirichlet(np.full(4, rng.choice([0.3, 1.0, 5.0])))
        mean = 10.0 ** rng.uniform(-3, 1) * rng.normal(size=(4, 1, size))
        near = trial % 2 == 0
        scale = random_scales(rng, 4, size, 0.1 if near else 0.7)
        charge, exact = float(bound(blocks(masses, mean, scale))), truth(masses, mean, scale)
        assert charge >= exact - 1e-8
        assert charge <= -masses @ np.log(masses) + 1e-12
        if near and np.ptp(mean) < 5.0:
            assert charge <= 1.001 * exact + 1e-9


def test_three_dimensions_are_charged_by_moments(float64):
    rng = np.random.default_rng(3)
    masses, mean = np.array([0.5, 0.3, 0.2]), 0.4 * rng.normal(size=(3, 1, 3))
    scale = random_scales(rng, 3, 3, 0.1)
    covariance = (scale @ np.swapaxes(scale, -1, -2))[:, 0]
    exact = mutual_information(np.arange(3), masses, mean[:, 0], covariance)
    charge = float(bound(blocks(masses, mean, scale)))
    assert exact - 4 * float(exact.standard_error or 0.0) <= charge <= 1.15 * exact


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("alike", [True, False])
def test_particles_are_charged_no_less_than_their_information(size, alike, float64):
    rng = np.random.default_rng(10 * size + alike)
    for shift in (0.0, 0.3, 2.0):
        masses = np.array([0.2, 0.5, 0.3])
        mean = rng.normal(size=(3, 12, size)) + shift * np.arange(3)[:, None, None]
        scale = np.broadcast_to(0.8 * np.eye(size), (3, 12, size, size)).copy()
        if not alike:
            scale *= np.exp(0.3 * rng.normal(size=(3, 12, 1, 1)))
        charge, exact = float(bound(blocks(masses, mean, scale))), truth(masses, mean, scale)
        assert exact - 1e-9 <= charge <= exact + 0.25


def test_the_short_way_for_equal_covariances_is_the_long_one_with_fewer_tilts(float64):
    """Both lie below the entropy, which a fine grid gives; the short one loses little."""
    rng = np.random.default_rng(0)
    scale = np.broadcast_to(np.array([[0.9, 0.0], [0.4, 0.5]]), (2, 30, 2, 2))
    mean = np.concatenate([rng.normal(size=(1, 30, 2)), 3.0 * rng.normal(size=(1, 30, 2))])
    components, _ = standardised(blocks([0.5, 0.5], mean, scale))
    short, long = jax.jit(_alike_entropies)(components), jax.jit(_any_entropies)(components)
    assert np.all(short <= long + 1e-12) and np.all(short > long - 0.03)
    for secret in range(2):
        assert float(long[secret]) <= grid_entropy(components, secret) + 1e-6


@pytest.mark.parametrize("spread", [0.3, 10.0])
def test_single_precision_is_paid_for(spread, float64):
    """Entropies of many particles come out below those in double precision, and not by much."""
    rng = np.random.default_rng(int(spread))
    mean, weights = spread * rng.normal(size=(2, 300, 2)), np.log(rng.dirichlet(np.full(300, 2.0), size=2))
    parts = Gaussian(jnp.asarray(mean), jnp.broadcast_to(jnp.eye(2), (2, 300, 2, 2)))
    found = jax.jit(_alike_entropies)(grouped(jnp.asarray(weights) + np.log(0.5), parts))
    for secret in range(2):
        points, log_weights = jnp.asarray(mean[secret]), jnp.asarray(weights[secret])
        precise = np.exp(weights[secret]) @ np.asarray(jax.jit(round_tilt)(points, log_weights))
        assert precise - 4e-6 * (1.0 + 40.0 * spread**2) < float(found[secret]) <= precise


def test_rows_in_several_blocks_are_rows_in_one(float64, monkeypatch):
    rng = np.random.default_rng(5)
    points, weights = jnp.asarray(rng.normal(size=(50, 2))), jnp.asarray(np.log(rng.dirichlet(np.ones(50))))
    whole = jax.jit(round_tilt)(points, weights)
    monkeypatch.setattr("veil.leakage.entropy.PAIRS", 50 * 7)  # seven blocks of seven rows, and one row
    split = jax.jit(lambda *given: round_tilt(*given))(points, weights)
    np.testing.assert_allclose(split, whole, rtol=1e-12)


def test_places_are_coupled_as_quantiles_are_where_weights_agree_and_never_too_low(float64):
    rng = np.random.default_rng(6)
    base, masses = rng.normal(size=(1, 9, 2)), np.array([0.2, 0.5, 0.3])
    mean = base + 0.2 * rng.normal(size=(3, 9, 2))
    scale = np.broadcast_to(0.6 * np.eye(2), (3, 9, 2, 2))
    even, compiled = blocks(masses, mean, scale), eqx.filter_jit(paired)
    by_index = eqx.filter_jit(coupled)(even, by_index=True)
    assert float(compiled(even)) == pytest.approx(float(by_index), rel=1e-9)
    for concentration in (1000.0, 3.0):
        weights = rng.dirichlet(np.full(9, concentration), size=3) * masses[:, None]
        uneven = grouped(jnp.asarray(np.log(weights)), Gaussian(jnp.asarray(mean), jnp.asarray(scale)))
        covariance = np.repeat(0.36 * np.eye(2)[None], 27, axis=0)
        exact = quadrature(np.repeat(np.arange(3), 9), weights.reshape(-1), mean.reshape(-1, 2), covariance)
        assert exact.value <= float(compiled(uneven))


def grid_entropy(components: Components, secret: int) -> float:
    """−∫ f log f on a grid, f the mixture of one secret."""
    own = np.asarray(components.labels) == secret
    mean, scale = np.asarray(components.parts.mean)[own], np.asarray(components.parts.scale)[own]
    axes = [np.linspace(mean[:, i].min() - 9, mean[:, i].max() + 9, 400) for i in range(2)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.zeros(len(points))
    for centre, factor in zip(mean, scale, strict=True):
        noise = np.linalg.solve(factor, (points - centre).T)
        density += np.exp(-0.5 * (noise**2).sum(axis=0)) / (2 * np.pi * np.linalg.det(factor)) / len(mean)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return float(-np.sum(density * np.log(np.maximum(density, 1e-300))) * cell)


def test_where_nothing_leaks_nothing_is_charged(float64):
    """Particles that share their noise are coupled with themselves; entropies alone would charge for them."""
    rng = np.random.default_rng(1)
    one = rng.normal(size=(1, 40, 2))
    same = np.repeat(one, 3, axis=0)
    scale = np.broadcast_to(0.5 * np.eye(2), (3, 40, 2, 2))
    assert float(bound(blocks([0.2, 0.3, 0.5], same, scale))) < 1e-12
    assert float(bound(blocks([0.2, 0.3, 0.5], same[:, :1], scale[:, :1]))) < 1e-12


def test_narrow_kernels_far_away_are_charged_the_same(float64):
    """Sd 0.01 at position 20, in both precisions: the leakage does not depend on units or place."""
    mean, scale = np.array([[[0.0, 0.0]], [[0.3, -0.2]], [[0.1, 0.4]]]), np.ones((3, 1, 1, 1)) * np.eye(2)
    masses = np.array([0.3, 0.3, 0.4])
    exact = truth(masses, mean, scale)
    for dtype in (jnp.float64, jnp.float32):
        near = Gaussian(jnp.asarray(20.0 + 0.01 * mean, dtype), jnp.asarray(0.01 * scale, dtype))
        charge = float(bound(grouped(jnp.log(jnp.asarray(masses, dtype))[:, None], near)))
        assert charge == pytest.approx(exact, rel=1e-6 if dtype == jnp.float64 else 2e-2)
    assert sampled_information(
        np.random.default_rng(0), np.arange(3), masses, mean[:, 0], np.repeat(np.eye(2)[None], 3, axis=0)
    )[0] == pytest.approx(exact, abs=0.02)

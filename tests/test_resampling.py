import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil import resampling
from veil.resampling import effective_sample_size, multinomial, stratified, systematic

SCHEMES = [systematic, stratified, multinomial]


def counts(ancestors, size):
    return np.bincount(np.asarray(ancestors), minlength=size)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [1, 2, 7, 81])
def test_each_particle_is_expected_in_proportion_to_its_weight(scheme, size, float64):
    log_weights = 1.5 * jr.normal(jr.key(size), (size,), jnp.float64) + 3.0
    weights = np.asarray(jax.nn.softmax(log_weights))
    draws = 4000
    ancestors = jax.jit(jax.vmap(lambda key: scheme(log_weights, key=key)))(jr.split(jr.key(1), draws))
    tally = np.stack([counts(row, size) for row in np.asarray(ancestors)])
    error = tally.std(axis=0) / np.sqrt(draws) + 1e-12
    assert np.all(np.abs(tally.mean(axis=0) - size * weights) < 4.5 * error + 1e-6)


def test_systematic_counts_differ_from_their_mean_by_less_than_one(float64):
    log_weights = jr.normal(jr.key(0), (50,), jnp.float64)
    expected = 50 * np.asarray(jax.nn.softmax(log_weights))
    for uniform in np.linspace(0.0, 0.999, 23):
        tally = counts(resampling.systematic_at(log_weights, jnp.asarray(uniform)), 50)
        assert np.all(np.abs(tally - expected) < 1.0)
        assert tally.sum() == 50


def test_systematic_agrees_with_a_search_for_every_point(float64):
    log_weights = 2.0 * jr.normal(jr.key(3), (97,), jnp.float64)
    edges = np.cumsum(np.asarray(jax.nn.softmax(log_weights)))
    for uniform in (0.1, 0.5, 0.9):
        expected = np.searchsorted(edges, (np.arange(97) + uniform) / 97, side="right")
        assert np.array_equal(resampling.systematic_at(log_weights, jnp.asarray(uniform)), expected)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.99999994])
@pytest.mark.parametrize("alive", [[0], [1295], [3, 700, 1200]])
def test_a_particle_without_weight_is_never_chosen(uniform, alive):
    log_weights = jnp.full(1296, -jnp.inf).at[jnp.asarray(alive)].set(-5.0)
    points = jnp.full(1296, uniform, jnp.float32)
    for ancestors in (
        resampling.systematic_at(log_weights, points[0]),
        resampling.stratified_at(log_weights, points),
        resampling.multinomial_at(log_weights, points),
    ):
        assert ancestors.dtype == jnp.int32
        assert set(np.asarray(ancestors)) <= set(alive)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_weight_at_all_counts_as_equal_weights(scheme):
    for nothing in (-jnp.inf, -1e30, jnp.nan):
        ancestors = scheme(jnp.full(64, nothing), key=jr.key(0))
        assert len(set(np.asarray(ancestors))) > 20
    assert np.array_equal(resampling.systematic_at(jnp.full(64, -jnp.inf), jnp.asarray(0.5)), np.arange(64))


def test_effective_sample_size_counts_equal_particles():
    assert effective_sample_size(jnp.zeros(40) - 7.0) == pytest.approx(40)
    assert effective_sample_size(jnp.asarray([0.0, 0.0, -jnp.inf, -jnp.inf])) == pytest.approx(2)
    assert effective_sample_size(jnp.log(jnp.asarray([0.5, 0.25, 0.25]))) == pytest.approx(1 / 0.375)

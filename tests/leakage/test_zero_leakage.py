"""Where nothing leaks, the bounds are zero; where little leaks, they are closer than the paper's bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.leakage.mixtures import policy_like, random_covariances
from veil.laws import gaussian, grouped
from veil.leakage import closed_form, estimate, mutual_information
from veil.leakage.quadrature import quadrature


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.study)])
def test_coinciding_conditionals_leak_nothing_however_far_the_particles_spread(size):
    generator = np.random.default_rng(size)
    mean, covariance = generator.standard_normal((30, size)) * 5.0, random_covariances(generator, 30, size)
    weight, prior = generator.dirichlet(np.ones(30)), np.array([0.1, 0.2, 0.7])
    order = [generator.permutation(30) for _ in prior]
    mixture = (
        np.repeat(np.arange(3), 30),
        np.concatenate([q * weight[o] for q, o in zip(prior, order, strict=True)]),
        np.concatenate([mean[o] for o in order]),
        np.concatenate([covariance[o] for o in order]),
    )
    assert mutual_information(*mixture, "closed_form") == pytest.approx(0.0, abs=1e-6)
    assert mutual_information(*mixture, "estimate") == pytest.approx(0.0, abs=1e-12)


def test_the_papers_floor_at_zero_leakage_follows_its_closed_form():
    """Many equal-noise particles per secret: RA/dim = ½log((1+ρ)/(1+ρ/4)) − ρ/(8+2ρ), ρ = (spread/noise)²."""
    generator = np.random.default_rng(3)
    mixture = policy_like(generator, 2000, size=2, shared=True, spread=1.0, noise=1.0, secrets=2)
    floor = 2 * (0.5 * np.log(2.0 / 1.25) - 1.0 / 10.0)
    # 1000 draws of a spread-one normal: its second moment is off by about 2/sqrt(1000) in 2-D.
    assert mutual_information(*mixture, "regime_adaptive") == pytest.approx(floor, abs=0.03)


REGIMES = {
    "policy 64": dict(count=64, shift=0.0),
    "policy 64 shifted": dict(count=64, shift=1.0),
    "policy 256": dict(count=256, shift=0.1),
    "policy 256 shifted": dict(count=256, shift=1.0),
    "shared": dict(count=64, shared=True),
    "shared, small shift": dict(count=64, shared=True, shift=0.1),
    "shared, shifted": dict(count=64, shared=True, shift=1.0),
    "collapsed": dict(count=64, spread=0.2, noise=1.0),
    "separated": dict(count=64, shift=30.0),
}


def test_the_ladder_halves_the_gap_of_the_papers_bound():
    gaps = []
    for seed, options in enumerate(2 * list(REGIMES.values())):
        mixture = policy_like(np.random.default_rng(seed), size=2, **options)
        value = quadrature(*mixture).value
        paper = min(mutual_information(*mixture, "regime_adaptive"), mutual_information(*mixture, "trivial"))
        gaps.append((mutual_information(*mixture, "closed_form") - value, paper - value))
    ours, theirs = np.mean(gaps, axis=0)
    assert ours <= 0.5 * theirs, (ours, theirs)


def test_common_random_numbers_couple_by_index_in_training_precision():
    """In float32 and in the layout of a belief, coinciding particles leak nothing either."""
    generator = np.random.default_rng(0)
    mean = np.repeat(20.0 + generator.standard_normal((1, 81, 2)), 4, axis=0)
    parts = gaussian(jnp.asarray(mean, jnp.float32), jnp.broadcast_to(1e-4 * jnp.eye(2), (4, 81, 2, 2)))
    components = grouped(jnp.full((4, 81), -np.log(324.0), jnp.float32), parts)
    assert float(jax.jit(lambda c: closed_form(c, by_index=True))(components)) == pytest.approx(0.0, abs=1e-6)
    value = jax.jit(lambda c, key: estimate(c, key=key))(components, jax.random.key(0))
    assert float(value) == pytest.approx(0.0, abs=1e-6)

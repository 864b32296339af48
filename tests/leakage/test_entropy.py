"""Entropy bounds against dense formulas in plain numpy, Monte Carlo, and each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from tests.leakage.mixtures import log_densities, random_covariances, sample
from veil.laws import Components, Gaussian, gaussian, grouped
from veil.leakage import (
    chernoff_entropy,
    kl_entropy,
    likelihood_entropy,
    moment_entropy,
    paper_bounds,
    reference_entropy,
    tightness,
    tilt_entropy,
)
from veil.leakage.entropy import (
    MANY,
    UNROLLED,
    _by_difference,
    _by_product,
    over_mixture,
    power_of_two,
    prepare,
    tilt_row,
)

pytestmark = pytest.mark.usefixtures("float64")


def plain_mixture(seed, count=40, size=2, spread=1.5):
    generator = np.random.default_rng(seed)
    weight = generator.dirichlet(np.ones(count))
    return (
        weight,
        generator.standard_normal((count, size)) * spread,
        random_covariances(generator, count, size),
    )


# Compiled once per shape instead of operation by operation.
chernoff_entropy, kl_entropy, likelihood_entropy, moment_entropy, reference_entropy, tilt_entropy = map(
    jax.jit,
    (chernoff_entropy, kl_entropy, likelihood_entropy, moment_entropy, reference_entropy, tilt_entropy),
)


def as_jax(weight, mean, covariance):
    return jnp.log(jnp.asarray(weight)), gaussian(jnp.asarray(mean), jnp.asarray(covariance))


def dense_pairwise_entropy(weight, mean, covariance, divergence):
    """Σ w_i [H_i − log Σ_j w_j exp(−D_ij)] with one matrix per pair."""
    own = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    count = range(len(weight))
    pairs = np.array(
        [[divergence(mean[i] - mean[j], covariance[i], covariance[j]) for j in count] for i in count]
    )
    return weight @ (own - logsumexp(np.log(weight)[None, :] - pairs, axis=1))


def dense_kl(apart, first, second):
    inverse = np.linalg.inv(second)
    log_ratio = np.linalg.slogdet(second)[1] - np.linalg.slogdet(first)[1]
    return 0.5 * (np.trace(inverse @ first) + apart @ inverse @ apart - len(apart) + log_ratio)


def dense_chernoff(alpha):
    def divergence(apart, first, second):
        """−log ∫ p^α q^(1−α), from the Gaussian integral in precision form."""
        p, q = np.linalg.inv(first), np.linalg.inv(second)
        both = alpha * p + (1 - alpha) * q
        pull = alpha * p @ apart
        exponent = alpha * apart @ p @ apart - pull @ np.linalg.inv(both) @ pull
        log_dets = alpha * np.linalg.slogdet(first)[1] + (1 - alpha) * np.linalg.slogdet(second)[1]
        return 0.5 * (exponent + log_dets + np.linalg.slogdet(both)[1])

    return divergence


@pytest.mark.parametrize("size", [1, 3, *(pytest.param(n, marks=pytest.mark.study) for n in (2, 5))])
def test_pairwise_entropies_equal_the_dense_formulas(size):
    mixture = plain_mixture(size, size=size)
    assert float(kl_entropy(*as_jax(*mixture))) == pytest.approx(
        dense_pairwise_entropy(*mixture, dense_kl), abs=1e-9
    )
    for alpha in (0.2, 0.5):
        value = float(chernoff_entropy(*as_jax(*mixture), alpha))
        assert value == pytest.approx(dense_pairwise_entropy(*mixture, dense_chernoff(alpha)), abs=1e-9)


@pytest.mark.parametrize(
    ("size", "spread"),
    [
        *((1, 2.0), (2, 0.3), (2, 2.0)),
        *(pytest.param(*case, marks=pytest.mark.study) for case in ((3, 8.0), (4, 1.0))),
    ],
)
def test_lower_and_upper_bounds_enclose_the_entropy(size, spread):
    mixture = plain_mixture(11, size=size, spread=spread)
    generator = np.random.default_rng(5)
    points = sample(generator, *mixture, 40_000)
    values = -np.logaddexp.reduce(np.log(mixture[0]) + log_densities(*mixture[1:], points), axis=1)
    truth, slack = values.mean(), 4.0 * values.std() / np.sqrt(len(values))
    for below in (chernoff_entropy, likelihood_entropy, tilt_entropy):
        assert float(below(*as_jax(*mixture))) <= truth + slack, below
    for above in (kl_entropy, moment_entropy, reference_entropy):
        assert float(above(*as_jax(*mixture))) >= truth - slack, above
    assert float(tilt_entropy(*as_jax(*mixture))) >= float(likelihood_entropy(*as_jax(*mixture))) - 1e-12


def test_tilt_is_exact_for_one_gaussian_and_nearly_so_for_a_gaussian_looking_crowd():
    weight, mean, covariance = plain_mixture(0, count=1, size=3)
    one = as_jax(weight, mean, covariance)
    assert float(tilt_entropy(*one)) == pytest.approx(
        0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance[0])[1]
    )
    generator = np.random.default_rng(1)
    crowd = (
        np.full(400, 1 / 400),
        generator.standard_normal((400, 2)),
        np.broadcast_to(np.eye(2), (400, 2, 2)),
    )
    exact = float(moment_entropy(*as_jax(*crowd)))
    assert 0 <= exact - float(tilt_entropy(*as_jax(*crowd))) < 0.01
    assert exact - float(chernoff_entropy(*as_jax(*crowd))) > 0.2


@pytest.mark.parametrize(
    "entropy", [kl_entropy, chernoff_entropy, likelihood_entropy, tilt_entropy, moment_entropy]
)
def test_order_and_duplicates_do_not_change_an_entropy_bound(entropy):
    """Splitting a component tells the weight of j from the weight of i in the inner sum."""
    weight, mean, covariance = plain_mixture(3, count=12)
    order = np.random.default_rng(0).permutation(12)
    halves = np.append(weight, weight[4] / 2)
    halves[4] /= 2
    doubled = (halves, np.append(mean, mean[4:5], axis=0), np.append(covariance, covariance[4:5], axis=0))
    before = float(entropy(*as_jax(weight, mean, covariance)))
    assert float(entropy(*as_jax(weight[order], mean[order], covariance[order]))) == pytest.approx(
        before, abs=1e-10
    )
    assert float(entropy(*as_jax(*doubled))) == pytest.approx(before, abs=1e-10)


def test_narrow_components_far_from_the_origin_keep_their_digits_in_float32():
    weight, mean, covariance = plain_mixture(2, count=200)
    mean, covariance = mean + 20.0, covariance * 1e-4  # sd about 0.01 at position 20
    exact = float(kl_entropy(*as_jax(weight, mean, covariance)))
    log_weights, parts = as_jax(weight, mean, covariance)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (log_weights, parts))
    # Means are rounded to 2e-6 before anything is computed: 1e-4 of the standard deviation.
    assert float(kl_entropy(*single)) == pytest.approx(exact, abs=2e-3)
    gradient = jax.grad(lambda parts: kl_entropy(single[0], parts))(single[1])
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))


def test_both_forms_of_the_pairwise_divergence_agree():
    """The matrix product and the sums of squares are the same numbers where neither loses digits."""
    weight, mean, covariance = plain_mixture(6, count=30, size=3)
    prepared = prepare(gaussian(jnp.asarray(mean), jnp.asarray(covariance)))
    product, difference = (form(jnp.asarray(weight), prepared) for form in (_by_product, _by_difference))
    assert np.asarray(product) == pytest.approx(np.asarray(difference), rel=1e-9)


def test_many_components_in_float32_have_the_sums_and_slopes_of_float64():
    """The unrolled sums, with a rest of columns, a component without weight, and gradients in everything."""
    count = MANY + UNROLLED // 2 + 1
    weight, mean, covariance = plain_mixture(7, count=count)
    weight = np.where(np.arange(count) == 5, 0.0, weight)
    weight /= weight.sum()

    def loss(weight, mean, covariance):
        sums = _by_product(weight, prepare(gaussian(mean, covariance)))
        return jnp.mean(jnp.log(sums)), sums

    found = {}
    for dtype in (jnp.float32, jnp.float64):
        given = tuple(jnp.asarray(part, dtype) for part in (weight, mean, covariance))
        (_, sums), slopes = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*given)
        found[dtype] = [np.asarray(part, float) for part in (sums, *slopes)]
    for single, double in zip(found[jnp.float32], found[jnp.float64], strict=True):
        assert np.max(np.abs(single - double)) < 2e-5 * np.max(np.abs(double))


@pytest.mark.study
def test_ragged_and_blocked_layouts_agree():
    weight, mean, covariance = plain_mixture(4, count=48, size=3)
    log_weights, parts = as_jax(weight, mean, covariance)
    blocked = grouped(
        log_weights.reshape(4, 12), jax.tree.map(lambda leaf: leaf.reshape((4, 12, *leaf.shape[1:])), parts)
    )
    ragged = Components(blocked.labels, blocked.log_weights, parts, 4)
    for first, second in zip(
        jax.tree.leaves(paper_bounds(blocked)), jax.tree.leaves(paper_bounds(ragged)), strict=True
    ):
        assert float(first) == pytest.approx(float(second), abs=1e-10)


def test_the_tightness_corollary_bounds_the_gap_of_clustered_mixtures():
    """Tight clusters far apart: the corollary's gap is small and holds for the bound's true gap."""
    generator = np.random.default_rng(8)
    centres = np.array([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0]])
    cluster = np.repeat(np.arange(3), 8)
    labels = np.tile([0, 1], 12)
    mean = centres[cluster] + 0.02 * generator.standard_normal((24, 2))
    parts = Gaussian(jnp.asarray(mean), jnp.broadcast_to(jnp.eye(2), (24, 2, 2)))
    components = Components(jnp.asarray(labels), jnp.full(24, -np.log(24.0)), parts, 2)
    result = tightness(components, cluster, cluster)
    assert result.gap < 0.01
    bound = eqx.filter_jit(paper_bounds)(components).kl_chernoff
    assert float(bound) <= result.gap + 1e-12  # the truth is not negative
    worse = tightness(components, np.zeros(24, int), np.zeros(24, int))
    assert worse.gap > 100 and worse.between == np.inf


def test_the_tightness_gap_is_the_formula_with_its_own_clusters():
    """Three clusters of moderate distance: κ, γ and the sum over secrets by dense formulas."""
    generator = np.random.default_rng(9)
    cluster, labels = np.repeat(np.arange(3), 4), np.tile([0, 1], 6)
    weight, covariance = generator.dirichlet(np.ones(12)), random_covariances(generator, 12, 2)
    mean = 2.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[cluster] + 0.1 * generator.standard_normal(
        (12, 2)
    )
    components = Components(jnp.asarray(labels), *as_jax(weight, mean, covariance), 2)

    def gap(chosen, alpha):
        pairs = [(i, j) for i in chosen for j in chosen]
        near = [
            dense_kl(mean[i] - mean[j], covariance[i], covariance[j])
            for i, j in pairs
            if cluster[i] == cluster[j]
        ]
        far = [
            dense_chernoff(0.5)(mean[i] - mean[j], covariance[i], covariance[j])
            for i, j in pairs
            if cluster[i] != cluster[j]
        ]
        return max(near) + 2.0 * np.exp(-(1.0 - abs(1.0 - 2.0 * alpha)) * min(far))

    for alpha in (0.5, 0.3):
        wanted = gap(range(12), alpha)
        for secret in (0, 1):
            own = np.flatnonzero(labels == secret)
            wanted += weight[own].sum() * gap(own, alpha)
        assert tightness(components, cluster, cluster, alpha).gap == pytest.approx(wanted, rel=1e-9)


def test_powers_of_two_are_right_to_the_last_digit_and_so_is_their_slope():
    exponent = np.linspace(-124.0, 0.0, 100_001).astype(np.float32)
    exact = 2.0 ** exponent.astype(float)
    assert np.asarray(power_of_two(jnp.asarray(exponent)), float) == pytest.approx(exact, rel=4e-7)
    slope = jax.vmap(jax.grad(power_of_two))(jnp.asarray(exponent[::1000]))
    assert np.asarray(slope, float) == pytest.approx(exact[::1000] * np.log(2.0), rel=4e-7)
    assert 0.0 < float(power_of_two(jnp.asarray(-1e30, jnp.float32))) < 1e-37
    assert np.isnan(float(power_of_two(jnp.asarray(np.nan, jnp.float32))))


@pytest.mark.study
def test_a_padded_coordinate_adds_its_entropy_to_tilt_and_nothing_else():
    weight, mean, covariance = plain_mixture(12, count=15, size=1, spread=3.0)
    deep, wide = np.zeros((15, 2)), np.broadcast_to(np.eye(2), (15, 2, 2)).copy()
    deep[:, :1], wide[:, :1, :1] = mean, covariance
    log_weights, parts = as_jax(weight, deep, wide)
    padded = jnp.exp(log_weights) @ over_mixture(tilt_row(1.0), prepare(parts), log_weights)
    plain = float(tilt_entropy(*as_jax(weight, mean, covariance)))
    assert float(padded) == pytest.approx(plain + 0.5 * np.log(2 * np.pi * np.e), abs=1e-10)

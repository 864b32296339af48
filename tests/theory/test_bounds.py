"""The paper's bounds on the particle information against dense formulas and quadrature in one dimension."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.beliefs import PooledBelief, Scheme
from veil.laws import Components, Gaussian, Kernel, Mixture
from veil.leakage import information_modulus, paper_bounds, tightness
from veil.leakage.entropy import kl_entropy, moment_entropy
from veil.leakage.paper import sound
from veil.systems import Gain, finite_prior

pytestmark = pytest.mark.usefixtures("float64")

bounds = jax.jit(paper_bounds, static_argnums=1)


def densities(mean, sd, line):
    """N_i(y), [N, G]."""
    return np.exp(-0.5 * ((line - mean[:, None]) / sd[:, None]) ** 2) / (sd[:, None] * np.sqrt(2 * np.pi))


def information(labels, weight, heights, line):
    """I(Θ; Y) by the trapezoid rule, heights [N, G] of what each particle releases."""
    joint = np.stack([weight[labels == k] @ heights[labels == k] for k in np.unique(labels)])
    masses, whole = np.bincount(labels, weight)[np.unique(labels)], joint.sum(axis=0)
    terms = joint * (np.log(joint + 1e-300) - np.log(masses)[:, None] - np.log(whole + 1e-300))
    return float(terms.sum() * (line[1] - line[0]))


def components(labels, weight, mean, sd):
    parts = Gaussian(jnp.asarray(mean)[:, None], jnp.asarray(sd)[:, None, None])
    return Components(
        jnp.asarray(labels, jnp.int32), jnp.log(jnp.asarray(weight)), parts, int(labels.max()) + 1
    )


def kl(mean, sd):
    """[N, N] KL(i ‖ j)."""
    apart = (mean[:, None] - mean[None, :]) ** 2
    ratio = sd[:, None] ** 2 / sd[None, :] ** 2
    return 0.5 * (ratio + apart / sd[None, :] ** 2 - 1.0 - np.log(ratio))


def chernoff(mean, sd, alpha):
    """[N, N] −log ∫ p_i^α p_j^(1−α)."""
    blend = (1.0 - alpha) * sd[:, None] ** 2 + alpha * sd[None, :] ** 2
    apart = 0.5 * alpha * (1.0 - alpha) * (mean[:, None] - mean[None, :]) ** 2 / blend
    return apart + 0.5 * np.log(blend / (sd[:, None] ** (2 * (1 - alpha)) * sd[None, :] ** (2 * alpha)))


def dense_bounds(labels, weight, mean, sd, alpha):
    """Theorems 4 and 5 as printed, but for the inner weight of the Chernoff entropy (deviation 1)."""
    own = 0.5 * np.log(2 * np.pi * np.e * sd**2)
    pairwise = weight @ (own - np.log(np.exp(-kl(mean, sd)) @ weight))
    centre = weight @ mean
    moments = 0.5 * np.log(2 * np.pi * np.e * (weight @ (sd**2 + (mean - centre) ** 2)))
    given = 0.0
    for secret in np.unique(labels):
        at = labels == secret
        mass, inner = weight[at].sum(), weight[at] / weight[at].sum()
        given += mass * inner @ (own[at] - np.log(np.exp(-chernoff(mean[at], sd[at], alpha)) @ inner))
    return pairwise - given, min(pairwise, moments) - given


@pytest.mark.parametrize("alpha", [0.5, 0.3])
def test_both_bounds_are_their_formulas_and_lie_above_the_information(alpha):
    """Mixtures from overlapping to far apart; neither of the two entropies is always the smaller."""
    generator, smaller, line = np.random.default_rng(3), set(), np.linspace(-60, 60, 24_001)
    for spread in (0.05, 0.3, 1.0, 3.0, 8.0):
        labels = np.concatenate([np.arange(3), generator.integers(0, 3, 21)])
        weight, sd = generator.dirichlet(np.ones(24)), np.exp(generator.uniform(-1.0, 0.5, 24))
        mean = spread * (generator.standard_normal(24) + labels)
        truth = information(labels, weight, densities(mean, sd, line), line)
        found, dense = (
            bounds(components(labels, weight, mean, sd), alpha),
            dense_bounds(labels, weight, mean, sd, alpha),
        )
        assert (float(found.kl_chernoff), float(found.regime_adaptive)) == pytest.approx(dense, abs=1e-9)
        assert truth <= dense[1] + 1e-9 and dense[1] <= dense[0]
        smaller.add(bool(dense[1] < dense[0] - 1e-9))
    assert smaller == {True, False}


def test_a_bound_that_rounding_broke_charges_all_that_could_leak():
    """Below zero by more than rounding, or not a number: H(q); a little below zero: nothing."""
    given = components(np.asarray([0, 1]), np.asarray([0.3, 0.7]), np.zeros(2), np.ones(2))
    entropy = -0.3 * np.log(0.3) - 0.7 * np.log(0.7)
    for value, wanted in ((0.4, 0.4), (-1e-3, 0.0), (-0.5, entropy), (np.nan, entropy)):
        assert float(sound(jnp.asarray(value), given)) == pytest.approx(wanted)
    slope = jax.grad(lambda value: sound(value, given))
    assert [float(slope(jnp.asarray(value))) for value in (0.4, -0.5)] == [1.0, 0.0]


def test_the_gap_is_within_the_tightness_corollary_where_much_leaks():
    """Far apart the spread within clusters makes the gap, near by their overlap; both leak most of H(q)."""
    generator, line = np.random.default_rng(5), np.linspace(-30, 60, 18_001)
    labels = np.repeat(np.arange(3), 6)
    weight = generator.dirichlet(np.full(18, 5.0))
    entropy = -np.sum(np.bincount(labels, weight) * np.log(np.bincount(labels, weight)))
    for apart, spread in ((14.0, 0.3), (4.0, 0.0)):
        mean, sd = apart * labels + spread * generator.standard_normal(18), np.ones(18)
        given = components(labels, weight, mean, sd)
        truth = information(labels, weight, densities(mean, sd, line), line)
        gap, allowed = (
            float(bounds(given, 0.5).kl_chernoff) - truth,
            tightness(given, labels, np.zeros(18, int)),
        )
        assert truth > 0.8 * entropy
        assert 1e-3 < gap <= allowed.gap
        assert allowed.gap < 2.5  # 2 e^(−γ) and twice κ at most, not one for every component
        # Without the part that makes it, the corollary would not hold.
        part = allowed.within if spread else 2.0 * np.exp(-allowed.between)
        assert allowed.gap - 2.0 * part < gap


def test_the_two_entropies_part_by_half_the_trace_of_the_separation():
    """H_KL − H_G = tr(A)/2 + O(‖A‖²): with a tenth of the separation, the rest is a hundredth."""
    generator = np.random.default_rng(6)
    weight, places = generator.dirichlet(np.ones(9)), generator.standard_normal((9, 3))
    root = np.linalg.cholesky(np.cov(generator.standard_normal((3, 12))))
    centred = places - weight @ places
    trace = np.trace(np.linalg.inv(root @ root.T) @ np.einsum("i,ij,ik->jk", weight, centred, centred))
    rest = []
    for scale in (0.1, 0.01):
        parts = Gaussian(jnp.asarray(scale * places), jnp.broadcast_to(jnp.asarray(root), (9, 3, 3)))
        apart = float(kl_entropy(jnp.log(weight), parts) - moment_entropy(jnp.log(weight), parts))
        first = 0.5 * scale**2 * trace
        assert apart > 0.0 and apart == pytest.approx(first, rel=2.0 * scale**2 * trace)
        rest.append(abs(apart - first) / first)
    assert rest[1] == pytest.approx(0.01 * rest[0], rel=0.2)


class TwoHumps(Kernel):
    """Two Gaussians around the level, the second more likely the larger the secret."""

    def __call__(self, secret, state):
        share = 0.2 + 0.6 * secret[0]
        mean = jnp.stack([state - 0.8, state + 0.8 + 0.5 * secret])
        scale = jnp.stack([0.3 + 0.0 * secret, 0.2 + 0.3 * secret])[:, :, None]
        return Mixture(jnp.log(jnp.stack([1.0 - share, share])), Gaussian(mean, scale))


def test_a_mixture_kernel_keeps_the_bound_under_a_pooled_belief():
    """Theorem 6 with ragged groups: after pooled resampling no two secrets have equally many particles."""
    system = Gain(prior=finite_prior([0.1, 0.5, 0.9]))
    belief = PooledBelief.start(system, 20, key=jr.key(1), scheme=Scheme(threshold=1.1, coupled=False))
    update = eqx.filter_jit(PooledBelief.update)
    for step, shared in enumerate((1.2, 2.0, 1.6)):
        given = system, TwoHumps(), jnp.asarray([0.3]), jnp.asarray([shared])
        belief = update(belief, *given, key=jr.key(step))[0]
    labels, weight = np.asarray(belief.labels), np.exp(np.asarray(belief.log_weights))
    assert len(set(np.bincount(labels))) == 3 and np.bincount(labels).sum() == 60
    level, secret = np.asarray(belief.states)[:, 0], np.asarray(system.prior.secrets)[labels, 0]
    share = 0.2 + 0.6 * secret
    split = np.stack([1.0 - share, share], axis=1).ravel()
    mean = np.stack([level - 0.8, level + 0.8 + 0.5 * secret], axis=1).ravel()
    sd = np.stack([np.full(60, 0.3), 0.2 + 0.3 * secret], axis=1).ravel()
    twice, joint, line = np.repeat(labels, 2), np.repeat(weight, 2) * split, np.linspace(-15, 15, 6001)
    truth = information(twice, joint, densities(mean, sd, line), line)
    found, dense = bounds(belief.components(TwoHumps()), 0.5), dense_bounds(twice, joint, mean, sd, 0.5)
    assert (float(found.kl_chernoff), float(found.regime_adaptive)) == pytest.approx(dense, abs=1e-9)
    assert 0.02 < truth <= dense[1]


# Corollary 2: kernels that are no mixtures, x + ε with ε of scale one, and mixtures made for them.


def laplace(line):
    return 0.5 * np.exp(-np.abs(line))


def uniform(line):
    return np.where(np.abs(line) <= 1.0, 0.5, 0.0)


def laplace_parts(count):
    """Laplace noise is Gaussian with an exponential variance of mean 2: midpoints of equal masses."""
    levels = (np.arange(count) + 0.5) / count
    return np.full(count, 1.0 / count), np.zeros(count), np.sqrt(-2.0 * np.log1p(-levels))


def uniform_parts(count):
    """Narrow bells, evenly spaced."""
    places = -1.0 + (2.0 * np.arange(count) + 1.0) / count
    return np.full(count, 1.0 / count), places, np.full(count, 1.0 / count)


@pytest.mark.parametrize("noise, parts", [(laplace, laplace_parts), (uniform, uniform_parts)])
def test_a_mixture_made_for_a_kernel_bounds_what_the_kernel_leaks(noise, parts):
    """From the construction to the bound: I ≤ RA of the mixture + ε, |I − I_mixture| ≤ ε, and ε falls."""
    generator, line = np.random.default_rng(9), np.linspace(-25.0, 25.0, 50_001)
    labels, weight = np.repeat([0, 1], 10), generator.dirichlet(np.ones(20))
    levels = np.where(labels == 0, -0.7, 0.7) + 0.4 * generator.standard_normal(20)
    truth = information(labels, weight, np.stack([noise(line - level) for level in levels]), line)
    slack = []
    for count in (8, 32, 128):
        split, places, sds = parts(count)
        bell = split @ densities(places, sds, line)
        distance = 0.5 * float(np.abs(bell - noise(line)).sum() * (line[1] - line[0]))
        epsilon = information_modulus(distance, 2)
        mean, sd = (levels[:, None] + places).ravel(), np.tile(sds, 20)
        joint, twice = (weight[:, None] * split).ravel(), np.repeat(labels, count)
        heights = np.stack([np.interp(line - level, line, bell, 0.0, 0.0) for level in levels])
        approximate = information(labels, weight, heights, line)
        assert abs(truth - approximate) <= epsilon
        bound = dense_bounds(twice, joint, mean, sd, 0.5)[1]
        if count == 32:  # the library's is the same; one size is enough
            assert float(bounds(components(twice, joint, mean, sd), 0.5).regime_adaptive) == pytest.approx(
                bound, abs=1e-8
            )
        assert approximate <= bound and truth <= bound + epsilon
        slack.append(epsilon)
    assert truth > 0.15 and slack[0] > slack[1] > slack[2] and slack[2] < 0.35


@pytest.mark.parametrize("secrets", [2, 4])
def test_the_modulus_is_reached(secrets):
    """A channel that errs with probability ε, evenly: it tells log K − h₂(ε) − ε log(K − 1)."""
    for error in (0.01, 0.1, 0.3):
        rows = np.full((secrets, secrets), error / (secrets - 1))
        np.fill_diagonal(rows, 1.0 - error)
        told = np.log(secrets) + np.sum(rows * np.log(rows)) / secrets
        assert np.log(secrets) - told == pytest.approx(information_modulus(error, secrets), abs=1e-12)

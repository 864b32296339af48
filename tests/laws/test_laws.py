import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from veil.laws import (
    Finite,
    Gaussian,
    Mixture,
    Point,
    bhattacharyya,
    chernoff,
    diagonal_gaussian,
    gaussian,
    kl,
    match_moments,
)

pytestmark = pytest.mark.usefixtures("float64")

MEANS = np.array([[1.0, -2.0], [0.5, 0.0]])
COVARIANCES = np.array([[[2.0, 0.3], [0.3, 1.0]], [[0.5, -0.2], [-0.2, 1.5]]])
WEIGHTS = np.array([0.3, 0.7])


def laws() -> Gaussian:
    return gaussian(jnp.asarray(MEANS), jnp.asarray(COVARIANCES))


def law(index) -> Gaussian:
    return jax.tree.map(lambda leaf: leaf[index], laws())


def mixture() -> Mixture:
    return Mixture(jnp.log(jnp.asarray(WEIGHTS)), laws())


def reference(index):
    return stats.multivariate_normal(MEANS[index], COVARIANCES[index])  # pyright: ignore[reportArgumentType]


def line(mean, sd) -> Gaussian:
    return diagonal_gaussian(jnp.array([mean]), jnp.array([sd]))


def test_gaussian_density_and_entropy_agree_with_scipy():
    values = np.random.default_rng(0).normal(size=(20, 2))
    found = jax.vmap(law(0).log_prob)(jnp.asarray(values))
    np.testing.assert_allclose(found, reference(0).logpdf(values), rtol=1e-12)
    np.testing.assert_allclose(law(0).entropy(), reference(0).entropy(), rtol=1e-12)
    np.testing.assert_allclose(laws().covariance, COVARIANCES, rtol=1e-12)


def test_noise_is_recovered_from_the_value_it_made():
    noise = jr.normal(jr.key(0), (10, 2))
    np.testing.assert_allclose(jax.vmap(lambda z: law(1).recover(law(1).sample(z)))(noise), noise, atol=1e-12)


def test_gaussian_draws_have_its_moments():
    draws = jax.vmap(law(0).sample)(jr.normal(jr.key(1), (100_000, 2)))
    np.testing.assert_allclose(draws.mean(axis=0), MEANS[0], atol=4 * np.sqrt(2 / 100_000))
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCES[0], atol=4 * np.sqrt(2 * 4 / 100_000))


def test_a_degenerate_law_still_draws():
    np.testing.assert_array_equal(line(3.0, 0.0).sample(jnp.array([5.0])), [3.0])


def test_divergence_agrees_with_monte_carlo_and_vanishes_between_equals():
    draws = reference(0).rvs(200_000, random_state=0)
    ratios = reference(0).logpdf(draws) - reference(1).logpdf(draws)
    assert float(kl(law(0), law(1))) == pytest.approx(ratios.mean(), abs=4 * ratios.std() / np.sqrt(200_000))
    assert float(kl(law(0), law(0))) == pytest.approx(0.0, abs=1e-12)


def test_divergence_of_lines_agrees_with_the_textbook():
    # log(σ₂/σ₁) + (σ₁² + Δ²)/(2σ₂²) − ½: not symmetric, so the order of arguments is tested
    expected = np.log(3.0 / 0.5) + (0.25 + 4.0) / 18.0 - 0.5
    assert float(kl(line(1.0, 0.5), line(3.0, 3.0))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_chernoff_agrees_with_quadrature(alpha):
    def product(y):
        return stats.norm.pdf(y, 1.0, 0.5) ** alpha * stats.norm.pdf(y, 2.0, 1.5) ** (1 - alpha)

    integral = integrate.quad(product, -15, 15, points=[1, 2])[0]
    found = float(chernoff(line(1.0, 0.5), line(2.0, 1.5), alpha))
    assert found == pytest.approx(-np.log(integral), rel=1e-8)


def test_chernoff_in_the_plane_agrees_with_monte_carlo():
    draws = reference(1).rvs(200_000, random_state=1)
    terms = np.exp(0.3 * (reference(0).logpdf(draws) - reference(1).logpdf(draws)))
    error = terms.std() / np.sqrt(200_000) / terms.mean()
    assert float(chernoff(law(0), law(1), 0.3)) == pytest.approx(-np.log(terms.mean()), abs=4 * error)


def test_bhattacharyya_is_symmetric_and_chernoff_vanishes_at_the_ends():
    assert float(bhattacharyya(law(0), law(1))) == pytest.approx(
        float(bhattacharyya(law(1), law(0))), rel=1e-12
    )
    for alpha in (0.0, 1.0):
        assert float(chernoff(law(0), law(1), alpha)) == pytest.approx(0.0, abs=1e-12)


def test_mixture_density_agrees_with_scipy():
    values = np.random.default_rng(2).normal(size=(20, 2))
    expected = np.log(sum(WEIGHTS[j] * reference(j).pdf(values) for j in range(2)))
    np.testing.assert_allclose(jax.vmap(mixture().log_prob)(jnp.asarray(values)), expected, rtol=1e-12)


def test_mixture_draws_have_the_matched_moments():
    matched = match_moments(jnp.log(jnp.asarray(WEIGHTS)), laws())
    draws = jax.jit(jax.vmap(mixture().sample))(jr.normal(jr.key(3), (100_000, 3)))
    mean = WEIGHTS @ MEANS
    second = np.einsum("j,jkl->kl", WEIGHTS, COVARIANCES + MEANS[:, :, None] * MEANS[:, None, :])
    np.testing.assert_allclose(matched.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(matched.covariance, second - np.outer(mean, mean), rtol=1e-10)
    np.testing.assert_allclose(mixture().as_gaussian().scale, matched.scale)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4 * np.sqrt(2.3 / 100_000))
    np.testing.assert_allclose(np.cov(draws.T), matched.covariance, atol=0.04)


def test_finite_laws_draw_their_atoms_with_their_masses():
    masses = np.array([0.1, 0.6, 0.3])
    law = Finite(jnp.array([[0.0], [1.0], [2.5]]), jnp.log(jnp.asarray(masses)))
    draws = np.asarray(jax.vmap(law.sample)(jr.normal(jr.key(4), (50_000, 1))))[:, 0]
    for atom, mass in zip((0.0, 1.0, 2.5), masses, strict=True):
        error = np.sqrt(mass * (1 - mass) / 50_000)
        assert np.mean(draws == atom) == pytest.approx(mass, abs=4 * error)
        assert float(law.log_prob(jnp.array([atom]))) == pytest.approx(np.log(mass), rel=1e-12)
    assert float(law.log_prob(jnp.array([0.7]))) == -np.inf


def test_extreme_noise_still_chooses_an_atom():
    law = Finite(jnp.array([[0.0], [1.0]]), jnp.log(jnp.array([0.5, 0.5])))
    assert float(law.sample(jnp.array([40.0]))[0]) == 1.0
    assert float(law.sample(jnp.array([-40.0]))[0]) == 0.0


def test_a_point_law_has_no_noise_and_no_density():
    law = Point(jnp.array([1.0, 2.0]))
    assert law.noise_size == 0
    np.testing.assert_array_equal(law.sample(jnp.zeros(0)), [1.0, 2.0])
    with pytest.raises(TypeError, match="no density"):
        law.log_prob(jnp.array([1.0, 2.0]))


def test_noise_sizes_are_what_the_draws_take():
    assert (law(0).noise_size, mixture().noise_size) == (2, 3)

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from veil.systems import Prior, finite_prior, quasi_random_prior


def test_a_prior_is_uniform_unless_told():
    prior = finite_prior([0.3, 0.6, 0.9])
    assert prior.secrets.shape == (3, 1)
    np.testing.assert_allclose(jnp.exp(prior.log_masses), 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(prior.entropy, np.log(3), rtol=1e-6)


def test_entropy_agrees_with_scipy(float64):
    masses = [0.1, 0.2, 0.7]
    prior = finite_prior([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], masses)
    np.testing.assert_allclose(prior.entropy, stats.entropy(masses), rtol=1e-12)


def test_a_secret_without_mass_adds_no_entropy():
    prior = Prior(jnp.array([[0.0], [1.0]]), jnp.array([0.0, -jnp.inf]))
    assert float(prior.entropy) == 0.0


@pytest.mark.parametrize("masses", [[0.5, 0.4], [1.5, -0.5], [0.5, 0.25, 0.25], [1.0, 0.0]])
def test_masses_that_are_none_are_refused(masses):
    with pytest.raises(ValueError, match="sum to one"):
        finite_prior([0.1, 0.2], masses)


def test_shapes_that_do_not_fit_are_refused():
    # Under the tests' type checks the wrong shape is refused one step earlier.
    with pytest.raises(Exception, match=r"shape|check"):
        Prior(jnp.zeros((3, 2)), jnp.zeros(2))


def test_quasi_random_secrets_have_the_moments_of_their_marginals():
    # 256 scrambled Sobol' points: far closer than the 1/16 of plain draws.
    laws = [stats.norm(2.0, 0.5), stats.uniform(-1.0, 4.0)]
    prior = quasi_random_prior(laws, 256, seed=1)
    points = np.asarray(prior.secrets, float)
    np.testing.assert_allclose(points.mean(axis=0), [law.mean() for law in laws], atol=0.02)
    np.testing.assert_allclose(points.std(axis=0), [law.std() for law in laws], atol=0.02)
    assert abs(np.corrcoef(points.T)[0, 1]) < 0.02
    np.testing.assert_allclose(prior.entropy, np.log(256), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_quasi_random_priors_have_the_asked_size(count):
    assert quasi_random_prior([stats.norm()], count).secrets.shape == (count, 1)

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from veil.laws import Finite, Gaussian, Mixture, Point, SwitchedLaw, diagonal_gaussian

pytestmark = pytest.mark.usefixtures("float64")

LOGITS = (0.3, -1.0, 0.8)
PLACES = np.asarray([0.0, 1.0, 2.5])
COUNT = 40_000


def finite(log_masses):
    return Finite(jnp.asarray(PLACES)[:, None], log_masses)


def mixture(log_masses):
    """Parts so narrow that a draw shows which one it came from."""
    return Mixture(log_masses, Gaussian(jnp.asarray(PLACES)[:, None], jnp.full((3, 1, 1), 1e-3)))


def evenly_spaced(size):
    """Noise whose first number runs through the quantiles, one row per draw; the others are zero."""
    noise = np.zeros((COUNT, size))
    noise[:, 0] = stats.norm.ppf((np.arange(COUNT) + 0.5) / COUNT)
    return jnp.asarray(noise)


@pytest.mark.parametrize("make", [finite, mixture])
def test_a_choice_has_the_mass_of_what_the_draw_shows(make):
    log_masses = jax.nn.log_softmax(jnp.asarray(LOGITS))
    law = make(log_masses)
    noise = evenly_spaced(law.noise_size)
    draws = np.asarray(jax.vmap(law.sample)(noise))[:, 0]
    chosen = np.argmin(np.abs(draws[:, None] - PLACES[None, :]), axis=1)
    assert len(set(chosen)) == 3
    assert np.allclose(jax.vmap(law.log_choice)(noise), np.asarray(log_masses)[chosen], rtol=1e-14)


@pytest.mark.parametrize("make", [finite, mixture])
def test_the_score_gives_the_gradient_of_an_expectation(make):
    """d/dlogits Σ p_j f(place_j) by softmax calculus, against the mean of f(draw) · score."""
    logits, noise = jnp.asarray(LOGITS), evenly_spaced(make(jnp.asarray(LOGITS)).noise_size)

    def surrogate(logits):
        law = make(jax.nn.log_softmax(logits))
        values = jax.lax.stop_gradient(jax.vmap(law.sample)(noise)[:, 0] ** 2)
        return jnp.mean(values * jax.vmap(law.log_choice)(noise))

    masses = np.asarray(jax.nn.softmax(logits))
    truth = masses * (PLACES**2 - masses @ PLACES**2)
    assert np.allclose(jax.grad(surrogate)(logits), truth, atol=1e-3)


def test_where_nothing_is_chosen_the_score_is_zero():
    line, noise = diagonal_gaussian(jnp.ones(2), jnp.ones(2)), jnp.asarray([0.3, -0.2])
    assert line.log_choice(noise) == 0.0 and line.log_choice(noise).dtype == line.mean.dtype
    assert Point(jnp.ones(2)).log_choice(jnp.zeros(0)) == 0.0
    single = diagonal_gaussian(jnp.ones(2, jnp.float32), jnp.ones(2, jnp.float32))
    assert single.log_choice(jnp.zeros(2, jnp.float32)).dtype == jnp.float32


def test_a_held_value_was_not_chosen():
    inner, noise = finite(jax.nn.log_softmax(jnp.asarray(LOGITS))), jnp.asarray([0.4])
    assert (
        SwitchedLaw(jnp.asarray(True), jnp.ones(1), inner).log_choice(noise) == inner.log_choice(noise) < 0.0
    )
    assert SwitchedLaw(jnp.asarray(False), jnp.ones(1), inner).log_choice(noise) == 0.0

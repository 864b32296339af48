import jax.numpy as jnp
import numpy as np
import pytest

from veil.laws import Finite, Gaussian, Mixture, Point, Rounded, SwitchedLaw, diagonal_gaussian

MEAN = jnp.asarray([1.3, -0.2])
NARROW, PAIR = diagonal_gaussian(MEAN, jnp.asarray([0.5, 0.2])), jnp.log(jnp.asarray([0.3, 0.7]))
LAWS = {
    "gaussian": NARROW,
    "mixture": Mixture(PAIR, Gaussian(jnp.stack([MEAN, -MEAN]), jnp.stack([NARROW.scale] * 2))),
    "finite": Finite(jnp.stack([MEAN, -MEAN]), PAIR),
    "rounded": Rounded(MEAN, jnp.asarray([0.5, 0.25])),
    "point": Point(MEAN),
}


def held(law):
    return SwitchedLaw(jnp.asarray(False), jnp.zeros(2), law)


def can(function):
    """Whether a law does it; a refusal is a sentence that says what to do."""
    try:
        function()
    except TypeError as error:
        assert len(str(error)) > 60
        return False
    return True


@pytest.mark.parametrize("name", LAWS)
def test_a_law_does_what_it_says_it_can(name):
    law = LAWS[name]
    assert can(law.gaussian_parts) == (law.component_count > 0) == can(law.as_gaussian)
    assert can(lambda: law.blurred(jnp.ones(2))) == (law.component_count > 0)
    assert can(law.masses) == law.is_finite
    assert can(law.smoothed) == (not law.is_point) == can(lambda: law.log_prob(MEAN))
    assert law.fresh_law() is law and bool(law.is_fresh)
    assert held(law).fresh_law() is law and not bool(held(law).is_fresh)
    assert held(held(law)).fresh_law() is law and not can(held(law).gaussian_parts)
    assert can(held(law).smoothed) == can(law.smoothed)


@pytest.mark.parametrize("name", ["finite", "rounded"])
def test_masses_are_those_of_the_draws(name):
    law = LAWS[name]
    atoms, log_masses = law.masses()
    assert np.exp(log_masses).sum() == pytest.approx(1.0, abs=1e-6)
    for atom, mass in zip(atoms, log_masses, strict=True):
        assert float(law.log_prob(atom)) == pytest.approx(float(mass))
    drawn = law.sample(jnp.zeros(law.noise_size))
    assert any(np.array_equal(drawn, atom) for atom in atoms)


def test_a_quantiser_is_aimed_at_as_its_input_with_the_noise_of_a_cell():
    law = LAWS["rounded"]
    assert np.array_equal(law.sample(jnp.zeros(0)), [1.5, -0.25]) and law.is_smooth
    assert np.allclose(law.smoothed().mean, MEAN)
    assert np.allclose(np.diag(law.smoothed().scale), np.asarray([0.5, 0.25]) / np.sqrt(12.0))


def test_blur_adds_variances_and_none_changes_no_bit():
    for name in ("gaussian", "mixture"):
        law, wide = LAWS[name], LAWS[name].blurred(jnp.asarray([1.2, 0.0]))
        (_, parts), (_, before) = wide.gaussian_parts(), law.gaussian_parts()
        added = parts.covariance - before.covariance
        assert np.allclose(added, np.diag([1.44, 0.0]), atol=1e-6)
        assert np.array_equal(law.blurred(jnp.zeros(2)).gaussian_parts()[1].scale, before.scale)

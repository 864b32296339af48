import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from veil.distortion import expected_distance, expected_distance_quadrature, expected_squared_distance
from veil.systems import Platoon

# one compilation per shape and type
BOTH = jax.jit(jax.value_and_grad(expected_distance_quadrature, argnums=(0, 1, 2)))
COVARIANCE = np.array([[2.0, 0.3], [0.3, 1.0]])
# weights, offset, covariance
CASES = {
    "general": ([3.0, 1.0], [1.0, 0.5], COVARIANCE),
    "narrow": ([3.0, 1.0], [0.3, -4.0], 1e-4 * COVARIANCE),
    "skew": ([3.0, 1.0], [0.1, 0.2], [[4.0, 0.0], [0.0, 1e-6]]),
    "centred": ([3.0, 1.0], [0.0, 0.0], COVARIANCE),
    "rank one": ([1.0, 1.0], [0.2, -0.1], [[1.0, 2.0], [2.0, 4.0]]),
    "no noise": ([3.0, 1.0], [1.0, 1.0], np.zeros((2, 2))),
    "round": ([1.0, 1.0], [1.0, 2.0], 0.7 * np.eye(2)),
    "three": ([3.0, 1.0, 0.5], [1.0, 0.0, 2.0], np.diag([1.0, 2.0, 0.1])),
    "line": ([2.0], [-0.4], [[0.5]]),
}


def by_polar_quadrature(weights, offset, covariance):
    """E[d] in two dimensions: an adaptive double integral over standard normal polar coordinates."""
    factor = np.linalg.cholesky(covariance)

    def integrand(angle, radius):
        error = offset + factor @ (radius * np.array([np.cos(angle), np.sin(angle)]))
        return np.sqrt(weights @ error**2) * radius * np.exp(-0.5 * radius**2) / (2 * np.pi)

    return integrate.dblquad(integrand, 0, 9, 0, 2 * np.pi, epsabs=1e-9, epsrel=1e-9)[0]


@pytest.mark.parametrize("name", ["general", "centred"])
def test_the_expected_distance_agrees_with_an_adaptive_double_integral(name):
    weights, offset, covariance = (np.asarray(value) for value in CASES[name])
    found = expected_distance(weights, offset, covariance)
    assert found.value == pytest.approx(by_polar_quadrature(weights, offset, covariance), rel=1e-7)
    assert found.error < 1e-9


@pytest.mark.parametrize("name", ["general", "skew", "rank one", "three"])
def test_the_expected_distance_agrees_with_monte_carlo(name):
    weights, offset, covariance = (np.asarray(value) for value in CASES[name])
    draws = np.random.default_rng(0).multivariate_normal(offset, covariance, size=200_000)
    distances = np.sqrt(draws**2 @ weights)
    error = distances.std() / np.sqrt(200_000)
    assert expected_distance(weights, offset, covariance).value == pytest.approx(
        distances.mean(), abs=4 * error
    )


@pytest.mark.parametrize(
    ("weights", "offset", "covariance", "law", "method"),
    [
        ([2.0], [-0.4], [[0.5]], stats.foldnorm(0.4 / np.sqrt(0.5), scale=1.0), "folded normal"),
        ([1.0, 1.0], [3.0, 4.0], np.eye(2), stats.rice(5.0), "non-central chi"),
        ([4.0, 1.0], [0.0, 0.0], np.diag([0.25, 1.0]), stats.rayleigh(), "elliptic integral"),
        ([1.0] * 3, [0.0] * 3, 4 * np.eye(3), stats.maxwell(scale=2.0), "non-central chi"),
        ([1.0] * 5, [0.0] * 5, np.eye(5), stats.chi(5), "non-central chi"),
    ],
)
def test_closed_forms_agree_with_scipy(weights, offset, covariance, law, method):
    found = expected_distance(weights, offset, covariance)
    assert found.method == method
    assert found.value == pytest.approx(law.mean(), rel=1e-9)


def test_the_integral_agrees_with_the_closed_forms_next_to_it():
    # A hair away from each special case the integral takes over: no jump.
    hair = np.diag([1e-12, 0.0])
    for weights, offset, covariance in (([1, 1], [1.0, 2.0], np.eye(2)), ([3, 1], [0, 0], COVARIANCE)):
        closed = expected_distance(weights, offset, covariance)
        integral = expected_distance(weights, np.asarray(offset) + 1e-12, covariance + hair)
        assert closed.method != "integral" and integral.method == "integral"
        assert integral.value == pytest.approx(closed.value, rel=1e-11)


def test_a_far_offset_leaves_only_its_length():
    # E d = |m| + (tr A − mᵀAm/|m|²) / (2|m|) + O(|m|⁻³) with A in the metric of the weights
    found = expected_distance([1.0, 1.0], [1e4, 0.0], COVARIANCE).value
    assert found == pytest.approx(1e4 + 1.0 / 2e4, abs=1e-9)


def test_zero_everything_is_zero():
    found = expected_distance([3.0, 1.0], [0.0, 0.0], np.zeros((2, 2)))
    assert (found.value, found.jensen_bound, found.error) == (0.0, 0.0, 0.0)
    assert expected_distance([0.0, 0.0], [1.0, 0.0], COVARIANCE).value == 0.0


@pytest.mark.parametrize("name", CASES)
def test_jensens_bound_is_the_root_of_the_exact_square_and_dominates(name, float64):
    arrays = tuple(jnp.asarray(value, float) for value in CASES[name])
    found = expected_distance(*CASES[name])
    assert found.value <= found.jensen_bound * (1 + 1e-12)
    assert found.jensen_bound == pytest.approx(float(jnp.sqrt(expected_squared_distance(*arrays))), rel=1e-9)


def test_the_expected_square_is_that_of_the_platoon_by_monte_carlo():
    state, offset = jnp.array([15.0, 20.0]), jnp.array([0.5, -1.0])
    factor = np.linalg.cholesky(COVARIANCE)
    errors = np.random.default_rng(1).normal(size=(100_000, 2)) @ factor.T + np.asarray(offset)
    releases = state[None, :] + jnp.asarray(errors, jnp.float32)
    squares = jax.vmap(Platoon().distortion, (None, 0))(state, releases) ** 2
    exact = expected_squared_distance(jnp.array([3.0, 1.0]), offset, jnp.asarray(COVARIANCE, jnp.float32))
    assert float(squares.mean()) == pytest.approx(
        float(exact), abs=4 * float(squares.std()) / np.sqrt(100_000)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_fixed_rule_matches_the_door_and_its_gradients_are_finite(name, float64):
    weights, offset, covariance = (jnp.asarray(value, float) for value in CASES[name])
    value, slopes = BOTH(weights, offset, covariance)
    assert float(value) == pytest.approx(expected_distance(*CASES[name]).value, rel=1e-6)
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes)
    # single precision stays close, and finite
    single = [value.astype(jnp.float32) for value in (weights, offset, covariance)]
    coarse, slopes = BOTH(*single)
    assert float(coarse) == pytest.approx(float(value), rel=2e-5)
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes)


def test_the_fixed_rule_has_the_gradient_of_the_door(float64):
    weights, offset, covariance = (np.asarray(value, float) for value in CASES["general"])
    slopes = BOTH(*map(jnp.asarray, (weights, offset, covariance)))[1][1:]
    step = 1e-5
    for i in range(2):
        move = step * np.eye(2)[i]
        ahead, behind = (expected_distance(weights, offset + k * move, covariance).value for k in (1, -1))
        assert float(slopes[0][i]) == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)
        ahead, behind = (
            expected_distance(weights, offset, covariance + k * np.diag(move)).value for k in (1, -1)
        )
        assert float(slopes[1][i, i]) == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)


def test_the_fixed_rule_is_zero_with_zero_gradient_at_nothing():
    zeros = jnp.zeros(2), jnp.zeros((2, 2))
    value, slopes = BOTH(jnp.array([3.0, 1.0]), *zeros)
    assert float(value) == 0.0
    assert all(bool(jnp.all(slope == 0.0)) for slope in slopes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, -1.0], [0.0, 0.0], np.eye(2)), "weights must not be negative"),
        ((1.0, [0.0], np.eye(1)), "weights must be a vector"),
        (([1.0, 1.0], [0.0], np.eye(2)), "offset must have shape"),
        (([1.0, 1.0], [0.0, 0.0], [1.0, 1.0]), "covariance must have shape"),
        (([1.0, 1.0], [np.nan, 0.0], np.eye(2)), "offset must be finite"),
        (([1.0, 1.0], [0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (([1.0, 1.0], [0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "negative eigenvalues"),
        (([1.0], [0.0], [[1.0]], 0.0), "tolerance"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        expected_distance(*arguments)

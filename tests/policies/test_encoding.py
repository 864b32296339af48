import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.policies.round_units import finite, platoon_units
from veil.beliefs import KalmanBelief, ParticleBelief, Scheme
from veil.laws import Gaussian
from veil.policies import MgfEncoder, MomentEncoder, mgf_encoder
from veil.policies.networks import Form, expected_relu
from veil.systems.platoon import DRIVERS

MASSES = np.asarray([0.1, 0.2, 0.3, 0.4])
FORMS: tuple[Form, ...] = ("relu", "exponential")


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def particles(count=7, spread=1.0):
    """A belief with unequal masses and unequal weights."""
    states = np.asarray([15.0, 20.0]) + spread * np.asarray([0.5, 2.0]) * drawn(0, 4, count, 2)
    log_weights = special.log_softmax(drawn(1, 4, count), axis=1)
    return of_particles(np.asarray(DRIVERS), np.log(MASSES), states, log_weights)


def of_particles(secrets, log_masses, states, log_weights):
    secrets, log_masses, states, log_weights = map(jnp.asarray, (secrets, log_masses, states, log_weights))
    return ParticleBelief(secrets, log_masses, states, log_weights, None, Scheme())


def gaussians(spread=1.0):
    """A Kalman belief with unequal masses and correlated coordinates; the last law is a point."""
    mean = np.asarray([15.0, 20.0]) + spread * drawn(2, 4, 2)
    scale = spread * np.tril(drawn(3, 4, 2, 2)) * np.asarray([1.0, 1.0, 1.0, 0.0])[:, None, None]
    states = Gaussian(jnp.asarray(mean), jnp.asarray(scale))
    return KalmanBelief(jnp.asarray(DRIVERS), jnp.asarray(np.log(MASSES)), states)


def points():
    return jnp.asarray(drawn(4, 5, 4))


@eqx.filter_jit
def encode(encoder, belief):
    return encoder(belief, platoon_units())


@eqx.filter_jit
def steepness(encoder, belief):
    return jax.jacrev(lambda one: one(belief, platoon_units()))(encoder)


def in_units(secret, state):
    return np.concatenate([(secret - [0.85, 0.95]) / 0.4, (state - [15.0, 20.0]) / [0.5, 2.0]], axis=-1)


def moments_by_hand(form, weights, cloud):
    """Mean and features of weighted points, in plain numpy."""
    heights = cloud @ np.asarray(points()).T
    if form == "relu":
        return np.concatenate([weights @ cloud, weights @ np.maximum(heights, 0.0)])
    return np.concatenate([weights @ cloud, np.log(weights @ np.exp(heights))])


@pytest.mark.parametrize("form", FORMS)
def test_features_of_particles_are_weighted_sums_and_blind_to_order_and_duplication(float64, form):
    belief, encoder = particles(), MgfEncoder(points(), form)
    found = encode(encoder, belief)
    secrets = np.repeat(np.asarray(belief.secrets), 7, axis=0)
    weights = (MASSES[:, None] * np.exp(np.asarray(belief.log_weights))).reshape(-1)
    cloud = in_units(secrets, np.asarray(belief.states).reshape(-1, 2))
    assert found.shape == (encoder.size,) == (9,)
    assert np.allclose(found, moments_by_hand(form, weights, cloud), rtol=1e-12, atol=1e-12)

    order, mixed = np.asarray([3, 0, 6, 1, 5, 2, 4]), np.asarray([2, 0, 3, 1])
    secrets, masses, states, inner = map(
        np.asarray, (belief.secrets, belief.log_masses, belief.states, belief.log_weights)
    )
    turned = of_particles(secrets[mixed], masses[mixed], states[mixed][:, order], inner[mixed][:, order])
    twice = of_particles(
        secrets,
        masses,
        np.concatenate([states, states], axis=1),
        np.concatenate([inner, inner], axis=1) - np.log(2.0),
    )
    for other in (turned, twice):
        assert np.allclose(encode(encoder, other), found, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_closed_forms_agree_with_many_draws(float64, form):
    belief, count, rng = gaussians(spread=0.3), 100_000, np.random.default_rng(0)
    found = np.array(encode(MgfEncoder(points(), form), belief))
    expected, variance = np.zeros(9), np.zeros(9)
    for mass, secret, mean, scale in zip(
        MASSES,
        np.asarray(belief.secrets),
        *map(np.asarray, (belief.states.mean, belief.states.scale)),
        strict=True,
    ):
        drawn = mean + rng.normal(size=(count, 2)) @ scale.T
        cloud = in_units(np.broadcast_to(secret, drawn.shape), drawn)
        heights = cloud @ np.asarray(points()).T
        values = np.maximum(heights, 0.0) if form == "relu" else np.exp(heights - found[None, 4:])
        every = np.concatenate([cloud, values], axis=1)
        expected += mass * every.mean(axis=0)
        variance += mass**2 * every.var(axis=0) / count
    if form == "exponential":
        found[4:] = 1.0  # exp(height − cumulant) has mean one
    assert np.all(np.abs(found - expected) < 4.5 * np.sqrt(variance) + 1e-12)


def test_the_expected_height_above_zero_agrees_with_quadrature(float64):
    for mean, sd in [(0.0, 1.0), (1.3, 0.4), (-0.7, 2.0), (-3.0, 0.5), (40.0, 3.0)]:
        truth = integrate.quad(lambda u, m=mean, s=sd: u * stats.norm.pdf(u, m, s), 0.0, mean + 12 * sd)[0]
        found = float(expected_relu(jnp.asarray(mean), jnp.asarray(sd**2)))
        assert found == pytest.approx(truth, rel=1e-7)


def test_a_known_value_has_its_own_height_and_a_gradient():
    means = jnp.asarray([0.0, 1e-20, 1.0, -1.0, 1e6, -1e6, 3e4], jnp.float32)
    values, slopes = jax.vmap(jax.value_and_grad(expected_relu, (0, 1)))(means, jnp.zeros_like(means))
    assert np.allclose(values, np.maximum(means, 0.0), atol=1e-6) and finite(slopes)
    assert np.allclose(slopes[0], [0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize("make", [particles, gaussians])
def test_a_belief_fifty_times_as_wide_overflows_nothing(make):
    """Single precision ends at exp(88); a cumulant does not."""
    belief = make(spread=50.0)
    for form in FORMS:
        encoder = MgfEncoder(points(), form)
        features = encode(encoder, belief)
        assert finite(features) and finite(steepness(encoder, belief))
        if form == "exponential":
            assert np.max(features) > 88.0
        if form == "exponential" and make is particles:
            cloud = in_units(
                np.repeat(np.asarray(belief.secrets, float), 7, axis=0),
                np.asarray(belief.states, float).reshape(-1, 2),
            )
            weights = (MASSES[:, None] * np.exp(np.asarray(belief.log_weights, float))).reshape(-1)
            heights = cloud @ np.asarray(points(), float).T
            truth = np.asarray(special.logsumexp(heights, axis=0, b=weights[:, None]))
            assert np.allclose(features[4:], truth, rtol=1e-5)


def test_moments_are_told_per_secret_in_units(float64):
    belief, encoder = gaussians(), MomentEncoder(4, 2)
    found = np.asarray(encode(encoder, belief))
    assert found.shape == (encoder.size,) == (4 * (1 + 2 + 3),)
    mean, scale = np.asarray(belief.states.mean), np.asarray(belief.states.scale)
    assert np.allclose(found[:4], MASSES)
    for k in range(4):
        assert np.allclose(found[4 + 2 * k : 6 + 2 * k], (mean[k] - [15.0, 20.0]) / [0.5, 2.0])
        entries = [scale[k, 0, 0] / 0.5, scale[k, 1, 0] / 2.0, scale[k, 1, 1] / 2.0]
        assert np.allclose(found[12 + 3 * k : 15 + 3 * k], entries)
    assert not jax.tree.leaves(encoder)  # nothing to learn


def test_encoders_are_made_for_their_units_or_not_at_all():
    encoder = mgf_encoder(platoon_units(), 6, "exponential", key=jr.key(0))
    assert encoder.points.shape == (6, 4) and encoder.form == "exponential"
    assert [leaf.shape for leaf in jax.tree.leaves(encoder)] == [(6, 4)]
    with pytest.raises(ValueError, match="at least 1"):
        mgf_encoder(platoon_units(), 0, key=jr.key(0))
    with pytest.raises((TypeError, ValueError), match="exponential"):
        MgfEncoder(points(), "cosine")  # pyright: ignore[reportArgumentType]


def test_a_secret_is_told_its_own_moments_apart():
    """Measured from the mean over all secrets; the moment-generating features know of no single secret."""
    belief, units = gaussians(), platoon_units()
    encoder = MomentEncoder(4, 2)
    features = encode(encoder, belief)
    means = (np.asarray(belief.states.mean) - [15.0, 20.0]) / [0.5, 2.0]
    factors = np.asarray(belief.states.scale) / np.asarray([0.5, 2.0])[:, None]
    for k in range(4):
        own = np.asarray(encoder.own(features, jnp.asarray(k, jnp.int32)))
        assert own.shape == (encoder.own_size,)
        assert np.allclose(own[:2], means[k] - MASSES @ means, atol=1e-5)
        assert np.allclose(own[2:], [factors[k, 0, 0], factors[k, 1, 0], factors[k, 1, 1]], atol=1e-5)
    blind = mgf_encoder(units, key=jr.key(0))
    assert blind.own_size == blind.own(features, jnp.asarray(0, jnp.int32)).shape[0] == 0

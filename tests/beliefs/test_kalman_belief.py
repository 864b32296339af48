import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from belief_truths import Plane, Sight, gain_bank, plane_bank, posterior

from veil.beliefs import KalmanBelief
from veil.laws import Kernel, Rounded, diagonal_gaussian
from veil.policies import GaussianNoise
from veil.policies.plain import GridKernel, NoiseKernel
from veil.rollout import follow, rollout
from veil.systems.gain import Gain


def run(belief, system, kernel, shared, external):
    """Advance along a transcript; NaN rows are withheld. Returns log-masses and health per step."""
    masses, healths = [], []
    advance = eqx.filter_jit(lambda own, w, y: own.update(system, kernel, w, y, key=jr.key(0)))
    for y, w in zip(np.asarray(shared), np.asarray(external), strict=True):
        seen = None if np.any(np.isnan(y)) else jnp.asarray(y)
        belief, health = advance(belief, jnp.asarray(w), seen)
        masses.append(np.asarray(belief.log_masses))
        healths.append(health)
    return np.stack(masses), healths, belief


def some_transcript(steps, size, seed=0):
    noise = np.random.default_rng(seed)
    return noise.normal(size=(steps, size)), noise.normal(size=(steps, 1))


def test_the_gain_loop_is_tracked_exactly(float64):
    system = Gain()
    shared, external = some_transcript(8, 1)
    truth = gain_bank(system, 0.4, shared, external)
    kernel = NoiseKernel(system, jnp.asarray([0.4]))
    masses, healths, _ = run(KalmanBelief.start(system), system, kernel, shared, external)
    assert np.allclose(np.stack([h.log_likelihood for h in healths]), truth, atol=1e-9)
    assert np.allclose(masses, posterior(system.prior.log_masses, truth), atol=1e-9)


@pytest.mark.parametrize(
    "start", [[[1.0, 0.0], [0.5, 0.7]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
)
def test_a_plane_seen_obliquely_is_tracked_exactly_even_from_a_known_start(start, float64):
    system = Plane(start_scale=jnp.asarray(start))
    shared, external = some_transcript(6, 2)
    shared[3] = np.nan
    truth = plane_bank(system, shared, external)
    masses, healths, belief = run(KalmanBelief.start(system), system, Sight(), shared, external)
    assert np.allclose(np.stack([h.log_likelihood for h in healths]), truth, atol=1e-9)
    assert np.allclose(masses, posterior(system.prior.log_masses, truth), atol=1e-9)
    assert np.allclose(np.triu(np.asarray(belief.moments().scale), 1), 0.0)


def test_the_evidence_is_the_density_of_the_components(float64):
    system = Plane()
    shared = jnp.asarray([0.3, -0.6])

    @eqx.filter_jit
    def two_steps():
        belief = KalmanBelief.start(system)
        belief, _ = belief.update(system, Sight(), jnp.asarray([0.5]), shared, key=jr.key(0))
        mixture = belief.components(Sight())
        parts = jax.vmap(lambda part: part.log_prob(shared))(mixture.parts)
        return belief, mixture, parts, belief.update(system, Sight(), jnp.zeros(1), shared, key=jr.key(0))[1]

    belief, mixture, parts, health = two_steps()
    assert np.isclose(jax.scipy.special.logsumexp(mixture.log_weights + parts), health.log_evidence)
    assert np.allclose(mixture.log_masses, belief.log_masses)


def information(components, points=600):
    """I(Θ; Y) of scalar Gaussian components by quadrature, batched over the leading axis."""
    mean = np.asarray(components.parts.mean)[..., 0]
    sd = np.asarray(components.parts.scale)[..., 0, 0]
    mass = np.exp(np.asarray(components.log_weights))
    low, high = (mean - 8 * sd).min(axis=1), (mean + 8 * sd).max(axis=1)
    y = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, points)[None, :]
    density = (
        np.exp(-0.5 * ((y[:, None] - mean[..., None]) / sd[..., None]) ** 2)
        / sd[..., None]
        / np.sqrt(2 * np.pi)
    )
    whole = (mass[..., None] * density).sum(axis=1, keepdims=True)
    ratio = np.where(density > 1e-280, np.log(np.maximum(density, 1e-300) / np.maximum(whole, 1e-300)), 0.0)
    step = (high - low) / (points - 1)
    return (mass[..., None] * density * ratio).sum(axis=(1, 2)) * step


def test_leakage_of_the_steps_adds_up_to_leakage_of_the_episode(float64):
    """Chain rule: Σ_t E[I(Θ; Y_t | h_t)] = E[log posterior / prior]. A slip of one step would break it."""
    system, steps, episodes = Gain(), 4, 3000
    policy = GaussianNoise(system, jnp.asarray([0.3]))
    kernel = NoiseKernel(system, jnp.asarray([0.3]))

    @jax.vmap
    def play(seed, key):
        record = rollout(system, policy, steps, public_seed=seed, key=key)
        trail = follow(system, policy, KalmanBelief.start(system), record.public, key=key)
        belief, charges = KalmanBelief.start(system), []
        for t in range(steps):
            charges.append(belief.components(kernel))
            belief, _ = belief.update(
                system, kernel, record.public.external[t], record.public.shared[t], key=key
            )
        gained = trail.log_masses[-1, record.index] - system.prior.log_masses[record.index]
        return gained, charges

    gained, charges = jax.jit(play)(jnp.arange(episodes), jr.split(jr.key(5), episodes))
    difference = sum(information(step) for step in charges) - np.asarray(gained)
    error = difference.std() / np.sqrt(episodes)
    assert error < 0.015
    assert abs(difference.mean()) < 3.5 * error


def test_single_precision_keeps_definiteness_at_small_noise_far_from_zero():
    system = Gain(sd=0.01, initial_sd=1.0)
    kernel = NoiseKernel(system, jnp.asarray([0.01]))
    shared = np.full((50, 1), 20.0) + 0.01 * np.random.default_rng(0).normal(size=(50, 1))
    external = np.full((50, 1), 8.0)
    masses, healths, belief = run(
        KalmanBelief.start(system), system, kernel, shared.astype(np.float32), external.astype(np.float32)
    )
    with jax.enable_x64(True):
        exact = gain_bank(system, np.float32(0.01), shared.astype(np.float32), external)
    got = np.stack([h.log_likelihood for h in healths])
    assert np.all(np.isfinite(masses)) and np.all(np.asarray(belief.moments().scale) > 0)
    assert np.allclose(got, exact, rtol=2e-3, atol=0.05)


def test_gradients_are_finite_from_a_known_start():
    def evidence(sd, start):
        system = Gain(initial_sd=start)
        belief, kernel = KalmanBelief.start(system), NoiseKernel(system, sd[None])
        total = 0.0
        for _ in range(3):
            belief, health = belief.update(system, kernel, jnp.ones(1), jnp.ones(1), key=jr.key(0))
            total = total + health.log_evidence
        return total

    slopes = jax.jit(jax.grad(evidence, (0, 1)))(jnp.asarray(0.3), jnp.asarray(0.0))
    assert np.all(np.isfinite(np.asarray(slopes)))


class Bent(Kernel):
    """A release that bends with the state."""

    def __call__(self, secret, state):
        return diagonal_gaussian(jnp.tanh(2.0 * state), jnp.asarray([0.3]))


def test_a_bent_kernel_is_linearised_at_the_mean(float64):
    system = eqx.tree_at(lambda s: s.initial_sd, Gain(), jnp.asarray(0.02))
    shared, external = np.array([[0.05]]), np.array([[0.0]])
    _, (health,), _ = run(KalmanBelief.start(system), system, Bent(), shared, external)
    truth = gain_bank(system, 0.3, shared, external, slope=2.0)
    assert np.allclose(health.log_likelihood, truth[0], atol=1e-6)


def test_a_finite_law_is_refused_with_advice():
    system = Gain()
    assert isinstance(GridKernel(system, jnp.ones(1))(jnp.ones(1), jnp.ones(1)), Rounded)
    with pytest.raises(TypeError, match="ParticleBelief"):
        KalmanBelief.start(system).components(GridKernel(system, jnp.ones(1)))

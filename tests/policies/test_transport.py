import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.linalg import sqrtm

from tests.policies.policy_truths import MASSES, play, rig
from veil.beliefs import KalmanBelief, KalmanSpec, ParticleSpec
from veil.policies import Transport, zero_leakage_distortion
from veil.policies.geometry import distortion_metric, nearest
from veil.rollout import follow
from veil.step import first_features
from veil.systems import Gain, Platoon, finite_prior

GAINS = np.asarray([0.3, 0.6, 0.9])


def bank_by_hand(policy, public, sd):
    """One scalar Kalman filter per gain in plain numpy; it asks the kernels for intercept and slope only.

    Yields per step the filter's means and variances before the release, the kernels' lines and the masses.
    """
    line = jax.jit(
        lambda features, gain, state: policy.kernel(features, jnp.zeros(1), jnp.asarray(1, jnp.int32))(
            gain, state
        ).mean[0]
    )
    mean, variance, masses = np.zeros(3), np.ones(3), np.asarray(MASSES)
    for features, w, y in zip(public.features, public.external, public.shared, strict=True):
        ends = np.asarray(
            [[line(features, jnp.asarray([g]), jnp.asarray([x])) for x in (0.0, 1.0)] for g in GAINS]
        )
        intercept, slope = ends[:, 0], ends[:, 1] - ends[:, 0]
        spread = slope**2 * variance + sd**2
        miss = float(y[0]) - intercept - slope * mean
        masses = masses * np.exp(-0.5 * miss**2 / spread) / np.sqrt(spread)
        masses = masses / masses.sum()
        yield mean, variance, intercept, slope, masses
        seen = mean + variance * slope / spread * miss
        mean = GAINS * seen + float(w[0])
        variance = GAINS**2 * variance * sd**2 / spread + 0.09


@pytest.mark.parametrize("form", ["affine", "shift"])
def test_the_posterior_stays_at_the_prior_in_closed_loop(float64, form):
    """On a line the barycentre is known: mean of means, mean of standard deviations."""
    system = Gain(prior=finite_prior(GAINS, MASSES))
    policy = Transport(system, (0.2,), form=form)
    record, _ = play(system, policy, 15, jr.split(jr.key(0), 1), jnp.asarray([2], jnp.int32))
    public = jax.tree.map(lambda leaf: leaf[0], record.public)
    drift = 0.0
    for mean, variance, intercept, slope, masses in bank_by_hand(policy, public, 0.2):
        sds = np.sqrt(variance)
        weights = np.asarray(MASSES) if form == "affine" else masses_before(public, mean)
        assert np.allclose(slope, weights @ sds / sds if form == "affine" else 1.0, rtol=1e-9)
        assert np.allclose(intercept, weights @ mean - slope * mean, atol=1e-9)
        drift = max(drift, np.max(np.abs(masses - np.asarray(MASSES))))
    # Means alone do not hide the spreads: the shift leaks, the affine map does not.
    assert drift < 1e-6 if form == "affine" else drift > 1e-3


def masses_before(public, mean):
    """The masses in the features of the step whose means are these."""
    step = int(np.argmin(np.abs(np.asarray(public.features[:, 3:6]) - mean).sum(axis=1)))
    return np.exp(np.asarray(public.features[step, :3]))


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.study)])
def test_every_secret_is_sent_to_the_same_law_by_the_cheapest_map(float64, size):
    """Outputs that mix the states, slanting metric Ω: A Σ Aᵀ is one matrix, and Ω A is symmetric."""
    system = rig(size)
    assert np.allclose(distortion_metric(system), system.metric)
    policy = Transport(system, 0.3 * np.ones(size))

    @jax.jit
    def later(key):
        def step(belief, time):
            kernel = policy.kernel(policy.features(belief, jnp.ones(1), time), jnp.ones(1), time)
            after, _ = belief.update(system, kernel, jnp.ones(1), jnp.full(size, 0.4), key=key)
            return after, (belief, kernel.plan, zero_leakage_distortion(system, belief))

        stages = jax.lax.scan(step, policy.start(key=key), jnp.arange(1, 5, dtype=jnp.int32))[1]
        return jax.tree.map(lambda leaf: leaf[-1], stages)

    belief, plan, floor = later(jr.key(0))
    states = belief.moments()
    metric, mixing = np.asarray(system.metric), np.asarray(system.mixing)
    sent, cost, rng = [], 0.0, np.random.default_rng(0)
    for q, mean, scale, start, move in zip(
        MASSES, states.mean, states.scale, plan.starts, np.asarray(plan.maps), strict=True
    ):
        root = mixing @ np.asarray(scale)
        assert np.allclose(start, mixing @ np.asarray(mean))
        assert np.allclose(metric @ move, (metric @ move).T, atol=1e-7)
        assert np.all(np.linalg.eigvals(move).real > 0)
        sent.append(move @ root @ root.T @ move.T)
        noise = rng.normal(size=(200_000, root.shape[1])) @ root.T
        apart = (np.asarray(plan.centres[0]) - np.asarray(start)) + noise @ (move.T - np.eye(size))
        cost += q * np.mean(np.sqrt(np.einsum("bi,ij,bj->b", apart, metric, apart)))
    assert np.allclose(sent, sent[0], rtol=1e-6, atol=1e-7)
    assert np.ptp([np.linalg.det(np.asarray(s)) for s in states.scale]) > 1e-3  # or nothing was to be done
    assert np.allclose(plan.centres, (np.asarray(MASSES) @ np.asarray(plan.starts))[None])
    assert np.allclose(floor, cost, rtol=1e-2)
    optimum = barycentre_gap(metric, MASSES, sent[0], mixing @ np.asarray(states.scale))
    assert optimum < 1e-6


def barycentre_gap(metric, weights, middle, roots):
    """How far the matrix is from solving Σ̄ = Σ q (Σ̄^½ Σ_θ Σ̄^½)^½ in Euclidean coordinates."""
    turn = np.linalg.cholesky(metric).T
    root = np.real(sqrtm(turn @ middle @ turn.T))
    parts = [np.real(sqrtm(root @ turn @ r @ r.T @ turn.T @ root)) for r in roots]
    return np.max(np.abs(root @ root - np.tensordot(weights, parts, axes=1)))


def test_drivers_are_hidden_at_a_small_distortion(float64):
    """0.169 was found by a prototype; its own kind of filter sees nothing."""
    system = Platoon()
    assert np.allclose(distortion_metric(system), np.diag([3.0, 1.0]))
    policy = Transport(system, (0.06, 0.1))
    indices = jnp.arange(256, dtype=jnp.int32) % 4
    record, distances = play(system, policy, 50, jr.split(jr.key(1), 256), indices)
    assert 0.15 < np.mean(distances) <= 0.18
    trail = eqx.filter_jit(
        jax.vmap(lambda one: follow(system, policy, KalmanBelief.start(system), one, key=jr.key(0)))
    )(jax.tree.map(lambda leaf: leaf[:4], record.public))
    assert np.max(np.abs(np.exp(trail.log_masses) - 0.25)) < 1e-9


@pytest.mark.parametrize("form", ["affine", "shift"])
def test_the_law_of_the_release_has_finite_gradients_from_a_known_start(form):
    system = Platoon(initial_sd=0.0)
    policy = Transport(system, (0.06, 0.1), form=form)
    features = first_features(policy)
    assert features.shape == (4 + 4 * 2 + 4 * 4,)

    @jax.jit
    @jax.value_and_grad
    def value(inputs):
        features, state = inputs
        law = policy.kernel(features, jnp.zeros(3), jnp.asarray(1, jnp.int32))(system.prior.secrets[2], state)
        return law.log_prob(state + 0.05)

    for step in (0.0, 0.1):
        log_density, slopes = value((features + step, system.equilibrium + 0.1))
        assert np.isfinite(log_density) and all(np.all(np.isfinite(slope)) for slope in slopes)


def test_before_anything_is_shared_nothing_need_be_moved(float64):
    """All secrets start alike: whatever carries the laws, the plan is the identity and costs nothing."""
    system = Platoon()
    for tracker in (KalmanSpec(), ParticleSpec(16)):
        belief = Transport(system, (0.06, 0.1), tracker).start(key=jr.key(0))
        assert eqx.filter_jit(zero_leakage_distortion)(system, belief) < 1e-9


def test_a_secret_off_the_prior_is_moved_like_its_nearest():
    prior = finite_prior([(0.0, 0.0), (1.0, 100.0), (2.0, 0.0)])
    assert nearest(prior, jnp.asarray([0.9, 80.0])) == 1
    assert nearest(prior, jnp.asarray([0.1, 55.0])) == 0  # in metres and seconds it would be 1
    assert nearest(finite_prior([0.7]), jnp.asarray([5.0])) == 0
    with pytest.raises((TypeError, ValueError), match="shift"):
        Transport(Gain(), (0.1,), form="rotate")  # pyright: ignore[reportArgumentType]

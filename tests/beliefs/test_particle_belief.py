from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from belief_truths import advance, gain_bank, grid_filter, moments, posterior, records, start, track
from scipy.stats import multivariate_normal, norm

from veil.beliefs import Guided, ParticleBelief, PooledBelief, Scheme
from veil.laws import Gaussian, Kernel, Mixture, diagonal_gaussian
from veil.policies import GaussianNoise, Quantised
from veil.policies.plain import NoiseKernel
from veil.resampling import stratified
from veil.step import Transcript
from veil.systems.base import finite_prior
from veil.systems.gain import Gain

GUIDED = Scheme(proposal=Guided())


@pytest.mark.parametrize("scheme", [None, GUIDED], ids=["bootstrap", "guided"])
def test_the_posterior_of_the_gain_is_close_to_the_kalman_bank(scheme):
    system, sd = Gain(), 0.4
    policy = GaussianNoise(system, jnp.asarray([sd]))
    public = records(system, policy, 20, 12).public
    trail = track(system, policy, public, 1296, jr.split(jr.key(1), 12), scheme)
    gaps, evidence = [], []
    for e in range(12):
        bank = gain_bank(system, sd, public.shared[e], public.external[e])
        truth = posterior(system.prior.log_masses, bank)
        before = np.concatenate([np.asarray(system.prior.log_masses)[None], truth[:-1]])
        gaps.append(np.abs(np.exp(np.asarray(trail.log_masses[e])) - np.exp(truth)))
        total = np.log(np.exp(before + bank).sum(axis=1)).sum()
        evidence.append(float(trail.health.log_evidence[e].sum()) - total)
    assert np.mean(gaps) < 0.01
    assert np.std(evidence) < 0.2 and abs(np.mean(evidence)) < 0.1
    assert not np.any(np.asarray(trail.health.depleted))


class Wave(Kernel):
    """A nonlinear view of a scalar state."""

    sd: jax.Array

    def __call__(self, secret, state):
        return diagonal_gaussian(jnp.sin(state) + secret * state, self.sd[None])


class Swing(Gain):
    """Not a gain at all: the state bends back."""

    def transition(self, secret, state, external):
        return diagonal_gaussian(secret * jnp.sin(2.0 * state) + external, self.sd[None])


def plain_swing():
    return Swing(prior=finite_prior([0.4, 1.2]), sd=jnp.asarray(0.3), initial_sd=jnp.asarray(1.0))


@pytest.mark.parametrize("scheme", [None, GUIDED], ids=["bootstrap", "guided"])
def test_a_nonlinear_system_is_tracked_like_a_fine_grid(scheme, float64):
    system, kernel = plain_swing(), Wave(jnp.asarray(0.3))
    shared, external = np.array([[0.4], [0.9], [-0.2], [1.1]]), np.array([[0.1], [-0.5], [0.6], [0.0]])

    def one(key):
        def step(belief, seen):
            t, w, y = seen
            belief, health = belief.update(system, kernel, w, y, key=jr.fold_in(key, t))
            return belief, health.log_likelihood

        first = ParticleBelief.start(system, 4000, key=key, scheme=scheme)
        return jax.lax.scan(step, first, (jnp.arange(4), jnp.asarray(external), jnp.asarray(shared)))[1]

    got = np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(0), 24)))
    for k, theta in enumerate((0.4, 1.2)):
        truth = grid_filter(
            lambda x: norm.pdf(x),
            lambda after, before, t, theta=theta: norm.pdf(
                after, theta * np.sin(2 * before) + external[t, 0], 0.3
            ),
            lambda y, x, theta=theta: norm.pdf(y, np.sin(x) + theta * x, 0.3),
            6.0,
            shared[:, 0],
        )
        error = got[:, :, k].std(axis=0) / np.sqrt(24)
        assert np.all(np.abs(got[:, :, k].mean(axis=0) - truth) < 4 * error + 2e-3)
        assert np.all(error < 0.02)


def test_a_quantised_release_has_the_probability_of_its_cells(float64):
    """Two steps of the gain loop shared on a grid: cells of a bivariate normal law."""
    system, step = Gain(), 0.8
    shared, external = np.array([[0.8], [-0.8]]), np.array([[0.3], [0.0]])
    public = Transcript(
        jnp.asarray(external), jnp.asarray(shared), jnp.zeros((len(shared), 0)), jnp.asarray(0)
    )
    policy = Quantised(system, jnp.asarray([step]))
    trail = track(system, policy, public, 20_000, jr.split(jr.key(2), 8))
    joint = []
    for theta in (0.3, 0.6, 0.9):
        spread: Any = [[1.0, theta], [theta, theta**2 + 0.09]]
        law = multivariate_normal([0.0, 0.3], spread)
        low, high = shared[:, 0] - step / 2, shared[:, 0] + step / 2
        joint.append(law.cdf(high, lower_limit=low))
    truth = np.array(joint) / np.sum(joint)
    masses = np.exp(np.asarray(trail.log_masses[:, -1]))
    assert np.allclose(masses.mean(axis=0), truth, atol=4 * masses.std(axis=0).max() / np.sqrt(8) + 1e-3)
    evidence = np.exp(np.asarray(trail.health.log_evidence).sum(axis=1))
    assert evidence.mean() == pytest.approx(np.mean(joint), rel=0.03)


SCHEMES = {
    "bootstrap": None,
    "independent": Scheme(coupled=False),
    "stratified": Scheme(resample=stratified, threshold=1.0),
    "guided": GUIDED,
    "pooled": None,
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.study] if name in ("independent", "stratified") else [])
        for name in SCHEMES
    ],
)
def test_the_evidence_estimate_is_unbiased(name, float64):
    """E[p̂ / p] = 1 for the joint of all releases: true of a filter only if no weight is lost."""
    system, sd, runs = Gain(), 0.5, 3000
    policy = GaussianNoise(system, jnp.asarray([sd]))
    one = jax.tree.map(lambda leaf: leaf[0], records(system, policy, 6, 1, seed=4).public)
    kind = PooledBelief if name == "pooled" else ParticleBelief
    trail = track(system, policy, one, 24, jr.split(jr.key(3), runs), SCHEMES[name], kind)
    bank = gain_bank(system, sd, one.shared, one.external).sum(axis=0)
    ratio = np.exp(np.asarray(trail.health.log_evidence).sum(axis=1)) / np.mean(np.exp(bank))
    assert abs(ratio.mean() - 1.0) < 4 * ratio.std() / np.sqrt(runs)
    assert ratio.std() / np.sqrt(runs) < 0.03
    if name != "pooled":
        own = np.exp(np.asarray(trail.health.log_likelihood).sum(axis=1) - bank[None, :])
        assert np.all(np.abs(own.mean(axis=0) - 1.0) < 4 * own.std(axis=0) / np.sqrt(runs))


@pytest.mark.study
def test_guiding_pays_when_the_noise_is_small(float64):
    system, sd, runs = Gain(), 0.03, 400
    policy = GaussianNoise(system, jnp.asarray([sd]))
    one = jax.tree.map(lambda leaf: leaf[0], records(system, policy, 10, 1, seed=6).public)
    truth = gain_bank(system, sd, one.shared, one.external).sum(axis=0)
    error = {}
    for name, scheme in (("bootstrap", None), ("guided", GUIDED)):
        trail = track(system, policy, one, 81, jr.split(jr.key(7), runs), scheme)
        error[name] = np.asarray(trail.health.log_likelihood).sum(axis=1) - truth[None, :]
    assert np.all(error["guided"].std(axis=0) < 0.2 * error["bootstrap"].std(axis=0))
    assert np.all(np.abs(error["guided"].mean(axis=0)) < 0.05)


def test_secrets_that_do_not_matter_keep_identical_particles_and_the_prior():
    system = Gain(prior=finite_prior([0.5, 0.5, 0.5], [0.2, 0.3, 0.5]))
    policy = GaussianNoise(system, jnp.asarray([0.1]))
    public = jax.tree.map(lambda leaf: leaf[0], records(system, policy, 12, 1).public)
    for scheme in (None, GUIDED):
        belief = start(ParticleBelief, system, 64, key=jr.key(0), scheme=scheme)
        kernel = NoiseKernel(system, policy.sd)
        for t in range(12):
            belief, _ = advance(belief, system, kernel, public.external[t], public.shared[t], key=jr.key(t))
        assert np.array_equal(belief.states[0], belief.states[1]) and np.array_equal(
            belief.states[0], belief.states[2]
        )
        assert np.allclose(belief.log_masses, system.prior.log_masses, atol=1e-6)


def test_the_order_of_particles_does_not_matter(float64):
    system = Gain()
    belief = start(ParticleBelief, system, 50, key=jr.key(0))
    belief = eqx.tree_at(
        lambda own: own.log_weights,
        belief,
        jax.nn.log_softmax(jr.normal(jr.key(1), (3, 50), jnp.float64), axis=1),
    )
    shuffle = jr.permutation(jr.key(2), 50)
    other = eqx.tree_at(
        lambda own: (own.states, own.log_weights),
        belief,
        (belief.states[:, shuffle], belief.log_weights[:, shuffle]),
    )
    kernel = NoiseKernel(system, jnp.asarray([0.3]))
    results = [
        advance(own, system, kernel, jnp.zeros(1), jnp.ones(1), key=jr.key(3))[1] for own in (belief, other)
    ]
    assert np.allclose(results[0].log_likelihood, results[1].log_likelihood)
    assert np.allclose(results[0].effective, results[1].effective)
    assert np.allclose(moments(belief).mean, moments(other).mean)
    assert np.allclose(moments(belief).covariance, moments(other).covariance)


class Twins(Kernel):
    """A mixture release: the state with one of two offsets."""

    def __call__(self, secret, state):
        means = jnp.stack([state - 1.0, state + 1.0])
        scale = jnp.full((2, 1, 1), 0.3, state.dtype)
        return Mixture(jnp.log(jnp.asarray([0.25, 0.75], state.dtype)), Gaussian(means, scale))


def test_a_mixture_release_gives_every_particle_several_components(float64):
    system = Gain()
    belief = start(ParticleBelief, system, 30, key=jr.key(0))
    mixture = belief.components(Twins())
    assert mixture.stride == 60 and mixture.parts.mean.shape == (180, 1)
    assert np.allclose(mixture.log_masses, system.prior.log_masses)
    y = jnp.asarray([0.4])
    density = jax.scipy.special.logsumexp(
        mixture.log_weights + jax.vmap(lambda part: part.log_prob(y))(mixture.parts)
    )
    _, health = advance(belief, system, Twins(), jnp.zeros(1), y, key=jr.key(1))
    assert np.isclose(density, health.log_evidence)


def test_guiding_through_a_mixture_agrees_with_bootstrap(float64):
    system = Gain()
    totals = {}
    for name, scheme in (("bootstrap", None), ("guided", GUIDED)):

        def one(key, scheme=scheme):
            belief = start(ParticleBelief, system, 500, key=key, scheme=scheme)
            belief, first = advance(belief, system, Twins(), jnp.ones(1), jnp.full(1, 0.4), key=key)
            _, second = advance(
                belief, system, Twins(), jnp.zeros(1), jnp.full(1, 2.0), key=jr.fold_in(key, 1)
            )
            return first.log_evidence + second.log_evidence

        totals[name] = np.exp(np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(0), 300))))
    gap = totals["bootstrap"].mean() - totals["guided"].mean()
    error = np.sqrt((totals["bootstrap"].var() + totals["guided"].var()) / 300)
    assert abs(gap) < 4 * error

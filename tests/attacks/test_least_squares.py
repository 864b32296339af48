import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.attacks import LeastSquares
from veil.beliefs import ObservedBelief
from veil.policies import Truth
from veil.rollout import follow, rollout
from veil.step import Transcript
from veil.systems.base import finite_prior
from veil.systems.gain import Gain
from veil.systems.platoon import ColouredPlatoon, Platoon


def play(system, steps, count, policy=None):
    """Records of episodes with the truth shared."""

    def one(number):
        key = jr.fold_in(jr.key(3), number)
        return rollout(system, policy or Truth(system), steps, public_seed=number, key=key)

    return eqx.filter_jit(jax.vmap(one))(jnp.arange(count, dtype=jnp.uint32))


def first(record):
    return jax.tree.map(lambda leaf: leaf[0], record.public)


def evidence(attack, transcript):
    return eqx.filter_jit(attack)(transcript, key=jr.key(0))


def generalised_ridge(regressors, targets, model_covariance, prior, trust):
    """θ̂ and log-likelihoods by dense matrices: regressors (S, Y, P), targets (S, Y), two sweeps."""
    masses, secrets = np.exp(np.asarray(prior.log_masses)), np.asarray(prior.secrets)
    mean = masses @ secrets
    ridge = np.linalg.inv((secrets - mean).T @ np.diag(masses) @ (secrets - mean))
    fitted, weight = mean, np.linalg.inv(model_covariance)
    for _ in range(2):
        errors = targets - regressors @ fitted
        weight = np.linalg.inv((trust * model_covariance + errors.T @ errors) / (trust + len(targets)))
        information = ridge + np.einsum("syp,yz,szq->pq", regressors, weight, regressors)
        moment = ridge @ mean + np.einsum("syp,yz,sz->p", regressors, weight, targets)
        fitted = np.linalg.solve(information, moment)
    errors = targets[None] - np.einsum("syp,kp->ksy", regressors, secrets)
    return fitted, -0.5 * np.einsum("ksy,yz,ksz->k", errors, weight, errors)


def same_up_to_a_constant(one, other, tolerance):
    one, other = np.asarray(one), np.asarray(other)
    return np.allclose(one - one[0], other - other[0], rtol=0.0, atol=tolerance)


def test_on_the_gain_loop_it_is_ridge_regression(float64):
    system = Gain()
    transcript = first(play(system, 20, 1))
    levels, pushes = np.asarray(transcript.shared), np.asarray(transcript.external)
    regressors, targets = levels[:-1, :, None], levels[1:] - pushes[:-1]
    truth = generalised_ridge(regressors, targets, np.asarray([[0.09]]), system.prior, 4.0)
    attack = LeastSquares(system)
    assert np.allclose(eqx.filter_jit(attack.estimate)(transcript), truth[0], rtol=0.0, atol=1e-6)
    assert same_up_to_a_constant(evidence(attack, transcript).log_likelihood, truth[1], 1e-6)


def test_two_secrets_off_a_line_are_fitted_as_by_a_dense_regression(float64):
    prior = finite_prior([[0.4, 1.1], [0.9, 0.5], [1.3, 1.4]], [0.2, 0.5, 0.3])
    system = Platoon(prior=prior)
    transcript = first(play(system, 30, 1))
    (speed, spacing), ahead = np.asarray(transcript.shared)[:-1].T, np.asarray(transcript.external)[:-1, 1]
    wanted = np.asarray(15.0 * (1.0 - np.cos(np.pi * (spacing - 5.0) / 30.0)))
    pulls = 0.2 * np.stack([wanted - speed, ahead - speed], axis=1)
    regressors = np.stack([pulls, np.zeros_like(pulls)], axis=1)
    still = np.stack([speed, spacing + 0.2 * (ahead - speed)], axis=1)
    targets = np.asarray(transcript.shared)[1:] - still
    truth = generalised_ridge(regressors, targets, np.diag([0.02**2, 0.1**2]), prior, 4.0)
    attack = LeastSquares(system)
    assert np.allclose(eqx.filter_jit(attack.estimate)(transcript), truth[0], rtol=0.0, atol=1e-6)
    assert same_up_to_a_constant(evidence(attack, transcript).log_likelihood, truth[1], 1e-6)


def test_a_known_error_covariance_makes_it_bayes(float64):
    system = Gain(prior=finite_prior([0.3, 0.6, 0.9], [0.5, 0.2, 0.3]))
    public = play(system, 15, 8).public
    attack = LeastSquares(system, trust=1e12)

    def both(one):
        trail = follow(system, Truth(system), ObservedBelief.start(system), one, key=jr.key(0))
        return attack(one, key=jr.key(0)).log_posterior(system.prior), trail.log_masses[-1]

    fitted, exact = eqx.filter_jit(jax.vmap(both))(public)
    assert np.allclose(fitted, exact, rtol=0.0, atol=1e-6)


def test_an_estimated_covariance_comes_close_to_bayes(float64):
    system = Gain()
    public = play(system, 60, 64).public

    def both(one):
        trail = follow(system, Truth(system), ObservedBelief.start(system), one, key=jr.key(0))
        return LeastSquares(system)(one, key=jr.key(0)).log_posterior(system.prior), trail.log_masses[-1]

    fitted, exact = eqx.filter_jit(jax.vmap(both))(public)
    assert np.mean(np.abs(np.exp(fitted) - np.exp(exact))) < 0.02


@pytest.mark.parametrize(
    "system, accuracy", [(Platoon(), 0.9), (ColouredPlatoon(), 0.75)], ids=["whole", "part"]
)
def test_true_data_give_the_driver_away_even_where_the_state_is_seen_in_part(system, accuracy):
    record = play(system, 50, 128)
    found = eqx.filter_jit(jax.vmap(lambda one: LeastSquares(system)(one, key=jr.key(0))))(record.public)
    assert not np.any(np.asarray(found.failed))
    right = np.argmax(np.asarray(found.log_likelihood), axis=1) == np.asarray(record.index)
    assert np.mean(right) > accuracy


@pytest.mark.parametrize("secrets", [[0.6, 0.6, 0.6], [0.6], [0.3, 0.9], [0.0, 0.0]])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_poor_data_and_poor_priors_give_finite_evidence(secrets, steps):
    sds, levels = jnp.asarray([0.3, 0.0]), jnp.asarray([0.0, 1.0, 1e4])

    def one(sd, level):
        flat, zeros = jnp.full((steps, 1), level), jnp.zeros((steps, 1))
        attack = LeastSquares(Gain(prior=finite_prior(secrets), sd=sd))
        return attack(Transcript(zeros, flat, zeros[:, :0], jnp.asarray(0)), key=jr.key(0))

    found = eqx.filter_jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(sds, levels)
    assert np.all(np.isfinite(found.log_likelihood)) and not np.any(np.asarray(found.failed))
    if len(set(secrets)) == 1 or steps == 1:
        assert np.all(np.ptp(np.asarray(found.log_likelihood), axis=-1) == 0.0)


def test_what_is_not_finite_is_called_a_failure():
    transcript = Transcript(jnp.zeros((4, 1)), jnp.full((4, 1), jnp.nan), jnp.zeros((4, 0)), jnp.asarray(0))
    found = evidence(LeastSquares(Gain()), transcript)
    assert found.failed and np.all(np.isfinite(found.log_likelihood))

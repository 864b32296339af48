"""The demo's numbers, against exact ones."""

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from veil.beliefs import Guided, ParticleBelief, Scheme
from veil.beliefs.proposals import Particle
from veil.demos import KalmanBank, Observer, Swarm, Way, compare, measure, ways
from veil.demos.cells import Cells, cut_normal
from veil.demos.measurement import _mean
from veil.kernel import Kernel
from veil.laws import Gaussian, diagonal_gaussian
from veil.policies import GaussianNoise, PlainPolicy, Quantised, Truth
from veil.policies.plain import GridKernel
from veil.systems import Gain, Platoon, System, finite_prior

KEY = jr.key(5)


class Deaf(PlainPolicy):
    """Shares noise around zero, whatever the state."""

    system: System

    def kernel(self, features, external, time):
        return DeafKernel()


class DeafKernel(Kernel):
    def __call__(self, secret, state):
        return diagonal_gaussian(jnp.zeros_like(state), jnp.ones_like(state))


def test_a_kernel_that_ignores_the_state_leaks_nothing(float64):
    measured = measure(Gain(), Way("deaf", "noise", Deaf(Gain()), KalmanBank()), 30, 10, key=KEY)
    assert np.allclose(measured.score, 0.0, atol=1e-12)
    assert measured.leakage == pytest.approx((0.0, 0.0), abs=1e-12)
    assert measured.accuracy[0] == pytest.approx(measured.chance)


def test_truth_leaks_more_than_noise_and_more_noise_leaks_less(float64):
    system = Gain()
    exact = measure(system, Way("truth", "truth", Truth(system), Observer()), 600, 20, key=KEY)
    chain = [exact]
    for sd in (0.1, 0.5, 2.0):
        policy = GaussianNoise(system, jnp.asarray([sd]))
        chain.append(measure(system, Way(f"noise {sd}", "noise", policy, KalmanBank()), 600, 20, key=KEY))
    assert exact.leakage[0] <= exact.entropy
    for more, less in itertools.pairwise(chain):
        assert more.leakage[0] > less.leakage[0]
        assert more.distortion < less.distortion
    assert chain[-1].leakage[0] > -3 * chain[-1].leakage[1]


def test_exact_posteriors_are_calibrated(float64):
    """Under an exact posterior the score and what the posterior claims have the same mean."""
    system = Gain()
    for policy, adversary in (
        (Truth(system), Observer()),
        (GaussianNoise(system, jnp.asarray([0.3])), KalmanBank()),
    ):
        measured = measure(system, Way("", "", policy, adversary), 1500, 15, key=KEY)
        gap, error = measured.calibration
        assert abs(gap) < 4 * error


def test_one_release_of_truth_tells_what_the_chain_rule_says(float64):
    """All secrets start alike, so the first release of the gain loop tells nothing."""
    system = Gain()
    first = measure(system, Way("truth", "truth", Truth(system), Observer()), 12, 1, key=KEY)
    assert np.allclose(first.score, 0.0, atol=1e-12)


def test_particles_see_the_same_episodes_as_the_kalman_bank(float64):
    system = Gain()
    way = Way("noise", "noise", GaussianNoise(system, jnp.asarray([0.3])), KalmanBank())
    exact = measure(system, way, 60, 15, key=KEY)
    particles = Swarm(scheme=Scheme(proposal=Guided()), count=1296)
    both = compare(exact, measure(system, replace(way, adversary=particles), 30, 15, key=KEY))
    assert both.compared == 30 and both.difference is not None
    assert abs(both.difference[0]) < 0.02
    assert np.array_equal(exact.index[:3], [0, 1, 2])


def test_batches_do_not_change_an_episode(float64):
    system = Gain()
    way = Way("noise", "noise", GaussianNoise(system, jnp.asarray([0.3])), KalmanBank())
    small = replace(way, adversary=KalmanBank(batch=4))
    assert np.allclose(
        measure(system, way, 9, 5, key=KEY).score, measure(system, small, 9, 5, key=KEY).score, atol=1e-10
    )


def test_progress_counts_episodes_and_few_are_rounded_up():
    system, seen = Gain(), []
    way = Way("truth", "truth", Truth(system), Observer(batch=4))
    measured = measure(system, way, 7, 2, key=KEY, progress=seen.append)
    assert seen == [4, 8, 9] and len(measured.index) == 9
    assert len(measure(system, way, 1, 2, key=KEY).index) == 6


def test_secrets_count_by_their_prior():
    values, index = np.array([1.0, 3.0, 10.0, 10.0]), np.array([0, 0, 1, 1])
    mean, error = _mean(values, index, np.array([0.25, 0.75]))
    assert mean == 0.25 * 2 + 0.75 * 10
    assert error == pytest.approx(0.25 * np.sqrt(2.0 / 2))


def test_cut_normal_draws_from_the_normal_law_inside_the_interval(float64):
    noise = jnp.asarray(stats.norm.ppf((np.arange(4000) + 0.5) / 4000))
    for low, high in ((-0.3, 0.4), (1.0, 1.2), (-9.0, -8.5), (8.5, 9.0), (-40.0, 40.0)):
        draw, log_mass = jax.vmap(lambda one, a=low, b=high: cut_normal(jnp.asarray(a), jnp.asarray(b), one))(
            noise
        )
        truth = stats.truncnorm(low, high)
        assert np.all((draw >= low) & (draw <= high))
        assert np.mean(draw) == pytest.approx(truth.mean(), abs=1e-3)
        assert np.std(draw) == pytest.approx(truth.std(), rel=1e-2)
        tails = stats.norm.cdf([-abs(low), -abs(high)])
        exact = np.log(np.ptp(tails)) if low * high > 0 else None
        if exact is not None:
            assert log_mass[0] == pytest.approx(exact, rel=1e-9)


def test_a_cell_under_a_correlated_law_has_its_exact_mass(float64):
    """GHK against scipy's bivariate normal."""
    system = Platoon(prior=finite_prior([[0.4, 0.5], [1.0, 1.1]]))
    kernel = GridKernel(system, jnp.asarray([0.5, 1.0]))
    scale = np.array([[0.5, 0.0], [0.6, 0.4]])
    origin = Gaussian(jnp.asarray([15.1, 19.7]), jnp.asarray(scale))
    shared = jnp.asarray([15.0, 20.0])
    noise = jr.normal(KEY, (20000, 2))
    secret, particle = system.prior.secrets[0], Particle(origin.mean, origin)
    states, logs = jax.vmap(lambda one: Cells()(kernel, secret, particle, shared, one))(noise)
    covariance: Any = scale @ scale.T
    law = stats.multivariate_normal(np.asarray(origin.mean), covariance)
    truth = law.cdf([15.25, 20.5], lower_limit=[14.75, 19.5])
    weights = np.exp(logs)
    assert np.mean(weights) == pytest.approx(truth, abs=5 * np.std(weights) / np.sqrt(len(weights)) + 1e-5)
    assert np.all(np.abs(states - shared[None]) <= np.array([0.25, 0.5]) + 1e-9)


@pytest.mark.study
def test_cells_and_bootstrap_agree_on_quantised_sharing(float64):
    system = Gain()
    way = Way("grid", "grid", Quantised(system, jnp.asarray([0.5])), Swarm(scheme=Scheme(proposal=Cells())))
    cells = measure(system, way, 24, 8, key=KEY)
    plain = measure(
        system, replace(way, adversary=Swarm(scheme=Scheme(), count=20000, batch=4)), 24, 8, key=KEY
    )
    assert np.mean(np.abs(cells.score - plain.score)) < 0.03
    assert cells.lost == 0 and cells.effective is not None and cells.effective > 0.02


def test_cells_refuse_other_kernels():
    system = Gain()
    belief = ParticleBelief.start(system, 4, key=KEY, scheme=Scheme(proposal=Cells()))
    with pytest.raises(TypeError, match="quantised"):
        belief.advance(system, DeafKernel(), jnp.zeros(1), jnp.zeros(1), key=KEY)


def test_true_platoon_data_tell_nearly_everything(float64):
    system = Platoon()
    exact, *_ = ways(system)
    measured = measure(system, exact, 1024, 50, key=KEY)
    assert measured.leakage[0] == pytest.approx(1.38, abs=0.01 + 4 * measured.leakage[1])
    assert measured.distortion == 0.0 and measured.accuracy[0] > 0.98

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from belief_truths import Plane

from veil.beliefs import ObservedBelief
from veil.policies.plain import NoiseKernel, TruthKernel
from veil.systems.gain import Gain


def test_a_known_start_tells_nothing():
    system = Gain(initial_sd=0.0)
    belief = ObservedBelief.start(system)
    after, health = belief.update(system, TruthKernel(system), jnp.zeros(1), jnp.zeros(1), key=jr.key(0))
    assert np.array_equal(after.log_masses, system.prior.log_masses)
    assert not np.any(np.asarray(health.depleted))


def test_a_start_elsewhere_is_unexplained():
    system = Gain(initial_sd=0.0)
    belief = ObservedBelief.start(system)
    after, health = belief.update(system, TruthKernel(system), jnp.zeros(1), jnp.ones(1), key=jr.key(0))
    assert np.all(np.asarray(health.depleted))
    assert np.array_equal(after.log_masses, system.prior.log_masses)


def test_the_density_is_that_of_the_transition(float64):
    system = Plane()
    belief = ObservedBelief.start(system)
    first, second = jnp.asarray([0.7, -0.4]), jnp.asarray([0.2, 0.3])
    belief, _ = belief.update(system, TruthKernel(system), jnp.ones(1), first, key=jr.key(0))
    mixture = belief.components(TruthKernel(system))
    _, health = belief.update(system, TruthKernel(system), jnp.ones(1), second, key=jr.key(0))
    for k in range(2):
        law = system.transition(system.prior.secrets[k], first, jnp.ones(1))
        assert np.isclose(health.log_likelihood[k], law.log_prob(second))
        assert np.allclose(mixture.parts.mean[k], law.mean)


def test_noisy_kernels_are_refused_with_advice():
    system = Gain()
    belief = ObservedBelief.start(system)
    with pytest.raises(TypeError, match="KalmanBelief"):
        belief.components(NoiseKernel(system, jnp.ones(1)))


def test_two_steps_pass_over_a_release_that_was_withheld(float64):
    """In a linear system exactly: mean θ (θ y + w) + w', variance (θ² + 1) sd², no news of the secret."""
    system, kernel = Gain(), TruthKernel(Gain())
    seen = ObservedBelief.start(system).update(
        system, kernel, jnp.asarray([0.5]), jnp.ones(1), key=jr.key(0)
    )[0]
    after, health = seen.update(system, kernel, jnp.asarray([-0.2]), None, key=jr.key(0))
    gains = np.asarray(system.prior.secrets)[:, 0]
    assert np.allclose(after.states.mean[:, 0], gains * (gains * 1.0 + 0.5) - 0.2)
    assert np.allclose(after.states.scale[:, 0, 0] ** 2, (gains**2 + 1.0) * 0.3**2)
    assert np.array_equal(after.log_masses, seen.log_masses) and float(health.log_evidence) == 0.0

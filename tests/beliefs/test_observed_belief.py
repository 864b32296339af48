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
    after, health = belief.advance(system, TruthKernel(system), jnp.zeros(1), jnp.zeros(1), key=jr.key(0))
    assert np.array_equal(after.log_masses, system.prior.log_masses)
    assert not np.any(np.asarray(health.depleted))


def test_a_start_elsewhere_is_unexplained():
    system = Gain(initial_sd=0.0)
    belief = ObservedBelief.start(system)
    after, health = belief.advance(system, TruthKernel(system), jnp.zeros(1), jnp.ones(1), key=jr.key(0))
    assert np.all(np.asarray(health.depleted))
    assert np.array_equal(after.log_masses, system.prior.log_masses)


def test_the_density_is_that_of_the_transition(float64):
    system = Plane()
    belief = ObservedBelief.start(system)
    first, second = jnp.asarray([0.7, -0.4]), jnp.asarray([0.2, 0.3])
    belief, _ = belief.advance(system, TruthKernel(system), jnp.ones(1), first, key=jr.key(0))
    mixture = belief.components(TruthKernel(system))
    _, health = belief.advance(system, TruthKernel(system), jnp.ones(1), second, key=jr.key(0))
    for k in range(2):
        law = system.transition(system.prior.secrets[k], first, jnp.ones(1))
        assert np.isclose(health.log_likelihood[k], law.log_prob(second))
        assert np.allclose(mixture.parts.mean[k], law.mean)


def test_noisy_kernels_and_gaps_are_refused_with_advice():
    system = Gain()
    belief = ObservedBelief.start(system)
    with pytest.raises(TypeError, match="KalmanBelief"):
        belief.components(NoiseKernel(system, jnp.ones(1)))
    with pytest.raises(ValueError, match="withheld"):
        belief.advance(system, TruthKernel(system), jnp.zeros(1), None, key=jr.key(0))

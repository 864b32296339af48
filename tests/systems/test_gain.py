import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.checks.system import check_system
from veil.systems import Gain, finite_prior

SECRET = jnp.array([0.6])


def test_the_level_moves_by_gain_push_and_noise():
    law = Gain().transition(SECRET, jnp.array([2.0]), jnp.array([-0.5]))
    np.testing.assert_allclose(law.mean, [0.7], rtol=1e-6)
    np.testing.assert_allclose(law.covariance, [[0.09]], rtol=1e-6)


def test_the_environment_answers_what_was_shared_and_only_that():
    system, push = Gain(), jnp.array([3.0])
    np.testing.assert_allclose(
        system.react(push, jnp.array([2.0]), jnp.array([1.0])), [-0.4 + 0.5], rtol=1e-6
    )
    np.testing.assert_allclose(system.react(push, None, jnp.array([1.0])), [0.5], rtol=1e-6)


def test_the_closed_loop_variance_meets_its_recursion(float64):
    # With the truth shared, (x, w) is linear: Var is A V Aᵀ + Q with A = [[θ, 1], [reply, 0]].
    system, steps, episodes = Gain(), 6, 20000
    secret = jnp.array([0.6])

    def episode(key):
        start_key, move_key, react_key = jr.split(key, 3)

        def step(carry, noises):
            state, external = carry
            after = system.transition(secret, state, external).sample(noises[0])
            return (after, system.react(external, system.output(state), noises[1])), after

        start = system.initial(secret).sample(jr.normal(start_key, (1,)))
        noises = jr.normal(move_key, (steps, 1)), jr.normal(react_key, (steps, 1))
        return jax.lax.scan(step, (start, system.initial_external()), noises)[1][:, 0]

    levels = jax.jit(jax.vmap(episode))(jr.split(jr.key(0), episodes))
    matrix, noise, variance = np.array([[0.6, 1.0], [-0.2, 0.0]]), np.diag([0.09, 0.25]), np.diag([1.0, 0.0])
    for t in range(steps):
        variance = matrix @ variance @ matrix.T + noise
        found = float(jnp.var(levels[:, t]))
        np.testing.assert_allclose(found, variance[0, 0], rtol=4 * np.sqrt(2 / episodes))


def test_cost_and_distortion_are_what_they_say():
    system, level = Gain(), jnp.array([1.0])
    assert float(system.cost(SECRET, level, jnp.array([-3.0]), level, level)) == 9.0
    assert float(system.distortion(level, jnp.array([-1.5]))) == 2.5
    np.testing.assert_array_equal(system.output(level), level)


def test_gain_is_the_exact_kalman_case():
    report = check_system(Gain(prior=finite_prior([0.1, 0.9], [0.25, 0.75])))
    assert report.ok and all(report.supports.values())
    assert "Exact" in report.supports["kalman belief"].reason

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from tests.learners.learner_truths import Split, by_rounds, folded, information
from tests.policies.policy_truths import rig
from veil.policies import GaussianNoise, Transport
from veil.policies.geometry import Plan
from veil.problem import problem
from veil.systems import finite_prior

TIME = jnp.asarray(1, jnp.int32)


def test_going_part_of_the_way_runs_from_noise_on_the_output_to_transport(float64):
    """Two mixed outputs with a slanting metric, at a belief where there is something to be moved."""
    system, states = rig(2), jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    noise = GaussianNoise(system, (0.3, 0.2))

    @eqx.filter_jit
    def laws(share, features):
        kernel = Transport(system, (0.3, 0.2), displacement=share).kernel(features, jnp.ones(1), TIME)
        return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(system.prior.secrets, states)

    @jax.jit
    def later():
        policy = Transport(system, (0.3, 0.2))
        belief = policy.start(key=jr.key(0))
        kernel = noise.kernel(jnp.zeros(0), jnp.ones(1), TIME)
        for shared in (0.4, 1.1):
            belief, _ = belief.update(system, kernel, jnp.ones(1), jnp.full(2, shared), key=jr.key(0))
        features = policy.features(belief, jnp.ones(1), TIME)
        kernels = policy.kernel(features, jnp.ones(1), TIME), kernel
        over = [
            jax.vmap(jax.vmap(one, (None, 0)), (0, None))(system.prior.secrets, states) for one in kernels
        ]
        return features, *over

    features, whole, plain = later()
    assert np.max(np.abs(whole.mean - plain.mean)) > 0.1
    for share in (0.0, 0.3, 0.7, 1.0):
        found = laws(jnp.asarray(share), features)
        assert np.allclose(found.mean, (1 - share) * plain.mean + share * whole.mean, atol=1e-12)
        assert np.array_equal(found.scale, plain.scale)


def test_every_secret_may_go_its_own_share_of_the_way(float64):
    rng = np.random.default_rng(1)
    starts, maps, centres = rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 2)), rng.normal(size=(3, 2))
    shares, output = np.asarray([0.2, 0.9, 1.4]), rng.normal(size=2)
    found = Plan(jnp.asarray(starts), jnp.asarray(maps), jnp.asarray(centres)).partly(jnp.asarray(shares))
    for k, share in enumerate(shares):
        sent = centres[k] + maps[k] @ (output - starts[k])
        moved = np.asarray(found.centres[k]) + np.asarray(found.maps[k]) @ (
            output - np.asarray(found.starts[k])
        )
        assert np.allclose(moved, (1 - share) * output + share * sent, atol=1e-12)


def test_leakage_and_distortion_of_a_displacement_are_those_of_gaussians_on_a_line(float64):
    """One step: means (1 − α) m_k + α m̄, sds |(1 − α) + α s̄/s_k| s_k with the noise, by quadrature."""
    masses = np.asarray([0.5, 0.3, 0.2])
    means, sds = np.asarray([-1.0, 0.5, 1.5]), np.asarray([0.6, 1.0, 1.4])
    system = Split(finite_prior(np.stack([means, sds], axis=1), masses))
    made, numbers = problem(system, 1), jnp.arange(900, dtype=jnp.int32)

    @eqx.filter_jit
    def played(shares):
        def one(share):
            return made.episodes(Transport(system, (0.2,), displacement=share), numbers, key=jr.key(0))

        return jax.vmap(one)(shares)

    shares = (0.0, 0.35, 0.8, 1.0)
    found = played(jnp.asarray(shares))
    leakages = []
    for row, share in enumerate(shares):
        stretch = (1 - share) + share * (masses @ sds) / sds
        spread = np.sqrt((stretch * sds) ** 2 + 0.04)
        truth = information(masses, (1 - share) * means + share * (masses @ means), spread)
        leakage, error = by_rounds(found.leakage[row, :, 0], masses)
        assert abs(leakage - truth) < 4 * error + 1e-6 and error < 2e-3
        off = np.sqrt(((stretch - 1) * sds) ** 2 + 0.04)
        truth = masses @ folded(share * (masses @ means - means), off)
        distortion, error = by_rounds(found.distortion[row, :, 0], masses)
        assert abs(distortion - truth) < 4 * error and error < 0.02
        leakages.append(leakage)
    assert leakages[0] > leakages[1] > leakages[2] > leakages[3] and abs(leakages[3]) < 1e-6

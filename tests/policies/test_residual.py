import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests.policies.round_units import finite, gain_units, platoon_units, wild
from veil.policies import Limits, Transport, residual_policy
from veil.step import first_features
from veil.systems import Gain, Platoon, finite_prior

TIME = jnp.asarray(3, jnp.int32)
CASES = {
    "gain": (Gain, gain_units, (0.12,)),
    "platoon": (Platoon, platoon_units, (0.06, 0.3)),
    "one secret": (lambda: Gain(prior=finite_prior([0.7])), gain_units, (0.12,)),
}


@functools.cache
def made(name):
    system, units, sd = CASES[name]
    return residual_policy(Transport(system(), sd), units(), width=8, key=jr.key(0))


@functools.cache
def features(name):
    """Of a belief that has seen something, with every secret at a place of its own."""
    policy = made(name)
    start = np.asarray(eqx.filter_jit(lambda: first_features(policy))(), float)
    count, size = policy.system.prior.log_masses.shape[0], len(policy.system.shared_fields)
    rng = np.random.default_rng(0)
    masses = rng.dirichlet(3 * np.ones(count))
    means = start[count : count * (1 + size)].reshape(count, size) + 0.5 * rng.normal(size=(count, size))
    scales = start[count * (1 + size) :].reshape(count, size, size) * (
        1 + 0.5 * rng.uniform(size=(count, 1, 1))
    )
    return jnp.asarray(np.concatenate([np.log(masses), means.ravel(), scales.ravel()]), jnp.float32)


@eqx.filter_jit
def kernels(policy, features):
    """The kernel, that of the transport, and the share that the network asks for."""
    external = policy.system.initial_external()
    base = policy.base
    log_masses, laws = base.split(features)
    plan = base.plan(log_masses, laws)
    inputs = policy.inputs(log_masses, laws, plan, external, TIME)
    found = jax.vmap(policy.correction)(inputs)
    return (
        policy.kernel(features, external, TIME),
        base.kernel(features, external, TIME),
        plan.partly(found.share),
        found.share,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_fresh_policy_is_the_transport_that_it_starts_from(name):
    kernel, base, _, _ = kernels(made(name), features(name))
    assert name == "one secret" or np.max(np.abs(base.plan.centres - base.plan.starts)) > 0.1
    for found, given in zip(jax.tree.leaves(kernel.plan), jax.tree.leaves(base.plan), strict=True):
        assert np.allclose(found, given, rtol=1e-5, atol=1e-6)
    assert np.allclose(kernel.scales, base.scales, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["gain", "platoon"])
def test_no_weights_lead_further_from_displacement_than_the_limits(name):
    """A storm of weights: offset, slope and noise stay within, and all of them move."""
    policy = eqx.tree_at(
        lambda whole: whole.limits, made(name), Limits(offset=1.5, low=0.07, high=2.0, slope=0.6)
    )
    unit = np.asarray(policy.scaling.output.spread, float)
    steepest, furthest, sds = 0.0, 0.0, []
    for factor in (0.1, 1.0, 100.0):
        kernel, _, mixed, shares = kernels(wild(policy, factor), features(name))
        assert finite((kernel.plan, kernel.scales)) and np.all(shares >= 0.0) and np.all(shares <= 2.0)
        offset = np.asarray(kernel.plan.centres - mixed.centres, float) / unit
        furthest = max(furthest, np.max(np.abs(offset)))
        slope = np.asarray(kernel.plan.maps - mixed.maps, float) / unit[:, None] * unit[None, :]
        steepest = max(steepest, np.max(np.linalg.norm(slope, axis=(1, 2))))
        scales = np.asarray(kernel.scales, float)
        assert np.all(np.triu(scales, 1) == 0.0)
        sds.append(np.sqrt(np.sum(scales**2, axis=2)) / unit)
    assert 0.5 < furthest <= 1.5 * (1 + 1e-3) and 0.3 < steepest <= 0.6 * (1 + 1e-3)
    assert np.min(sds) > 0.07 * (1 - 1e-4) and np.max(sds) < 2.0 * (1 + 1e-4) and np.ptp(sds) > 0.01


def test_the_network_is_told_who_the_secrets_are_and_what_is_public():
    """Two secrets with one law get rows that differ by the secret; input and time reach every row."""
    policy = made("gain")

    @jax.jit
    def kernel_mean(features, external, time):
        log_masses, laws = policy.base.split(features)
        return policy.inputs(log_masses, laws, policy.base.plan(log_masses, laws), external, time)

    def rows(features, external, time):
        return np.asarray(kernel_mean(features, jnp.asarray([external]), jnp.asarray(time, jnp.int32)))

    alike = jnp.asarray([*np.log([1 / 3] * 3), 0.5, 0.5, 0.5, 0.8, 0.8, 0.8], jnp.float32)
    here = rows(alike, 0.0, 4)
    assert np.array_equal(np.sum(here[1:] != here[:-1], axis=1), [1, 1])
    assert np.allclose(sorted(np.ptp(here, axis=0))[-1], 0.6 / 0.3)  # the secrets in their unit
    for other in (rows(alike, 1.0, 4), rows(alike, 0.0, 5)):
        assert np.array_equal(np.sum(other != here, axis=1), [1, 1, 1])
    assert np.array_equal(rows(alike, 0.0, 90), rows(alike, 0.0, 20))  # beyond the horizon time stands still
    moved = rows(alike.at[4].set(1.5), 0.0, 4)
    assert np.all(np.sum(moved != here, axis=1) >= 4)  # all hear where one of them is


@pytest.mark.parametrize("name", ["platoon", "one secret"])
def test_the_network_alone_is_learned_and_its_gradients_are_numbers(name):
    """From a known start too, where all laws are points."""
    policy = made(name)
    if name == "platoon":
        policy = eqx.tree_at(
            lambda whole: whole.base, policy, Transport(Platoon(initial_sd=0.0), (0.06, 0.3))
        )
    assert all(
        leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(eqx.filter(policy, eqx.is_inexact_array))
    )

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def value(network, policy, features):
        policy = eqx.tree_at(lambda whole: whole.network, policy, network)
        kernel = policy.kernel(features, policy.system.initial_external(), TIME)
        state = policy.system.initial(policy.system.prior.secrets[0]).mean + 0.1
        law = kernel(policy.system.prior.secrets[0], state)
        return law.log_prob(state + 0.05)

    known = eqx.filter_jit(lambda policy: first_features(policy))(policy)
    for chosen in (policy, wild(policy, 0.3), wild(policy, 100.0)):
        for given in (known, features(name)):
            number, slopes = value(chosen.network, chosen, given)
            assert finite(number) and finite(slopes)
    weights = jax.tree.leaves(eqx.filter(policy.network, eqx.is_inexact_array))
    slopes = jax.tree.leaves(value(wild(policy, 0.3).network, policy, features(name))[1])
    assert len(slopes) == len(weights) == 6 and all(np.any(np.asarray(one) != 0.0) for one in slopes)

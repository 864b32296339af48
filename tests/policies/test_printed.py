"""The paper's actor against plain numpy: a network of (θ, x, s) whose outputs are a mean and a factor, no "
"limits."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.beliefs import ParticleBelief, PooledBelief, PooledSpec, Scheme
from veil.learners import initial_policy, typical_scaling
from veil.policies.printed import generic_gaussian, printed_policy
from veil.policies.scaling import Unit
from veil.settings import PolicyDesign
from veil.systems import Gain, Platoon

pytestmark = pytest.mark.usefixtures("float64")

FIRST = jnp.asarray(1, jnp.int32)


def policy_of(system, width=6, particles=5):
    scaling = typical_scaling(system, 4, key=jr.key(0))
    return printed_policy(system, scaling, tracker=PooledSpec(particles), width=width, key=jr.key(1))


def test_the_law_is_the_network_of_secret_state_and_features_and_of_nothing_else():
    system = Platoon()
    policy = policy_of(system)
    features = jnp.linspace(-1.0, 1.0, policy.network.encoder.size)
    secret, state = system.prior.secrets[2], jnp.asarray([14.2, 21.5])
    kernels = [
        policy.kernel(features, jnp.asarray(external), jnp.asarray(time, jnp.int32))
        for external, time in (([15.0, 15.0, 20.0], 1), ([9.0, 12.0, 31.0], 40))
    ]
    laws = [kernel(secret, state) for kernel in kernels]
    np.testing.assert_array_equal(laws[0].mean, laws[1].mean)  # neither w nor t is an input
    scaling = policy.scaling
    hidden = np.concatenate(
        [
            (np.asarray(secret) - scaling.secret.centre) / scaling.secret.spread,
            (np.asarray(state) - scaling.state.centre) / scaling.state.spread,
            np.asarray(features),
        ]
    )
    layers = policy.network.layers.layers
    assert len(layers) == 3  # two hidden ones
    for i, layer in enumerate(layers):
        hidden = np.asarray(layer.weight) @ hidden + np.asarray(layer.bias)
        hidden = np.maximum(hidden, 0.0) if i < 2 else hidden
    centre, spread = np.asarray(scaling.output.centre), np.asarray(scaling.output.spread)
    factor = np.diag(np.log1p(np.exp(hidden[2:4])) + 1e-4)
    factor[1, 0] = hidden[4]
    factor[1, 1] += 1e-3 * abs(hidden[4])
    np.testing.assert_allclose(laws[0].mean, centre + spread * hidden[:2], rtol=1e-12)
    np.testing.assert_allclose(laws[0].scale, spread[:, None] * factor, rtol=1e-12)


def test_nothing_limits_mean_and_covariance():
    """Any Gaussian is the law of some outputs: one far away and nearly singular, by inverting softplus."""
    unit = Unit((15.0, 20.0), (0.3, 0.4))
    mean, factor = np.asarray([-300.0, 900.0]), np.asarray([[40.0, 0.0], [-70.0, 0.2]])
    scaled = factor / np.asarray(unit.spread)[:, None]
    diagonal = np.log(np.expm1(np.diagonal(scaled) - 1e-4 - np.asarray([0.0, 1e-3 * abs(scaled[1, 0])])))
    raw = np.concatenate([(mean - unit.centre) / unit.spread, diagonal, [scaled[1, 0]]])
    law = generic_gaussian(jnp.asarray(raw), unit)
    np.testing.assert_allclose(law.mean, mean)
    np.testing.assert_allclose(law.scale, factor, rtol=1e-9)
    flat = generic_gaussian(jnp.asarray([0.0, 0.0, -80.0, 80.0, 0.0]), unit)
    assert float(flat.scale[0, 0]) == pytest.approx(0.3e-4) and float(flat.scale[1, 1]) == pytest.approx(
        32.0, rel=1e-3
    )


def test_an_untrained_actor_hardly_looks_at_the_state():
    """The true output moves by four spreads, the mean of the release by less than one."""
    system = Platoon()
    policy = policy_of(system, width=128, particles=9)
    features = policy.features(policy.start(key=jr.key(2)), system.initial_external(), FIRST)
    kernel, spread = policy.kernel(features, system.initial_external(), FIRST), policy.scaling.output.spread
    low, high = (
        kernel(system.prior.secrets[0], system.equilibrium + side * 2.0 * spread) for side in (-1.0, 1.0)
    )
    assert np.all(np.abs(np.asarray((high.mean - low.mean) / spread)) < 1.0)
    assert np.all(np.abs(np.asarray((low.mean - policy.scaling.output.centre) / spread)) < 1.5)


def test_pooled_particles_are_encoded_like_the_same_particles_in_groups():
    system = Gain()
    encoder = policy_of(system).network.encoder
    scaling = typical_scaling(system, 4, key=jr.key(0))
    grouped = ParticleBelief.start(system, 7, key=jr.key(3), scheme=Scheme(coupled=False))
    pooled = PooledBelief.start(system, 7, key=jr.key(3), scheme=Scheme(coupled=False))
    np.testing.assert_allclose(encoder(grouped, scaling), encoder(pooled, scaling), rtol=1e-12)
    order = np.random.default_rng(0).permutation(21)
    mixed = PooledBelief(
        *(pooled.secrets, pooled.log_masses, pooled.labels[order], pooled.states[order]),
        *(pooled.log_weights[order], pooled.scheme),
    )
    np.testing.assert_allclose(encoder(mixed, scaling), encoder(pooled, scaling), atol=1e-14)


def test_the_design_of_the_printed_learner_makes_it():
    design = PolicyDesign("printed", "mgf", particles=6, proposal="pooled", width=4)
    policy: Any = initial_policy(design, Gain(), 3, key=jr.key(0))
    assert isinstance(policy.start(key=jr.key(1)), PooledBelief)
    assert policy.start(key=jr.key(1)).states.shape == (18, 1)
    assert sum(leaf.size for leaf in jax.tree.leaves(policy.network.encoder)) == 10 * 2
    for wrong in ({"parts": 2}, {"particles": 0}, {"reach": (0.0,)}):
        with pytest.raises(ValueError, match=r"parts|particles|reach"):
            replace(design, **wrong)

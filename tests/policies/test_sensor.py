"""Policies behind a sensor: what they read is rounded, what they emit lies on the public grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from tests.policies.round_units import gain_units
from veil.attacks.kalman import KalmanBank
from veil.beliefs import ParticleBelief
from veil.laws import Rounded, to_grid
from veil.policies import (
    Blind,
    Counterfactual,
    GaussianNoise,
    Quantised,
    Subsampled,
    Transport,
    Truth,
    residual_policy,
)
from veil.policies.base import sensed
from veil.rollout import follow, replay, rollout
from veil.sharing.budget import budgeted
from veil.step import first_features, sees_state
from veil.systems import Gain, WithResolution, with_resolution
from veil.types import as_float64

STATES, OUTPUTS = 0.05, 0.1

POLICIES = {
    "truth": Truth,
    "noise": lambda system: GaussianNoise(system, [0.3]),
    "fine noise": lambda system: GaussianNoise(system, [1e-4]),
    "quantised": lambda system: Quantised(system, [0.23]),
    "blind": lambda system: Blind(system, [0.1]),
    "transport": lambda system: Transport(system, jnp.asarray([0.2])),
    "counterfactual": Counterfactual,
    "counterfactual with noise": lambda system: Counterfactual(system, [0.2]),
    "subsampled": lambda system: Subsampled(GaussianNoise(system, [0.3]), 3),
    "budgeted": lambda system: budgeted(GaussianNoise(system, [0.3]), 0.05, "blind"),
    "learned": lambda system: residual_policy(
        Transport(system, (0.2,)), gain_units(), width=8, key=jr.key(0)
    ),
}


def behind(inner=None):
    return WithResolution(as_float64(Gain() if inner is None else inner), [STATES], [OUTPUTS])


def played(policy, system, episodes=6, steps=8):
    def one(number):
        return rollout(system, policy, steps, public_seed=number, key=jr.fold_in(jr.key(0), number))

    return jax.jit(lambda: jax.lax.map(one, jnp.arange(1, episodes + 1, dtype=jnp.int32)))()


@pytest.mark.parametrize("name", POLICIES)
def test_every_release_is_a_point_of_the_public_grid(float64, name):
    system = behind()
    records = played(as_float64(POLICIES[name](system)), system)
    shared = np.asarray(records.public.shared)
    assert np.array_equal(shared, to_grid(jnp.asarray(shared), (OUTPUTS,)))
    states = np.asarray(records.states)
    assert not np.allclose(
        states, to_grid(jnp.asarray(states), (STATES,)), atol=1e-4
    )  # the plant is not rounded


def test_a_policy_reads_the_rounded_state(float64):
    system = behind()
    kernel = sensed(Truth(system)).kernel(jnp.zeros(0), jnp.zeros(1), jnp.asarray(1, jnp.int32))
    law = kernel(system.prior.secrets[0], jnp.asarray([0.2743]))
    assert isinstance(law, Rounded)
    assert np.isclose(law.value[0], 0.25)  # the reading 0.25, not the state
    assert not sees_state(system, Truth(system)) and sees_state(Gain(), Truth(Gain()))


def test_putting_a_policy_behind_its_sensor_twice_changes_nothing(float64):
    system = behind()
    for make in POLICIES.values():
        once = sensed(as_float64(make(system)))
        assert eqx.tree_equal(once, sensed(once))
    assert sensed(Truth(Gain())).__class__ is Truth


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", ["transport", "subsampled", "budgeted"])
def test_what_was_emitted_can_be_replayed_to_the_last_bit(float64, name):
    system = behind()
    policy = as_float64(POLICIES[name](system))
    records = played(policy, system)
    again = jax.jit(lambda: jax.lax.map(lambda one: replay(policy, one), records.public))()
    assert np.array_equal(again, records.public.features)


def test_a_filter_weighs_the_law_of_what_was_emitted(float64):
    """The likelihood of one rounded release with noise, against a sum over cells of the state."""
    system, sd = behind(), 0.3
    policy = GaussianNoise(system, jnp.asarray([sd]))
    record = jax.tree.map(lambda leaf: leaf[0], played(policy, system, 1, 1))
    belief = ParticleBelief.start(system, 4096, key=jr.key(0))
    trail = eqx.filter_jit(follow)(system, policy, belief, record.public, key=jr.key(1))
    found = trail.health.log_evidence[0]
    cells = STATES * np.arange(-200, 201)
    masses = stats.norm.cdf(cells + STATES / 2) - stats.norm.cdf(cells - STATES / 2)
    truth = np.log(masses @ stats.norm.pdf(float(record.public.shared[0, 0]), cells, sd))
    assert abs(float(found) - truth) < 0.05
    assert KalmanBank(system, policy)(record.public, key=jr.key(0)).log_likelihood.shape == (3,)


def test_training_has_gradients_behind_a_sensor():
    """Rounding has no slope; the derivative is taken to be that of the numbers before it."""
    system = with_resolution(Gain(), 0.05)
    policy = residual_policy(Transport(system, (0.2,)), gain_units(), width=8, key=jr.key(0))
    features = eqx.filter_jit(first_features)(policy)
    external, time = system.initial_external(), jnp.asarray(1, jnp.int32)

    def released(network, state):
        whole = eqx.tree_at(lambda one: one.network, policy, network)
        law = sensed(whole).kernel(features, external, time)(system.prior.secrets[0], state)
        return law.sample(jnp.linspace(-1.0, 1.0, law.noise_size))[0]

    state = jnp.asarray([0.41])
    slopes = jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(released))(policy.network, state))
    slope = eqx.filter_jit(jax.grad(lambda x: released(policy.network, x)))(state)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)
    assert sum(float(jnp.sum(jnp.abs(slope))) for slope in slopes) > 1e-3
    assert abs(slope[0]) > 0.1


def test_states_with_a_resolution_need_a_public_grid():
    with pytest.raises(ValueError, match="level has none"):
        sensed(Truth(WithResolution(Gain(), [0.1], [0.0])))

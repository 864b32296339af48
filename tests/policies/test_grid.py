import functools
import itertools

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.policies.policy_truths import play
from tests.policies.round_units import finite, gain_units, platoon_units, wild
from veil.beliefs import ParticleSpec, Scheme
from veil.policies import grid_atoms, grid_policy
from veil.step import first_features
from veil.systems import Gain, Platoon

ATOMS = np.asarray(list(itertools.product(np.linspace(13.0, 17.0, 5), np.linspace(16.0, 24.0, 3))))


@functools.cache
def policy():
    atoms = grid_atoms((13.0, 16.0), (17.0, 24.0), (5, 3))
    return grid_policy(Platoon(), platoon_units(), atoms, width=8, key=jr.key(0))


@eqx.filter_jit
def law(policy, features, secret, state):
    return policy.kernel(features, policy.system.initial_external(), jnp.asarray(1, jnp.int32))(secret, state)


def silent(policy, scores, stretch):
    """The policy with a network that says the same whatever it is asked."""
    shut = [jnp.zeros_like(policy.network.bent)] * 2
    bias = jnp.asarray(np.concatenate([scores, stretch]), jnp.float32)
    return eqx.tree_at(
        lambda whole: (whole.network.bent, whole.network.straight, whole.network.bias), policy, (*shut, bias)
    )


def test_atoms_are_all_points_of_the_grid():
    assert np.allclose(policy().atoms, ATOMS)
    with pytest.raises(ValueError, match="per axis"):
        grid_atoms((0.0, 1.0), (1.0,), (3,))
    with pytest.raises(ValueError, match="at least 2"):
        grid_atoms((0.0,), (0.0,), (3,))
    with pytest.raises(ValueError, match="coordinates"):
        grid_policy(Gain(), gain_units(), jnp.zeros((4, 2)), key=jr.key(0))
    with pytest.raises(ValueError, match="positive"):
        grid_policy(Gain(), gain_units(), jnp.zeros((4, 1)), sd=0.0, key=jr.key(0))


def test_masses_fall_off_with_the_distance_and_the_network_bends_them():
    """Reach 0.3 · (0.5, 2.0) at the start, stretched per axis; scores add to the log-masses."""
    secret, state, features = jnp.asarray([0.7, 0.8]), jnp.asarray([15.2, 19.0]), jnp.zeros(24)
    scores, rng = np.zeros(15), np.random.default_rng(0)
    for stretch in (np.zeros(2), np.asarray([1.0, -0.4])):
        found = law(silent(policy(), scores, stretch), features, secret, state)
        reach = 0.3 * np.asarray([0.5, 2.0]) * np.exp(3.0 * np.tanh(stretch / 3.0))
        apart = (ATOMS - np.asarray([15.2, 19.0])) / reach
        truth = special.log_softmax(scores - 0.5 * np.sum(apart**2, axis=1))
        assert np.allclose(found.log_masses, truth, rtol=1e-4, atol=1e-4)
        scores = rng.normal(size=15)
    fresh = law(policy(), features, secret, state)
    assert np.argmax(fresh.log_masses) == np.argmin(
        np.sum(((ATOMS - [15.2, 19.0]) / [0.5, 2.0]) ** 2, axis=1)
    )


def test_masses_and_gradients_are_numbers_whatever_the_weights_and_wherever_the_state():
    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def value(network, policy, state):
        policy = eqx.tree_at(lambda whole: whole.network, policy, network)
        features = first_features(policy)
        kernel = policy.kernel(features, policy.system.initial_external(), jnp.asarray(1, jnp.int32))
        law = kernel(policy.system.prior.secrets[1], state)
        return law.log_choice(jnp.asarray([0.3])) + law.log_prob(policy.atoms[4]), law

    for network in (policy().network, wild(policy(), 100.0).network):
        for state in ([15.1, 20.3], [0.0, 500.0]):
            (number, made), slopes = value(network, policy(), jnp.asarray(state))
            assert finite(number) and finite(slopes) and finite(made)
            assert np.sum(np.exp(np.asarray(made.log_masses, float))) == pytest.approx(1.0, abs=1e-5)


def test_episodes_share_atoms_only_and_the_belief_follows():
    """On a line; the masses of the policy's belief are part of its features and add up to one."""
    atoms = grid_atoms((-3.0,), (3.0,), (13,))
    made = grid_policy(
        Gain(), gain_units(), atoms, tracker=ParticleSpec(32, Scheme()), width=8, key=jr.key(0)
    )
    record, distances = play(Gain(), made, 6, jr.split(jr.key(1), 4), jnp.asarray([0, 1, 2, 2], jnp.int32))
    shared = np.asarray(record.public.shared)[..., 0]
    assert np.all(np.isin(shared, np.asarray(atoms))) and len(np.unique(shared)) > 2
    assert np.allclose(np.sum(record.public.features[..., :3], axis=-1), 1.0, atol=1e-5)
    assert np.mean(distances) < 0.5 and np.ptp(record.public.features[:, -1, :3]) > 1e-3


def test_with_cells_a_state_is_rounded_before_anything_looks_at_it():
    """A row is the plain kernel at the centre of the cell, but for a thousandth spread over all atoms."""
    cells = grid_atoms((14.0, 17.0), (16.0, 23.0), (3, 4))
    coarse = grid_policy(
        Platoon(), platoon_units(), policy().atoms, cells=cells, width=8, sd=0.8, key=jr.key(0)
    )
    fine = grid_policy(Platoon(), platoon_units(), policy().atoms, width=8, sd=0.8, key=jr.key(0))
    features, secret = 0.3 * jnp.ones(24), jnp.asarray([1.0, 1.1])
    near = {(14.4, 18.1): (14.0, 19.0), (14.6, 17.9): (15.0, 17.0), (30.0, 0.0): (16.0, 17.0)}
    for state, centre in near.items():
        found = law(coarse, features, secret, jnp.asarray(state))
        whole = np.exp(np.asarray(law(fine, features, secret, jnp.asarray(centre)).log_masses, float))
        assert np.array_equal(found.atoms, fine.atoms)
        assert np.allclose(np.exp(found.log_masses), 0.999 * whole + 0.001 / 15, rtol=1e-4, atol=1e-7)
    with pytest.raises(ValueError, match="wide"):
        grid_policy(Platoon(), platoon_units(), policy().atoms, cells=cells[:, :1], key=jr.key(0))

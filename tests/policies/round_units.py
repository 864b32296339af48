"""Units in round numbers for the systems that policies are tested on, and networks gone wild."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from veil.policies import Scaling, Unit


def platoon_units():
    """Of a `Platoon`: the output is the state."""
    state = Unit((15.0, 20.0), (0.5, 2.0))
    return Scaling(
        Unit((0.85, 0.95), (0.4, 0.4)), state, Unit((15.0, 15.0, 20.0), (1.0, 1.0, 2.0)), state, steps(50.0)
    )


def gain_units():
    """Of a `Gain`."""
    return Scaling(
        Unit((0.6,), (0.3,)), Unit((0.1,), (0.8,)), Unit((0.0,), (0.5,)), Unit((0.1,), (0.8,)), steps(20.0)
    )


def rig_units():
    """Of a rig with three outputs."""
    state = Unit((1.0, 0.5, 0.0), (1.0, 2.0, 0.5))
    return Scaling(Unit((0.5,), (0.3,)), state, Unit((1.0,), (1.0,)), state, steps(10.0))


def steps(count):
    return jnp.asarray(count)


def wild(policy, factor=100.0, seed=0):
    """The policy with a random network: every number is normal with sd `factor`."""
    rng = np.random.default_rng(seed)

    def drawn(leaf):
        return jnp.asarray(factor * rng.normal(size=leaf.shape), leaf.dtype)

    weights, rest = eqx.partition(policy.network, eqx.is_inexact_array)
    network = eqx.combine(jax.tree.map(drawn, weights), rest)
    return eqx.tree_at(lambda whole: whole.network, policy, network)


def finite(tree):
    """Whether every number in the tree is one."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    return bool(leaves) and all(np.all(np.isfinite(np.asarray(leaf))) for leaf in leaves)

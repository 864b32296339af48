"""The same policy in another setting: with more particles in its belief, or from another start."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from veil.beliefs.base import FilterSpec
from veil.beliefs.particles import ParticleSpec
from veil.beliefs.pooled import PooledSpec
from veil.systems.base import System
from veil.systems.platoon import Platoon

Tree = TypeVar("Tree")


def with_particles(policy: Tree, count: int) -> Tree:
    """The policy with so many particles per secret, if it tracks by particles at all."""

    def one(node: object) -> object:
        if isinstance(node, ParticleSpec):
            return ParticleSpec(count, node.scheme)
        return PooledSpec(count, node.scheme) if isinstance(node, PooledSpec) else node

    return jax.tree.map(one, policy, is_leaf=lambda node: isinstance(node, FilterSpec))


def with_system(policy: Tree, system: System) -> Tree:
    """The policy with another model of the same sizes."""

    def one(node: object) -> object:
        return system if isinstance(node, System) else node

    return jax.tree.map(one, policy, is_leaf=lambda node: isinstance(node, System))


def from_equilibrium(platoon: Platoon) -> Platoon:
    """Everybody starts at equilibrium exactly, as behind Tables 1 and 2."""
    return eqx.tree_at(lambda it: it.initial_sd, platoon, replace_fn=jnp.zeros_like)


def at_rest(platoon: Platoon) -> Platoon:
    """No time passes and nothing moves: a belief that advances by this one only takes the release in."""

    def parts(it: Platoon) -> tuple[object, ...]:
        return it.dt, it.acceleration_sd, it.spacing_sd

    return eqx.tree_at(parts, platoon, replace_fn=jnp.zeros_like)

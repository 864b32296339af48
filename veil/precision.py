"""The same object in single or in double precision."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Tree = TypeVar("Tree")


def doubled(tree: Tree) -> Tree:
    """The same object in double precision; call it where that is enabled."""
    return _cast(tree, jnp.float64)


def single(tree: Tree) -> Tree:
    """The same object in single precision; call it where that is the default."""
    return _cast(tree, jnp.float32)


def _cast(tree: Tree, precision: DTypeLike) -> Tree:
    def one(leaf: object) -> object:
        return jnp.asarray(leaf, precision) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(one, tree)

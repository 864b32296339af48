"""Shapes, and the same object in single or double precision.

Letters, everywhere: K secrets, M particles per secret, P size of a secret, N size of a state, E size of an
external input, Y size of a release, F number of features, T steps, B batch.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

# Stands for log 0. Finite, so that neither sums nor gradients ever meet −∞ − (−∞).
LOG_ZERO = -1e30

Key = PRNGKeyArray

Scalar = Float[Array, ""]

Vector = Float[Array, " d"]

Secret = Float[Array, " P"]

State = Float[Array, " N"]

External = Float[Array, " E"]

Answer = Float[Array, " A"]
"""The part of an external input that the environment decides; series and clock come behind it."""

Shared = Float[Array, " Y"]

Features = Float[Array, " F"]

Noise = Float[Array, " n"]

Tree = TypeVar("Tree")


def as_float64(tree: Tree) -> Tree:
    """The same object in double precision; call it where that is enabled."""
    return _cast(tree, jnp.float64)


def as_float32(tree: Tree) -> Tree:
    """The same object in single precision; call it where that is the default."""
    return _cast(tree, jnp.float32)


def _cast(tree: Tree, precision: DTypeLike) -> Tree:
    def one(leaf: object) -> object:
        return jnp.asarray(leaf, precision) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(one, tree)


def as_number(value: ArrayLike) -> Scalar:
    """A tunable number, always floating."""
    return jnp.asarray(value, float)

"""Sums over pairs of components, one row at a time, in blocks that fit the cache.

Every pairwise bound has the form Σ_i w_i h(i; columns), where h looks at one component (the row) and at
weighted columns: all components, or those of the row's own secret. `over_all` and `within` supply the
columns; a bound supplies h. Blocks are rematerialised in the backward pass, so memory stays flat.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from veil import linalg
from veil.components import Components
from veil.laws import Gaussian
from veil.types import LOG_ZERO, Scalar

BLOCK = 1 << 18  # pairs per block: a few megabytes, so intermediate results stay in cache


class Prepared(eqx.Module):
    """Gaussians with what pairwise formulas ask for, computed once per component."""

    mean: Float[Array, "*batch d"]
    scale: Float[Array, "*batch d d"]
    inverse: Float[Array, "*batch d d"]
    """inverse of the scale"""
    covariance: Float[Array, "*batch d d"]
    precision: Float[Array, "*batch d d"]
    log_det: Float[Array, "*batch"]


RowBound = Callable[[Prepared, Prepared, Float[Array, " M"]], Scalar]


def prepare(parts: Gaussian) -> Prepared:
    """Covariances, precisions and log-determinants of a batch of Gaussians."""
    inverse = linalg.invert_lower(parts.scale)
    precision = jnp.swapaxes(inverse, -1, -2) @ inverse
    log_det = linalg.log_determinant(parts.scale)
    return Prepared(parts.mean, parts.scale, inverse, parts.covariance, precision, log_det)


def standardised(components: Components) -> tuple[Components, Scalar]:
    """Coordinates in which the average component is round, and log |det| of the change.

    Information does not change, entropies shift by the returned number, and directions in which all
    components are narrow no longer cost digits.
    """
    weights = jnp.exp(lax.stop_gradient(components.log_weights))
    scale, size = lax.stop_gradient(components.parts.scale), components.parts.mean.shape[1]
    rows = jnp.swapaxes(scale, 0, 1).reshape(size, -1)
    average = linalg.triangular_root(rows, jnp.repeat(weights, size))
    inverse = linalg.invert_lower(average)
    centre = lax.stop_gradient(weights @ components.parts.mean)
    mean = (components.parts.mean - centre[None, :]) @ inverse.T
    parts = Gaussian(mean, inverse[None, :, :] @ components.parts.scale)
    moved = Components(
        components.labels, components.log_weights, parts, components.secrets, components.stride
    )
    return moved, 0.5 * linalg.log_determinant(average)


def blocks(function: Callable, rows, columns: int, pairs: int = BLOCK):
    """Map `function` over rows in blocks of about that many pairs, recomputing instead of storing."""
    size = max(1, pairs // columns)
    return lax.map(jax.checkpoint(function), rows, batch_size=size)


def over_mixture(bound: RowBound, prepared: Prepared, log_weights: Float[Array, " M"]) -> Float[Array, " M"]:
    """h(i; all) for every component of a plain mixture."""
    return blocks(lambda row: bound(row, prepared, log_weights), prepared, log_weights.shape[0])


def over_all(bound: RowBound, components: Components) -> Float[Array, " N"]:
    """h(i; all components, joint weights) for every component."""
    return over_mixture(bound, prepare(components.parts), components.log_weights)


def within(bound: RowBound, components: Components) -> Float[Array, " N"]:
    """h(i; components of i's own secret, weights within it) for every component."""
    prepared, log_weights = prepare(components.parts), components.log_conditional
    if components.stride is None:

        def masked(row):
            part, label = row
            own = jnp.where(components.labels == label, log_weights, LOG_ZERO)
            return bound(part, prepared, own)

        return blocks(masked, (prepared, components.labels), log_weights.shape[0])
    shape = (components.secrets, components.stride)
    split = jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), (prepared, log_weights))
    per_secret = lax.map(lambda group: over_mixture(bound, *group), split)
    return per_secret.reshape(-1)


def per_secret(values: Float[Array, " N"], components: Components) -> Float[Array, " K"]:
    """Averages within each secret, Σ_{i in k} w̄_i value_i."""
    weighted = jnp.exp(components.log_conditional) * values
    return jnp.sum(jnp.where(components.membership, weighted[None, :], 0.0), axis=1)

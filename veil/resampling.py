"""Resampling: log-weights in, ancestors out.

Every scheme is unbiased: particle i is expected M·w_i times among the ancestors. A particle without
weight is never chosen, whatever the round-off; where no particle has weight, all are taken as equal.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.types import LOG_ZERO, Key, Scalar

Ancestors = Int[Array, " M"]

LogWeights = Float[Array, " M"]


def scaled_weights(log_weights: LogWeights) -> LogWeights:
    """Weights with the largest set to one; all ones where every weight is zero."""
    floored = jnp.where(log_weights > LOG_ZERO, log_weights, LOG_ZERO)
    return jnp.exp(floored - jnp.max(floored))


def effective_sample_size(log_weights: LogWeights) -> Scalar:
    """(Σ w)² / Σ w², between 1 and M. The log-weights need not be normalised."""
    weights = scaled_weights(log_weights)
    return jnp.sum(weights) ** 2 / jnp.sum(weights * weights)


def systematic(log_weights: LogWeights, *, key: Key) -> Ancestors:
    """One uniform number places a comb of M equally spaced points: the least noisy and the fastest."""
    return systematic_at(log_weights, jr.uniform(key, (), log_weights.dtype))


def systematic_at(log_weights: LogWeights, uniform: Scalar) -> Ancestors:
    """Systematic resampling with the comb at `uniform` in [0, 1)."""
    return _by_counts(log_weights, lambda edges: jnp.ceil(edges - uniform))


def stratified(log_weights: LogWeights, *, key: Key) -> Ancestors:
    """One point in each of M equal strata, independently."""
    return stratified_at(log_weights, jr.uniform(key, log_weights.shape, log_weights.dtype))


def stratified_at(log_weights: LogWeights, uniforms: LogWeights) -> Ancestors:
    """Stratified resampling with point j at j + uniforms_j, in units of one stratum."""

    def points_below(edges: LogWeights) -> LogWeights:
        whole = jnp.floor(edges)
        stratum = jnp.minimum(whole.astype(jnp.int32), edges.shape[0] - 1)
        return whole + (uniforms[stratum] < edges - whole).astype(edges.dtype)

    return _by_counts(log_weights, points_below)


def multinomial(log_weights: LogWeights, *, key: Key) -> Ancestors:
    """M independent choices; mostly a reference, for its noise is the largest."""
    return multinomial_at(log_weights, jr.uniform(key, log_weights.shape, log_weights.dtype))


def multinomial_at(log_weights: LogWeights, uniforms: LogWeights) -> Ancestors:
    """Independent choices by inverse transform of the uniforms."""
    weights = scaled_weights(log_weights)
    edges = jnp.cumsum(weights)
    return _alive(jnp.searchsorted(edges, uniforms * edges[-1], side="right"), weights)


def _by_counts(log_weights: LogWeights, points_below: Callable[[LogWeights], LogWeights]) -> Ancestors:
    """Ancestors from the number of sorted points below each cumulative weight: no search, no sort.

    Particle i owns the slots from points_below(edge_{i−1}) to points_below(edge_i), so the ancestor of a
    slot is the number of particles whose slots end at or before it.
    """
    weights = scaled_weights(log_weights)
    edges = _running_sum(weights)
    ends = points_below(edges * (weights.shape[0] / edges[-1])).astype(jnp.int32)
    ended = jnp.zeros_like(weights).at[ends].add(1.0, mode="drop")
    return _alive(_running_sum(ended), weights)


def _alive(chosen: Array, weights: LogWeights) -> Ancestors:
    """The chosen indices, with the heaviest particle in the rare slots that round-off gave to no one."""
    chosen = jnp.minimum(chosen.astype(jnp.int32), weights.shape[0] - 1)
    positions = jnp.arange(weights.shape[0], dtype=jnp.int32)
    heaviest = jnp.max(jnp.where(weights >= 1.0, positions, 0))  # the largest weight is one
    return jnp.where(weights[chosen] > 0, chosen, heaviest)


def _running_sum(values: LogWeights) -> LogWeights:
    """Cumulative sum by two small triangular matrix products: several times faster than a scan on a CPU."""
    count = values.shape[0]
    width = math.isqrt(max(count - 1, 0)) + 1
    height = -(-count // width)
    blocks = jnp.pad(values, (0, height * width - count)).reshape(height, width)
    inside = blocks @ jnp.triu(jnp.ones((width, width), values.dtype))
    before = inside[:, -1] @ jnp.triu(jnp.ones((height, height), values.dtype), 1)
    return (inside + before[:, None]).reshape(-1)[:count]

"""The law of the scores that a system leaves: coloured, heavy-tailed, of a size that depends on the state.

With the scores z_t of `veil.fitting.predictor` the innovations are

    e_t = z_t − Σ_k a_k z_{t−k},    ε_t = M e_t / s_t,    log s_t = log s + c · (x_t in standard units)

per axis, with a triangular M that removes correlation between axes. Under the law the ε_t are independent,
standard normal or Student-t. White Gaussian noise is the case a = 0, c = 0, M = I.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from veil.fitting.predictor import Scores
from veil.laws import LOG_TWO_PI

LONGEST = 6  # scores that an innovation may look back on

SHORTEST_TAIL = 1e-3  # of 1/ν: below it a Student-t is taken as a Gaussian


class ResidualLaw(eqx.Module):
    """Parameters of the law of the scores.

    Attributes:
        memory: a, per axis and lag.
        log_size: log s, per axis.
        level: c, per axis and recorded coordinate of the state.
        mixing: strictly lower triangle of M, row by row.
        tail: 1/ν per axis; 0 for a Gaussian.
    """

    memory: Float[Array, "Y L"]
    log_size: Float[Array, " Y"]
    level: Float[Array, "Y N"]
    mixing: Float[Array, " M"]
    tail: Float[Array, " Y"]


def white(axes: int) -> ResidualLaw:
    """Independent standard normal scores: the model as it is."""
    return ResidualLaw(
        jnp.zeros((axes, LONGEST)),
        jnp.zeros(axes),
        jnp.zeros((axes, axes)),
        jnp.zeros(axes * (axes - 1) // 2),
        jnp.zeros(axes),
    )


def innovations(
    law: ResidualLaw, values: Float[Array, "T Y"], states: Float[Array, "T Y"]
) -> tuple[Float[Array, "T Y"], Float[Array, "T Y"]]:
    """ε_1..ε_T of one stretch and log s_t. Scores before the stretch count as zero.

    Args:
        law: of the scores.
        values: the scores.
        states: recorded coordinates of the state that each prediction started from, in standard units.
    """
    length, axes = values.shape
    before = jnp.concatenate([jnp.zeros((LONGEST, axes), values.dtype), values])
    lags = jnp.stack([before[LONGEST - k : LONGEST - k + length] for k in range(1, LONGEST + 1)], axis=-1)
    rest = values - jnp.einsum("tyl,yl->ty", lags, law.memory)
    log_size = law.log_size[None] + states @ law.level.T
    lower = jnp.eye(axes, dtype=values.dtype).at[jnp.tril_indices(axes, -1)].set(law.mixing)
    return (rest @ lower.T) * jnp.exp(-log_size), log_size


def log_density(
    law: ResidualLaw, found: Scores, states: Float[Array, "T Y"]
) -> tuple[Float[Array, " T"], Float[Array, "T Y"]]:
    """Log density of every reading of one stretch given those before, and the innovations.

    Args:
        law: of the scores.
        found: the scores.
        states: see `innovations`.
    """
    noise, log_size = innovations(law, found.values, states)
    return jnp.sum(standard_log_density(noise, law.tail) - log_size, axis=1) + found.log_jacobian, noise


def standard_log_density(noise: Float[Array, "*T Y"], tail: Float[Array, " Y"]) -> Float[Array, "*T Y"]:
    """Of a standard normal where the tail is 0, else of a Student-t with 1 / tail degrees of freedom."""
    tail = jnp.broadcast_to(tail, noise.shape)
    kept = jnp.maximum(tail, SHORTEST_TAIL)
    degrees = 1.0 / kept
    heavy = (
        gammaln(0.5 * (degrees + 1.0))
        - gammaln(0.5 * degrees)
        - 0.5 * jnp.log(jnp.pi * degrees)
        - 0.5 * (degrees + 1.0) * jnp.log1p(noise**2 * kept)
    )
    return jnp.where(tail < SHORTEST_TAIL, -0.5 * (noise**2 + LOG_TWO_PI), heavy)

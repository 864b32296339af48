"""The law of the errors that a system leaves: coloured, heavy-tailed, of a size that depends on the state.

With the scores z_t = miss / sd of `veil.fitting.predictor` the innovations are

    e_t = z_t − Σ_k a_k z_{t−k},    ε_t = M e_t / s_t,    log s_t = c · (x_t in standard units)

per axis, with a triangular M that removes correlation between axes. Under the law the ε_t are independent,
standard normal or Student-t. White Gaussian noise is the case a = 0, c = 0, M = I. A rounded reading has the
probability of its cell under this law.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from veil.fitting.predictor import Forecasts
from veil.laws import LOG_TWO_PI

LONGEST = 6  # scores that an innovation may look back on

SHORTEST_TAIL = 1e-3  # of 1/ν: below it a Student-t is taken as a Gaussian

NODES = (
    6  # of the average over a cell: error below 1e-7 nats for cells of two standard deviations, 1e-4 for four
)


class ResidualLaw(eqx.Module):
    """Parameters of the law of the scores.

    Attributes:
        memory: a, per axis and lag.
        level: c, per axis and recorded coordinate of the state.
        mixing: strictly lower triangle of M, row by row.
        tail: 1/ν per axis; 0 for a Gaussian.
    """

    memory: Float[Array, "Y L"]
    level: Float[Array, "Y Y"]
    mixing: Float[Array, " M"]
    tail: Float[Array, " Y"]


def white(axes: int) -> ResidualLaw:
    """Independent standard normal scores: the model as it is."""
    return ResidualLaw(
        jnp.zeros((axes, LONGEST)),
        jnp.zeros((axes, axes)),
        jnp.zeros(axes * (axes - 1) // 2),
        jnp.zeros(axes),
    )


def triangle(law: ResidualLaw) -> Float[Array, "Y Y"]:
    """M, with ones on its diagonal."""
    axes = law.tail.shape[0]
    return jnp.eye(axes, dtype=law.tail.dtype).at[jnp.tril_indices(axes, -1)].set(law.mixing)


def innovations(
    law: ResidualLaw, values: Float[Array, "T Y"], states: Float[Array, "T Y"], age: Int[Array, " T"]
) -> tuple[Float[Array, "T Y"], Float[Array, "T Y"]]:
    """ε_1..ε_T and log s_t. Scores before a stretch count as zero.

    Args:
        law: of the scores.
        values: the scores.
        states: recorded coordinates of the state that each prediction started from, in standard units.
        age: number of scores before this one in its stretch.
    """
    length, axes = values.shape
    before = jnp.concatenate([jnp.zeros((LONGEST, axes), values.dtype), values])
    rest = values
    for k in range(1, LONGEST + 1):
        past = jnp.where((age >= k)[:, None], before[LONGEST - k : LONGEST - k + length], 0.0)
        rest = rest - past * law.memory[None, :, k - 1]
    log_size = states @ law.level.T
    return (rest @ triangle(law).T) * jnp.exp(-log_size), log_size


def log_density(
    law: ResidualLaw,
    found: Forecasts,
    states: Float[Array, "T Y"],
    age: Int[Array, " T"],
    step: Float[Array, " Y"] | None = None,
) -> tuple[Float[Array, " T"], Float[Array, "T Y"], Float[Array, "T Y"]]:
    """Log density of every reading given those before it in its stretch, innovations and half cells.

    Of a rounded reading it is the logarithm of the probability of its cell divided by the width of the cell,
    so that fine sensors agree with exact ones.

    Args:
        law: of the scores.
        found: what was expected, and how far off it was.
        states: see `innovations`.
        age: see `innovations`.
        step: of the digits of each axis; None if all are exact.
    """
    noise, log_size = innovations(law, found.miss * jnp.exp(-found.log_sd), states, age)
    each = standard_log_density(noise, law.tail) - log_size - found.log_sd
    half = jnp.zeros_like(noise)
    if step is not None:
        half = 0.5 * step[None] * jnp.exp(-log_size - found.log_sd)
        each = each + _cell_average(noise, half, law.tail)
    return jnp.sum(each, axis=1), noise, half


def _cell_average(noise: Float[Array, "T Y"], half: Float[Array, "T Y"], tail: Float[Array, " Y"]) -> Array:
    """Log of the mean density over ε ± half, relative to that at ε; Gauss-Legendre quadrature."""
    centre = standard_log_density(noise, tail)
    places, shares = np.polynomial.legendre.leggauss(NODES)
    nodes = jnp.asarray(places, noise.dtype)[:, None, None]
    spread = noise[None] + half[None] * nodes
    relative = jax.vmap(standard_log_density, (0, None))(spread, tail) - centre[None]
    return jax.nn.logsumexp(relative, axis=0, b=jnp.asarray(0.5 * shares, noise.dtype)[:, None, None])


def standard_log_density(noise: Float[Array, "*T Y"], tail: Float[Array, " Y"]) -> Float[Array, "*T Y"]:
    """Of a standard normal where the tail is 0, else of a Student-t with 1 / tail degrees of freedom."""
    kept = jnp.maximum(tail, SHORTEST_TAIL)
    degrees = 1.0 / kept
    constant = gammaln(0.5 * (degrees + 1.0)) - gammaln(0.5 * degrees) - 0.5 * jnp.log(jnp.pi * degrees)
    power, kept, constant, short = (
        jnp.broadcast_to(one, noise.shape)
        for one in (0.5 * (degrees + 1.0), kept, constant, tail < SHORTEST_TAIL)
    )
    heavy = constant - power * jnp.log1p(noise**2 * kept)
    return jnp.where(short, -0.5 * (noise**2 + LOG_TWO_PI), heavy)

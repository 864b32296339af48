"""The law of the errors that a system leaves (`veil.beliefs.self_model`), for all steps at once."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from veil.beliefs.self_model import LONGEST, Forecasts, ResidualLaw, standard_log_density, triangle

NODES = 6  # of the average over a cell; the error is below 1e-7 nats for cells of two sd, 1e-4 for four


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
    each, half = entry_log_density(noise, log_size + found.log_sd, law.tail, step)
    return jnp.sum(each, axis=1), noise, half


def entry_log_density(
    noise: Float[Array, "T Y"],
    log_scale: Float[Array, "T Y"],
    tail: Float[Array, " Y"],
    step: Float[Array, " Y"] | None,
) -> tuple[Float[Array, "T Y"], Float[Array, "T Y"]]:
    """Log density of single readings given their innovations, and half cells.

    Args:
        noise: innovations.
        log_scale: log of the reading's change for a change of one of its innovation.
        tail: 1/ν of each axis.
        step: see `log_density`.
    """
    each, half = standard_log_density(noise, tail) - log_scale, jnp.zeros_like(noise)
    if step is not None:
        half = 0.5 * step[None] * jnp.exp(-log_scale)
        each = each + _cell_average(noise, half, tail)
    return each, half


def _cell_average(noise: Float[Array, "T Y"], half: Float[Array, "T Y"], tail: Float[Array, " Y"]) -> Array:
    """Log of the mean density over ε ± half, relative to that at ε; Gauss-Legendre quadrature."""
    centre = standard_log_density(noise, tail)
    places, shares = np.polynomial.legendre.leggauss(NODES)
    nodes = jnp.asarray(places, noise.dtype)[:, None, None]
    spread = noise[None] + half[None] * nodes
    relative = jax.vmap(standard_log_density, (0, None))(spread, tail) - centre[None]
    return jax.nn.logsumexp(relative, axis=0, b=jnp.asarray(0.5 * shares, noise.dtype)[:, None, None])

"""Releases without noise, each against its forecast: one Gaussian filter per secret.

Exact where the system and what is released of its state are linear. Elsewhere both are linearised at the
mean.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil import linalg
from veil.beliefs.kalman import move
from veil.laws import LOG_TWO_PI, Gaussian
from veil.systems.base import System
from veil.types import External, Secret, Shared, State

# Below this many units of round-off a forecast has no noise, and a number is where it was forecast.
ROUND_OFF = 64.0

EXCLUDED = -1e6  # log density of what a forecast without noise did not foresee

CERTAIN = 100.0  # log density of what it did: more than any forecast with noise gives to a point


class Innovation(eqx.Module):
    """Each release against its forecast, whitened: axis i given the axes before it (batched [T]).

    Under the model `scores` are independent and standard normal. They are zero where there is no noise or
    nothing was released. The log density is zero where nothing was released, and `CERTAIN` where a forecast
    without noise came true: a secret that foresees a number exactly beats all that leave it open.
    """

    scores: Float[Array, "*T Y"]
    log_density: Float[Array, "*T Y"]


def innovations(
    system: System,
    secret: Secret,
    shared: Float[Array, "T Y"],
    external: Float[Array, "T E"],
    fresh: Bool[Array, " T"],
    output: Callable[[State, Any], Shared] | None = None,
    given: Any = None,
    cell: Float[Array, " N"] | None = None,
) -> Innovation:
    """Forecast and compare along a recording.

    Args:
        system: the model; it begins in its initial law.
        secret: the secret that the forecasts assume.
        shared: y_1..y_T, functions of the state without noise.
        external: w_1..w_T.
        fresh: which of the releases are new; the others say nothing.
        output: what is released of a state, given what is public at that step; the system's output if None.
        given: what is public, batched [T]; the second argument of `output`.
        cell: where a sensor rounds, the sd of the place of the state in the cell of its reading, per
            coordinate: the step over √12, 0 where nothing is read. Releases are then functions of a state
            with so much independent noise, and the initial law is that of a reading.
    """
    observe = (lambda state, _: system.output(state)) if output is None else output

    def step(
        law: Gaussian, now: tuple[External, Shared, Bool[Array, ""], Any]
    ) -> tuple[Gaussian, Innovation]:
        external, shared, new, known = now
        after, surprise = compare(lambda state: observe(state, known), law, shared, cell)
        kept = jax.tree.map(lambda left, right: jnp.where(new, left, right), after, law)
        silent = jax.tree.map(lambda leaf: jnp.where(new, leaf, 0.0), surprise)
        return move(system, secret, kept, external), silent

    start = system.initial(secret)
    if cell is not None:
        start = Gaussian(start.mean, _triangular(jnp.concatenate([start.scale, jnp.diag(cell)], axis=1)))
    return jax.lax.scan(step, start, (external, shared, fresh, given))[1]


def compare(
    output: Callable[[State], Shared], law: Gaussian, shared: Shared, cell: Float[Array, " N"] | None = None
) -> tuple[Gaussian, Innovation]:
    """The law of the state given the release, and the surprise, by Gram-Schmidt on the rows of ∂y/∂z.

    With x = m + A z and W the orthonormal rows found, the scores are W z, so that the posterior of z has
    mean Wᵀ scores and covariance I − WᵀW. Exact where the output is affine.

    Args:
        output: what is released of a state, without noise.
        law: of the state, before the release.
        shared: the release.
        cell: see `innovations`.
    """
    return compare_along(output, law, shared, cell)[:2]


def compare_along(
    output: Callable[[State], Shared], law: Gaussian, shared: Shared, cell: Float[Array, " N"] | None = None
) -> tuple[Gaussian, Innovation, Float[Array, "Y M"]]:
    """The same as `compare`, and the axes W of z that the release tells.

    Args:
        output: what is released of a state, without noise.
        law: of the state, before the release.
        shared: the release.
        cell: see `innovations`.
    """
    centre, slope = output(law.mean), jax.jacfwd(output)(law.mean)
    factor, rows = law.scale, slope @ law.scale
    if cell is not None:
        factor = jnp.concatenate([law.scale, jnp.zeros_like(law.scale)], axis=1)
        rows = jnp.concatenate([rows, slope * cell[None, :]], axis=1)
    axes: list[Array] = []
    scores: list[Array] = []
    densities: list[Array] = []
    for i in range(shared.shape[0]):
        rest, known = rows[i], centre[i]
        for axis, score in zip(axes, scores, strict=True):
            part = rest @ axis
            rest, known = rest - part * axis, known + part * score
        tolerance = ROUND_OFF * jnp.finfo(shared.dtype).eps * jnp.maximum(jnp.abs(known), 1.0)
        length = jnp.sqrt(rest @ rest)
        alive = length > tolerance
        sd = jnp.where(alive, length, 1.0)
        miss = shared[i] - known
        axes.append(jnp.where(alive, rest / sd, 0.0))
        scores.append(jnp.where(alive, miss / sd, 0.0))
        density = -0.5 * (scores[-1] ** 2 + LOG_TWO_PI) - jnp.log(sd)
        certain = jnp.where(jnp.abs(miss) <= tolerance, CERTAIN, EXCLUDED)
        densities.append(jnp.where(alive, density, certain))
    frame, found = jnp.stack(axes), jnp.stack(scores)
    mean = law.mean + factor @ (frame.T @ found)
    scale = factor - (factor @ frame.T) @ frame
    scale = scale if cell is None else _triangular(scale)
    return Gaussian(mean, scale), Innovation(found, jnp.stack(densities)), frame


def _triangular(factor: Float[Array, "N M"]) -> Float[Array, "N N"]:
    """A square factor of the same covariance."""
    return linalg.triangular_root(factor, jnp.ones_like(factor[0]))

"""What noise-free releases say: each is compared with its forecast, which is a transition law.

Where a release shows the whole state, the forecast of the next one is the transition law itself and nothing
is approximated. Where it shows a part of the state, or comes at some steps only, the rest is carried on as a
Gaussian law: exact for linear systems, linearised elsewhere.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.beliefs.kalman import move
from veil.laws import Gaussian
from veil.laws.gaussian import LOG_TWO_PI
from veil.systems.base import System
from veil.types import External, Secret, Shared

# Below this many units of round-off a forecast has no noise, and a number is where it was forecast.
ROUND_OFF = 64.0
EXCLUDED = -1e6  # log density of what a forecast without noise did not foresee


class Surprise(eqx.Module):
    """Each release against its forecast, whitened: axis i given the axes before it (batched [T]).

    Under the model `scores` are independent and standard normal. They are zero where there is no noise or
    nothing was released; the log density is zero there too.
    """

    scores: Float[Array, "*T Y"]
    log_density: Float[Array, "*T Y"]


def surprises(
    system: System,
    secret: Secret,
    shared: Float[Array, "T Y"],
    external: Float[Array, "T E"],
    fresh: Bool[Array, " T"],
) -> Surprise:
    """Forecast and compare along a recording.

    Args:
        system: the model; it begins in its initial law.
        secret: the secret that the forecasts assume.
        shared: y_1..y_T, functions of the state without noise.
        external: w_1..w_T.
        fresh: which of the releases are new; the others say nothing.
    """

    def step(law: Gaussian, now: tuple[External, Shared, Bool[Array, ""]]) -> tuple[Gaussian, Surprise]:
        external, shared, new = now
        after, surprise = _compare(system, law, shared)
        kept = jax.tree.map(lambda left, right: jnp.where(new, left, right), after, law)
        silent = jax.tree.map(lambda leaf: jnp.where(new, leaf, 0.0), surprise)
        return move(system, secret, kept, external), silent

    return jax.lax.scan(step, system.initial(secret), (external, shared, fresh))[1]


def _compare(system: System, law: Gaussian, shared: Shared) -> tuple[Gaussian, Surprise]:
    """The law of the state given the release, and the surprise, by Gram-Schmidt on the rows of ∂y/∂z.

    With x = m + A z and W the orthonormal rows found, the scores are W z, so that the posterior of z has
    mean Wᵀ scores and covariance I − WᵀW.
    """
    centre, rows = system.output(law.mean), jax.jacfwd(system.output)(law.mean) @ law.scale
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
        certain = jnp.where(jnp.abs(miss) <= tolerance, 0.0, EXCLUDED)
        densities.append(jnp.where(alive, density, certain))
    frame, found = jnp.stack(axes), jnp.stack(scores)
    mean = law.mean + law.scale @ (frame.T @ found)
    scale = law.scale - (law.scale @ frame.T) @ frame
    return Gaussian(mean, scale), Surprise(found, jnp.stack(densities))

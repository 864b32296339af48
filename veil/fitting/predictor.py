"""One-step predictions of a recording: what a system expects next, and how far off it was.

Everything is a function of arrays, so that gradients with respect to parameters and noise come from JAX.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from veil.recordings.bound import Bound
from veil.systems.base import System
from veil.types import External, Secret, State

BLOCK = 64  # rows are padded to a multiple of this, so that recordings of similar length share a program

FINE = 0.5  # a sensor step of at most this many sd of the noise is treated as independent noise of its width


class Stretches(eqx.Module):
    """A recording as equally long rows of states and inputs; what is padded is not used.

    Attributes:
        states: x_1..x_T of each stretch.
        external: w_1..w_T of each stretch.
        used: which transitions x_t -> x_{t+1} were recorded.
        seen: which coordinates of the state are recorded.
        cell: standard deviation of the rounding error of each coordinate, step / √12; 0 for exact ones.
        fine: whether the steps of the sensor are small beside the noise of a step.
    """

    states: Float[Array, "S T N"]
    external: Float[Array, "S T E"]
    used: Bool[Array, "S T-1"]
    seen: tuple[bool, ...] = eqx.field(static=True)
    cell: Float[Array, " N"]
    fine: bool = eqx.field(static=True)

    @property
    def steps(self) -> int:
        """How many transitions were recorded."""
        return int(np.sum(np.asarray(self.used)))


def stretches_of(system: System, log: Bound, rows: int = 0, count: int = 0) -> Stretches:
    """Pad the stretches of a recording to one length.

    Args:
        system: the model; its noise tells whether the sensor is fine.
        log: the recording in the terms of its system.
        rows: length to pad to, at least; 0 for the longest stretch.
        count: number of stretches to pad to, at least.
    """
    longest = max(max(one.steps for one in log.stretches), rows)
    length = -(-longest // BLOCK) * BLOCK
    padded = [*log.stretches, *[log.stretches[0]] * max(0, count - len(log.stretches))]
    states, external, used = [], [], []
    for place, one in enumerate(padded):
        index = np.minimum(np.arange(length), one.steps - 1)
        states.append(one.states[index])
        external.append(one.external[index])
        real = one.steps if place < len(log.stretches) else 0
        used.append(np.arange(1, length) < real)
    steps = [step if there else 0.0 for step, there in zip(log.resolution, log.seen, strict=True)]
    first = system.transition(
        system.prior.secrets[0], jnp.asarray(states[0][0], float), jnp.asarray(external[0][0], float)
    )
    sd = np.sqrt(np.sum(np.asarray(first.scale) ** 2, axis=1))
    return Stretches(
        jnp.asarray(np.stack(states), float),
        jnp.asarray(np.stack(external), float),
        jnp.asarray(np.stack(used)),
        log.seen,
        jnp.asarray(steps, float) / math.sqrt(12.0),
        bool(np.all(np.asarray(steps) <= FINE * sd)),
    )


class Scores(eqx.Module):
    """How far each reading was from its prediction.

    Attributes:
        values: whitened by the predicted covariance: axis i given the axes before it.
        log_jacobian: logarithm of |∂ values / ∂ reading|.
        forecasts: the predicted readings.
    """

    values: Float[Array, "*T Y"]
    log_jacobian: Float[Array, "*T"]
    forecasts: Float[Array, "*T Y"]


def scores(system: System, secret: Secret, data: Stretches) -> Scores:
    """Predict every reading from those before it, stretch by stretch (batched [S, T-1]).

    Where the whole state is recorded and the sensor is fine, each prediction needs the last reading only, and
    all are made at once. Else a Kalman filter follows what is not recorded; it is linearised at its mean, so
    that it is exact for linear systems.

    Args:
        system: the model.
        secret: its parameters.
        data: the recording.
    """
    one = _from_last_reading if all(data.seen) and data.fine else _by_filter
    return jax.vmap(lambda states, external: one(system, secret, states, external, data))(
        data.states, data.external
    )


def _whitened(miss: Array, covariance: Array) -> tuple[Array, Array]:
    """L⁻¹ miss and −Σ log L_ii, for the Cholesky factor L of the covariance."""
    factor = jnp.linalg.cholesky(covariance)
    found = jax.scipy.linalg.solve_triangular(factor, miss, lower=True)
    return found, -jnp.sum(jnp.log(jnp.diagonal(factor)))


def _from_last_reading(
    system: System,
    secret: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    data: Stretches,
) -> Scores:
    """Predictions from the last reading; rounding errors are added to the covariance."""
    rounding = jnp.diag(data.cell**2)

    def step(state: State, inputs: External, after: State) -> tuple[Array, Array, Array]:
        law = system.transition(secret, state, inputs)
        slope = jax.jacfwd(lambda x: system.transition(secret, x, inputs).mean)(state)
        covariance = law.scale @ law.scale.T + rounding + slope @ rounding @ slope.T
        return *_whitened(after - law.mean, covariance), law.mean

    return Scores(*jax.vmap(step)(states[:-1], external[:-1], states[1:]))


def _by_filter(
    system: System,
    secret: Secret,
    states: Float[Array, "T N"],
    external: Float[Array, "T E"],
    data: Stretches,
) -> Scores:
    """Predictions by a Kalman filter that starts in the system's initial law, given the first reading."""
    seen = np.flatnonzero(data.seen)
    rounding = jnp.diag(data.cell[seen] ** 2)
    size = states.shape[1]

    def step(
        law: tuple[Array, Array], now: tuple[External, State]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        (mean, covariance), (inputs, after) = law, now
        moved = system.transition(secret, mean, inputs)
        slope = jax.jacfwd(lambda x: system.transition(secret, x, inputs).mean)(mean)
        forecast = slope @ covariance @ slope.T + moved.scale @ moved.scale.T
        reading = forecast[np.ix_(seen, seen)] + rounding
        miss = after[seen] - moved.mean[seen]
        found = *_whitened(miss, reading), moved.mean[seen]
        gain = jnp.linalg.solve(reading, forecast[seen]).T
        kept = jnp.eye(size, dtype=mean.dtype).at[:, seen].add(-gain)
        posterior = kept @ forecast @ kept.T + gain @ rounding @ gain.T
        return (moved.mean + gain @ miss, posterior), found

    start = system.initial(secret)
    mask = jnp.asarray(data.seen)
    hidden = jnp.where(mask[:, None] | mask[None, :], 0.0, start.scale @ start.scale.T)
    first = jnp.where(mask, states[0], start.mean), hidden + jnp.diag(data.cell**2)
    return Scores(*jax.lax.scan(step, first, (external[:-1], states[1:]))[1])

"""One-step predictions of a recording: what a system expects next, and how far off it was.

A Kalman filter, linearised at its mean, follows the state. It reads the recorded coordinates one after the
other, so that every coordinate of a reading is predicted from the past and from the coordinates before it:
a scalar mean and a scalar standard deviation. Everything is a function of arrays, so that derivatives with
respect to parameters and noise come from JAX. Loops have as many rounds as there are steps, which allows
forward derivatives only.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veil.recordings.bound import Bound
from veil.systems.base import System
from veil.types import External, Scalar, Secret, State

FINE = 0.1  # a sensor step of at most this many sd of the noise is treated as if the last reading were exact


class Sensor(eqx.Module):
    """What is read of a state.

    Attributes:
        seen: which coordinates of the state are read.
        step: of the digits of each coordinate; 0 for exact ones and for those that are not read.
        rounded: whether any step is positive.
    """

    seen: tuple[bool, ...] = eqx.field(static=True)
    step: Float[Array, " N"]
    rounded: bool = eqx.field(static=True)

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinates that are read."""
        return tuple(place for place, flag in enumerate(self.seen) if flag)

    @property
    def variance(self) -> Float[Array, " N"]:
        """Of the rounding error, step² / 12."""
        return self.step**2 / 12.0


class Rows(eqx.Module):
    """A recording: the rows of all its stretches, one after the other, then rows that are not used.

    Transition t leads from row t to row t + 1.

    Attributes:
        states: what was read; coordinates that are not read hold a stand-in that nothing uses.
        external: w of each row.
        age: number of transitions before this one in its stretch.
        used: which transitions were recorded; not those between stretches.
        last: number of transitions up to the last one that is used.
        sensor: what was read.
        fine: whether the whole state is read, in steps that are small beside the noise of a step.
    """

    states: Float[Array, "T_plus_1 N"]
    external: Float[Array, "T_plus_1 E"]
    age: Int[Array, " T"]
    used: Bool[Array, " T"]
    last: Int[Array, ""]
    sensor: Sensor
    fine: bool = eqx.field(static=True)


def rows_of(system: System, log: Bound) -> Rows:
    """Join the stretches of a recording, and pad them so that similar recordings share a program.

    Args:
        system: the model; its noise tells whether the sensor is fine.
        log: the recording in the terms of its system.
    """
    states = np.concatenate([one.states for one in log.stretches])
    external = np.concatenate([one.external for one in log.stretches])
    age = np.concatenate([np.arange(one.steps) for one in log.stretches])
    used = np.concatenate([np.arange(one.steps) < one.steps - 1 for one in log.stretches])
    last = int(np.flatnonzero(used)[-1]) + 1
    index = np.minimum(np.arange(padded_length(last) + 1), len(states) - 1)
    used = used[index] & (np.arange(len(index)) < last)
    steps = np.array(
        [step if there else 0.0 for step, there in zip(log.resolution, log.seen, strict=True)], float
    )
    first = system.transition(
        system.prior.secrets[0], jnp.asarray(states[0], float), jnp.asarray(external[0], float)
    )
    sd = np.sqrt(np.sum(np.asarray(first.scale) ** 2, axis=1))
    return Rows(
        jnp.asarray(states[index], float),
        jnp.asarray(external[index], float),
        jnp.asarray(age[index][:-1]),
        jnp.asarray(used[:-1]),
        jnp.asarray(last),
        Sensor(log.seen, jnp.asarray(steps, float), bool(np.any(steps > 0))),
        bool(all(log.seen) and np.all(steps <= FINE * sd)),
    )


def padded_length(steps: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...

    Args:
        steps: that there are.
    """
    length = 64
    while length < steps:
        length += length // 2 if length & (length - 1) == 0 else length // 3
    return length


class Tracked(eqx.Module):
    """What a filter knows of the state after a reading: a Gaussian."""

    mean: State
    covariance: Float[Array, "N N"]


class Forecasts(eqx.Module):
    """What was expected of each reading, and how far off it was.

    Attributes:
        miss: reading minus its mean, coordinate i given the past and the coordinates before it.
        log_sd: logarithm of the standard deviation of that difference, before rounding.
        mean: the expected reading, given the past.
    """

    miss: Float[Array, "*T Y"]
    log_sd: Float[Array, "*T Y"]
    mean: Float[Array, "*T Y"]


def first_tracked(system: System, secret: Secret, sensor: Sensor, reading: State) -> Tracked:
    """What is known after the first reading: the system's initial law where nothing is read.

    Args:
        system: the model.
        secret: its parameters.
        sensor: what is read.
        reading: the first one; coordinates that are not read are not used.
    """
    start, mask = system.initial(secret), jnp.asarray(sensor.seen)
    hidden = jnp.where(mask[:, None] | mask[None, :], 0.0, start.scale @ start.scale.T)
    return Tracked(jnp.where(mask, reading, start.mean), hidden + jnp.diag(sensor.variance))


def moved(system: System, secret: Secret, known: Tracked, inputs: External) -> Tracked:
    """The law of the next state, before anything is read of it.

    Args:
        system: the model.
        secret: its parameters.
        known: about the present state.
        inputs: w of this step.
    """
    law = system.transition(secret, known.mean, inputs)
    slope = jax.jacfwd(lambda x: system.transition(secret, x, inputs).mean)(known.mean)
    return Tracked(law.mean, _square(_times(slope, known.covariance), slope) + _square(law.scale, law.scale))


def read(
    expected: Tracked, sensor: Sensor, reading: Callable[[int, int, Scalar, Scalar], Scalar]
) -> tuple[Tracked, Forecasts]:
    """Read the coordinates one after the other; each changes what is expected of the next.

    Args:
        expected: law of the state before it is read.
        sensor: what is read.
        reading: the value of a coordinate, from its place among those that are read, its place in the state,
            its mean and its standard deviation. For a recording it is the recorded number.
    """
    mean, covariance = expected.mean, expected.covariance
    misses, sds = [], []
    for place, axis in enumerate(sensor.axes):
        variance = jnp.maximum(covariance[axis, axis], 1e-30)
        sd = jnp.sqrt(variance)
        miss = reading(place, axis, mean[axis], sd) - mean[axis]
        column = covariance[:, axis]
        gain = column / (variance + sensor.variance[axis])
        mean = mean + gain * miss
        covariance = covariance - gain[:, None] * column[None, :]
        misses.append(miss)
        sds.append(0.5 * jnp.log(variance))
    seen = jnp.stack([expected.mean[axis] for axis in sensor.axes])
    return Tracked(mean, covariance), Forecasts(jnp.stack(misses), jnp.stack(sds), seen)


def forecasts(system: System, secret: Secret, data: Rows) -> Forecasts:
    """Predict every reading from those before it in its stretch. Transitions that are not used hold anything.

    Where the whole state is read by a fine sensor, each prediction needs the last reading only, and all are
    made at once. Else a filter runs along the rows and begins anew in each stretch, in the system's initial
    law given the first reading. It is exact for linear systems.

    Args:
        system: the model.
        secret: its parameters.
        data: the recording.
    """
    sensor, states, external = data.sensor, data.states, data.external
    if data.fine:
        rounding = jnp.diag(sensor.variance)

        def alone(state: State, inputs: External, after: State) -> Forecasts:
            expected = moved(system, secret, Tracked(state, rounding), inputs)
            return read(expected, sensor, lambda place, axis, mean, sd: after[axis])[1]

        return jax.vmap(alone)(states[:-1], external[:-1], states[1:])

    def step(t: Int[Array, ""], now: tuple[Tracked, Forecasts]) -> tuple[Tracked, Forecasts]:
        known, found = now
        anew, after = first_tracked(system, secret, sensor, states[t]), states[t + 1]
        known = jax.tree.map(lambda begin, on: jnp.where(data.age[t] == 0, begin, on), anew, known)
        known, one = read(
            moved(system, secret, known, external[t]), sensor, lambda place, axis, mean, sd: after[axis]
        )
        return known, jax.tree.map(lambda all_, new: all_.at[t].set(new), found, one)

    empty = jnp.zeros((len(data.age), len(sensor.axes)), states.dtype)
    start = first_tracked(system, secret, sensor, states[0]), Forecasts(empty, empty, empty)
    return jax.lax.fori_loop(0, data.last, step, start)[1]


def _times(left: Array, right: Array) -> Array:
    """A product of small matrices that the compiler can fuse with its neighbours."""
    return jnp.sum(left[:, :, None] * right[None, :, :], axis=1)


def _square(left: Array, right: Array) -> Array:
    """The product of a small matrix with the transpose of another, likewise."""
    return jnp.sum(left[:, None, :] * right[None, :, :], axis=2)

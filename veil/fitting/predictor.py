"""One-step predictions of a recording: what a system expects next, and how far off it was.

Everything is a function of arrays, so that derivatives with respect to parameters and noise come from JAX.
The loop over the rows has as many rounds as there are steps, which allows forward derivatives only.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veil.beliefs.self_model import Forecasts, Sensor, Tracked, first_tracked, moved, read
from veil.recordings.bound import Bound
from veil.systems.base import System
from veil.types import External, Secret, State

AFTER_GAP = 10.0  # times the standard deviation of the initial law, for coordinates that are not read

FINE = 0.1  # a sensor whose steps are at most this many sd of the noise is taken as exact


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


def rows_of(system: System, log: Bound, length: int = 0, *, rounded: bool = False) -> Rows:
    """Join the stretches of a recording, and pad them so that similar recordings share a program.

    Args:
        system: the model; its noise tells whether the sensor is fine.
        log: the recording in the terms of its system.
        length: number of transitions at least, with those that are not used.
        rounded: whether the sensor is taken as coarse in any case.
    """
    states = np.concatenate([one.states for one in log.stretches])
    external = np.concatenate([one.external for one in log.stretches])
    age = np.concatenate([np.arange(one.steps) for one in log.stretches])
    used = np.concatenate([np.arange(one.steps) < one.steps - 1 for one in log.stretches])
    last = int(np.flatnonzero(used)[-1]) + 1
    index = np.minimum(np.arange(max(length, padded_length(last)) + 1), len(states) - 1)
    used = used[index] & (np.arange(len(index)) < last)
    coarse = rounded or is_coarse(system, log)
    return Rows(
        jnp.asarray(states[index], float),
        jnp.asarray(external[index], float),
        jnp.asarray(age[index][:-1]),
        jnp.asarray(used[:-1]),
        jnp.asarray(last, int),
        Sensor(log.seen, jnp.asarray(_digits(log)), coarse),
        all(log.seen) and not coarse,
    )


def is_coarse(system: System, log: Bound) -> bool:
    """Whether the steps of the digits are so large beside the noise that likelihoods must count them.

    Args:
        system: the model; its noise counts, and how rough the recording is.
        log: the recording in the terms of its system.
    """
    one = log.stretches[0]
    first = system.transition(
        system.prior.secrets[0], jnp.asarray(one.states[0], float), jnp.asarray(one.external[0], float)
    )
    sd = np.sqrt(np.sum(np.asarray(first.scale) ** 2, axis=1))
    return bool(np.any(_digits(log) > FINE * np.minimum(sd, _roughness(log))))


def _digits(log: Bound) -> Float[np.ndarray, " N"]:
    """The steps of the digits of each coordinate; 0 for exact ones and for those that are not read."""
    return np.array(
        [step if there else 0.0 for step, there in zip(log.resolution, log.seen, strict=True)], float
    )


def _roughness(log: Bound) -> Float[np.ndarray, " N"]:
    """The noise of a step as the readings show it: what is left after a straight line through neighbours."""
    bends = np.concatenate([np.diff(one.states, 2, axis=0) for one in log.stretches if one.steps > 2])
    return np.std(bends, axis=0) / np.sqrt(6.0)


def padded_length(steps: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...

    Args:
        steps: that there are.
    """
    length = 64
    while length < steps:
        length += length // 2 if length & (length - 1) == 0 else length // 3
    return length


def forecasts(system: System, secret: Secret, data: Rows) -> Forecasts:
    """Predict every reading from those before it in its stretch. Transitions that are not used hold anything.

    Where the whole state is read by a fine sensor, each prediction needs the last reading only, and all are
    made at once. Else a filter runs along the rows. It begins in the system's initial law given the first
    reading, and is exact for linear systems. After a gap it expects what is not read where it was, with
    `AFTER_GAP` times the uncertainty of a start: the system may have done anything meanwhile.

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
        after = states[t + 1]
        anew = _after_gap(first_tracked(system, secret, sensor, states[t]), known, sensor)
        known = jax.tree.map(
            lambda begin, on: jnp.where((t > 0) & (data.age[t] == 0), begin, on), anew, known
        )
        reached, one = read(
            moved(system, secret, known, external[t]), sensor, lambda place, axis, mean, sd: after[axis]
        )
        known = jax.tree.map(lambda on, stay: jnp.where(data.used[t], on, stay), reached, known)
        return known, jax.tree.map(lambda all_, new: all_.at[t].set(new), found, one)

    empty = jnp.zeros((len(data.age), len(sensor.axes)), states.dtype)
    start = first_tracked(system, secret, sensor, states[0]), Forecasts(empty, empty, empty)
    return jax.lax.fori_loop(0, data.last, step, start)[1]


def _after_gap(begun: Tracked, before: Tracked, sensor: Sensor) -> Tracked:
    """What is known after the first reading of a later stretch.

    Args:
        begun: what would be known if the recording began here.
        before: what was known at the end of the stretch before.
        sensor: what is read.
    """
    seen = jnp.asarray(sensor.seen)
    wider = jnp.where(seen, 1.0, AFTER_GAP)
    mean = jnp.where(seen, begun.mean, before.mean)
    return Tracked(mean, begun.covariance * wider[:, None] * wider[None, :])

"""The owner's model of itself: the law of its next reading given its own past and the public input.

A Kalman filter, linearised at its mean, follows the state. It reads the coordinates that the sensor shows one
after the other, so that every coordinate of a reading is predicted from the past and from the coordinates
before it: a scalar mean and a scalar standard deviation sd. With the scores z = (reading − mean) / sd,

    e_t = z_t − Σ_k a_k z_{t−k},    ε_t = M e_t / s_t,    log s_t = c · (x_t in standard units)

per coordinate, with a triangular M that removes correlation between them. Under the model the ε_t are
independent, standard normal or Student-t. White Gaussian noise is the case a = 0, c = 0, M = I. A rounded
reading has the probability of its cell under this law.

`SelfModel` turns readings into noise and noise into readings, step by step. `veil.fitting` estimates one.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import betainc, gammaln, ndtr, ndtri
from jaxtyping import Array, Float, Int

from veil.beliefs.online import Learned, Learner
from veil.laws import LOG_TWO_PI
from veil.systems.base import System
from veil.types import External, Noise, Scalar, Secret, State

LONGEST = 6  # scores that an innovation may look back on

CELL_NODES = (
    10  # of the moments of a state in the cell of its reading; the error is 1e-5 sd for cells of six sd
)

SHORTEST_TAIL = 1e-3  # of 1/ν: below it a Student-t is taken as a Gaussian


class Sensor(eqx.Module):
    """What is read of a state.

    Attributes:
        seen: which coordinates of the state are read.
        step: of the digits of each coordinate; 0 for exact ones and for those that are not read.
        rounded: whether likelihoods count the width of the steps; not where it is small beside the noise.
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
        if sensor.rounded:
            moved_by, left = _in_cell(miss, variance, sensor.step[axis])
        else:
            noise = sensor.variance[axis]
            moved_by, left = miss * variance / (variance + noise), noise * variance / (variance + noise)
        gain = column / variance
        mean = mean + gain * moved_by
        covariance = covariance - gain[:, None] * column[None, :] * (1.0 - left / variance)
        misses.append(miss)
        sds.append(0.5 * jnp.log(variance))
    seen = jnp.stack([expected.mean[axis] for axis in sensor.axes])
    return Tracked(mean, covariance), Forecasts(jnp.stack(misses), jnp.stack(sds), seen)


def _in_cell(miss: Scalar, variance: Scalar, step: Scalar) -> tuple[Scalar, Scalar]:
    """Mean and variance of N(0, variance) given that it lies in a cell of width `step` around `miss`."""
    places, shares = np.polynomial.legendre.leggauss(CELL_NODES)
    nodes = miss + 0.5 * step * jnp.asarray(places, miss.dtype)
    weights = jax.nn.softmax(jnp.log(jnp.asarray(shares, miss.dtype)) - 0.5 * nodes**2 / variance)
    mean = weights @ nodes
    return mean, weights @ (nodes - mean) ** 2


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


class SelfMemory(eqx.Module):
    """What a self-model carries from one reading to the next. It is private.

    Attributes:
        known: about the state.
        reading: the last one.
        scores: the last ones, the latest first.
        slopes: how the last scores move with the parameters, the latest first; None without a learner.
        learned: of the correction; None without a learner.
    """

    known: Tracked
    reading: Float[Array, " Y"]
    scores: Float[Array, "L Y"]
    slopes: Float[Array, "L Y P"] | None = None
    learned: Learned | None = None


class SelfStep(eqx.Module):
    """One reading as noise.

    Attributes:
        memory: after the reading.
        noise: standard normal and independent of the past, if the model is right.
        log_density: of the reading, nats; of a rounded one, that of its cell per width of the cell.
    """

    memory: SelfMemory
    noise: Noise
    log_density: Scalar


class SelfModel(eqx.Module):
    """The law of what an owner reads next, given what it has read and the public input.

    Attributes:
        system: the owner's model, with its own noise.
        secret: the owner's parameters.
        sensor: what is read.
        law: of the errors that the system leaves.
        centre: of the readings, for the size of the noise by state.
        spread: of the readings, likewise.
        heavy: whether a tail may be heavy; without, nothing is computed for that.
        learner: of a correction that is learned along the stream; None to stay as it is.
    """

    system: System
    secret: Secret
    sensor: Sensor
    law: ResidualLaw
    centre: Float[Array, " Y"]
    spread: Float[Array, " Y"]
    heavy: bool = eqx.field(static=True, default=True)
    learner: Learner | None = None

    def begin(self, reading: State) -> SelfMemory:
        """Memory after a first reading that is not turned into noise.

        Args:
            reading: in the coordinates of the state; those that the sensor does not show are not used.
        """
        known = first_tracked(self.system, self.secret, self.sensor, reading)
        shown = reading[jnp.asarray(self.sensor.axes)]
        return SelfMemory(known, shown, self._no_scores(reading), *self._unlearned(reading))

    def whiten_first(self, reading: State, uniform: Float[Array, " Y"]) -> SelfStep:
        """The first reading as noise, by the initial law of the system.

        Args:
            reading: in the coordinates of the state.
            uniform: private, on (0, 1); one per coordinate that is read.
        """
        return self._whitened(*self._first(reading), reading, uniform)

    def whiten(
        self, memory: SelfMemory, external: External, reading: State, uniform: Float[Array, " Y"]
    ) -> SelfStep:
        """The next reading as noise: the randomised probability integral transform of the model's law.

        Args:
            memory: after the last reading.
            external: w at the last reading.
            reading: in the coordinates of the state.
            uniform: private, on (0, 1); one per coordinate that is read. Exact readings do not use it.
        """
        expected = moved(self.system, self.secret, memory.known, external)
        return self._whitened(expected, self._past(memory, external, expected), reading, uniform)

    def invert(self, memory: SelfMemory, external: External, noise: Noise) -> tuple[SelfMemory, State]:
        """The reading that this noise makes, on the grid of the sensor. Coordinates not read hold the mean.

        Args:
            memory: after the last reading.
            external: w at the last reading.
            noise: standard normal, one per coordinate that is read.
        """
        expected = moved(self.system, self.secret, memory.known, external)
        return self._inverted(expected, self._past(memory, external, expected), noise)

    def invert_first(self, noise: Noise) -> tuple[SelfMemory, State]:
        """The first reading that this noise makes, by the initial law of the system.

        Args:
            noise: standard normal, one per coordinate that is read.
        """
        return self._inverted(*self._first(noise), noise)

    def skip(self, memory: SelfMemory, external: External) -> SelfMemory:
        """Memory after a step that was not read: the state moves on as the model expects.

        Args:
            memory: after the last reading.
            external: w at that step.
        """
        known = moved(self.system, self.secret, memory.known, external)
        reading = known.mean[jnp.asarray(self.sensor.axes)]
        scores = _shifted(memory.scores, jnp.zeros_like(reading))
        if memory.slopes is None:
            return SelfMemory(known, reading, scores)
        slopes = _shifted(memory.slopes, jnp.zeros_like(memory.slopes[0]))
        return SelfMemory(known, reading, scores, slopes, memory.learned)

    def learn(
        self, readings: Float[Array, "T N"], external: Float[Array, "T E"]
    ) -> tuple["SelfModel", SelfMemory]:
        """The model as it is after a private history, and its memory at the end of it.

        Args:
            readings: in the coordinates of the state, one row per step.
            external: w of these steps.
        """
        middle = jnp.full(len(self.sensor.axes), 0.5, readings.dtype)

        def step(memory: SelfMemory, now: tuple[State, External]) -> tuple[SelfMemory, None]:
            return self.whiten(memory, now[1], now[0], middle).memory, None

        first = self.begin(readings[0])
        memory = jax.lax.scan(step, first, (readings[1:], external[:-1]))[0]
        if self.learner is None or memory.learned is None:
            return self, memory
        return dataclasses.replace(
            self, learner=dataclasses.replace(self.learner, start=memory.learned)
        ), memory

    def pack(self, memory: SelfMemory) -> Float[Array, " M"]:
        """A memory as one row of numbers, to be saved."""
        return ravel_pytree(memory)[0]

    def unpack(self, row: Float[Array, " M"]) -> SelfMemory:
        """The memory of a row that `pack` made."""
        return ravel_pytree(self.begin(self.system.initial(self.secret).mean))[1](row)

    def _no_scores(self, reading: State) -> Float[Array, "L Y"]:
        return jnp.zeros((LONGEST, len(self.sensor.axes)), reading.dtype)

    def _unlearned(self, like: Array) -> "tuple[Array | None, Learned | None]":
        if self.learner is None:
            return None, None
        return jnp.zeros((*self._no_scores(like).shape, self.secret.shape[0]), like.dtype), self.learner.start

    def _past(self, memory: SelfMemory, external: External, expected: Tracked) -> "_Past":
        log_size = self.law.level @ ((memory.reading - self.centre) / self.spread)
        if memory.slopes is None:
            return _Past(self.law, memory.scores, log_size)
        own = self._slopes(memory.known, external, expected)
        return _Past(self.law, memory.scores, log_size, self._lesson(memory, external, own))

    def _slopes(self, known: Tracked, external: External, expected: Tracked) -> Float[Array, "Y P"]:
        """How the next scores move with the parameters, before anything is read."""
        axes = jnp.asarray(self.sensor.axes)
        sd = jnp.sqrt(jnp.maximum(jnp.diagonal(expected.covariance)[axes], 1e-30))

        def mean(secret: Secret) -> State:
            return self.system.transition(secret, known.mean, external).mean[axes]

        return jax.jacfwd(mean)(self.secret) / sd[:, None]

    def _lesson(self, memory: SelfMemory, external: External, own: Float[Array, "Y P"]) -> "_Lesson":
        """What the errors of the next reading are regressed on: what they would be for other parameters."""
        assert self.learner is not None and memory.slopes is not None and memory.learned is not None
        remembered = jnp.sum(self.law.memory.T[:, :, None] * memory.slopes, axis=0)
        mixed = jnp.sum(triangle(self.law)[:, :, None] * (own - remembered)[None], axis=1)
        level = (memory.reading - self.centre) / self.spread
        features = mixed / jnp.exp(self.law.level @ level)[:, None]
        if self.learner.linear:
            inputs = external - self.system.first_external().astype(external.dtype)
            more = jnp.concatenate([jnp.ones(1, level.dtype), level, inputs])
            features = jnp.concatenate([features, jnp.broadcast_to(more, (len(own), more.shape[0]))], axis=1)
        shift, size = memory.learned.correction(features)
        return _Lesson(memory.slopes, memory.learned, own, features, shift, size)

    def _first(self, like: Array) -> "tuple[Tracked, _Past]":
        """The law of the first state, and a past without errors."""
        start = self.system.initial(self.secret)
        gaussian = jax.tree.map(jnp.zeros_like, self.law)
        past = _Past(gaussian, self._no_scores(like), jnp.zeros_like(self.centre))
        return Tracked(start.mean, start.scale @ start.scale.T), past

    def _inverted(self, expected: Tracked, past: "_Past", noise: Noise) -> tuple[SelfMemory, State]:
        made = list[Scalar]()

        def value(place: int, axis: int, mean: Scalar, sd: Scalar) -> Scalar:
            centre, scale = past.place(place, mean, sd)
            step = self.sensor.step[axis]
            exact = centre + scale * self._quantile(noise[place], past.law.tail[place])
            safe = jnp.where(step > 0, step, 1.0)
            reading = jnp.where(step > 0, safe * jnp.round(exact / safe), exact)
            past.add((reading - mean) / sd)
            made.append(reading)
            return reading

        known, _ = read(expected, self.sensor, value)
        reading = expected.mean.at[jnp.asarray(self.sensor.axes)].set(jnp.stack(made))
        return self._memory(known, jnp.stack(made), past), reading

    def _memory(self, known: Tracked, reading: Float[Array, " Y"], past: "_Past") -> SelfMemory:
        """After a reading."""
        lesson = past.lesson
        if lesson is None:
            return SelfMemory(known, reading, past.scores_after(), *self._unlearned(reading))
        learned = lesson.learned.after(lesson.features, past.errors())
        slopes = _shifted(lesson.slopes, lesson.own)
        return SelfMemory(known, reading, past.scores_after(), slopes, learned)

    def _quantile(self, noise: Scalar, tail: Scalar) -> Scalar:
        return _heavy_quantile(noise, tail) if self.heavy else noise

    def _whitened(
        self, expected: Tracked, past: "_Past", reading: State, uniform: Float[Array, " Y"]
    ) -> SelfStep:
        noise, lines = list[Scalar](), list[Scalar]()

        def value(place: int, axis: int, mean: Scalar, sd: Scalar) -> Scalar:
            centre, scale = past.place(place, mean, sd)
            exact, half = (reading[axis] - centre) / scale, 0.5 * self.sensor.step[axis] / scale
            tail = past.law.tail[place] if self.heavy else None
            one, line = _normal_noise(exact, half, tail, uniform[place])
            noise.append(one)
            lines.append(line - jnp.log(scale))
            past.add((reading[axis] - mean) / sd)
            return reading[axis]

        known, _ = read(expected, self.sensor, value)
        shown = reading[jnp.asarray(self.sensor.axes)]
        memory = self._memory(known, shown, past)
        return SelfStep(memory, jnp.stack(noise), jnp.sum(jnp.stack(lines)))


class _Lesson(NamedTuple):
    """What a learner has at hand when a reading comes.

    Attributes:
        slopes: of the last scores.
        learned: so far.
        own: slopes of the scores of this reading.
        features: of its errors.
        shift: mean of its errors.
        size: sd of its errors.
    """

    slopes: Float[Array, "L Y P"]
    learned: Learned
    own: Float[Array, "Y P"]
    features: Float[Array, "Y F"]
    shift: Float[Array, " Y"]
    size: Float[Array, " Y"]


class _Past:
    """How the memory of the noise moves the prediction of each coordinate, while they are read in turn.

    Attributes:
        law: of the errors.
        scores: before this reading, the latest first.
        log_size: log s of each coordinate now.
        lesson: of the learner; None without one.
        new: scores of the coordinates that have been read.
    """

    def __init__(
        self,
        law: ResidualLaw,
        scores: Float[Array, "L Y"],
        log_size: Float[Array, " Y"],
        lesson: _Lesson | None = None,
    ):
        self.law, self.scores, self.log_size, self.lesson = law, scores, log_size, lesson
        self.base, self.mixing = jnp.sum(law.memory.T * scores, axis=0), triangle(law)
        self.new: list[Scalar] = []

    def place(self, place: int, mean: Scalar, sd: Scalar) -> tuple[Scalar, Scalar]:
        """Centre and scale of the law of a coordinate."""
        centre, scale = mean + sd * self._ahead(place), sd * jnp.exp(self.log_size[place])
        if self.lesson is None:
            return centre, scale
        return centre + scale * self.lesson.shift[place], scale * self.lesson.size[place]

    def errors(self) -> Float[Array, " Y"]:
        """Of the coordinates that have been read, in units of the noise and without a correction."""
        found = [score - self._ahead(place) for place, score in enumerate(self.new)]
        return jnp.stack(found) / jnp.exp(self.log_size)

    def _ahead(self, place: int) -> Scalar:
        """The score that is expected by those before it."""
        errors = [score - self.base[j] for j, score in enumerate(self.new[:place])]
        mixed = sum((self.mixing[place, j] * e for j, e in enumerate(errors)), jnp.zeros_like(self.base[0]))
        return self.base[place] - mixed

    def add(self, score: Scalar) -> None:
        """The next coordinate was read."""
        self.new.append(score)

    def scores_after(self) -> Float[Array, "L Y"]:
        """The scores with those of this reading."""
        return _shifted(self.scores, jnp.stack(self.new))


def _shifted(scores: Float[Array, "L *Y"], new: Float[Array, " *Y"]) -> Float[Array, "L *Y"]:
    return jnp.concatenate([new[None], scores[:-1]])


def _lower_tail(noise: Scalar, tail: Scalar | None) -> Scalar:
    """Distribution function of the innovations, standard normal without a tail."""
    if tail is None:
        return ndtr(noise)
    degrees = 1.0 / jnp.maximum(tail, SHORTEST_TAIL)
    below = 0.5 * betainc(0.5 * degrees, jnp.full_like(degrees, 0.5), degrees / (degrees + noise**2))
    return jnp.where(tail < SHORTEST_TAIL, ndtr(noise), jnp.where(noise > 0, 1.0 - below, below))


def _normal_noise(exact: Scalar, half: Scalar, tail: Scalar | None, uniform: Scalar) -> tuple[Scalar, Scalar]:
    """An innovation as a standard normal number, and the log density of its cell in units of the scale."""
    sign = jnp.where(exact > 0, -1.0, 1.0)  # the lower tail has the better resolution
    low, high = _lower_tail(sign * exact - half, tail), _lower_tail(sign * exact + half, tail)
    inside = low + jnp.where(sign > 0, uniform, 1.0 - uniform) * (high - low)
    least = jnp.finfo(exact.dtype).tiny
    drawn = sign * ndtri(jnp.maximum(inside, least))
    rounded = half > 0
    gaussian = jnp.asarray(True) if tail is None else tail < SHORTEST_TAIL
    shape = jnp.zeros_like(exact) if tail is None else tail
    point = standard_log_density(exact[None], shape[None])[0]
    cell = jnp.log(jnp.maximum(high - low, least)) - jnp.log(jnp.where(rounded, 2.0 * half, 1.0))
    noise = jnp.where(rounded | ~gaussian, drawn, exact)
    return noise, jnp.where(rounded, cell, point)


def _heavy_quantile(noise: Scalar, tail: Scalar) -> Scalar:
    """The innovation whose place in its law is that of a standard normal number in its own; by bisection."""
    aim = ndtr(-jnp.abs(noise))

    def halve(_: Int[Array, ""], ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = 0.5 * (low + high)
        under = _lower_tail(-jnp.exp(middle), tail) > aim
        return jnp.where(under, middle, low), jnp.where(under, high, middle)

    ends = jnp.full_like(noise, -20.0), jnp.full_like(noise, 12.0)  # of log |ε|
    low, high = jax.lax.fori_loop(0, 60, halve, ends)
    heavy = jnp.sign(noise) * jnp.exp(0.5 * (low + high))
    return jnp.where(tail < SHORTEST_TAIL, noise, heavy)


def _times(left: Array, right: Array) -> Array:
    """A product of small matrices that the compiler can fuse with its neighbours."""
    return jnp.sum(left[:, :, None] * right[None, :, :], axis=1)


def _square(left: Array, right: Array) -> Array:
    """The product of a small matrix with the transpose of another, likewise."""
    return jnp.sum(left[:, None, :] * right[None, :, :], axis=2)

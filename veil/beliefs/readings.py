"""The owner's own filter where its sensor rounds: what the next reading will be, and the noise in it.

A reading is the state rounded to the resolution of its field. The state itself lies anywhere in the cell
around the reading, so the law of the next reading is a mixture over the points of that cell. `CellFilter`
keeps the density of the state on a few Gauss-Legendre points of the cell, predicts the next reading by it,
and turns the reading into standard normal noise by the randomised probability integral transform

    u = F(r − Δ/2) + V (F(r + Δ/2) − F(r − Δ/2)),   ε = Φ⁻¹(u),   V uniform on (0, 1),

with F the distribution function of the predicted state. If F is right, ε is exactly standard normal and
independent of the past, whatever the secret is (randomised quantile residuals: Dunn and Smyth, 1996). Adding
uniform noise to the reading instead would leave a density with steps, which a reader can tell from a normal
one. The transform is applied axis by axis, each given the readings of the axes before it.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr, ndtri
from jaxtyping import Array, Float

from veil.laws import Gaussian
from veil.systems.base import System
from veil.systems.probes import evaluate
from veil.types import External, Noise, Scalar, Secret, State

Weights = Float[Array, " J"]

MOST_POINTS = 36  # of a cell, over all axes

MOST_PER_AXIS = 12

_NARROW = 0.25  # sd below which a step is smeared in the filter, in cells: points do not resolve less

_SMALL = 1e-300  # least probability whose normal quantile is finite


class Prediction(eqx.Module):
    """The law of the next state given all readings: a mixture with J parts."""

    log_weights: Weights
    parts: Gaussian


class Whitened(eqx.Module):
    """A reading as noise.

    Attributes:
        noise: standard normal if the prediction was right.
        log_masses: log-probability of each axis of the reading given the axes before it; log density along
            axes without resolution.
        log_weights: of the points of its cell, the state's law given this reading too.
    """

    noise: Noise
    log_masses: Float[Array, " N"]
    log_weights: Weights

    @property
    def log_mass(self) -> Scalar:
        """Log-probability of the whole reading."""
        return jnp.sum(self.log_masses)


class CellFilter(eqx.Module):
    """The law of the state in the cell of the last reading, for an owner who knows its secret.

    Attributes:
        system: the owner's model.
        resolution: of each coordinate of the state; 0 where it is read exactly.
        points: per axis with a resolution.
    """

    system: System
    resolution: tuple[float, ...] = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(self, system: System, points: int | None = None):
        self.system = system
        self.resolution = tuple(field.resolution for field in system.state_fields)
        rounded = sum(step > 0 for step in self.resolution)
        fit = int(MOST_POINTS ** (1.0 / max(rounded, 1)) + 1e-9)
        self.points = max(2, min(MOST_PER_AXIS, fit)) if points is None else points

    def too_coarse(self) -> tuple[str, ...]:
        """Names of the fields whose resolution the points of a cell do not resolve.

        A step may be as many sd of one step's noise, at the start, as there are points per axis. Up to there
        the excess log-loss was found to be below 2e-5 nats in 50 steps (docs/resolution.md).
        """
        system = self.system

        def smallest(secret: Secret) -> Array:
            law = system.transition(secret, system.initial(secret).mean, system.first_external())
            return jnp.sqrt(jnp.diagonal(law.covariance))

        least = np.asarray(jnp.min(jax.vmap(smallest)(system.prior.secrets), axis=0))
        return tuple(
            field.name
            for field, step, sd in zip(system.state_fields, self.resolution, least, strict=True)
            if step > self.points * sd
        )

    @property
    def uniform_size(self) -> int:
        """How many uniform numbers one reading takes."""
        return len(self.resolution)

    def cell(self, reading: State) -> Float[Array, "J N"]:
        """The points of the cell around a reading."""
        return reading[None, :] + jnp.asarray(self._grid()[0], reading.dtype)

    def anywhere(self) -> Weights:
        """Log-weights of the points if the state is equally likely everywhere in the cell."""
        return jnp.log(jnp.asarray(self._grid()[1], float))

    def first(self, secret: Secret) -> Prediction:
        """The law of x_1."""
        law = self.system.initial(secret)
        one = jax.tree.map(lambda leaf: leaf[None], law)
        return Prediction(jnp.zeros(1, law.mean.dtype), one)

    def predict(self, secret: Secret, reading: State, log_weights: Weights, external: External) -> Prediction:
        """The law of the next state.

        Args:
            secret: the owner's.
            reading: of x_t.
            log_weights: of the points of its cell.
            external: w_t.
        """
        parts = jax.vmap(self.system.transition, (None, 0, None))(secret, self.cell(reading), external)
        return Prediction(log_weights, parts)

    def whiten(self, prediction: Prediction, reading: State, uniform: Float[Array, " N"]) -> Whitened:
        """The noise of a reading, and the law of the state in its cell.

        Args:
            prediction: of the state that was read.
            reading: what was read.
            uniform: private numbers on (0, 1), one per axis.
        """
        mean, scale = prediction.parts.mean, prediction.parts.scale
        log_weights, noise, log_mass = prediction.log_weights, [], []
        # Per part: mean and variance of the noise of each axis, given the cells of the axes so far.
        centres: list[Array] = []
        spreads: list[Array] = []
        for i, step in enumerate(self.resolution):
            drift = sum((scale[:, i, j] * centres[j] for j in range(i)), mean[:, i])
            extra = sum((scale[:, i, j] ** 2 * spreads[j] for j in range(i)), scale[:, i, i] ** 2)
            sd = jnp.sqrt(extra)
            if step > 0:
                low, high = (_standard(reading[i] + side * step - drift, sd) for side in (-0.5, 0.5))
                noise.append(_normal(log_weights, low, high, uniform[i]))
                gain = _log_between(low, high)
                centre, spread = _truncated(low, high)
            else:
                place = _standard(reading[i] - drift, sd)
                noise.append(_normal(log_weights, place, place, uniform[i]))
                alive = sd > 0
                level = -0.5 * (place**2 + math.log(2.0 * math.pi)) - jnp.log(jnp.where(alive, sd, 1.0))
                gain = jnp.where(alive, level, 0.0)
                centre, spread = place, jnp.zeros_like(place)
            own = jnp.where(extra > 0, scale[:, i, i] / jnp.where(sd > 0, sd, 1.0), 0.0)
            centres.append(own * centre)
            spreads.append(own**2 * spread + (1.0 - own**2))
            total = logsumexp(log_weights + gain)
            log_mass.append(total)
            log_weights = jnp.where(jnp.isfinite(total), log_weights + gain - total, log_weights)
        return Whitened(jnp.stack(noise), jnp.stack(log_mass), self._weights(prediction, reading))

    def log_masses(
        self, secret: Secret, readings: Float[Array, "T N"], external: Float[Array, "T E"]
    ) -> Float[Array, " T"]:
        """Log-probability of each reading given those before it.

        Args:
            secret: the owner's.
            readings: of x_1 to x_T.
            external: w_1 to w_T.
        """
        middle = jnp.full(len(self.resolution), 0.5, readings.dtype)
        first = self.whiten(self.first(secret), readings[0], middle)

        def step(weights: Weights, now: tuple[Array, Array, Array]) -> tuple[Weights, Scalar]:
            before, after, inputs = now
            found = self.whiten(self.predict(secret, before, weights, inputs), after, middle)
            return found.log_weights, found.log_mass

        rows = readings[:-1], readings[1:], external[:-1]
        return jnp.append(first.log_mass, jax.lax.scan(step, first.log_weights, rows)[1])

    def _weights(self, prediction: Prediction, reading: State) -> Weights:
        """Log-weights of the points of the new cell: the predicted density there."""
        if self._grid()[0].shape[0] == 1:
            return jnp.zeros(1, reading.dtype)
        width = jnp.asarray(self.resolution, reading.dtype)
        size = width.shape[0]
        floor = _NARROW * width
        diagonal = jnp.diagonal(prediction.parts.scale, axis1=1, axis2=2)
        wide = jnp.maximum(jnp.broadcast_to(floor, diagonal.shape) - diagonal, 0.0)
        unit = jnp.broadcast_to(jnp.eye(size, dtype=reading.dtype), prediction.parts.scale.shape)
        scale = prediction.parts.scale + wide[:, :, None] * unit
        exact = [i for i in range(size) if self.resolution[i] == 0]
        for i in exact:  # without noise and read exactly: it says nothing about the others
            dead = scale[:, i, i] == 0
            scale = scale.at[:, i, i].set(jnp.where(dead, 1.0, scale[:, i, i]))
        smooth = Gaussian(prediction.parts.mean, scale)

        def density(point: State) -> Scalar:
            one = jax.vmap(lambda part: part.log_prob(point))(smooth)
            return logsumexp(prediction.log_weights + one)

        found = self.anywhere().astype(reading.dtype) + jax.vmap(density)(self.cell(reading))
        total = logsumexp(found)
        return jnp.where(jnp.isfinite(total), found - total, self.anywhere().astype(reading.dtype))

    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Points of a cell around zero, and their weights."""
        place, weight = np.polynomial.legendre.leggauss(self.points)
        axes = [
            (0.5 * step * place, 0.5 * weight) if step > 0 else (np.zeros(1), np.ones(1))
            for step in self.resolution
        ]
        points = np.stack(
            [axis.ravel() for axis in np.meshgrid(*(a for a, _ in axes), indexing="ij")], axis=1
        )
        weights = np.ones(1)
        for _, own in axes:
            weights = np.multiply.outer(weights, own).ravel()
        return points, weights


def own_noise(system: System) -> Float[np.ndarray, " N"]:
    """Sd of one step's noise in each coordinate of the state, given the noise in all others.

    The least over the secrets of the prior, at the mean of the start and two sd around it. It is zero where
    the covariance is singular along a coordinate: without noise, or with noise that the others tell.
    """
    external = system.initial_external()

    def scales(secret: Secret) -> Float[Array, "J N N"]:
        start = system.initial(secret)
        away = 2.0 * start.scale.T
        states = jnp.concatenate([start.mean[None], start.mean[None] + away, start.mean[None] - away])
        return jax.vmap(lambda state: system.transition(secret, state, external).scale)(states)

    size = len(system.state_fields)
    found = np.asarray(evaluate(jax.vmap(scales), system.prior.secrets), float).reshape(-1, size, size)
    least = np.full(size, np.inf)
    for rows in np.unique(found, axis=0):
        for i in range(size):
            others = np.delete(rows, i, axis=0).T
            rest = rows[i] - others @ (np.linalg.pinv(others, 1e-12) @ rows[i])
            least[i] = min(least[i], float(np.linalg.norm(rest)))
    return least


def _standard(value: Array, sd: Array) -> Array:
    """The value in units of the sd; far out where there is no noise and the value is not zero."""
    alive = sd > 0
    return jnp.where(alive, value / jnp.where(alive, sd, 1.0), jnp.sign(value) * 1e3)


def _log_between(low: Array, high: Array) -> Array:
    """Log of Φ(high) − Φ(low), by the tail that is nearer."""
    flip = low + high > 0
    near, far = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    ratio = log_ndtr(far) - log_ndtr(near)
    return log_ndtr(near) + jnp.log(-jnp.expm1(jnp.minimum(ratio, -1e-300)))


def _truncated(low: Array, high: Array) -> tuple[Array, Array]:
    """Mean and variance of a standard normal number that lies between."""
    log_mass = _log_between(low, high)

    def bell(z: Array) -> Array:
        return jnp.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_mass)

    wide = high - low > 1e-4  # below that the difference of the bells is round-off
    first, last = bell(low), bell(high)
    middle = 0.5 * (low + high)
    mean = jnp.where(wide, first - last, middle)
    mean = jnp.clip(mean, low, high)
    inside = jnp.where(jnp.abs(low) < 30, low * first, 0.0) - jnp.where(jnp.abs(high) < 30, high * last, 0.0)
    variance = jnp.where(wide, 1.0 + inside - mean**2, (high - low) ** 2 / 12.0)
    return mean, jnp.clip(variance, 0.0, jnp.minimum(1.0, 0.25 * (high - low) ** 2))


def _normal(log_weights: Weights, low: Array, high: Array, uniform: Scalar) -> Scalar:
    """Φ⁻¹ of the mixture's distribution function at a uniform place of the cell, by the nearer tail."""
    weights = jnp.exp(log_weights)

    def place(first: Array, last: Array, part: Scalar) -> Scalar:
        below, above = weights @ ndtr(first), weights @ ndtr(last)
        return ndtri(jnp.maximum(below + part * (above - below), _SMALL))

    left = place(low, high, uniform)
    right = -place(-high, -low, 1.0 - uniform)
    return jnp.where(left < 0, left, right)

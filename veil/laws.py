"""Release laws and kernels: Gaussian, mixture of Gaussians, finite, rounded, point, switched.

A law has a density and a draw, both as pure functions of explicit noise. What else it can do (Gaussian parts,
masses on atoms, a Gaussian in its place, the same on a public grid) is asked of the law. A kernel maps
(secret, state) to a law.
"""

import abc
import functools
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Bool, Float, Int

from veil import linalg
from veil.types import LOG_ZERO, Noise, Scalar, Secret, State, Vector

Grid = tuple[float, ...]
"""Step per axis of a public grid; 0 where an axis is continuous."""


def to_grid(value: Float[Array, "*batch d"], grid: Grid) -> Float[Array, "*batch d"]:
    """The nearest point of a grid per axis; its derivative is taken to be that of the value.

    Every program gives the same bits: a count times the step. (A quotient would not do: the compiler replaces
    some divisions by products.)
    """
    return _nearest(value, grid)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _nearest(value: Array, grid: Grid) -> Array:
    steps = jnp.asarray([step if step > 0 else 1.0 for step in grid], value.dtype)
    steps = jnp.broadcast_to(steps, value.shape)
    nearest = jnp.round(value / steps) * steps
    return jnp.where(jnp.broadcast_to(np.asarray(grid) > 0, value.shape), nearest, value)


@_nearest.defjvp
def _nearest_jvp(grid: Grid, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _nearest(primals[0], grid), tangents[0]


class Law(eqx.Module):
    """The law of one random vector.

    Randomness is an argument: `sample` maps standard normal noise to a value, so the same noise can
    drive several laws (common random numbers), draws are differentiable, and a replay is exact.

    Attributes:
        is_point: whether there is no noise, so that no filter has a density to weigh by.
        is_finite: whether it has masses on finitely many values, see `masses`.
        is_smooth: whether the Gaussian in its place (`smoothed`) follows the state, so that a filter can be
            aimed by it.
    """

    is_point: ClassVar[bool] = False
    is_finite: ClassVar[bool] = False
    is_smooth: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def noise_size(self) -> int:
        """How many independent standard normal numbers one draw takes."""

    @abc.abstractmethod
    def sample(self, noise: Noise) -> Vector:
        """The value for this noise."""

    @abc.abstractmethod
    def log_prob(self, value: Vector) -> Scalar:
        """Log density at `value` (log mass where the law is finite), in nats."""

    @abc.abstractmethod
    def log_choice(self, noise: Noise) -> Scalar:
        """Log-probability of the discrete part of the draw `sample(noise)`; zero where there is none.

        A draw has no derivative in the masses that it chooses by; this has, for score-function gradients.
        """

    @property
    def component_count(self) -> int:
        """How many Gaussians it is a mixture of; 0 where it is none."""
        return 0

    @property
    def is_fresh(self) -> Bool[Array, ""]:
        """Whether a draw tells anything that was not public before."""
        return jnp.asarray(True)

    def fresh_law(self) -> "Law":
        """The law of a fresh value, for a law that may repeat an old one; any other law is its own."""
        return self

    def gaussian_parts(self) -> "tuple[Float[Array, '*batch J'], Gaussian]":
        """Log-weights and Gaussians of a mixture, batch axes kept."""
        raise TypeError(
            f"A {type(self).__name__} release has no Gaussian components. Use a kernel with Gaussian or "
            "mixture laws, or an exact formula for finite laws."
        )

    def as_gaussian(self) -> "Gaussian":
        """The law itself if Gaussian, the Gaussian with its moments if a mixture; others are refused."""
        raise TypeError(
            f"Linearising needs a release law with a mean and a covariance, not a {type(self).__name__}. "
            "Track finite laws with a bootstrap ParticleBelief and noise-free sharing with ObservedBelief."
        )

    def smoothed(self) -> "Gaussian":
        """A Gaussian with a density in its place, by its moments, to aim filters by."""
        return self.as_gaussian()

    def blurred(self, sd: Vector) -> "Law":
        """The law of the value plus independent Gaussian noise, one standard deviation per axis."""
        raise TypeError(
            f"A {type(self).__name__} release cannot be blurred: it would not stay one. Withhold it or share "
            "a blind one instead, or share with some Gaussian noise from the start."
        )

    def on_grid(self, grid: Grid) -> "Law":
        """The law of the value as it is emitted, on a public grid."""
        raise TypeError(
            f"A {type(self).__name__} release cannot be emitted on a grid. Use a Gaussian, mixture, finite, "
            "rounded or point law."
        )

    def masses(self) -> tuple[Float[Array, "J d"], Float[Array, " J"]]:
        """Atoms and their log-masses."""
        raise TypeError(
            f"A {type(self).__name__} release is not on finitely many values. Use the components of the "
            "belief and veil.leakage.estimate."
        )


LOG_TWO_PI = math.log(2.0 * math.pi)


class Gaussian(Law):
    """N(mean, scale scaleᵀ). `scale` is lower triangular; zero columns make a degenerate law.

    The fields may carry leading batch axes; the methods speak of one law, so `jax.vmap` them.
    """

    is_smooth: ClassVar[bool] = True

    mean: Float[Array, "*batch d"]
    scale: Float[Array, "*batch d d"]

    @property
    def noise_size(self) -> int:
        """One number per dimension."""
        return self.mean.shape[-1]

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        """Covariance, batch axes kept."""
        return self.scale @ jnp.swapaxes(self.scale, -1, -2)

    def sample(self, noise: Noise) -> Vector:
        """Mean + scale @ noise."""
        # Added entry by entry, stacked last: the compiler can take a stack apart again, not a sum of stacks.
        moved = [self.mean[..., i] + linalg.dot(self.scale[..., i, :], noise) for i in range(noise.shape[-1])]
        return jnp.stack(moved, axis=-1)

    def recover(self, value: Vector) -> Noise:
        """The noise that `sample` would turn into `value`; needs a law that is not degenerate."""
        return linalg.solve_lower(self.scale, value - self.mean)

    def log_prob(self, value: Vector) -> Scalar:
        """Log density in nats."""
        noise = self.recover(value)
        # Summed entry by entry: a dot product of size two under `vmap` is many times slower.
        square = sum(noise[i] * noise[i] for i in range(noise.shape[0]))
        return -0.5 * (square + linalg.log_determinant(self.scale) + noise.shape[0] * LOG_TWO_PI)

    def log_choice(self, noise: Noise) -> Scalar:
        """Zero: nothing is chosen."""
        del noise
        return jnp.zeros((), self.mean.dtype)

    @property
    def component_count(self) -> int:
        """One, the Gaussian itself."""
        return 1

    def gaussian_parts(self) -> "tuple[Float[Array, '*batch 1'], Gaussian]":
        """Itself, with all the weight."""
        parts = Gaussian(self.mean[..., None, :], self.scale[..., None, :, :])
        return jnp.zeros(parts.mean.shape[:-1], self.mean.dtype), parts

    def as_gaussian(self) -> "Gaussian":
        """The Gaussian itself."""
        return self

    def blurred(self, sd: Vector) -> "Gaussian":
        """A wider Gaussian; where no noise is added, itself to the last bit."""
        rows = jnp.concatenate([self.scale, jnp.diag(sd)], axis=1)
        wide = linalg.triangular_root(rows, jnp.ones_like(rows[0]))
        return Gaussian(self.mean, jnp.where(jnp.any(sd > 0), wide, self.scale))

    def on_grid(self, grid: Grid) -> "GridGaussian":
        """The discrete Gaussian on the grid; its noise is at least one step of the grid."""
        return _on_grid(self, grid)

    def entropy(self) -> Scalar:
        """Differential entropy in nats."""
        return 0.5 * (linalg.log_determinant(self.scale) + self.mean.shape[-1] * (1.0 + LOG_TWO_PI))


class GridGaussian(Gaussian):
    """A Gaussian on a public grid: each point has probability proportional to the Gaussian density there.

    Axis by axis, the probability of a point given the axes before it is the density times the step, divided
    by a sum over the grid. Where the noise of the axis has at least one step as its sd, that sum is one up to
    2 exp(−2π²) < 6e-9, so that the density of the Gaussian serves as the probability of a point, and formulas
    for Gaussians hold for what is emitted. Every point of the grid within eight sd of the mean can be drawn,
    whatever the mean is: no low-order bit of a release tells anything about the mean.
    """

    grid: Grid = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number per axis moves the value, another one chooses a point of the grid near it."""
        return 2 * self.mean.shape[-1]

    def sample(self, noise: Noise) -> Vector:
        """A point of the grid; its derivative is taken to be that of the Gaussian's value."""
        size = self.mean.shape[-1]
        values: list[Array] = []
        moved: list[Array] = []
        for i in range(size):
            mean = sum((self.scale[i, j] * moved[j] for j in range(i)), self.mean[i])
            value = _grid_point(mean, self.scale[i, i], self.grid[i], noise[i], noise[size + i])
            values.append(value)
            moved.append((value - mean) / self.scale[i, i])
        smooth = self.mean + linalg.apply(self.scale, noise[:size])
        return _straight_through(to_grid(jnp.stack(values), self.grid), smooth)

    def blurred(self, sd: Vector) -> "GridGaussian":
        """A wider one on the same grid."""
        wide = super().blurred(sd)
        return GridGaussian(wide.mean, wide.scale, self.grid)


@jax.custom_jvp
def _straight_through(value: Vector, smooth: Vector) -> Vector:
    """The value, with the derivative of `smooth`."""
    del smooth
    return value


@_straight_through.defjvp
def _straight_through_jvp(primals: tuple[Vector, Vector], tangents: tuple[Vector, Vector]):
    return primals[0], tangents[1]


def _on_grid(law: Gaussian, grid: Grid) -> GridGaussian:
    least = jnp.asarray(grid, law.mean.dtype)
    diagonal = jnp.diagonal(law.scale, axis1=-2, axis2=-1)
    missing = jnp.maximum(jnp.broadcast_to(least, diagonal.shape) - diagonal, 0.0)
    unit = jnp.broadcast_to(jnp.eye(least.shape[0], dtype=law.mean.dtype), law.scale.shape)
    scale = law.scale + missing[..., :, None] * unit
    return GridGaussian(law.mean, scale, grid)


_NEAR = 1.25  # sd of the choice among grid points, in steps

_REACH = 10  # grid points on either side that are chosen among: eight of these sd


def _grid_point(mean: Scalar, sd: Scalar, step: float, move: Scalar, choice: Scalar) -> Scalar:
    """One axis of a discrete Gaussian.

    The sum of a Gaussian and of a discrete Gaussian around it is again a discrete one, up to
    2 exp(−2π² s² (1 − s²/sd²)) with s the sd of the second in steps; if the noise is too small to be divided
    in two, all of it is in the second.
    """
    if step == 0:
        return mean + sd * move
    near = jnp.where(sd > 1.5 * _NEAR * step, _NEAR * step, sd)
    centre = mean + jnp.sqrt(jnp.maximum(sd**2 - near**2, 0.0)) * move
    points = jnp.round(centre / step) + jnp.arange(-_REACH, _REACH + 1, dtype=centre.dtype)
    log_weights = -0.5 * ((points * step - centre) / near) ** 2
    return points[choose(log_weights, choice)] * step


def gaussian(mean: Float[Array, "*batch d"], covariance: Float[Array, "*batch d d"]) -> Gaussian:
    """The Gaussian law with this mean and this positive definite covariance."""
    return Gaussian(mean, linalg.cholesky(covariance))


def diagonal_gaussian(mean: Float[Array, "*batch d"], sd: Float[Array, "*batch d"]) -> Gaussian:
    """Independent coordinates with these standard deviations; zero is allowed (no density then)."""
    return Gaussian(mean, sd[..., :, None] * jnp.eye(sd.shape[-1], dtype=sd.dtype))


def recovered(law: Gaussian, value: Vector, free: Noise) -> Noise:
    """A noise that `law.sample` maps to `value`.

    Where the law has no noise along an axis (a zero on the diagonal of its factor), the value does not
    determine that number of the noise.

    Args:
        law: the Gaussian.
        value: the value to explain.
        free: the numbers to use where the value does not determine them.
    """
    noise: list[Array] = []
    for i in range(value.shape[0]):
        known = sum((law.scale[i, j] * noise[j] for j in range(i)), law.mean[i])
        alive = law.scale[i, i] != 0.0
        noise.append(jnp.where(alive, (value[i] - known) / jnp.where(alive, law.scale[i, i], 1.0), free[i]))
    return jnp.stack(noise)


def kl(first: Gaussian, second: Gaussian) -> Scalar:
    """Kullback-Leibler divergence KL(first ‖ second) in nats."""
    offset = linalg.solve_lower(second.scale, first.mean - second.mean)
    size = offset.shape[0]
    whitened = [linalg.solve_lower(second.scale, first.scale[:, j]) for j in range(size)]
    square = sum((linalg.dot(column, column) for column in whitened), linalg.dot(offset, offset))
    log_ratio = linalg.log_determinant(second.scale) - linalg.log_determinant(first.scale)
    return 0.5 * (square - size + log_ratio)


def chernoff(first: Gaussian, second: Gaussian, alpha: Scalar | float = 0.5) -> Scalar:
    """Chernoff α-divergence −log ∫ first^α second^(1−α).

    Args:
        first: a Gaussian.
        second: a Gaussian.
        alpha: α in [0, 1]; 1/2 gives the Bhattacharyya distance.
    """
    mixed = (1.0 - alpha) * first.covariance + alpha * second.covariance
    lower = linalg.cholesky(mixed)
    offset = linalg.solve_lower(lower, first.mean - second.mean)
    sizes = [linalg.log_determinant(law.scale) for law in (first, second)]
    spread = linalg.log_determinant(lower) - (1.0 - alpha) * sizes[0] - alpha * sizes[1]
    return 0.5 * (alpha * (1.0 - alpha) * (offset @ offset) + spread)


def bhattacharyya(first: Gaussian, second: Gaussian) -> Scalar:
    """Bhattacharyya distance, the Chernoff divergence at α = 1/2."""
    return chernoff(first, second, 0.5)


class Mixture(Law):
    """Σ_j weight_j N(mean_j, Σ_j): J Gaussians and their log-weights, which sum to one."""

    is_smooth: ClassVar[bool] = True

    log_weights: Float[Array, "*batch J"]
    parts: Gaussian

    @property
    def noise_size(self) -> int:
        """One number chooses the component, the others move it."""
        return 1 + self.parts.noise_size

    def sample(self, noise: Noise) -> Vector:
        """Choose a component by inverse transform of the first number, then sample it."""
        index = choose(self.log_weights, noise[0])
        part = jax.tree.map(lambda leaf: leaf[index], self.parts)
        return part.sample(noise[1:])

    def log_prob(self, value: Vector) -> Scalar:
        """Log density in nats."""
        return logsumexp(self.log_weights + jax.vmap(lambda part: part.log_prob(value))(self.parts))

    def log_choice(self, noise: Noise) -> Scalar:
        """Log-weight of the component that the first number chooses."""
        return jnp.maximum(self.log_weights[choose(self.log_weights, noise[0])], LOG_ZERO)

    @property
    def component_count(self) -> int:
        """As many as there are weights."""
        return self.log_weights.shape[-1]

    def gaussian_parts(self) -> tuple[Float[Array, "*batch J"], Gaussian]:
        """Its log-weights and its Gaussians."""
        return self.log_weights, self.parts

    def as_gaussian(self) -> Gaussian:
        """The Gaussian law with the mixture's mean and covariance."""
        return match_moments(self.log_weights, self.parts)

    def blurred(self, sd: Vector) -> "Mixture":
        """The mixture with noise added to every part."""
        return Mixture(self.log_weights, jax.vmap(lambda part: part.blurred(sd))(self.parts))

    def on_grid(self, grid: Grid) -> "Mixture":
        """The mixture of its parts on the grid."""
        return Mixture(self.log_weights, self.parts.on_grid(grid))


def match_moments(log_weights: Float[Array, " J"], parts: Gaussian) -> Gaussian:
    """The one Gaussian with the mean and the covariance of a mixture with normalised log-weights.

    Its factor is found from the factors and the offsets of the parts, never from their products, so that
    parts which are narrow for their distance do not make it singular.
    """
    weights = jnp.exp(log_weights)
    mean = weights @ parts.mean
    apart = (parts.mean - mean[None, :])[:, :, None]
    rows = jnp.concatenate([parts.scale, apart], axis=2)
    count, size, wide = rows.shape
    flat = jnp.swapaxes(rows, 0, 1).reshape(size, count * wide)
    return Gaussian(mean, linalg.triangular_root(flat, jnp.repeat(weights, wide)))


def choose(log_weights: Float[Array, " J"], normal: Scalar) -> Array:
    """The index that a standard normal number selects by inverse transform."""
    steps = jnp.cumsum(jnp.exp(log_weights))
    index = jnp.searchsorted(steps, ndtr(normal) * steps[-1], side="right")
    return jnp.minimum(index, log_weights.shape[0] - 1)


class Finite(Law):
    """Atoms and their log-masses, which sum to one. A deterministic quantiser has one atom."""

    is_finite: ClassVar[bool] = True

    atoms: Float[Array, "*batch J d"]
    log_masses: Float[Array, "*batch J"]

    @property
    def noise_size(self) -> int:
        """One number chooses the atom."""
        return 1

    def sample(self, noise: Noise) -> Vector:
        """Choose an atom by inverse transform."""
        return self.atoms[choose(self.log_masses, noise[0])]

    def log_prob(self, value: Vector) -> Scalar:
        """Log mass: −∞ off the atoms, compared bit for bit."""
        hit = jnp.all(self.atoms == value[None, :], axis=-1)
        return logsumexp(jnp.where(hit, jnp.maximum(self.log_masses, LOG_ZERO), -jnp.inf))

    def log_choice(self, noise: Noise) -> Scalar:
        """Log-mass of the atom chosen."""
        return jnp.maximum(self.log_masses[choose(self.log_masses, noise[0])], LOG_ZERO)

    def masses(self) -> tuple[Float[Array, "J d"], Float[Array, " J"]]:
        """Its atoms and their log-masses."""
        return self.atoms, self.log_masses

    def on_grid(self, grid: Grid) -> "Finite":
        """The same masses on the nearest points of the grid."""
        return Finite(to_grid(self.atoms, grid), self.log_masses)

    def smoothed(self) -> Gaussian:
        """Mean and covariance of the atoms, each blurred by a tenth of their range."""
        size = self.atoms.shape[-1]
        range_ = jnp.max(self.atoms, axis=0) - jnp.min(self.atoms, axis=0)
        floor = jnp.where(range_ > 0, 0.1 * range_, 1.0)
        scale = jnp.broadcast_to(jnp.diag(floor), (*self.atoms.shape, size))
        return match_moments(jax.nn.log_softmax(self.log_masses), Gaussian(self.atoms, scale))


# Variance of a number that is uniform in a cell of length one.
UNIFORM_VARIANCE = 1.0 / 12.0


class Rounded(Law):
    """All mass on the grid point nearest to `value`, one step per axis: a quantiser.

    It is finite, but its atom moves with the value, so that two of them have no atoms in common.
    """

    is_finite: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = True

    value: Float[Array, "*batch d"]
    step: Float[Array, "*batch d"]

    @property
    def noise_size(self) -> int:
        """Zero: nothing is random."""
        return 0

    def sample(self, noise: Noise) -> Vector:
        """The nearest grid point."""
        del noise
        return self.step * jnp.round(self.value / self.step)

    def log_prob(self, value: Vector) -> Scalar:
        """Log mass: 0 at the grid point up to a millionth of a step, −∞ elsewhere."""
        nearest = self.sample(jnp.zeros(0, value.dtype))
        same = jnp.abs(value - nearest) <= 1e-6 * self.step + 4.0 * jnp.finfo(value.dtype).eps * jnp.abs(
            value
        )
        return jnp.where(jnp.all(same), jnp.zeros((), value.dtype), -jnp.inf)

    def on_grid(self, grid: Grid) -> "Rounded":
        """Rounded to steps that are multiples of those of the grid."""
        least = jnp.asarray(grid, self.step.dtype)
        whole = jnp.where(least > 0, least, self.step)
        return Rounded(self.value, whole * jnp.maximum(jnp.ceil(self.step / whole - 1e-6), 1.0))

    def log_choice(self, noise: Noise) -> Scalar:
        """Zero: nothing is chosen."""
        del noise
        return jnp.zeros((), self.value.dtype)

    def masses(self) -> tuple[Float[Array, "1 d"], Float[Array, " 1"]]:
        """The one grid point, with all mass."""
        atom = self.sample(jnp.zeros(0, self.value.dtype))
        return atom[None, :], jnp.zeros_like(atom[:1])

    def smoothed(self) -> Gaussian:
        """Around the value, with the variance of a cell: the slope of the rounding itself is zero."""
        return diagonal_gaussian(self.value, UNIFORM_VARIANCE**0.5 * self.step)


class Point(Law):
    """All mass on one value. Its likelihood comes from the transition density, not from a tiny sd."""

    is_point: ClassVar[bool] = True

    value: Float[Array, "*batch d"]

    @property
    def noise_size(self) -> int:
        """Zero: nothing is random."""
        return 0

    def sample(self, noise: Noise) -> Vector:
        """The one value."""
        del noise
        return self.value

    def log_prob(self, value: Vector) -> Scalar:
        """Refuse: a point law has no density."""
        raise TypeError(
            "A point law has no density. Track noise-free sharing with veil.beliefs.ObservedBelief, "
            "which uses the exact transition densities, or share with Gaussian noise."
        )

    def log_choice(self, noise: Noise) -> Scalar:
        """Zero: nothing is chosen."""
        del noise
        return jnp.zeros((), self.value.dtype)

    def on_grid(self, grid: Grid) -> "Rounded":
        """The nearest point of the grid, which every axis must have."""
        return Rounded(self.value, jnp.broadcast_to(jnp.asarray(grid, self.value.dtype), self.value.shape))


class SwitchedLaw(Law):
    """`inner` if fresh; otherwise all mass on `value`, which the public knows already."""

    fresh: Bool[Array, "*batch"]
    value: Float[Array, "*batch d"]
    inner: Law

    @property
    def noise_size(self) -> int:
        """As much as a fresh value takes."""
        return self.inner.noise_size

    def sample(self, noise: Noise) -> Vector:
        """A fresh value, or the old one bit for bit."""
        return jnp.where(self.fresh, self.inner.sample(noise), self.value)

    def log_prob(self, value: Vector) -> Scalar:
        """That of the fresh value; where held, log 1 = 0 at the old value and −∞ elsewhere."""
        # A held value may be impossible for the inner law: asked about a value of its own instead, it gives
        # numbers whose gradient is one too.
        own = self.inner.sample(jnp.zeros(self.inner.noise_size, value.dtype))
        asked = jnp.where(self.fresh, value, jax.lax.stop_gradient(own))
        held = jnp.where(jnp.all(value == self.value), 0.0, -jnp.inf)
        return jnp.where(self.fresh, self.inner.log_prob(asked), held)

    def log_choice(self, noise: Noise) -> Scalar:
        """That of the fresh value; zero where held."""
        return jnp.where(self.fresh, self.inner.log_choice(noise), 0.0)

    @property
    def is_fresh(self) -> Bool[Array, ""]:
        """Whether the value is a new draw."""
        return self.fresh

    def fresh_law(self) -> Law:
        """The law of a new draw."""
        return self.inner.fresh_law()

    def on_grid(self, grid: Grid) -> "SwitchedLaw":
        """A new draw on the grid, or the old value there."""
        return SwitchedLaw(self.fresh, to_grid(self.value, grid), self.inner.on_grid(grid))

    def as_gaussian(self) -> Gaussian:
        """The Gaussian of a fresh value; the old one with unit covariance where held.

        A held value has no slope in the state and is as likely under one secret as under another, so it
        changes no posterior.
        """
        return self._or_held(self.inner.as_gaussian())

    def smoothed(self) -> Gaussian:
        """The same, for any inner law that can be smoothed."""
        return self._or_held(self.inner.smoothed())

    def _or_held(self, inner: Gaussian) -> Gaussian:
        unit = jnp.eye(inner.mean.shape[-1], dtype=inner.mean.dtype)
        return Gaussian(
            jnp.where(self.fresh, inner.mean, self.value), jnp.where(self.fresh, inner.scale, unit)
        )


class Kernel(eqx.Module):
    """K(· | θ, x): maps a secret and a state to the law of the release. Written for one state."""

    @abc.abstractmethod
    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the release at this secret and this state."""

    def opened(self) -> "Kernel":
        """The kernel of a release that passes; itself unless a decision stands before it."""
        return self

    def before_rounding(self) -> "Kernel":
        """The kernel at the state instead of its reading, to be linearised; itself unless a sensor rounds."""
        return self

    def cell_spread(self) -> Float[Array, " N"] | None:
        """Sd of the reading around the state per coordinate, step/√12; None unless a sensor rounds."""
        return None

    def release_law(self, secret: Secret, state: State, memory: Array) -> Law:
        """The law that the owner draws from. Only kernels of policies with memory read the memory.

        Args:
            secret: the owner's.
            state: the owner's.
            memory: the private memory of the policy.
        """
        del memory
        return self(secret, state)


class MemoryKernel(Kernel):
    """A kernel that reads the owner's private memory, so that only the owner can compute its laws."""

    def __call__(self, secret: Secret, state: State) -> Law:
        """Refuse: the secret and the state do not determine the law."""
        raise TypeError(
            "This release comes from the owner's private memory: no belief can predict it, and no leakage "
            "method can charge for it. Ask `policy.has_memory` first."
        )

    @abc.abstractmethod
    def release_law(self, secret: Secret, state: State, memory: Array) -> Law:
        """The law of the release, from the memory of this step."""


class Components(eqx.Module):
    """N Gaussian components with joint log-weights (they sum to one over all N) and a secret each.

    `stride` is the number of components per secret if they are stored as K equal consecutive blocks, as
    beliefs do: sums within a secret then cost N·stride pairs. Without it (ragged groups) they are taken
    with a mask over all N² pairs. A component without weight has log-weight `LOG_ZERO`.
    """

    labels: Int[Array, " N"]
    log_weights: Float[Array, " N"]
    parts: Gaussian
    secrets: int = eqx.field(static=True)
    stride: int | None = eqx.field(static=True, default=None)

    @property
    def membership(self) -> Bool[Array, "K N"]:
        """Which component belongs to which secret."""
        return self.labels[None, :] == jnp.arange(self.secrets, dtype=self.labels.dtype)[:, None]

    @property
    def log_masses(self) -> Float[Array, " K"]:
        """Log q_k, the posterior mass of each secret."""
        return logsumexp(jnp.where(self.membership, self.log_weights[None, :], LOG_ZERO), axis=1)

    @property
    def entropy(self) -> Scalar:
        """H(q) in nats: the largest possible leakage of a release."""
        return -jnp.sum(jnp.exp(self.log_masses) * self.log_masses)

    @property
    def log_conditional(self) -> Float[Array, " N"]:
        """Log of weight within the secret, w̄_i = w_i / q_k."""
        return self.log_weights - self.log_masses[self.labels]


def grouped(log_weights: Float[Array, "K M"], parts: Gaussian) -> Components:
    """Components from the [secrets, particles] layout of a belief."""
    secrets, stride = log_weights.shape
    flat = jax.tree.map(lambda leaf: leaf.reshape((secrets * stride, *leaf.shape[2:])), parts)
    labels = jnp.repeat(jnp.arange(secrets), stride)
    log_weights = jnp.maximum(log_weights.reshape(-1), LOG_ZERO)
    return Components(labels, log_weights, flat, secrets, stride)

"""Dirichlet exploration: kernels on a grid whose rows are drawn around those of a policy, in public."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Bool, Float

from veil.beliefs.particles import ParticleSpec, Scheme
from veil.policies.base import Time, Wrapping
from veil.policies.grid import GridPolicy, TableKernel, grid_atoms, grid_policy
from veil.policies.scaling import Scaling, Unit
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar

Rows = Float[Array, "*rows J"]


class Exploring(Wrapping):
    """A grid policy whose kernel is drawn anew at every step: Dirichlet rows with the policy's as means.

    The coins are public, like those of the belief: whoever reads the releases knows the kernel that acted, so
    the belief takes releases in by it, and leakage is measured for it.

    Attributes:
        inner: the policy, with cells.
        concentration: total of the parameters of each row; a mass m varies by m (1 − m) / (1 + total).
        coins: public key of the episode.
    """

    inner: GridPolicy
    concentration: Scalar
    coins: Key

    def __init__(self, inner: GridPolicy, concentration: Scalar, coins: Key):
        self.inner = inner  # pyright: ignore[reportIncompatibleVariableOverride]
        self.concentration, self.coins = concentration, coins

    def kernel(self, features: Features, external: External, time: Time) -> TableKernel:
        """Drawn around the policy's."""
        middle = self.inner.table(features, external, time)
        parameters = self.concentration * jnp.exp(middle.log_rows)
        drawn = dirichlet_draw(parameters, key=jr.fold_in(self.coins, time))
        return eqx.tree_at(lambda kernel: kernel.log_rows, middle, drawn)


def dirichlet_log_density(log_values: Rows, parameters: Rows) -> Float[Array, "*rows"]:
    """Log density of rows on the simplex, by the log of their entries."""
    constant = gammaln(jnp.sum(parameters, axis=-1)) - jnp.sum(gammaln(parameters), axis=-1)
    return constant + jnp.sum((parameters - 1.0) * log_values, axis=-1)


def dirichlet_draw(parameters: Rows, *, key: Key) -> Rows:
    """Rows in logs, so that the many small entries of a row are not lost to underflow."""
    logs = _log_gamma(parameters, key=key)
    return logs - logsumexp(logs, axis=-1, keepdims=True)


def _log_gamma(shapes: Rows, *, key: Key) -> Rows:
    """Logs of gamma variables, exact, all at once: the library's sampler goes one by one on a CPU.

    Marsaglia and Tsang's rejection for shape + 1, tried again until all are accepted (19 in 20 are at once),
    then U^(1/shape) brings the shape down by one.
    """
    try_key, boost_key = jr.split(key)
    size = shapes + (1.0 - 1.0 / 3.0)
    slope = 1.0 / jnp.sqrt(9.0 * size)
    tiny = jnp.finfo(shapes.dtype).tiny

    def again(state: tuple[Array, Array, Key]) -> tuple[Array, Array, Key]:
        done, logs, key = state
        key, normal_key, uniform_key = jr.split(key, 3)
        normal = jr.normal(normal_key, shapes.shape, shapes.dtype)
        uniform = jr.uniform(uniform_key, shapes.shape, shapes.dtype, minval=tiny)
        cube = (1.0 + slope * normal) ** 3
        log_cube = jnp.log(jnp.maximum(cube, tiny))
        bound = 0.5 * normal**2 + size * (1.0 - cube + log_cube)
        good: Bool[Array, "..."] = (cube > 0.0) & (jnp.log(uniform) < bound)
        return done | good, jnp.where(done, logs, jnp.log(size) + log_cube), key

    start = jnp.zeros(shapes.shape, bool), shapes, try_key
    _, logs, _ = jax.lax.while_loop(lambda state: ~jnp.all(state[0]), again, start)
    return logs + jnp.log(jr.uniform(boost_key, shapes.shape, shapes.dtype, minval=tiny)) / shapes


def discrete_policy(
    system: System,
    scaling: Scaling,
    *,
    counts: Sequence[int] | int = 5,
    half_width: float = 2.0,
    particles: int = 81,
    width: int = 64,
    sd: float = 1.0,
    key: Key,
) -> GridPolicy:
    """The discretised benchmark: states and releases on regular grids around what is usual.

    Args:
        system: the owner's model.
        scaling: units, see `veil.learners.usual`.
        counts: points per axis, of the state's grid and of the output's; one number for all axes.
        half_width: how far the grids reach on either side, in usual spreads.
        particles: per secret, of the policy's belief.
        width: number of hidden units per layer.
        sd: of the noise that is rounded to the grid before training, in usual spreads of the output.
        key: of the random weights; the encoder has ten random points.
    """
    return grid_policy(
        system,
        scaling,
        _around(scaling.output, counts, half_width),
        cells=_around(scaling.state, counts, half_width),
        tracker=ParticleSpec(particles, Scheme()),
        encoder="mgf",
        width=width,
        sd=sd,
        key=key,
    )


def _around(unit: Unit, counts: Sequence[int] | int, half_width: float) -> Float[Array, "J Y"]:
    """A grid of so many usual spreads on either side of what is usual."""
    if isinstance(counts, int):
        counts = (counts,) * unit.centre.shape[0]
    reach = half_width * unit.spread
    return grid_atoms(unit.centre - reach, unit.centre + reach, counts)

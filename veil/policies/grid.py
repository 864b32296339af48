"""A learned policy that shares one of finitely many values: leakage has an exact formula there."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from veil.beliefs.base import Belief, FilterSpec
from veil.beliefs.particles import ParticleSpec, Scheme
from veil.laws import Finite, Kernel
from veil.policies.base import LearnedPolicy, Time, Wrapping
from veil.policies.geometry import nearest
from veil.policies.networks import Context, Form, Network, Summary, start_encoder, start_network
from veil.policies.scaling import Scaling, Unit, bounded
from veil.systems.base import Prior, System
from veil.types import External, Features, Key, Scalar, Secret, State, Vector

_PARTICLES = 81

_STRETCH = 3.0  # the reach is within e^±3 of what it was at the start

_LEAST = 1e-3  # of a row of a table, spread evenly over the atoms: every value stays possible everywhere


class GridPolicy(LearnedPolicy):
    """Share one of the atoms, with log-masses from a network.

    Before training these are −½ |(atom − output) / reach|², as if Gaussian noise of sd `reach` were rounded
    to the grid. The network adds a number per atom, and stretches the reach per axis.

    With `cells` the state is rounded to the nearest of them before anything looks at it: the kernel is a
    table then, one row per secret and cell.

    Attributes:
        system: the owner's model.
        scaling: units of everything.
        atoms: the values.
        sd: reach at the start, in units of the output.
        tracker: the belief that the policy looks at: bootstrap particles, as finite laws have no slope.
        network: all that is learned.
        cells: centres of the cells of the state; None for states as they are.
    """

    system: System
    scaling: Scaling
    atoms: Float[Array, "J Y"]
    sd: Scalar
    tracker: FilterSpec
    network: Network
    cells: Float[Array, "C N"] | None = None

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """As the encoder sums it up."""
        del external, time
        return self.network.encoder(belief, self.scaling)

    def kernel(self, features: Features, external: External, time: Time) -> "AtomsKernel | TableKernel":
        """The network at these public numbers."""
        context = self.network.context(features, self.system.prior, self.scaling.public(external, time))
        made = AtomsKernel(self.system, self.scaling, self.atoms, self.sd, self.network, context)
        return made if self.cells is None else tabulated(made, self.cells)

    def table(self, features: Features, external: External, time: Time) -> "TableKernel":
        """The kernel as a table of log-masses, for a policy with cells.

        Args:
            features: of this step.
            external: w_t.
            time: t, counted from 1.
        """
        made = self.kernel(features, external, time)
        if not isinstance(made, TableKernel):
            raise TypeError("Only a policy with cells has its kernel in a table; see discrete_policy.")
        return made


class AtomsKernel(Kernel):
    """The same atoms for every secret and state, with masses of their own."""

    system: System
    scaling: Scaling
    atoms: Float[Array, "J Y"]
    sd: Scalar
    network: Network
    context: Context

    def __call__(self, secret: Secret, state: State) -> Finite:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        raw = self.network(self.context, index, self.scaling.secret(secret), self.scaling.state(state))
        scores, stretch = jnp.split(raw, [self.atoms.shape[0]])
        widen = jnp.exp(bounded(stretch, jnp.asarray(_STRETCH, raw.dtype)))
        reach = self.sd * self.scaling.output.spread * widen
        apart = (self.atoms - self.system.output(state)[None, :]) / reach[None, :]
        return Finite(self.atoms, jax.nn.log_softmax(scores - 0.5 * jnp.sum(apart**2, axis=1)))


class TableKernel(Kernel):
    """One row of masses per secret and cell of the state."""

    prior: Prior
    unit: Unit
    cells: Float[Array, "C N"]
    atoms: Float[Array, "J Y"]
    log_rows: Float[Array, "K C J"]

    def cell(self, state: State) -> Int[Array, ""]:
        """Index of the nearest cell, each coordinate in its unit."""
        apart = (self.cells - state[None, :]) / self.unit.spread[None, :]
        return jnp.argmin(jnp.sum(apart**2, axis=1))

    def __call__(self, secret: Secret, state: State) -> Finite:
        """The law of the release."""
        return Finite(self.atoms, self.log_rows[nearest(self.prior, secret), self.cell(state)])


def tabulated(kernel: AtomsKernel, cells: Float[Array, "C N"]) -> TableKernel:
    """The kernel at the centres of the cells; each row gives a little to every atom."""

    def row(secret: Secret, cell: State) -> Float[Array, " J"]:
        kept = math.log1p(-_LEAST) + kernel(secret, cell).log_masses
        return jnp.logaddexp(kept, math.log(_LEAST / kernel.atoms.shape[0]))

    prior = kernel.system.prior
    log_rows = jax.vmap(jax.vmap(row, (None, 0)), (0, None))(prior.secrets, cells)
    return TableKernel(prior, kernel.scaling.state, cells, kernel.atoms, log_rows)


def grid_atoms(
    low: ArrayLike | Sequence, high: ArrayLike | Sequence, counts: Sequence[int]
) -> Float[Array, "J Y"]:
    """All points of a regular grid, both ends included; the last axis varies fastest.

    Args:
        low: lower end per axis.
        high: upper end per axis.
        counts: points per axis.
    """
    low, high = jnp.asarray(low, float), jnp.asarray(high, float)
    if not low.shape == high.shape == (len(counts),):
        raise ValueError(f"Give low, high and counts per axis; got {low.shape}, {high.shape}, {len(counts)}.")
    if min(counts) < 2 or not bool(jnp.all(low < high)):
        raise ValueError("A grid needs low < high and at least 2 points on every axis.")
    axes = [jnp.linspace(low[i], high[i], count) for i, count in enumerate(counts)]
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(counts))


def grid_policy(
    system: System,
    scaling: Scaling,
    atoms: Float[Array, "J Y"],
    *,
    cells: Float[Array, "C N"] | None = None,
    tracker: FilterSpec | None = None,
    encoder: Summary = "moments",
    form: Form = "relu",
    width: int = 64,
    sd: float = 0.3,
    key: Key,
) -> GridPolicy:
    """A policy that shares one of the atoms near the output, until it is trained.

    Args:
        system: the owner's model.
        scaling: units, of this system's sizes and number type.
        atoms: what may be shared, see `grid_atoms`.
        cells: what the state is rounded to, see `grid_atoms`; by default it is not.
        tracker: the belief to look at; by default 81 bootstrap particles per secret.
        encoder: how the belief is summed up.
        form: of the features at learned points, if the encoder is "mgf".
        width: number of hidden units per layer.
        sd: how far from the output the atoms are at the start, in units of the output.
        key: of the random weights.
    """
    size, dtype = len(system.shared_fields), scaling.state.centre.dtype
    if atoms.shape[1] != size:
        raise ValueError(f"Atoms must have as many coordinates as a release, {size}; got {atoms.shape[1]}.")
    if cells is not None and cells.shape[1] != len(system.state_fields):
        raise ValueError(f"Cells are of the state, {len(system.state_fields)} wide; got {cells.shape[1]}.")
    if not sd > 0.0:
        raise ValueError(f"sd must be positive, in units of the output; got {sd}.")
    encoder_key, network_key = jr.split(key)
    made = start_encoder(system, scaling, encoder, form, key=encoder_key)
    bias = jnp.zeros(atoms.shape[0] + size, dtype)
    network = start_network(system, scaling, made, bias, width, key=network_key)
    return GridPolicy(
        system=system,
        scaling=scaling,
        atoms=atoms.astype(dtype),
        sd=jnp.asarray(sd, dtype),
        tracker=ParticleSpec(_PARTICLES, Scheme()) if tracker is None else tracker,
        network=network,
        cells=None if cells is None else cells.astype(dtype),
    )


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
    reach: ArrayLike | None = None,
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
        reach: how far the grid of releases reaches on either side, per axis in its unit; by default as far
            as that of the states.
        particles: per secret, of the policy's belief.
        width: number of hidden units per layer.
        sd: of the noise that is rounded to the grid before training, in usual spreads of the output.
        key: of the random weights; the encoder has ten random points.
    """
    spread = scaling.output.spread
    far = half_width * spread if reach is None else jnp.asarray(reach, spread.dtype)
    return grid_policy(
        system,
        scaling,
        _around(scaling.output.centre, counts, far),
        cells=_around(scaling.state.centre, counts, half_width * scaling.state.spread),
        tracker=ParticleSpec(particles, Scheme()),
        encoder="mgf",
        width=width,
        sd=sd,
        key=key,
    )


def _around(centre: Vector, counts: Sequence[int] | int, reach: Vector) -> Float[Array, "J Y"]:
    """A grid that reaches so far on either side of what is usual."""
    if isinstance(counts, int):
        counts = (counts,) * centre.shape[0]
    return grid_atoms(centre - reach, centre + reach, counts)

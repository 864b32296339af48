"""A learned policy that shares one of finitely many values: leakage has an exact formula there."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Int

from veil.beliefs.base import Belief, FilterSpec
from veil.beliefs.particles import ParticleSpec, Scheme
from veil.laws import Finite, Kernel
from veil.policies.base import LearnedPolicy, Time
from veil.policies.encoding import Form
from veil.policies.geometry import nearest
from veil.policies.networks import Context, Network, Summary, start_encoder, start_network
from veil.policies.scaling import Scaling, Unit, bounded
from veil.systems.base import Prior, System
from veil.types import External, Features, Key, Scalar, Secret, State

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

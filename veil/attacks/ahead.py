"""How particles are aimed where releases have no noise: at the releases after this one.

`Ahead` linearises along a reference path. `AheadByQuadrature` linearises nothing: if all coordinates but one
are released as they are, p(y_{t+1}..y_T | x_t) is a function of one number, and is computed on a grid,
backwards in time. Particles that are drawn and kept by it have nearly equal weights, however bent the hidden
coordinate is. Both only aim: weights are those of `NoiselessFilter`, so that its estimates are proper however
coarse the guide is.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr, ndtri
from jaxtyping import Array, Bool, Float
from scipy.stats import norm

from veil.attacks.guides import (
    DEFENCE,
    Aimed,
    Guide,
    Planned,
    Potential,
    Public,
    Quadratic,
    defended,
    flat,
    pulled_back,
)
from veil.beliefs.innovations import compare_along
from veil.beliefs.kalman import move
from veil.laws import Gaussian, Kernel
from veil.policies.base import Policy
from veil.step import copied_coordinates, noiseless_release
from veil.systems.base import System
from veil.traced import MIXED
from veil.types import External, Noise, Scalar, Secret, Shared, State


class Matched(eqx.Module):
    """What a release leaves open of a state that comes from a Gaussian law.

    The origin gives the state m + A z. The release tells `axes` · z and nothing else. A repeated release
    tells nothing.
    """

    law: Gaussian  # of the state, given the release; as a function of all of z
    scores: Float[Array, " Y"]
    axes: Float[Array, "Y N"]
    log_density: Scalar


def match(policy: Policy, secret: Secret, origin: Gaussian, public: Public) -> Matched:
    """Compare a release with the law that the state comes from.

    Args:
        policy: the policy in force.
        secret: θ.
        origin: the law of the state before the release.
        public: the step.
    """

    def release(state: State) -> Shared:
        return noiseless_release(policy, secret, state, public.features, public.external, public.time)

    used: Bool[Array, ""] = public.active & public.kernel(policy)(secret, origin.mean).is_fresh
    after, found, axes = compare_along(release, origin, public.shared)
    after = jax.tree.map(lambda new, old: jnp.where(used, new, old), after, origin)
    told = (found.scores, axes, jnp.sum(found.log_density))
    return Matched(after, *(jnp.where(used, one, 0.0) for one in told))


class Ahead(Planned):
    """Particles are aimed at the releases after this one: ψ_t(x) ≈ p(y_{t+1}..y_T | x_t = x, θ).

    Where the system is linear in what the releases leave open, the potentials are exact.
    """

    def filtered(self, system: System, policy: Policy, secret: Secret, public: Public) -> Float[Array, "T N"]:
        """Of the states, given releases without noise."""

        def step(origin: Gaussian, now: Public) -> tuple[Gaussian, State]:
            law = match(policy, secret, origin, now).law
            return move(system, secret, law, now.external), law.mean

        return jax.lax.scan(step, system.initial(secret), public)[1]

    def drawn_from(self, policy: Policy, secret: Secret, origin: Gaussian, public: Public) -> Gaussian:
        """The law that the release leaves."""
        return match(policy, secret, origin, public).law

    def backward(
        self, system: System, policy: Policy, secret: Secret, public: Public, path: Float[Array, "T N"]
    ) -> Quadratic:
        """The density of the next release, and the way to those after it; the last potential is flat."""

        def step(later: Quadratic, now: tuple[External, State, Public]) -> tuple[Quadratic, Quadratic]:
            external, state, following = now
            scale = system.transition(secret, state, external).scale

            def forecast(at: State) -> tuple[State, Array]:
                origin = Gaussian(system.transition(secret, at, external).mean, scale)
                found = match(policy, secret, origin, following)
                return found.law.mean, found.scores

            found = match(policy, secret, system.transition(secret, state, external), following)
            slope, miss = jax.jacfwd(forecast)(state)
            beyond = pulled_back(found.law, slope, state, later)
            precision, pull = miss.T @ miss, -miss.T @ found.scores
            potential = Quadratic(state, precision + beyond.precision, pull + beyond.pull)
            return potential, potential

        last = flat(path[-1])
        later = jax.tree.map(lambda leaf: leaf[1:], public)
        found = jax.lax.scan(step, last, (public.external[:-1], path[:-1], later), reverse=True)[1]
        return jax.tree.map(lambda leaf, end: jnp.concatenate([leaf, end[None]]), found, last)


CELLS, REACH = 96, 6.0  # of a standard normal number: cells of one width, the outer two without an end

_EDGES = np.linspace(-REACH, REACH, CELLS + 1)

_MIDDLES = 0.5 * (_EDGES[1:] + _EDGES[:-1])

_BELOW = np.concatenate([[0.0], norm.cdf(_EDGES[1:-1])])  # probability below each cell

_SHARES = np.diff(np.concatenate([_BELOW, [1.0]]))

_LOG_SHARES = np.log(_SHARES)

NODES, SCOUTS = 192, 64  # of the grid of one step, and of the pass that looks where it must be

WIDE = 7.0  # standard deviations to each side that a grid covers

EXCLUDED = 60.0  # nats by which a release excludes a place


class TabulatedAimed(Aimed):
    """N(0, I) with one number changed: along a direction, ψ is level in each cell.

    Attributes:
        along: unit vector; zero where the coordinate has no noise, and nothing is aimed.
        log_shares: log-probability of each cell.
        log_mass: see `Aimed`.
    """

    along: Float[Array, " N"]
    log_shares: Float[Array, " C"]
    log_mass: Scalar

    def draw(self, noise: Noise, uniform: Scalar) -> Noise:
        """By the inverse of the distribution function: first the cell, then the place in it."""
        old = self.along @ noise
        shares = jnp.exp(self.log_shares)
        upper = jnp.cumsum(shares)
        level = ndtr(old) * upper[-1]
        cell = jnp.minimum(jnp.sum(upper < level), CELLS - 1)
        inside = jnp.clip((level - upper[cell]) / shares[cell] + 1.0, 0.0, 1.0)
        limits = jnp.finfo(old.dtype)
        place = jnp.asarray(_BELOW, old.dtype)[cell] + inside * jnp.asarray(_SHARES, old.dtype)[cell]
        new = ndtri(jnp.clip(place, limits.tiny, 1.0 - limits.epsneg))
        return jnp.where(uniform < DEFENCE, noise, noise + (new - old) * self.along)

    def log_correction(self, z: Noise) -> Scalar:
        """From the share of the cell that z is in."""
        place = jnp.floor((self.along @ z + REACH) * (CELLS / (2.0 * REACH)))
        cell = jnp.clip(place, 0, CELLS - 1).astype(jnp.int32)
        ratio = defended(self.log_shares[cell] - jnp.asarray(_LOG_SHARES, z.dtype)[cell])
        return jnp.where(jnp.any(self.along != 0.0), ratio, 0.0)


class Tabulated(Potential):
    """log ψ as a function of one coordinate: straight between evenly spaced nodes, level beyond them."""

    first: Scalar
    spacing: Scalar
    values: Float[Array, " G"]
    axis: int = eqx.field(static=True)

    def aim(self, origin: Gaussian) -> TabulatedAimed:
        """By the middles of the cells."""
        row = origin.scale[self.axis]
        sd = jnp.sqrt(row @ row)
        along = jnp.where(sd > 0.0, row / jnp.where(sd > 0.0, sd, 1.0), 0.0)
        middles = origin.mean[self.axis] + sd * jnp.asarray(_MIDDLES, sd.dtype)
        log_masses = self.at(middles) + jnp.asarray(_LOG_SHARES, sd.dtype)
        log_mass = logsumexp(log_masses)
        return TabulatedAimed(along, log_masses - log_mass, log_mass)

    def at(self, places: Float[Array, " C"]) -> Float[Array, " C"]:
        """Log ψ at these values of the coordinate."""
        last = self.values.shape[0] - 1
        steps = jnp.clip((places - self.first) / self.spacing, 0.0, last)
        left = jnp.minimum(jnp.floor(steps), last - 1)
        part, place = steps - left, left.astype(jnp.int32)
        return (1.0 - part) * self.values[place] + part * self.values[place + 1]


class AheadByQuadrature(Guide):
    """Particles are aimed at the releases after this one: ψ_t(x) ≈ p(y_{t+1}..y_T | x_t = x, θ), on a grid.

    Attributes:
        axis: the hidden coordinate.
        copied: the coordinates that the numbers of a release copy, or `MIXED`; all but the hidden one.
    """

    axis: int = eqx.field(static=True)
    copied: tuple[int, ...] = eqx.field(static=True)

    def plan(self, system: System, policy: Policy, secret: Secret, public: Public) -> Tabulated:
        """One table per step, from the last one back."""
        first, spacing = self._grids(system, policy, secret, public)

        def step(later: Tabulated, now: tuple[Scalar, Scalar, Public, Public]) -> tuple[Tabulated, Tabulated]:
            first, spacing, public, following = now
            nodes = first + spacing * jnp.arange(NODES, dtype=first.dtype)
            laws, log_densities = self._moved(system, policy, secret, nodes, public, following)
            values = log_densities + jax.vmap(lambda law: later.aim(law).log_mass)(laws)
            values = jnp.nan_to_num(values, nan=-1e6, neginf=-1e6)
            table = Tabulated(first, spacing, values - jnp.max(values), self.axis)
            return table, table

        last = Tabulated(first[-1], spacing[-1], jnp.zeros(NODES, first.dtype), self.axis)
        inputs = first[:-1], spacing[:-1], *_pairs(public)
        found = jax.lax.scan(step, last, inputs, reverse=True)[1]
        return jax.tree.map(lambda leaf, end: jnp.concatenate([leaf, end[None]]), found, last)

    def potential(
        self, plan: Potential | None, kernel: Kernel, secret: Secret, origin: Gaussian, step: Public
    ) -> Potential:
        """That of the plan, the same for all particles."""
        del kernel, secret, origin, step
        assert plan is not None
        return plan

    def _grids(
        self, system: System, policy: Policy, secret: Secret, public: Public
    ) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
        """First node and spacing of each step: where the coordinate can be, by one release after another."""

        def grid(low: Float[Array, "*T"], high: Float[Array, "*T"], nodes: int) -> tuple[Array, Array]:
            tiny = 1e-9 * jnp.maximum(jnp.abs(low), 1.0)  # a coordinate without noise needs a width as well
            return low - tiny, (high - low + 2.0 * tiny) / (nodes - 1)

        def reach(laws: Gaussian, used: Bool[Array, " S"]) -> tuple[Scalar, Scalar]:
            mean, row = laws.mean[:, self.axis], laws.scale[:, self.axis]
            sd = jnp.sqrt(jnp.sum(row**2, axis=-1))
            low, high = mean - WIDE * sd, mean + WIDE * sd
            return jnp.min(jnp.where(used, low, jnp.inf)), jnp.max(jnp.where(used, high, -jnp.inf))

        def step(range_: tuple[Scalar, Scalar], now: tuple[Public, Public]):
            first, spacing = grid(*range_, SCOUTS)
            nodes = first + spacing * jnp.arange(SCOUTS, dtype=first.dtype)
            laws, log_densities = self._moved(system, policy, secret, nodes, *now)
            used = log_densities >= jnp.max(log_densities) - EXCLUDED
            # A release may tell more than the nodes are apart.
            used = used | jnp.roll(used, 1).at[0].set(False) | jnp.roll(used, -1).at[-1].set(False)
            following = reach(laws, used)
            return following, following

        start = match(policy, secret, system.initial(secret), jax.tree.map(lambda leaf: leaf[0], public)).law
        one = jax.tree.map(lambda leaf: leaf[None], start)
        begin = reach(one, jnp.ones(1, bool))
        later = jax.lax.scan(step, begin, _pairs(public))[1]
        low, high = (jnp.concatenate([end[None], ends]) for end, ends in zip(begin, later, strict=True))
        return grid(low, high, NODES)

    def _moved(
        self,
        system: System,
        policy: Policy,
        secret: Secret,
        nodes: Float[Array, " G"],
        now: Public,
        following: Public,
    ) -> tuple[Gaussian, Float[Array, " G"]]:
        """The law of the next state given its release, and the density of that release, from each node."""
        state = jnp.zeros(len(system.state_fields), nodes.dtype)
        for number, place in enumerate(self.copied):
            if place != MIXED:
                state = state.at[place].set(now.shared[number])

        def one(node: Scalar) -> tuple[Gaussian, Scalar]:
            here = state.at[self.axis].set(node)
            found = match(policy, secret, system.transition(secret, here, now.external), following)
            return found.law, found.log_density

        return jax.vmap(one)(nodes)


def ahead_by_quadrature(system: System, policy: Policy) -> AheadByQuadrature | None:
    """The guide, where true data leave one coordinate open and copy all others."""
    copied = copied_coordinates(system, policy)
    left = set(range(len(system.state_fields))) - set(copied)
    return AheadByQuadrature(left.pop(), copied) if copied and len(left) == 1 else None


def _pairs(public: Public) -> tuple[Public, Public]:
    """Every step but the last, and the one after it."""
    return jax.tree.map(lambda leaf: leaf[:-1], public), jax.tree.map(lambda leaf: leaf[1:], public)

"""The alarm: a test of "the plant is the model" that may be looked at after every step, for ever.

If the model is right, the noise that the owner recovers from each step is standard normal given all that was
before. The alarm bets against that. A bet multiplies its stake by q(z)/φ(z), where q is another law of the
next noise, chosen before it is seen: that of a plant with other parameters, of noise of another size, with an
offset, or with a memory. Stakes are spread over all bets and over the step at which the plant may have
changed. Under the model no bet gains on average, so the wealth is a nonnegative martingale that starts at
one, and by Ville's inequality it ever reaches 1/α with probability at most α, over a stream of any length.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil import linalg
from veil.beliefs.readings import CellFilter
from veil.beliefs.self_model import moved
from veil.laws import recovered, to_grid
from veil.policies.base import Memory
from veil.policies.geometry import nearest
from veil.policies.twin import Twin
from veil.systems.base import System, state_grid
from veil.types import External, Key, Secret, State

OnAlarm = Literal["blind", "stop", "warn"]

LEVEL = 1e-4  # probability of ever raising the alarm where the model is right

TWIN_LEVEL = 1e-2  # the same for twins: their stop is free, so that a false one costs nothing but releases

LONGEST_STREAM = (1 << 31) - 1  # steps, the most that a stream can have

FACTORS = (0.5, 0.8, 1.2, 1.5)  # of the parameters of other plants

MOST_SECRETS = 16  # of the prior that are bet on as well

OFFSETS = (-3.0, -1.0, -0.3, 0.3, 1.0, 3.0)

MEMORIES = (-0.7, -0.3, 0.3, 0.7)  # correlation of the noise with that of the step before

SIZES = (0.3, 0.6, 1.5, 2.5, 10.0, 1e3)

_FAR = 1e6  # standard deviations; what is further away counts as this

REASONS = (
    "its parameters are not those of the secret",
    "it drifts away from what the model says",
    "its noise goes on from step to step, which the model says it does not",
    "its noise does not have the size that the model says",
)


def alarm_charge(level: float, steps: int = LONGEST_STREAM) -> float:
    """Nats that the public decision of an alarm can tell: h(α) + α·log(T + 1).

    Under the model the alarm comes with probability at most α, at one of T steps, so that this bounds the
    entropy of whether and when it comes.
    """
    if not 0.0 < level <= 0.5:
        raise ValueError(f"The level of the alarm is a probability above 0 and up to 0.5; got {level}.")
    entropy = -level * math.log(level) - (1.0 - level) * math.log1p(-level)
    return entropy + level * math.log(steps + 1.0)


class Surprise(NamedTuple):
    """What a step says about the model. Private.

    Attributes:
        rows: the noise of the step, NaN where a value does not determine it; below it, where other parameters
            would have expected that noise.
        cell: log-weights of the points of the cell that the state was read in; none without a resolution.
    """

    rows: Float[Array, "K_plus_1 N"]
    cell: Float[Array, " J"]


def unknown_cell(system: System) -> Float[Array, " J"]:
    """Log-weights of the points of a cell in which the state may be anywhere; none without a resolution."""
    return CellFilter(system).anywhere() if any(state_grid(system)) else jnp.zeros(0)


def surprise(
    system: System,
    secret: Secret,
    state: State,
    external: External,
    after: State,
    *,
    cell: Float[Array, " J"],
    key: Key,
) -> Surprise:
    """The noise of a step by the model of its reading.

    Args:
        system: the owner's model.
        secret: the owner's.
        state: x_t, or its reading.
        external: w_t.
        after: x_{t+1}, or its reading.
        cell: what is known about where in its cell x_t is, see `unknown_cell`.
        key: private randomness.
    """
    law, grid = system.transition(secret, state, external), state_grid(system)
    if any(grid):
        cells = CellFilter(system)
        reading = to_grid(after, grid)
        uniform = jr.uniform(key, reading.shape, reading.dtype)
        found = cells.whiten(cells.predict(secret, to_grid(state, grid), cell, external), reading, uniform)
        noise, cell = jnp.where(jnp.diagonal(law.scale) > 0, found.noise, jnp.nan), found.log_weights
    else:
        noise = recovered(law, after, jnp.full_like(after, jnp.nan))

    def shift(other: Secret) -> Array:
        mean = system.transition(other, state, external).mean
        return recovered(law, mean, jnp.zeros_like(after))

    shifts = jax.vmap(shift)(_other_plants(system, secret))
    rows = jnp.concatenate([noise[None], jnp.clip(jnp.nan_to_num(shifts), -_FAR, _FAR)])
    return Surprise(rows, cell)


INPUT_WEIGHTS = (-0.3, 0.3)  # sd by which noise may go with a public input, per sd of the input

MOST_INPUTS = 8  # numbers of w, levels and changes, that are bet on


def twin_surprise(
    twin: Twin, before: Memory, after: Memory, external: External
) -> Float[Array, "K_plus_1 Y"]:
    """What a step of a twin says about the owner's model of itself: a function of ε and w alone.

    The bets are the same for all owners: that the noise is where other standard systems would expect it, seen
    from one of the public copies, and that it goes with the public inputs. A stop by them is one public
    function of (ε, w), as the releases are, and tells nothing beyond what the theorem of docs/twin.md bounds.

    Args:
        twin: the policy.
        before: its memory at t.
        after: its memory at t + 1.
        external: w_t.
    """
    now, then = twin.unpack(before), twin.unpack(after)
    noise = jnp.where(twin.follows(now, external), then.noise, jnp.nan)
    prior, standards = twin.system.prior, twin.standards(now.secret)
    middle = jnp.exp(prior.log_masses) @ prior.secrets
    place = nearest(prior, middle) if standards.secret.shape[0] > 1 else jnp.zeros((), jnp.int32)
    known = jax.tree.map(lambda leaf: leaf[place], now.copies.known)
    secret, axes = standards.secret[place], jnp.asarray(twin.axes)
    expected = moved(twin.system, secret, known, external)
    root = linalg.cholesky(expected.covariance[axes[:, None], axes[None, :]])

    def shift(other: Secret) -> Array:
        away = twin.system.transition(other, known.mean, external).mean - expected.mean
        return linalg.solve_lower(root, away[axes])

    rows = [noise[None], jax.vmap(shift)(_other_plants(twin.system, secret))]
    if twin.envelope is not None:
        inputs = twin.envelope.standard(twin.past(now, external), external)
        inputs = jnp.clip(inputs, -3.0, 3.0)[:MOST_INPUTS]
        ways = jnp.eye(len(twin.axes), dtype=inputs.dtype)
        rows += [
            weight * (inputs[:, None, None] * ways[None]).reshape(-1, len(ways)) for weight in INPUT_WEIGHTS
        ]
    shifts = jnp.clip(jnp.nan_to_num(jnp.concatenate(rows[1:])), -_FAR, _FAR)
    return jnp.concatenate([rows[0], shifts])


def _other_plants(system: System, secret: Secret) -> Float[Array, "K P"]:
    """Parameters that the plant may have instead: scaled one by one and together, or others of the prior."""
    ones = jnp.ones_like(secret)
    single = [ones.at[i].set(factor) for i in range(secret.shape[0]) for factor in FACTORS]
    together = [ones * factor for factor in FACTORS] if secret.shape[0] > 1 else []
    scaled = jnp.stack([*single, *together]) * secret[None]
    return jnp.concatenate([scaled, system.prior.secrets[:MOST_SECRETS].astype(secret.dtype)])


@dataclass(frozen=True)
class Bets:
    """Stakes of all bets against the model, of one stream or of many (leading axes).

    Attributes:
        log_stakes: log wealth of each bet; minus infinity before the first step.
        noise: that of the step before, NaN where it is not known.
        count: steps that were bet on.
    """

    log_stakes: np.ndarray
    noise: np.ndarray
    count: int = 0

    def after(self, rows: np.ndarray) -> "Bets":
        """One step more, from what `surprise` gave; without a known number nothing is bet."""
        noise = np.clip(rows[..., 0, :], -_FAR, _FAR)
        if not np.any(np.isfinite(noise)):
            return replace(self, noise=noise)
        ratios = log_ratios(noise, self.noise, rows[..., 1:, :])
        before = self.log_stakes if self.count else np.full(ratios.shape, -np.inf)
        new = math.log((_reserve(self.count) - _reserve(self.count + 1)) / ratios.shape[-1])
        return Bets(np.logaddexp(before, new) + ratios, noise, self.count + 1)

    @property
    def log_wealth(self) -> np.ndarray:
        """Log of the whole wealth: the stakes and what is kept for changes to come."""
        if not self.count:
            return np.zeros(self.log_stakes.shape[:-1])
        largest = np.max(self.log_stakes, axis=-1)
        sums = largest + np.log(np.sum(np.exp(self.log_stakes - largest[..., None]), axis=-1))
        return np.asarray(np.logaddexp(sums, math.log(_reserve(self.count))))

    def reason(self) -> str:
        """What the best bet was on, in words, one of `REASONS`; numbers would tell about the noise."""
        size, kinds = self.noise.shape[-1], self.log_stakes.shape[-1]
        generic = (len(OFFSETS) * size, len(MEMORIES), len(SIZES) * _groups(size))
        ends = np.cumsum([kinds - sum(generic), *generic])
        return REASONS[int(np.searchsorted(ends, np.argmax(self.log_stakes), side="right"))]

    def packed(self) -> bytes:
        """As bytes, to be kept beside the secret."""
        numbers = np.concatenate([[float(self.count)], self.noise, self.log_stakes])
        return numbers.astype("<f8").tobytes()


def no_bets(size: int) -> Bets:
    """Before the first step of a system whose state has so many numbers."""
    return Bets(np.zeros(0), np.full(size, np.nan))


def unpacked_bets(content: bytes, size: int) -> Bets:
    """Bets that were kept; those of a new stream where there is nothing."""
    if not content:
        return no_bets(size)
    numbers = np.frombuffer(content, "<f8")
    return Bets(numbers[1 + size :].copy(), np.full(size, np.nan), int(numbers[0]))


def log_ratios(noise: np.ndarray, before: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Log q(z)/φ(z) of every bet; unknown numbers count for nothing.

    Args:
        noise: (..., N) z, standard normal under the model.
        before: (..., N) that of the step before.
        shifts: (..., K, N) where other plants expect z.
    """
    known = np.isfinite(noise)
    pairs = known & np.isfinite(before)
    z, last = np.where(known, noise, 0.0), np.where(pairs, before, 0.0)
    plants = np.sum(shifts * (z[..., None, :] - 0.5 * shifts) * known[..., None, :], axis=-1)
    # The other bets are quadratic in z and in the noise before it: one product gives them all, axis by axis.
    square = z * z
    parts = [square, z, 1.0 * known, square * pairs, z * last, last * last, 1.0 * pairs]
    each = _COEFFICIENTS @ np.stack(parts, axis=-2)
    offsets, memories, sizes = np.split(each, (len(OFFSETS), len(OFFSETS) + len(MEMORIES)), axis=-2)
    columns = [plants, offsets.reshape(*plants.shape[:-1], -1), memories.sum(axis=-1), sizes.sum(axis=-1)]
    if _groups(z.shape[-1]) > 1:
        columns.append(sizes.reshape(*plants.shape[:-1], -1))
    return np.concatenate(columns, axis=-1)


def _coefficients() -> np.ndarray:
    """Rows of bets; columns z², z, 1 and, where the noise before is known, z², z·z₋, z₋², 1."""
    offsets = [(0.0, offset, -0.5 * offset**2, 0.0, 0.0, 0.0, 0.0) for offset in OFFSETS]
    memories = []
    for memory in MEMORIES:
        rest = 1.0 - memory**2
        pair = (0.5 - 0.5 / rest, memory / rest, -0.5 * memory**2 / rest, -0.5 * math.log(rest))
        memories.append((0.0, 0.0, 0.0, *pair))
    sizes = [(0.5 - 0.5 / size**2, 0.0, -math.log(size), 0.0, 0.0, 0.0, 0.0) for size in SIZES]
    return np.array([*offsets, *memories, *sizes])


_COEFFICIENTS = _coefficients()


def _groups(size: int) -> int:
    """Sets of axes whose noise may have another size: all of them, and each."""
    return 1 + size if size > 1 else 1


def _reserve(count: int) -> float:
    """Wealth that is kept for changes after so many steps. It falls so slowly that one is never too late."""
    return 1.0 / math.log2(count + 2)

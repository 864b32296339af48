"""Which inputs are new: a public test on w alone, by what the standard system's own loop produces.

A self-model is good where its history was. An input that no history contains makes it extrapolate, and what
it then gets wrong is told (docs/twin.md). The test must not tell anything itself: it reads w, which is
public, and its limits come from a simulation of the standard system with a public seed, so that they are the
same for all owners.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float

from veil.systems.base import System
from veil.systems.probes import evaluate, true_data_path
from veil.types import External, Scalar

EPISODES, STEPS = 64, 200  # of the public simulation

HOLD = 25  # steps without anything new before releases follow the owner again

SLOW = 8.0  # steps that the slow mean looks back on: a small move that lasts is new as well

FLAT = 1e-6  # relative spread below which an input counts as constant

Past = Float[Array, "..."]
"""Level of the last input and the slow mean; a function of w."""


class Envelope(eqx.Module):
    """The inputs that the standard loop produces: levels, changes and slow means, one by one and together.

    Attributes:
        centre: mean of the level w_t, the change w_t − w_{t−1} and the slow mean of levels.
        root: of the inverse covariance; root @ (u − centre) is in standard units.
        limit: longest length in standard units that the simulation met; what is longer is new.
        most: how far each number was from the centre in the simulation; what is further is new.
        hold: steps that an input stays new.
    """

    centre: Float[Array, " U"]
    root: Float[Array, "U U"]
    limit: Scalar
    most: Float[Array, " U"]
    hold: int = eqx.field(static=True, default=HOLD)

    @property
    def size(self) -> int:
        """How many numbers of w are looked at: all but the clock."""
        return self.centre.shape[0] // 3

    def begin(self, external: External) -> Past:
        """What is remembered before the first input: as if it had always been there.

        Args:
            external: w_1.
        """
        level = external[: self.size].astype(self.centre.dtype)
        return jnp.concatenate([level, level])

    def after(self, past: Past, external: External) -> Past:
        """What is remembered after an input: its level, and the slow mean.

        Args:
            past: before it.
            external: w_t.
        """
        level, slow = external[: self.size].astype(past.dtype), past[self.size :]
        return jnp.concatenate([level, slow + (level - slow) / SLOW])

    def away(self, past: Past, external: External) -> Float[Array, " U"]:
        """Level, change and slow mean, from the centre.

        Args:
            past: what is remembered of the inputs before.
            external: w_t.
        """
        now = self.after(past, external)
        level, slow = now[: self.size], now[self.size :]
        return jnp.concatenate([level, level - past[: self.size], slow]) - self.centre

    def standard(self, past: Past, external: External) -> Float[Array, " U"]:
        """The same in standard units, uncorrelated in the standard loop.

        Args:
            past: what is remembered of the inputs before.
            external: w_t.
        """
        return self.root @ self.away(past, external)

    def is_new(self, past: Past, external: External) -> Bool[Array, ""]:
        """Whether the standard loop never produced such an input.

        Args:
            past: what is remembered of the inputs before.
            external: w_t.
        """
        away = self.away(past, external)
        return jnp.any(jnp.abs(away) > self.most) | (jnp.sum((self.root @ away) ** 2) > self.limit**2)


def standard_envelope(system: System, *, seed: int = 0, hold: int = HOLD) -> Envelope:
    """The envelope of a public standard system in closed loop with its own true output.

    The clock is left out.

    Args:
        system: the standard system; its secrets take turns.
        seed: of the simulation, public.
        hold: steps that an input stays new.
    """
    numbers = np.arange(EPISODES, dtype=np.int32)

    def paths() -> Array:
        key = jr.key(seed)
        return jax.vmap(lambda number: true_data_path(system, STEPS, number=number, key=key)[1])(numbers)

    external = np.asarray(evaluate(paths), float)
    levels = external[..., : external.shape[-1] - int(system.has_clock)]
    slow, rows, before = levels[:, 0], [], levels[:, 0]
    for level in levels.transpose(1, 0, 2):
        slow = slow + (level - slow) / SLOW
        rows.append(np.concatenate([level, level - before, slow], axis=-1))
        before = level
    rows = np.concatenate(rows)
    centre = rows.mean(axis=0)
    floor = FLAT * (1.0 + np.abs(np.tile(levels.mean(axis=(0, 1)), 3)))
    unit = np.maximum(rows.std(axis=0), floor)
    scaled = (rows - centre) / unit
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    root = (vectors / np.sqrt(np.maximum(values, FLAT))).T / unit
    limit = float(np.max(np.linalg.norm((rows - centre) @ root.T, axis=1)))
    most = np.max(np.abs(rows - centre), axis=0) * (1.0 + FLAT) + floor
    kind = system.prior.secrets.dtype
    return Envelope(*(jnp.asarray(one, kind) for one in (centre, root, limit, most)), hold=hold)

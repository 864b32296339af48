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
from veil.systems.probes import evaluate
from veil.systems.scenarios import true_data_path
from veil.types import External, Scalar

EPISODES, STEPS = 64, 200  # of the public simulation

HOLD = 25  # steps without anything new before releases follow the owner again

FLAT = 1e-6  # relative spread below which an input counts as constant


class Envelope(eqx.Module):
    """The inputs that the standard loop produces: their levels and their changes, as one ellipsoid.

    Attributes:
        centre: mean of (w_t, w_t − w_{t−1}).
        root: of the inverse covariance; root @ (u − centre) is in standard units.
        limit: longest length in standard units that the simulation met; what is longer is new.
        hold: steps that an input stays new.
    """

    centre: Float[Array, " U"]
    root: Float[Array, "U U"]
    limit: Scalar
    hold: int = eqx.field(static=True, default=HOLD)

    def standard(self, external: External, before: External) -> Float[Array, " U"]:
        """Level and change of the input in standard units.

        Args:
            external: w_t.
            before: w_{t−1}.
        """
        size = self.centre.shape[0] // 2
        level, change = external[:size], external[:size] - before[:size]
        return self.root @ (jnp.concatenate([level, change]).astype(self.centre.dtype) - self.centre)

    def is_new(self, external: External, before: External) -> Bool[Array, ""]:
        """Whether the standard loop never produced such an input.

        Args:
            external: w_t.
            before: w_{t−1}.
        """
        return jnp.sum(self.standard(external, before) ** 2) > self.limit**2


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
    size = external.shape[-1] - int(system.has_clock)
    levels = external[:, 1:, :size]
    rows = np.concatenate([levels, levels - external[:, :-1, :size]], axis=-1).reshape(-1, 2 * size)
    centre = rows.mean(axis=0)
    floor = FLAT * (1.0 + np.abs(np.tile(centre[:size], 2)))
    unit = np.maximum(rows.std(axis=0), floor)
    scaled = (rows - centre) / unit
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    root = (vectors / np.sqrt(np.maximum(values, FLAT))).T / unit
    limit = float(np.max(np.linalg.norm((rows - centre) @ root.T, axis=1)))
    kind = system.prior.secrets.dtype
    return Envelope(*(jnp.asarray(one, kind) for one in (centre, root, limit)), hold=hold)

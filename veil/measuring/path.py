"""A recording as arrays for compiled programs, filled up so that few lengths are compiled."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veil.measuring.log import Log

BLOCK = 128  # lengths are filled up to a multiple of this


class Path(eqx.Module):
    """A recorded path; rows beyond `length` repeat the last one and are not to be used."""

    states: Float[Array, "T N"]
    external: Float[Array, "T E"]
    length: Int[Array, ""]

    @property
    def used(self) -> Bool[Array, " T"]:
        """Which rows count."""
        return jnp.arange(self.states.shape[0], dtype=jnp.int32) < self.length


def filled(log: Log) -> Path:
    """The recording in double precision."""
    rows = np.minimum(np.arange(-(-log.steps // BLOCK) * BLOCK), log.steps - 1)
    states, external = (jnp.asarray(table[rows], float) for table in (log.states, log.external))
    return Path(states, external, jnp.asarray(log.steps, jnp.int32))

"""Releases that depend on nothing: what every table needs beside its policies, for they leak nothing."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws import Finite, Kernel
from veil.policies.base import PlainPolicy, Time
from veil.policies.grid import grid_atoms
from veil.systems.base import System
from veil.types import External, Features, Secret, State

CENTRE = (15.0, 20.0)  # m/s and m

REACH = (2.5, 5.0)  # half-width of the grid of the discrete policies, m/s and m

POINTS = 5  # per axis


class BlindDraw(PlainPolicy):
    """Share one of these values, each as likely as any other, whatever the secret and the state."""

    system: System
    atoms: Float[Array, "J Y"]

    def kernel(self, features: Features, external: External, time: Time) -> "BlindDrawKernel":
        """The same at every step."""
        del features, external, time
        return BlindDrawKernel(self.atoms)


class BlindDrawKernel(Kernel):
    """One law for every secret and state."""

    atoms: Float[Array, "J Y"]

    def __call__(self, secret: Secret, state: State) -> Finite:
        """Even masses."""
        del secret, state
        count = self.atoms.shape[0]
        return Finite(self.atoms, jnp.full(count, -jnp.log(float(count)), self.atoms.dtype))


def constant(system: System) -> BlindDraw:
    """Always the equilibrium."""
    return BlindDraw(system, jnp.asarray([CENTRE], float))


def uniform(system: System) -> BlindDraw:
    """Every point of the discrete policies' grid alike."""
    centre, reach = jnp.asarray(CENTRE, float), jnp.asarray(REACH, float)
    return BlindDraw(system, grid_atoms(centre - reach, centre + reach, (POINTS, POINTS)))

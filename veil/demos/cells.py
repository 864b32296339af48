"""Particles for quantised sharing: draw each one inside the cell that the release names."""

import jax.numpy as jnp
from jax.scipy.special import erfc, ndtri

from veil.beliefs.proposals import Particle, Proposal
from veil.kernel import Kernel
from veil.policies.plain import GridKernel
from veil.types import Noise, Scalar, Secret, Shared, State


class Cells(Proposal):
    """Draw the particle again from its origin, restricted to the cell around the released grid point.

    For a quantiser of the whole state. One axis after the other, each noise is drawn from a normal law cut
    to what the cell allows given the axes before, and the weight is the product of the masses of these
    intervals (the GHK simulator). No particle is wasted outside the cell, however small it is.
    """

    @property
    def needs_origin(self) -> bool:
        """Yes."""
        return True

    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """A state inside the cell, and the log mass of the cell under the origin."""
        del secret
        origin = particle.origin
        if not isinstance(kernel, GridKernel) or origin is None or shared.shape != particle.state.shape:
            raise TypeError("Cells is for quantised sharing of the whole state; use Bootstrap elsewhere.")
        moves: list[Scalar] = []
        total = jnp.zeros_like(noise[0])
        for i in range(noise.shape[0]):
            centre = origin.mean[i] + sum(
                (origin.scale[i, j] * move for j, move in enumerate(moves)), total * 0.0
            )
            low = (shared[i] - 0.5 * kernel.step[i] - centre) / origin.scale[i, i]
            high = (shared[i] + 0.5 * kernel.step[i] - centre) / origin.scale[i, i]
            move, log_mass = cut_normal(low, high, noise[i])
            moves.append(move)
            total = total + log_mass
        return origin.sample(jnp.stack(moves)), total


def cut_normal(low: Scalar, high: Scalar, noise: Scalar) -> tuple[Scalar, Scalar]:
    """A standard normal number within [low, high] made from another one, and the log mass of the interval.

    Intervals on the right are mirrored to the left, where the distribution function keeps its digits.
    """
    mirrored = low > 0
    left, right = jnp.where(mirrored, -high, low), jnp.where(mirrored, -low, high)
    below = _normal_mass(left)
    mass = _normal_mass(right) - below
    inside = jnp.clip(ndtri(below + _normal_mass(noise) * mass), left, right)
    log_mass = jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1.0)), -jnp.inf)
    return jnp.where(mirrored, -inside, inside), log_mass


def _normal_mass(point: Scalar) -> Scalar:
    """P(Z ≤ point)."""
    return 0.5 * erfc(-(0.5**0.5) * point)

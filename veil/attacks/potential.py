"""A quadratic potential ψ(x) ∝ p(what is still to come | x), and what a particle does with it.

A particle is about to be drawn from its origin x = m + L z, z ~ N(0, I). Aimed by ψ, it is drawn from
N(z; 0, I) ψ(m + L z) instead, a Gaussian; how much ψ likes the origin as a whole decides which particles
are worth keeping. Working on z makes degenerate origins (a known start, a coordinate without noise) no
exception. Nothing here needs to be right for the weights to be: a bad ψ only costs variance.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import Gaussian
from veil.types import Noise, Scalar, State

WIDEN = 1.05  # the aimed law is a little wider than the potential asks for
DEFENCE = 0.02  # share of particles drawn from their origin, so that a weight is at most K(y|x)/DEFENCE


class Potential(eqx.Module):
    """log ψ(x) = −½ δᵀ Λ δ + ηᵀ δ up to a constant, δ = x − centre."""

    centre: Float[Array, " N"]
    precision: Float[Array, "N N"]
    pull: Float[Array, " N"]


def flat(centre: State) -> Potential:
    """ψ = 1: aims at nothing."""
    size = centre.shape[0]
    return Potential(centre, jnp.zeros((size, size), centre.dtype), jnp.zeros_like(centre))


class Aimed(eqx.Module):
    """The law of z under origin and potential: N(mean, (root rootᵀ)⁻¹), and log ∫ N(z; 0, I) ψ dz."""

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]  # Cholesky factor of the precision
    log_mass: Scalar


def aim(potential: Potential, origin: Gaussian) -> Aimed:
    """Combine where a particle comes from with where it should go."""
    offset = origin.mean - potential.centre
    pushed = linalg.apply(potential.precision, offset)
    gradient = linalg.apply_transposed(origin.scale, potential.pull - pushed)
    inner = linalg.symmetric(linalg.sandwich(origin.scale, potential.precision))
    root = linalg.cholesky(jnp.eye(offset.shape[0], dtype=offset.dtype) + inner)
    half = linalg.solve_lower(root, gradient)
    mean = linalg.apply_transposed(linalg.invert_lower(root), half)
    at_mean = linalg.dot(potential.pull, offset) - 0.5 * linalg.dot(offset, pushed)
    return Aimed(mean, root, at_mean + 0.5 * (linalg.dot(half, half) - linalg.log_determinant(root)))


def draw(aimed: Aimed, noise: Noise, uniform: Scalar) -> Noise:
    """Z from the defensive mixture (1 − DEFENCE) N(mean, WIDEN · (root rootᵀ)⁻¹) + DEFENCE N(0, I)."""
    moved = aimed.mean + math.sqrt(WIDEN) * linalg.apply_transposed(linalg.invert_lower(aimed.root), noise)
    return jnp.where(uniform < DEFENCE, noise, moved)


def log_correction(aimed: Aimed, z: Noise) -> Scalar:
    """Log N(z; 0, I) − log of the density that `draw` has at z."""
    apart = linalg.apply_transposed(aimed.root, z - aimed.mean)
    log_volume = 0.5 * linalg.log_determinant(aimed.root) - 0.5 * z.shape[0] * math.log(WIDEN)
    log_ratio = log_volume - 0.5 * linalg.dot(apart, apart) / WIDEN + 0.5 * linalg.dot(z, z)
    return -jnp.logaddexp(math.log1p(-DEFENCE) + log_ratio, jnp.full_like(log_ratio, math.log(DEFENCE)))

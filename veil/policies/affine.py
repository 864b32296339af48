"""Kernels that are affine in the output, one map per secret: Kalman filters read them without error."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.kernel import Kernel
from veil.laws import Gaussian
from veil.systems.base import System
from veil.systems.prior import Prior
from veil.types import Secret, State


class Plan(eqx.Module):
    """Maps output ↦ centres[θ] + maps[θ] (output − starts[θ])."""

    starts: Float[Array, "K Y"]
    maps: Float[Array, "K Y Y"]
    centres: Float[Array, "K Y"]

    def partly(self, shares: Float[Array, " K"]) -> "Plan":
        """Displacement interpolation: go this share of the way from the output to where the plan sends it."""
        unit = jnp.eye(self.maps.shape[-1], dtype=self.maps.dtype)[None]
        centres = self.starts + shares[:, None] * (self.centres - self.starts)
        return Plan(self.starts, unit + shares[:, None, None] * (self.maps - unit), centres)


class AffineKernel(Kernel):
    """Gaussian around the mapped output. A secret off the prior is treated like the nearest one on it."""

    system: System
    plan: Plan
    scales: Float[Array, "K Y Y"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        apart = self.system.output(state) - self.plan.starts[index]
        moved = linalg.apply(self.plan.maps[index], apart)
        return Gaussian(self.plan.centres[index] + moved, self.scales[index])


def nearest(prior: Prior, secret: Secret) -> Int[Array, ""]:
    """Index of the nearest secret of the prior, each coordinate in units of its standard deviation there."""
    masses = jnp.exp(prior.log_masses)
    variance = masses @ (prior.secrets - (masses @ prior.secrets)[None, :]) ** 2
    unit = jnp.where(variance > 0.0, variance, 1.0)
    return jnp.argmin(jnp.sum((prior.secrets - secret[None, :]) ** 2 / unit[None, :], axis=1))

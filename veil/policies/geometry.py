"""The geometry of a distortion: the coordinates in which it is Euclidean, and centres in it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.laws import Gaussian, Kernel
from veil.systems.base import Prior, System
from veil.types import Scalar, Secret, Shared, State, Vector

_WEISZFELD = 32


def distortion_metric(system: System) -> Float[Array, "Y Y"]:
    """Ω with d(x, y)² = (y − output(x))ᵀ Ω (y − output(x)): the Hessian of d²/2 in y.

    Taken at a point away from the output, because a distance has no derivatives where it is zero.
    """
    state = expected_start(system)

    def half_square(shared: Shared) -> Scalar:
        return 0.5 * system.distortion(state, shared) ** 2

    return jax.hessian(half_square)(system.output(state) + 1.0)


def expected_start(system: System) -> State:
    """The mean of x_1 over its law and the prior: public, and as good a place as any to look at a system."""
    means = jax.vmap(lambda secret: system.initial(secret).mean)(system.prior.secrets)
    return jnp.exp(system.prior.log_masses) @ means


def output_noise(system: System) -> Float[Array, " Y"]:
    """Standard deviation that one step adds to the output, per axis, at the expected start."""
    law = system.transition(system.prior.secrets[0], expected_start(system), system.first_external())
    jacobian = jax.jacfwd(system.output)(law.mean)
    return jnp.sqrt(jnp.sum((jacobian @ law.scale) ** 2, axis=1))


def geometric_median(
    weights: Float[Array, " K"], points: Float[Array, "K Y"], metric: Float[Array, "Y Y"]
) -> Vector:
    """The point with the least weighted sum of distances, by a fixed number of Weiszfeld steps.

    The sum is found to a thousandth or better, which is all that a release needs. Distances are kept from
    zero by a billionth of the spread (a ten-thousandth in single precision), so a median that lies on one of
    the points is found and points that coincide are no exception.
    """
    start = weights @ points
    small = 1e-9 if points.dtype == jnp.float64 else 1e-4

    def squares(centre: Vector) -> Float[Array, " K"]:
        apart = points - centre[None, :]
        return jnp.sum((apart @ metric) * apart, axis=1)

    # A constant: the slope of a maximum is 0/0 where the compiler rounds its argument twice, differently.
    floor = jax.lax.stop_gradient(small**2 * jnp.max(squares(start)) + jnp.finfo(points.dtype).tiny ** 0.5)

    def step(_, centre: Vector) -> Vector:
        pulls = weights * jax.lax.rsqrt(squares(centre) + floor)
        return (pulls / jnp.sum(pulls)) @ points

    return jax.lax.fori_loop(0, _WEISZFELD, step, start)


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

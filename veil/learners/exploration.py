"""Exploration that perturbs the kernel itself, in public: the filter always knows the kernel that acted."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from veil.kernel import Kernel
from veil.laws import Gaussian
from veil.policies.affine import nearest
from veil.policies.base import Policy, Time
from veil.policies.wrapping import Wrapping
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, State

MEMORY = 0.85  # correlation of the perturbations of two steps that follow each other


class Shifted(Wrapping):
    """Another policy, with the mean of its release moved, and its noise stretched, by numbers per secret.

    Attributes:
        inner: the other one, with Gaussian releases.
        shifts: added to the mean, in the unit of the release.
        stretches: natural logarithm of the factor of the noise.
    """

    inner: Policy
    shifts: Float[Array, "K Y"]
    stretches: Float[Array, " K"]

    def __init__(self, inner: Policy, shifts: Float[Array, "K Y"], stretches: Float[Array, " K"]):
        self.inner, self.shifts, self.stretches = inner, shifts, stretches

    def kernel(self, features: Features, external: External, time: Time) -> "ShiftedKernel":
        """The other policy's, perturbed."""
        kernel = self.inner.kernel(features, external, time)
        return ShiftedKernel(self.system, kernel, self.shifts, self.stretches)


class ShiftedKernel(Kernel):
    """Another kernel with Gaussian releases, perturbed per secret."""

    system: System
    kernel: Kernel
    shifts: Float[Array, "K Y"]
    stretches: Float[Array, " K"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        law, index = self.kernel(secret, state), nearest(self.system.prior, secret)
        if not isinstance(law, Gaussian):
            raise TypeError(
                f"Only Gaussian releases can be shifted; this kernel gives a {type(law).__name__}."
            )
        return Gaussian(law.mean + self.shifts[index], law.scale * jnp.exp(self.stretches[index]))


def wander(steps: int, shape: tuple[int, ...], size: Scalar, *, key: Key) -> Float[Array, "T ..."]:
    """A stationary Ornstein-Uhlenbeck process: mean 0, this standard deviation, remembering by `MEMORY`."""
    noise = jr.normal(key, (steps, *shape), size.dtype)
    fresh = jnp.sqrt(1.0 - MEMORY**2).astype(size.dtype)

    def step(now: Array, number: Array) -> tuple[Array, Array]:
        return MEMORY * now + fresh * number, now

    _, path = jax.lax.scan(step, noise[0], jnp.roll(noise, -1, axis=0))
    return size * path

"""Policies that look at nothing: the truth, the truth with noise, the truth on a grid."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian, Kernel, Point, Rounded, diagonal_gaussian
from veil.policies.base import PlainPolicy, Time
from veil.policies.geometry import expected_start
from veil.systems.base import System
from veil.types import External, Features, Secret, State


class Truth(PlainPolicy):
    """Share the output as it is."""

    shares_truth: ClassVar[bool] = True

    system: System

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The same kernel at every step."""
        del features, external, time
        return TruthKernel(self.system)


class TruthKernel(Kernel):
    """All mass on the system's output."""

    system: System

    def __call__(self, secret: Secret, state: State) -> Point:
        """The output, without randomness."""
        del secret
        return Point(self.system.output(state))


class GaussianNoise(PlainPolicy):
    """Share the output plus independent Gaussian noise, one standard deviation per axis."""

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The same kernel at every step."""
        del features, external, time
        return NoiseKernel(self.system, self.sd)


class NoiseKernel(Kernel):
    """The system's output plus independent Gaussian noise."""

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """Gaussian around the output."""
        del secret
        return diagonal_gaussian(self.system.output(state), self.sd)


class Quantised(PlainPolicy):
    """Share the grid point nearest to the output, one step per axis."""

    system: System
    step: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The same kernel at every step."""
        del features, external, time
        return GridKernel(self.system, self.step)


class GridKernel(Kernel):
    """The system's output, rounded."""

    system: System
    step: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)

    def __call__(self, secret: Secret, state: State) -> Rounded:
        """All mass on the grid point nearest to the output."""
        del secret
        return Rounded(self.system.output(state), self.step)


def optional(value: ArrayLike | Sequence | None) -> Array | None:
    """A tunable value that may be left out."""
    return None if value is None else jnp.asarray(value)


class Blind(PlainPolicy):
    """A release law from public information only: Gaussian around `mean`, one sd per axis.

    Without a mean it is the output at the mean of the initial law, averaged over the prior.
    """

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)
    mean: Float[Array, " Y"] | None = eqx.field(default=None, converter=optional)

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The same kernel at every step."""
        del features, external, time
        mean = self.system.output(expected_start(self.system)) if self.mean is None else self.mean
        return BlindKernel(diagonal_gaussian(mean, self.sd))


class BlindKernel(Kernel):
    """One law for every secret and state."""

    law: Gaussian

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The same law for every secret and state."""
        del secret, state
        return self.law

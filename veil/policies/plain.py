"""Policies that look at nothing: the truth, the truth with noise, the truth on a grid."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws import Gaussian, Kernel, Point, Rounded, diagonal_gaussian
from veil.policies.base import PlainPolicy, Time, optional, per_axis
from veil.policies.geometry import expected_start
from veil.registry import POLICIES, PerAxis
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


@POLICIES.register("truth")
@dataclass(frozen=True)
class TruthSettings:
    """Share the output as it is."""

    def build(self, system: System) -> Truth:
        """The policy for a system."""
        return Truth(system)


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


@POLICIES.register("noise")
@dataclass(frozen=True)
class NoiseSettings:
    """Share the output plus Gaussian noise."""

    sd: PerAxis
    """Sd of the noise per shared axis, in its unit"""

    def build(self, system: System) -> GaussianNoise:
        """The policy for a system."""
        return GaussianNoise(system, per_axis(self.sd, system))


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


@POLICIES.register("quantised")
@dataclass(frozen=True)
class QuantisedSettings:
    """Share the nearest point of a grid."""

    step: PerAxis
    """Cell of the quantiser per shared axis, in its unit"""

    def build(self, system: System) -> Quantised:
        """The policy for a system."""
        return Quantised(system, per_axis(self.step, system))


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


@POLICIES.register("blind")
@dataclass(frozen=True)
class BlindSettings:
    """Share numbers that do not depend on the state."""

    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; 0.05 each by default"""

    def build(self, system: System) -> Blind:
        """The policy for a system."""
        return Blind(system, per_axis(self.sd, system))

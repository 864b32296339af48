"""Sharing what everybody knows already: no leakage whatever the noise, and all the distortion."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.kernel import Kernel
from veil.laws import Gaussian, diagonal_gaussian
from veil.policies.base import PlainPolicy, Time
from veil.policies.metric import expected_start
from veil.systems.base import System
from veil.types import External, Features, Secret, State


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
        """The law."""
        del secret, state
        return self.law

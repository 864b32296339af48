"""More noise on the releases of another kernel, by a public law: what it tells can only become less."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.kernel import Kernel
from veil.laws import Gaussian, Law, Mixture
from veil.types import Secret, State


class BlurredKernel(Kernel):
    """Another kernel's release plus independent Gaussian noise, one standard deviation per axis."""

    inner: Kernel
    sd: Float[Array, " Y"]

    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the sum."""
        return blurred(self.inner(secret, state), self.sd)


def blurred(law: Law, sd: Float[Array, " Y"]) -> Law:
    """The law of a release plus Gaussian noise; only Gaussians and their mixtures stay what they are."""
    if isinstance(law, Gaussian):
        return _wider(law, sd)
    if isinstance(law, Mixture):
        return Mixture(law.log_weights, jax.vmap(_wider, (0, None))(law.parts, sd))
    raise TypeError(
        f"A {type(law).__name__} release cannot be blurred: it would not stay one. Withhold it or share a "
        "blind one instead, or share with some Gaussian noise from the start."
    )


def _wider(law: Gaussian, sd: Float[Array, " Y"]) -> Gaussian:
    rows = jnp.concatenate([law.scale, jnp.diag(sd)], axis=1)
    wide = linalg.triangular_root(rows, jnp.ones_like(rows[0]))
    return Gaussian(law.mean, jnp.where(jnp.any(sd > 0), wide, law.scale))

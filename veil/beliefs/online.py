"""Learning along the stream: a correction of the self-model's prediction, and the size of its noise.

The error e of a self-model in units of its own noise is, per coordinate that is read,

    e = φ · β + s u,    u standard normal,    s² ~ inverse gamma,    β | s² ~ N(m, s² V),

with features φ that are known before the reading. This is Bayesian linear regression: its posterior after
every reading is of the same kind, and costs O(F²) per step for F features. The prediction is the normal law
with the mean and the variance of the posterior's Student-t. Nothing of it is public.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

LEAST_SHAPE = 1.5  # of the inverse gamma law, so that its mean exists: three readings


class Learned(eqx.Module):
    """What is known of the correction, per coordinate that is read. It is private.

    Attributes:
        mean: m.
        covariance: V.
        shape: of the inverse gamma law of s²; half the readings that it stands for.
        rate: likewise; rate / (shape − 1) is the mean of s².
    """

    mean: Float[Array, "*Y F"]
    covariance: Float[Array, "*Y F F"]
    shape: Float[Array, "*Y"]
    rate: Float[Array, "*Y"]

    def correction(self, features: Float[Array, "*Y F"]) -> tuple[Float[Array, "*Y"], Float[Array, "*Y"]]:
        """Mean and sd of the next error.

        Args:
            features: φ of each coordinate.
        """
        spread = jnp.maximum(jnp.sum(features * self._times(features), axis=-1), 0.0)
        variance = self.rate / (self.shape - 1.0) * (1.0 + spread)
        return jnp.sum(self.mean * features, axis=-1), jnp.sqrt(variance)

    def after(self, features: Float[Array, "*Y F"], error: Float[Array, "*Y"]) -> "Learned":
        """The posterior after one more error: recursive least squares.

        Args:
            features: φ of each coordinate.
            error: e of each.
        """
        ahead = self._times(features)
        total = 1.0 + jnp.maximum(jnp.sum(features * ahead, axis=-1), 0.0)
        miss = error - jnp.sum(self.mean * features, axis=-1)
        gain = ahead / total[..., None]
        return Learned(
            self.mean + gain * miss[..., None],
            self.covariance - gain[..., :, None] * ahead[..., None, :],
            self.shape + 0.5,
            self.rate + 0.5 * miss**2 / total,
        )

    def _times(self, features: Array) -> Array:
        return jnp.sum(self.covariance * features[..., None, :], axis=-1)


class Learner(eqx.Module):
    """How a self-model learns. It forgets nothing: the excess log-loss then grows like a logarithm.

    Attributes:
        start: what is known when a run begins.
        linear: whether a constant, the last reading and the public inputs are features besides the
            parameters of the system.
    """

    start: Learned
    linear: bool = eqx.field(static=True, default=False)


def learner(
    spread: ArrayLike | Sequence[float], coordinates: int, *, readings: float = 10.0, linear: bool = False
) -> Learner:
    """A learner that begins with the model as it is.

    Args:
        spread: sd of each weight before anything is learned: by how much a parameter may be off, in its
            unit; of linear features, in units of the noise.
        coordinates: how many are read.
        readings: that the model's own size of noise is worth.
        linear: see `Learner`.
    """
    sd = jnp.asarray(spread, float)
    shape = LEAST_SHAPE + 0.5 * readings
    if sd.ndim != 1 or not bool(jnp.all(sd >= 0.0)):
        raise ValueError("Give one spread per weight, 0 or more: by how much each parameter may be off.")
    if readings < 0.0:
        raise ValueError("`readings` is a number of readings, 0 or more.")
    many = jnp.broadcast_to(jnp.diag(sd**2), (coordinates, sd.size, sd.size))
    nothing, ones = jnp.zeros((coordinates, sd.size)), jnp.ones(coordinates)
    return Learner(Learned(nothing, many, shape * ones, (shape - 1.0) * ones), linear)

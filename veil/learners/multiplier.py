"""The price of distortion: dual ascent above a floor."""

import jax.numpy as jnp

from veil.problem import Objective
from veil.types import Scalar


def raised(price: Scalar, distortion: Scalar, objective: Objective, rate: Scalar) -> Scalar:
    """The price after an episode with this mean distortion per step.

    It rises while E[d] is above the limit and falls while it is below, but never under the floor. The step is
    relative to the floor and to the limit, so that `rate` has no unit.
    """
    excess = jnp.where(jnp.isfinite(distortion), distortion / objective.distortion_limit - 1.0, 0.0)
    return jnp.maximum(objective.distortion_price, price + rate * objective.distortion_price * excess)

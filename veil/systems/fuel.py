"""Fuel of a passenger car from its speed and acceleration (Bowyer, Akcelik and Biggs, 1985)."""

import jax.numpy as jnp

from veil.types import Scalar

IDLE = 0.444  # mL/s


def fuel_rate(speed: Scalar, acceleration: Scalar) -> Scalar:
    """Fuel in mL/s at a speed in m/s under an acceleration in m/s².

    The engine works against R = 0.333 + 0.00108 v² + 1.2 a. It idles where R <= 0; otherwise it takes
    0.09 R v on top of idling, and 0.054 a² v more while the car accelerates (a > 0).
    """
    resistance = 0.333 + 0.00108 * speed**2 + 1.2 * acceleration
    boost = 0.054 * jnp.maximum(acceleration, 0.0) ** 2 * speed
    return IDLE + jnp.where(resistance > 0.0, 0.09 * resistance * speed + boost, 0.0)

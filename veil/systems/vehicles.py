"""The parts of a platoon: the leader's speed, the automated vehicle's gains, the wanted speed, fuel."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.types import Scalar, as_number

Pair = Float[Array, "2"]


def pair(value: ArrayLike | Sequence) -> Pair:
    """Two tunable numbers; one number stands for both."""
    return jnp.broadcast_to(jnp.asarray(value, float), (2,))


class Leader(eqx.Module):
    """How the speed of the first vehicle moves."""

    @abc.abstractmethod
    def __call__(self, speed: Scalar, cruise: Scalar, dt: Scalar, noise: Scalar) -> Scalar:
        """The next speed, from one standard normal number."""


class IndependentLeader(Leader):
    """Cruise speed plus an error that is drawn afresh at each step."""

    variance: Scalar = eqx.field(default=0.1, converter=as_number)

    def __call__(self, speed: Scalar, cruise: Scalar, dt: Scalar, noise: Scalar) -> Scalar:
        """v0' = cruise + sqrt(variance)·ε."""
        del speed, dt
        return cruise + jnp.sqrt(self.variance) * noise


class AcceleratingLeader(Leader):
    """A noisy acceleration that pulls back to the cruise speed."""

    pull: Scalar = eqx.field(default=0.1, converter=as_number)
    sd: Scalar = eqx.field(default=1.0, converter=as_number)

    def __call__(self, speed: Scalar, cruise: Scalar, dt: Scalar, noise: Scalar) -> Scalar:
        """v0' = v0 + dt·(pull·(cruise − v0) + sd·ε), pull in 1/s and sd in m/s²."""
        return speed + dt * (self.pull * (cruise - speed) + self.sd * noise)


class WanderingLeader(Leader):
    """A random walk: nothing pulls the speed back."""

    sd: Scalar = eqx.field(default=1.0, converter=as_number)

    def __call__(self, speed: Scalar, cruise: Scalar, dt: Scalar, noise: Scalar) -> Scalar:
        """v0' = v0 + dt·sd·ε, sd in m/s²."""
        del cruise
        return speed + dt * self.sd * noise


LEADERS: dict[str, type[Leader]] = {
    "independent": IndependentLeader,
    "accelerating": AcceleratingLeader,
    "random_walk": WanderingLeader,
}


def leader_model(choice: str | Leader) -> Leader:
    """A leader by name, or as given."""
    if isinstance(choice, Leader):
        return choice
    if choice not in LEADERS:
        raise ValueError(f"leader must be one of {', '.join(LEADERS)} or a Leader; got {choice!r}.")
    return LEADERS[choice]()


class Controller(eqx.Module):
    """Linear feedback gains on (spacing, speed) errors: the vehicle's own, and its follower's as shared."""

    own: Pair = eqx.field(converter=pair)
    follower: Pair = eqx.field(converter=pair)


# The gains of the paper admit several readings. As printed they are unstable; these four are stable and
# give its true-data figures.
CONTROLLERS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "B": ((0.5, -0.5), (0.2, -0.2)),
    "C": ((0.5, -0.5), (-0.2, 0.2)),
    "D": ((0.1, -0.5), (-0.2, 0.05)),
    "F": ((0.1, -0.5), (-0.2, 0.2)),
}


def controller_gains(choice: str | Controller) -> Controller:
    """A controller by the name of its reading, or as given."""
    if isinstance(choice, Controller):
        return choice
    if choice not in CONTROLLERS:
        raise ValueError(
            f"controller must be one of {', '.join(CONTROLLERS)} or a Controller; got {choice!r}."
        )
    return Controller(*CONTROLLERS[choice])


def optimal_velocity(spacing: Scalar, thresholds: Pair, top_speed: Scalar) -> Scalar:
    """The speed that a driver wants at this spacing.

    It is 0 below the first threshold and the top speed above the second. Between them it rises as half a
    cosine wave.

    Args:
        spacing: to the vehicle ahead, m.
        thresholds: the two spacings, m.
        top_speed: m/s.
    """
    stop, go = thresholds
    fraction = jnp.clip((spacing - stop) / (go - stop), 0.0, 1.0)
    return 0.5 * top_speed * (1.0 - jnp.cos(jnp.pi * fraction))


IDLE = 0.444  # mL/s


def fuel_rate(speed: Scalar, acceleration: Scalar) -> Scalar:
    """Fuel in mL/s at a speed in m/s under an acceleration in m/s².

    The engine works against R = 0.333 + 0.00108 v² + 1.2 a. It idles where R <= 0; otherwise it takes
    0.09 R v on top of idling, and 0.054 a² v more while the car accelerates (a > 0).
    """
    resistance = 0.333 + 0.00108 * speed**2 + 1.2 * acceleration
    boost = 0.054 * jnp.maximum(acceleration, 0.0) ** 2 * speed
    return IDLE + jnp.where(resistance > 0.0, 0.09 * resistance * speed + boost, 0.0)

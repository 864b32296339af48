"""A leader, an automated vehicle, and a human driver behind it whose driving style is the secret.

The driver follows the full velocity difference model with two secret gains and shares its speed and spacing
with the automated vehicle. The automated vehicle uses them in its controller, so that a release acts back on
the driver.
"""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian, diagonal_gaussian
from veil.systems.base import Field, Prior, System, finite_prior
from veil.types import External, Noise, Scalar, Secret, Shared, State, as_number

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
    share = jnp.clip((spacing - stop) / (go - stop), 0.0, 1.0)
    return 0.5 * top_speed * (1.0 - jnp.cos(jnp.pi * share))


IDLE = 0.444  # mL/s


def fuel_rate(speed: Scalar, acceleration: Scalar) -> Scalar:
    """Fuel in mL/s at a speed in m/s under an acceleration in m/s².

    The engine works against R = 0.333 + 0.00108 v² + 1.2 a. It idles where R <= 0; otherwise it takes
    0.09 R v on top of idling, and 0.054 a² v more while the car accelerates (a > 0).
    """
    resistance = 0.333 + 0.00108 * speed**2 + 1.2 * acceleration
    boost = 0.054 * jnp.maximum(acceleration, 0.0) ** 2 * speed
    return IDLE + jnp.where(resistance > 0.0, 0.09 * resistance * speed + boost, 0.0)


DRIVERS = ((0.4, 0.5), (0.7, 0.8), (1.0, 1.1), (1.3, 1.4))
"""The four secrets of the paper: (pull to the wanted speed, pull to the speed ahead), both in 1/s."""

_SECRET = (Field("speed_gain", "1/s", 0.0), Field("difference_gain", "1/s", 0.0))

# Noise comes after the limits, so a car at rest may read slightly below zero.
_STATE = (Field("speed", "m/s", -1.0, 60.0), Field("spacing", "m", -1.0, 500.0))

_EXTERNAL = (
    Field("leader_speed", "m/s", -10.0, 60.0),
    Field("automated_speed", "m/s", -1.0, 60.0),
    Field("automated_spacing", "m", -50.0, 500.0),
)

_SHARED = (Field("speed", "m/s", 0.0, 60.0), Field("spacing", "m", 0.0, 500.0))


class Platoon(System):
    """State (speed, spacing) of the driver; external (leader speed, automated vehicle's speed and spacing).

    Limits act on means and noise is added after; spacings move by the speeds before the step. Pairs that
    speak of a state are in its order, (speed, spacing); only the gains of a `Controller` are (spacing,
    speed), as in the literature.

    Attributes:
        prior: secrets (θ1, θ2) in 1/s, by default the paper's four, equally likely.
        controller: reading of the automated vehicle's gains, "B", "C", "D" or "F", or a `Controller`.
        leader: "independent", "accelerating" or "random_walk", or a `Leader`.
        initial_sd: spread of (speed, spacing) around equilibrium at the start, m/s and m; 0 starts on it.
        acceleration_sd: the driver's noise in m/s², part of the acceleration.
        spacing_sd: noise of the driver's spacing, m per step.
        automated_spacing_sd: noise of the automated vehicle's spacing, m per step.
        dt: length of a step, s.
        equilibrium: (speed, spacing) that the controller holds, m/s and m.
        thresholds: spacing at which the driver wants to stop, and to go at top speed, m.
        top_speed: upper limit of speeds, m/s; the lower one is zero.
        acceleration_limits: lowest and highest acceleration, m/s².
        distortion_weights: weights of the squared errors of (speed, spacing).
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior(DRIVERS))
    controller: Controller = eqx.field(default="C", converter=controller_gains)
    leader: Leader = eqx.field(default="independent", converter=leader_model)
    initial_sd: Pair = eqx.field(default=(0.5, 1.0), converter=pair)
    acceleration_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    spacing_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    automated_spacing_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    dt: Scalar = eqx.field(default=0.2, converter=as_number)
    equilibrium: Pair = eqx.field(default=(15.0, 20.0), converter=pair)
    thresholds: Pair = eqx.field(default=(5.0, 35.0), converter=pair)
    top_speed: Scalar = eqx.field(default=30.0, converter=as_number)
    acceleration_limits: Pair = eqx.field(default=(-5.0, 5.0), converter=pair)
    distortion_weights: Pair = eqx.field(default=(3.0, 1.0), converter=pair)

    secret_fields = _SECRET
    state_fields = _STATE
    external_fields = _EXTERNAL
    shared_fields = _SHARED
    reaction_noise_size = 2

    def initial(self, secret: Secret) -> Gaussian:
        """Around equilibrium, the same for every secret."""
        del secret
        return diagonal_gaussian(self.equilibrium, self.initial_sd)

    def initial_external(self) -> External:
        """All vehicles start at the equilibrium."""
        speed, spacing = self.equilibrium
        return jnp.stack([speed, speed, spacing])

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, Gaussian around the limited mean."""
        mean = follow(self, secret, state, external, jnp.zeros_like(self.dt))
        return diagonal_gaussian(mean, jnp.stack([self.dt * self.acceleration_sd, self.spacing_sd]))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """The leader and the automated vehicle move; without a release the follower's terms are zero."""
        leader, speed, spacing = external
        cruise, distance = self.equilibrium
        push = self.controller.own @ jnp.stack([spacing - distance, speed - cruise])
        if shared is not None:
            push = push + self.controller.follower @ jnp.stack([shared[1] - distance, shared[0] - cruise])
        faster = accelerate(self, speed, push)
        further = spacing + self.dt * (leader - speed) + self.automated_spacing_sd * noise[1]
        return jnp.stack([self.leader(leader, cruise, self.dt, noise[0]), faster, further])

    def cost(self, secret: Secret, state: State, after: State, shared: Shared) -> Scalar:
        """The driver's fuel in mL/s; the acceleration is the realised one, noise included."""
        del secret, shared
        return fuel_rate(state[0], (after[0] - state[0]) / self.dt)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Weighted Euclidean distance; its gradient at distance zero is set to zero."""
        squared = self.distortion_weights @ (shared - state) ** 2
        apart = squared > 0.0
        return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1.0)), 0.0)

    def output(self, state: State) -> Shared:
        """The true speed and spacing."""
        return state


class ColouredPlatoon(System):
    """A platoon whose driver makes errors that last for seconds, as residuals of real traffic do.

    The acceleration error e' = r e + sqrt(1 − r²) coloured_sd ε with r = exp(−dt / correlation_time) is a
    third state coordinate and is not shared. The inner platoon's own white noise stays, so that the
    transition keeps a density. The start is stationary in e.

    Attributes:
        inner: the platoon; by default with a small white acceleration noise.
        coloured_sd: stationary sd of the acceleration error, m/s².
        correlation_time: time after which its autocorrelation is 1/e, s; 2 to 4 in traffic data.
    """

    inner: Platoon
    coloured_sd: Scalar
    correlation_time: Scalar

    secret_fields = _SECRET
    state_fields = (*_STATE, Field("acceleration_error", "m/s^2"))
    external_fields = _EXTERNAL
    shared_fields = _SHARED
    reaction_noise_size = 2

    def __init__(
        self, inner: Platoon | None = None, *, coloured_sd: ArrayLike = 0.1, correlation_time: ArrayLike = 3.0
    ):
        self.inner = Platoon(acceleration_sd=0.02) if inner is None else inner
        self.coloured_sd = as_number(coloured_sd)
        self.correlation_time = as_number(correlation_time)

    @property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in the inner platoon."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """The inner platoon's start, with a stationary acceleration error."""
        start = self.inner.initial(secret)
        sd = jnp.append(self.inner.initial_sd, self.coloured_sd)
        return diagonal_gaussian(jnp.append(start.mean, jnp.zeros_like(self.coloured_sd)), sd)

    def initial_external(self) -> External:
        """As in the inner platoon."""
        return self.inner.initial_external()

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver and of the acceleration error."""
        keep = jnp.exp(-self.inner.dt / self.correlation_time)
        moved = follow(self.inner, secret, state[:2], external, state[2])
        white = jnp.stack([self.inner.dt * self.inner.acceleration_sd, self.inner.spacing_sd])
        fresh = jnp.sqrt(-jnp.expm1(-2.0 * self.inner.dt / self.correlation_time)) * self.coloured_sd
        return diagonal_gaussian(jnp.append(moved, keep * state[2]), jnp.append(white, fresh))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """As in the inner platoon."""
        return self.inner.react(external, shared, noise)

    def cost(self, secret: Secret, state: State, after: State, shared: Shared) -> Scalar:
        """As in the inner platoon: fuel in mL/s."""
        return self.inner.cost(secret, state[:2], after[:2], shared)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """As in the inner platoon, on speed and spacing."""
        return self.inner.distortion(state[:2], shared)

    def output(self, state: State) -> Shared:
        """Speed and spacing; the acceleration error stays private."""
        return state[:2]


def accelerate(platoon: Platoon, speed: Scalar, push: Scalar) -> Scalar:
    """Speed after one step under an acceleration, both within the platoon's limits."""
    low, high = platoon.acceleration_limits
    return jnp.clip(speed + platoon.dt * jnp.clip(push, low, high), 0.0, platoon.top_speed)


def follow(platoon: Platoon, secret: Secret, state: State, external: External, error: Scalar) -> State:
    """Mean of the driver's next (speed, spacing) under the full velocity difference model.

    The acceleration is θ1 (V(spacing) − speed) + θ2 (speed ahead − speed) + error, within limits.
    """
    speed, spacing = state
    ahead = external[1]
    wanted = optimal_velocity(spacing, platoon.thresholds, platoon.top_speed)
    push = secret[0] * (wanted - speed) + secret[1] * (ahead - speed) + error
    return jnp.stack([accelerate(platoon, speed, push), spacing + platoon.dt * (ahead - speed)])

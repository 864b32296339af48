"""A human driver with four secret numbers and errors that last for seconds, in the loop of the platoon.

The driver follows an automated vehicle, which follows a leader whose speed is a recorded series. The driver
shares speed and spacing with the automated vehicle. Two families of drivers: the full velocity difference
model with its four parameters, and the Intelligent Driver Model.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.laws import Gaussian, diagonal_gaussian
from veil.registry import SYSTEMS
from veil.systems.base import CostPart, Nouns, Prior, Scenario, System, finite_prior
from veil.systems.probes import evaluate, true_data_path
from veil.systems.series import Field, Series
from veil.systems.variants import Variant
from veil.systems.vehicles import Controller, Pair, controller_gains, fuel_rate, optimal_velocity, pair
from veil.types import Answer, External, Key, Noise, Scalar, Secret, Shared, State, as_number

# pyright: reportIncompatibleVariableOverride=false

STYLES = ((0.1, 0.4, 6.0, 42.0), (0.2, 0.6, 4.0, 36.0), (0.45, 0.7, 3.0, 31.0), (0.9, 1.0, 2.0, 26.0))
"""Four drivers from calm to brisk: pull to the wanted speed and to the speed ahead, both in 1/s; spacing at
which the driver wants to stop, and to go at top speed, both in m."""

IDM_STYLES = ((0.6, 1.0, 1.5, 3.0), (1.0, 1.5, 1.3, 2.5), (1.5, 2.0, 1.1, 2.0), (2.2, 3.0, 0.9, 1.5))
"""Four drivers of the Intelligent Driver Model: maximal acceleration and comfortable deceleration in m/s²,
time gap in s, spacing at rest in m."""

_LEAST_SPACING = 0.1  # m; below it the law brakes as if it were this: far beyond the limits already


def stop_and_go(steps: int = 1500, dt: float = 0.2, seed: int = 0) -> Series:
    """The speed of a leader in dense traffic, always the same for a seed.

    A mean of 15 m/s, waves of ±2 m/s with a period of 40 s and of ±1 m/s with one of 13 s, and an error of
    0.2 m/s with a memory of 5 s.

    Args:
        steps: number of rows.
        dt: length of a step, s.
        seed: of the error.
    """
    noise, error, keep = (
        np.random.default_rng(seed).standard_normal(steps),
        np.zeros(steps),
        np.exp(-dt / 5.0),
    )
    for row in range(1, steps):
        error[row] = keep * error[row - 1] + np.sqrt(1.0 - keep**2) * 0.2 * noise[row]
    time = dt * np.arange(steps)
    waves = 2.0 * np.sin(2.0 * np.pi * time / 40.0) + np.sin(2.0 * np.pi * time / 13.0)
    return Series({"leader_speed": np.round(15.0 + waves + error, 2)})


@SYSTEMS.register(
    "driver", "a human driver with four secret numbers and coloured errors, behind a recorded leader"
)
class Driver(System):
    """The full velocity difference model with its four parameters as the secret.

    The acceleration is θ1 (V(s) − v) + θ2 (v_ahead − v) + e within limits, at speed v and spacing s. V rises
    from 0 at the stopping spacing to the top speed at the free-flow spacing as half a cosine wave. The error
    e' = r e + sqrt(1 − r²) coloured_sd ε with r = exp(−dt / correlation_time) is a state that is not shared.

    Attributes:
        prior: secrets (θ1, θ2, stopping spacing, free-flow spacing), by default four, equally likely.
        series: speed of the leader, one row per step.
        controller: gains of the automated vehicle, see `Platoon`.
        coloured_sd: stationary sd of the driver's error, m/s².
        correlation_time: after which its autocorrelation is 1/e, s.
        acceleration_sd: white noise in the acceleration, m/s².
        spacing_sd: noise of the driver's spacing, m per step.
        automated_spacing_sd: noise of the automated vehicle's spacing, m per step.
        initial_sd: spread of (speed, spacing) around equilibrium at the start, m/s and m.
        dt: length of a step, s.
        equilibrium: (speed, spacing) that the controller holds, m/s and m.
        top_speed: upper limit of speeds, m/s; the lower one is zero.
        acceleration_limits: lowest and highest acceleration, m/s².
        distortion_weights: weights of the squared errors of (speed, spacing).
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior(STYLES))
    series: Series = eqx.field(default_factory=stop_and_go)
    controller: Controller = eqx.field(default="C", converter=controller_gains)
    coloured_sd: Scalar = eqx.field(default=0.15, converter=as_number)
    correlation_time: Scalar = eqx.field(default=4.0, converter=as_number)
    acceleration_sd: Scalar = eqx.field(default=0.05, converter=as_number)
    spacing_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    automated_spacing_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    initial_sd: Pair = eqx.field(default=(0.5, 2.0), converter=pair)
    dt: Scalar = eqx.field(default=0.2, converter=as_number)
    equilibrium: Pair = eqx.field(default=(15.0, 20.0), converter=pair)
    top_speed: Scalar = eqx.field(default=30.0, converter=as_number)
    acceleration_limits: Pair = eqx.field(default=(-5.0, 5.0), converter=pair)
    distortion_weights: Pair = eqx.field(default=(3.0, 1.0), converter=pair)

    secret_fields = (
        Field("speed_gain", "1/s", 0.0),
        Field("difference_gain", "1/s", 0.0),
        Field("stopping_spacing", "m", 0.0, 100.0),
        Field("free_spacing", "m", 0.0, 200.0),
    )
    state_fields = (
        Field("speed", "m/s", -1.0, 60.0),
        Field("spacing", "m", -1.0, 500.0),
        Field("acceleration_error", "m/s^2", -20.0, 20.0),
    )
    external_fields = (
        Field("automated_speed", "m/s", -1.0, 60.0),
        Field("automated_spacing", "m", -50.0, 500.0),
    )
    exogenous_fields = (Field("leader_speed", "m/s", 0.0, 60.0),)
    shared_fields = (Field("speed", "m/s", 0.0, 60.0), Field("spacing", "m", 0.0, 500.0))
    cost_fields = (CostPart("fuel", "mL", 1.0), CostPart("acceleration effort", "m²/s³", 0.0))
    quantity_fields = (Field("smallest gap", "m"), Field("largest braking", "m/s²"))
    reaction_noise_size = 1
    nouns = Nouns("the driver", "the driving style", "driver")

    @property
    def step_seconds(self) -> Scalar:
        """The length of a step."""
        return self.dt

    def initial(self, secret: Secret) -> Gaussian:
        """Around the equilibrium of the controller, with a stationary error; the same for every secret."""
        del secret
        mean = jnp.append(self.equilibrium, jnp.zeros_like(self.coloured_sd))
        return diagonal_gaussian(mean, jnp.append(self.initial_sd, self.coloured_sd))

    def initial_external(self) -> Answer:
        """The automated vehicle starts at its equilibrium."""
        return self.equilibrium

    def push(self, secret: Secret, state: State, ahead: Scalar) -> Scalar:
        """The acceleration that the driver wants, before errors and limits.

        Args:
            secret: the four numbers.
            state: speed in m/s and spacing in m, and the error.
            ahead: speed of the vehicle ahead, m/s.
        """
        wanted = optimal_velocity(state[1], secret[2:], self.top_speed)
        return secret[0] * (wanted - state[0]) + secret[1] * (ahead - state[0])

    def moved(self, push: Scalar, state: State, ahead: Scalar) -> Gaussian:
        """The next state of a driver who wants this acceleration.

        Args:
            push: m/s².
            state: speed, spacing, error.
            ahead: speed of the vehicle ahead, m/s.
        """
        speed, spacing, error = state
        keep = jnp.exp(-self.dt / self.correlation_time)
        fresh = jnp.sqrt(-jnp.expm1(-2.0 * self.dt / self.correlation_time)) * self.coloured_sd
        mean = [self._faster(speed, push + error), spacing + self.dt * (ahead - speed), keep * error]
        sd = [self.dt * self.acceleration_sd, self.spacing_sd, fresh]
        return diagonal_gaussian(jnp.stack(mean), jnp.stack(sd))

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, Gaussian around the limited mean."""
        ahead = self.inputs(external).automated_speed
        return self.moved(self.push(secret, state, ahead), state, ahead)

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The automated vehicle moves; without a release its follower's terms are zero."""
        now, (cruise, distance) = self.inputs(external), self.equilibrium
        own = jnp.stack([now.automated_spacing - distance, now.automated_speed - cruise])
        push = self.controller.own @ own
        if shared is not None:
            push = push + self.controller.follower @ jnp.stack([shared[1] - distance, shared[0] - cruise])
        further = now.automated_spacing + self.dt * (now.leader_speed - now.automated_speed)
        further = further + self.automated_spacing_sd * noise[0]
        return jnp.stack([self._faster(now.automated_speed, push), further])

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Mapping[str, Scalar]:
        """Fuel in mL and the integral of the squared acceleration, of the realised one with its noise."""
        del secret, shared, external
        acceleration = (after[0] - state[0]) / self.dt
        fuel = self.dt * fuel_rate(state[0], acceleration)
        return {"fuel": fuel, "acceleration effort": self.dt * acceleration**2}

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Weighted Euclidean distance; its gradient at distance zero is set to zero."""
        return linalg.weighted_distance(self.distortion_weights, shared - state[:2])

    def output(self, state: State) -> Shared:
        """Speed and spacing; the error stays private."""
        return state[:2]

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """The smallest gap and the largest deceleration."""
        del external, shared
        acceleration = (states[1:, 0] - states[:-1, 0]) / self.dt
        return jnp.stack([jnp.min(states[:, 1]), jnp.max(-acceleration)])

    def scenarios(self) -> tuple[Scenario, ...]:
        """Drivers of the Intelligent Driver Model, twice the error, and an error that lasts for one step."""
        rough = eqx.tree_at(lambda one: one.coloured_sd, self, 2.0 * self.coloured_sd)
        short = eqx.tree_at(lambda one: one.correlation_time, self, self.dt)
        found = [
            Scenario(n, p, self.prior.secrets) for n, p in (("rough driving", rough), ("white errors", short))
        ]
        return idm_styles(self), *found

    def misspecified_models(self) -> Mapping[str, System]:
        """Readers who take the drivers for others, or their errors for white."""
        short = eqx.tree_at(lambda one: one.correlation_time, self, self.dt)
        found: dict[str, System] = {"errors are white": short}
        if len(self.prior.secrets) == len(IDM_STYLES):
            found["drivers are IDM"] = IdmDriver(self)
        return found

    def _faster(self, speed: Scalar, push: Scalar) -> Scalar:
        """Speed after one step under an acceleration, both within limits."""
        low, high = self.acceleration_limits
        return jnp.clip(speed + self.dt * jnp.clip(push, low, high), 0.0, self.top_speed)


@SYSTEMS.register("idm_driver", "a driver of the Intelligent Driver Model with coloured errors")
class IdmDriver(Variant):
    """The loop of `Driver` with a driver of secret (a, b, T, s0), by the Intelligent Driver Model.

    The acceleration is a (1 − (v/v0)⁴ − (s*/s)²) with the wanted spacing
    s* = s0 + max(0, v T + v (v − v_ahead) / (2 sqrt(a b))) and the top speed as v0.

    Attributes:
        inner: the loop; its prior speaks of another law and is not used.
        prior: secrets (a, b, T, s0), by default four, equally likely.
    """

    inner: Driver
    prior: Prior

    def __init__(self, inner: Driver | None = None, *, prior: Prior | None = None):
        self.inner = Driver() if inner is None else inner
        self.prior = finite_prior(IDM_STYLES) if prior is None else prior

    @property
    def secret_fields(self) -> tuple[Field, ...]:
        """The four numbers of the driver."""
        return (
            Field("acceleration", "m/s^2", 0.0),
            Field("deceleration", "m/s^2", 0.0),
            Field("time_gap", "s", 0.0),
            Field("standing_spacing", "m", 0.0),
        )

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system, the same for every secret."""
        return self.inner.initial(secret)

    def push(self, secret: Secret, state: State, ahead: Scalar) -> Scalar:
        """The acceleration that the driver wants, before errors and limits.

        Args:
            secret: the four numbers.
            state: speed in m/s and spacing in m, and the error.
            ahead: speed of the vehicle ahead, m/s.
        """
        highest, comfortable, gap, standing = secret
        speed, spacing = state[0], jnp.maximum(state[1], _LEAST_SPACING)
        closing = speed * (speed - ahead) / (2.0 * jnp.sqrt(highest * comfortable))
        wanted = standing + jnp.maximum(0.0, speed * gap + closing)
        return highest * (1.0 - (speed / self.inner.top_speed) ** 4 - (wanted / spacing) ** 2)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, with the inner system's limits and noise."""
        ahead = self.inner.inputs(external).automated_speed
        return self.inner.moved(self.push(secret, state, ahead), state, ahead)


def idm_styles(driver: Driver) -> Scenario:
    """Drivers of the Intelligent Driver Model, whom the owner takes for this family by its best fit."""
    plant = IdmDriver(driver)
    found = fit_styles(driver, plant, key=jr.key(0))
    return Scenario("idm drivers", plant, jnp.asarray(found, driver.prior.secrets.dtype))


def fit_styles(
    driver: Driver, plant: System, *, episodes: int = 8, steps: int = 50, key: Key
) -> Float[np.ndarray, "K 4"]:
    """What an owner would take the drivers of a plant for, from its own true data.

    Least squares of the accelerations per pair of spacings on a grid; the best pair is kept.

    Args:
        driver: whose law is fitted.
        plant: the true system, in the same loop.
        episodes: per secret.
        steps: of each episode.
        key: randomness of the episodes.
    """
    count = plant.prior.secrets.shape[0]
    numbers = np.arange(episodes * count, dtype=np.int32)

    def episode(number: Int[Array, ""]) -> tuple[Array, Array]:
        return true_data_path(plant, steps, number=number, key=key)

    states, external = evaluate(jax.vmap(episode), numbers)
    states, ahead = states.astype(float), np.asarray(driver.inputs(jnp.asarray(external)).automated_speed)
    speed, gap = states[:, :-1, 0], states[:, :-1, 1]
    targets = np.diff(states[:, :, 0], axis=1) / float(driver.dt)
    found = []
    for own in range(count):
        rows = numbers % count == own
        tried = [
            _gains(
                speed[rows],
                gap[rows],
                ahead[rows],
                targets[rows],
                (stop, go),
                float(driver.top_speed),
            )
            for stop in np.arange(1.0, 10.0)
            for go in np.arange(stop + 15.0, 60.0, 3.0)
        ]
        found.append(min(tried, key=lambda one: one[0])[1])
    return np.asarray(found)


def _gains(
    speed: np.ndarray, gap: np.ndarray, ahead: np.ndarray, targets: np.ndarray, spacings: tuple, top: float
) -> tuple[float, tuple[float, ...]]:
    """Mean square of what is left, and the four numbers, with gains of zero at least."""
    stop, go = spacings
    wanted = 0.5 * top * (1.0 - np.cos(np.pi * np.clip((gap - stop) / (go - stop), 0.0, 1.0)))
    terms = np.stack([(wanted - speed).ravel(), (ahead - speed).ravel()], axis=1)
    gains = np.maximum(np.linalg.lstsq(terms, targets.ravel())[0], 0.0)
    return float(np.mean((targets.ravel() - terms @ gains) ** 2)), (*gains.tolist(), float(stop), float(go))

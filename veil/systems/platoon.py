"""A leader, an automated vehicle, and a human driver behind it whose driving style is the secret.

The driver follows the full velocity difference model with two secret gains and shares its speed and spacing
with the automated vehicle. The automated vehicle uses them in its controller, so that a release acts back on
the driver. Two other platoons are plants that the model does not describe: a driver whose errors last for
seconds, and a driver who follows the Intelligent Driver Model.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from veil import linalg
from veil.laws import Gaussian, diagonal_gaussian
from veil.registry import SYSTEMS
from veil.systems.base import Field, Nouns, Prior, Scenario, System, finite_prior
from veil.systems.probes import evaluate, true_data_path
from veil.systems.variants import Variant
from veil.systems.vehicles import (
    Controller,
    Leader,
    Pair,
    controller_gains,
    fuel_rate,
    leader_model,
    optimal_velocity,
    pair,
)
from veil.types import Answer, External, Key, Noise, Scalar, Secret, Shared, State, as_number

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

_QUANTITIES = (
    Field("mean squared acceleration", "m²/s⁴"),
    Field("mean squared change of acceleration", "m²/s⁴"),
    Field("smallest gap", "m"),
    Field("time to collision", "s"),
)

_NOUNS = Nouns("the driver", "the driving style", "driver")

NEVER = 100.0  # time to collision where nobody closes in, s

_FREE = 0.9  # accelerations within this fraction of the limits count as free of them

_WHITE = 0.2  # fraction of the acceleration's sd that stays white where the rest is coloured


@SYSTEMS.register("platoon", "a leader, an automated vehicle, and a human driver whose style is the secret")
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
    quantity_fields = _QUANTITIES
    nouns = _NOUNS

    @property
    def step_seconds(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The length of a step."""
        return self.dt

    def initial(self, secret: Secret) -> Gaussian:
        """Around equilibrium, the same for every secret."""
        del secret
        return diagonal_gaussian(self.equilibrium, self.initial_sd)

    def initial_external(self) -> Answer:
        """All vehicles start at the equilibrium."""
        speed, spacing = self.equilibrium
        return jnp.stack([speed, speed, spacing])

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, Gaussian around the limited mean."""
        mean = follow(self, secret, state, external, jnp.zeros_like(self.dt))
        return diagonal_gaussian(mean, jnp.stack([self.dt * self.acceleration_sd, self.spacing_sd]))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The leader and the automated vehicle move; without a release the follower's terms are zero."""
        leader, speed, spacing = external
        cruise, distance = self.equilibrium
        push = self.controller.own @ jnp.stack([spacing - distance, speed - cruise])
        if shared is not None:
            push = push + self.controller.follower @ jnp.stack([shared[1] - distance, shared[0] - cruise])
        faster = accelerate(self, speed, push)
        further = spacing + self.dt * (leader - speed) + self.automated_spacing_sd * noise[1]
        return jnp.stack([self.leader(leader, cruise, self.dt, noise[0]), faster, further])

    def cost(self, secret: Secret, state: State, after: State, shared: Shared, external: External) -> Scalar:
        """The driver's fuel in mL/s; the acceleration is the realised one, noise included."""
        del secret, shared, external
        return fuel_rate(state[0], (after[0] - state[0]) / self.dt)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Weighted Euclidean distance; its gradient at distance zero is set to zero."""
        return linalg.weighted_distance(self.distortion_weights, shared - state)

    def output(self, state: State) -> Shared:
        """The true speed and spacing."""
        return state

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """Mean squared acceleration and its change, smallest gap, shortest time to collision."""
        del shared
        speed, gap = states[:, 0], states[:, 1]
        acceleration = (speed[1:] - speed[:-1]) / self.dt
        change = acceleration[1:] - acceleration[:-1]
        closing = speed[:-1] - external[:, 1]
        time = jnp.where(closing > 0, gap[:-1] / jnp.where(closing > 0, closing, 1.0), NEVER)
        return jnp.stack(
            [
                jnp.mean(acceleration**2),
                jnp.sum(change**2) / max(change.shape[0], 1),
                jnp.min(gap),
                jnp.minimum(jnp.min(time), NEVER),
            ]
        )

    def scenarios(self) -> tuple[Scenario, ...]:
        """Drivers of the Intelligent Driver Model, and coloured noise."""
        return idm_drivers(self), coloured_noise(self)

    def misspecified_models(self) -> Mapping[str, System]:
        """The two other platoons, if their drivers can stand for these."""
        if len(self.prior.secrets) != len(IDM_DRIVERS):
            return {}
        return {"noise is coloured": ColouredPlatoon(self), "drivers are IDM": IdmPlatoon(self)}


@SYSTEMS.register("coloured_platoon", "a platoon with a driver who errs for seconds, not for one step")
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
    quantity_fields = _QUANTITIES
    nouns = _NOUNS

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

    @property
    def step_seconds(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in the inner platoon."""
        return self.inner.dt

    def initial(self, secret: Secret) -> Gaussian:
        """The inner platoon's start, with a stationary acceleration error."""
        start = self.inner.initial(secret)
        sd = jnp.append(self.inner.initial_sd, self.coloured_sd)
        return diagonal_gaussian(jnp.append(start.mean, jnp.zeros_like(self.coloured_sd)), sd)

    def initial_external(self) -> Answer:
        """As in the inner platoon."""
        return self.inner.initial_external()

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver and of the acceleration error."""
        keep = jnp.exp(-self.inner.dt / self.correlation_time)
        moved = follow(self.inner, secret, state[:2], external, state[2])
        white = jnp.stack([self.inner.dt * self.inner.acceleration_sd, self.inner.spacing_sd])
        fresh = jnp.sqrt(-jnp.expm1(-2.0 * self.inner.dt / self.correlation_time)) * self.coloured_sd
        return diagonal_gaussian(jnp.append(moved, keep * state[2]), jnp.append(white, fresh))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """As in the inner platoon."""
        return self.inner.react(external, shared, noise)

    def cost(self, secret: Secret, state: State, after: State, shared: Shared, external: External) -> Scalar:
        """As in the inner platoon: fuel in mL/s."""
        return self.inner.cost(secret, state[:2], after[:2], shared, external)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """As in the inner platoon, on speed and spacing."""
        return self.inner.distortion(state[:2], shared)

    def output(self, state: State) -> Shared:
        """Speed and spacing; the acceleration error stays private."""
        return state[:2]

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """As in the inner platoon."""
        return self.inner.quantities(states, external, shared)


IDM_DRIVERS = ((0.5, 1.0), (1.0, 1.5), (1.7, 2.0), (2.6, 3.0))
"""Four drivers from timid to brisk: (maximal acceleration a, comfortable deceleration b), both in m/s²."""

# Below this spacing, in m, the law brakes as if it were this: far beyond the limits already.
_LEAST_SPACING = 0.1


@SYSTEMS.register("idm_platoon", "a platoon with a driver who follows the Intelligent Driver Model")
class IdmPlatoon(Variant):
    """The platoon with a driver of secret (a, b); all but the driver's acceleration is the inner platoon's.

    The acceleration is a (1 − (v/v0)⁴ − (s*/s)²) at speed v and spacing s, with the wanted spacing
    s* = s0 + max(0, v T + v (v − speed ahead) / (2 sqrt(a b))) and the inner platoon's top speed as v0. The
    time gap T is such that the inner platoon's equilibrium is one for every driver.

    Attributes:
        inner: the platoon; its prior speaks of another law and is not used.
        prior: secrets (a, b) in m/s², by default four, equally likely.
        standing_spacing: s0, the spacing wanted at rest, m.
    """

    inner: Platoon
    prior: Prior
    standing_spacing: Scalar

    def __init__(
        self, inner: Platoon | None = None, *, prior: Prior | None = None, standing_spacing: ArrayLike = 2.0
    ):
        self.inner = Platoon() if inner is None else inner  # pyright: ignore[reportIncompatibleVariableOverride]
        self.prior = finite_prior(IDM_DRIVERS) if prior is None else prior
        self.standing_spacing = as_number(standing_spacing)

    @property
    def secret_fields(self) -> tuple[Field, ...]:
        """The two numbers of the driver."""
        return (Field("acceleration", "m/s^2", 0.0), Field("deceleration", "m/s^2", 0.0))

    @property
    def time_gap(self) -> Scalar:
        """T in s: (s sqrt(1 − (v/v0)⁴) − s0) / v at equilibrium (v, s), where nobody accelerates."""
        speed, spacing = self.inner.equilibrium
        free = 1.0 - (speed / self.inner.top_speed) ** 4
        return (spacing * jnp.sqrt(free) - self.standing_spacing) / speed

    def push(self, secret: Secret, state: State, ahead: Scalar) -> Scalar:
        """The acceleration that the driver wants, before noise and limits.

        Args:
            secret: maximal acceleration a and comfortable deceleration b, m/s².
            state: speed in m/s and spacing in m.
            ahead: speed of the vehicle ahead, m/s.
        """
        highest, comfortable = secret
        speed, spacing = state[0], jnp.maximum(state[1], _LEAST_SPACING)
        closing = speed * (speed - ahead) / (2.0 * jnp.sqrt(highest * comfortable))
        wanted = self.standing_spacing + jnp.maximum(0.0, speed * self.time_gap + closing)
        return highest * (1.0 - (speed / self.inner.top_speed) ** 4 - (wanted / spacing) ** 2)

    def initial(self, secret: Secret) -> Gaussian:
        """The inner platoon's, the same for every secret."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, with the inner platoon's limits and noise."""
        inner, (speed, spacing), ahead = self.inner, state, external[1]
        faster = accelerate(inner, speed, self.push(secret, state, ahead))
        mean = jnp.stack([faster, spacing + inner.dt * (ahead - speed)])
        return diagonal_gaussian(mean, jnp.stack([inner.dt * inner.acceleration_sd, inner.spacing_sd]))


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


def coloured_noise(platoon: Platoon) -> Scenario:
    """The driver errs for seconds: the same sd of the acceleration, nearly all of it coloured."""
    sd = platoon.acceleration_sd
    inner = eqx.tree_at(lambda it: it.acceleration_sd, platoon, _WHITE * sd)
    plant = ColouredPlatoon(inner, coloured_sd=(1.0 - _WHITE**2) ** 0.5 * sd)
    return Scenario("coloured noise", plant, platoon.prior.secrets)


def idm_drivers(platoon: Platoon) -> Scenario:
    """Drivers of the Intelligent Driver Model whom the owner takes for the platoon's, by its best fit."""
    plant = IdmPlatoon(platoon)
    gains = fit_gains(platoon, plant, key=jr.key(0)).gains
    return Scenario("idm drivers", plant, jnp.asarray(gains, platoon.prior.secrets.dtype))


class GainFit(eqx.Module):
    """Least squares of the platoon's law per true secret: gains in 1/s, their standard errors, residual.

    The residual sd is in m/s² and holds the noise of the driver as well. The standard errors hold for white
    residuals, hence for a plant that follows the law.
    """

    gains: Float[np.ndarray, "K 2"]
    standard_errors: Float[np.ndarray, "K 2"]
    residual_sd: Float[np.ndarray, " K"]


def fit_gains(platoon: Platoon, plant: System, *, episodes: int = 64, steps: int = 50, key: Key) -> GainFit:
    """What an owner would take the drivers of a plant for, from its own true data.

    Least squares of the realised accelerations on θ1 (V(spacing) − speed) + θ2 (speed ahead − speed). Steps
    near the acceleration limits are left out: there the law does not speak.

    Args:
        platoon: whose law is fitted.
        plant: the true system, with (speed, spacing) as leading coordinates of its state.
        episodes: per secret.
        steps: of each episode.
        key: randomness of the episodes.
    """
    count = plant.prior.secrets.shape[0]

    def episode(number: Int[Array, ""]) -> tuple[Array, Array]:
        states, external = true_data_path(plant, steps, number=number, key=key)
        return jax.vmap(_regression, (None, 0, 0, 0))(platoon, states[:-1], states[1:], external)

    numbers = np.arange(episodes * count, dtype=np.int32)
    terms, accelerations = evaluate(jax.vmap(episode), numbers)
    low, high = _FREE * np.asarray(platoon.acceleration_limits)
    free = (low < accelerations) & (accelerations < high)
    own = [free & (numbers % count == i)[:, None] for i in range(count)]
    fits = [_least_squares(terms[kept], accelerations[kept]) for kept in own]
    return GainFit(*(np.stack(column) for column in zip(*fits, strict=True)))


def _regression(platoon: Platoon, state: State, after: State, external: External) -> tuple[Array, Scalar]:
    """What the two gains multiply in one step, and the acceleration that came out."""
    wanted = optimal_velocity(state[1], platoon.thresholds, platoon.top_speed)
    terms = jnp.stack([wanted - state[0], external[1] - state[0]])
    return terms, (after[0] - state[0]) / platoon.dt


def _least_squares(terms: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Coefficients, their standard errors and the residual sd, in double precision."""
    terms, targets = terms.astype(float), targets.astype(float)
    gains = np.linalg.lstsq(terms, targets)[0]
    residual_sd = np.asarray(np.sqrt(np.sum((targets - terms @ gains) ** 2) / (targets.size - gains.size)))
    return gains, residual_sd * np.sqrt(np.diagonal(np.linalg.inv(terms.T @ terms))), residual_sd

"""Scenarios: the system as modelled, and systems that differ from the model in which a policy is audited."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.policies.base import Policy
from veil.policies.plain import Truth
from veil.rollout import rollout
from veil.step import Record
from veil.systems.base import System, finite_prior
from veil.systems.idm_platoon import IdmPlatoon
from veil.systems.platoon import ColouredPlatoon, Platoon, optimal_velocity
from veil.systems.probes import evaluate
from veil.systems.variants import WithInitial, WithNoise, WithPrior
from veil.types import External, Key, Scalar, Secret, State, as_number

_MISJUDGED = 0.1  # relative sd of an owner's error about its secret

_BEYOND = 0.3  # how far beyond the ends of the prior, as a share of the secret

_TELLING = 0.5  # sd over the prior of the start's mean, as a share of the start's own sd

_NOISIER = 1.5

_FREE = 0.9  # accelerations within this share of the limits count as free of them

_WHITE = 0.2  # share of the acceleration's sd that stays white where the rest is coloured


class Scenario(eqx.Module):
    """Where a policy is played, and what the owner takes its secret for there.

    Attributes:
        name: a short name for tables.
        plant: the true system; its prior lists the true secrets, in the order of the classes.
        believed: per true secret, what the owner takes it for in the terms of its own model.
        error: relative sd of the owner's error; each episode and number of a secret has its own.
    """

    name: str = eqx.field(static=True)
    plant: System
    believed: Float[Array, "K P"]
    error: Scalar = eqx.field(default=0.0, converter=as_number)

    def __check_init__(self):
        if self.believed.shape[0] != self.plant.prior.secrets.shape[0]:
            raise ValueError(
                f"Give one believed secret per secret of the plant: {self.plant.prior.secrets.shape[0]}, "
                f"not {self.believed.shape[0]}."
            )

    def taken_for(self, index: Int[Array, ""], *, key: Key) -> Secret:
        """What the owner of secret `index` takes it for in one episode."""
        secret = self.believed[index]
        return secret * (1.0 + self.error * jr.normal(key, secret.shape, secret.dtype))


def play(scenario: Scenario, policy: Policy, steps: int, *, number: Int[Array, ""] | int, key: Key) -> Record:
    """Play one episode of a scenario.

    Args:
        scenario: the plant, and what the owner believes.
        policy: the one in force, with its own model.
        steps: T, the number of releases.
        number: of the episode; secrets take turns by it, and it is the public seed.
        key: of the whole set of episodes. Scenarios played with one key share their random numbers.
    """
    number = jnp.asarray(number, jnp.int32)
    error_key, run_key = jr.split(jr.fold_in(key, number))
    index = number % scenario.believed.shape[0]
    believed = scenario.taken_for(index, key=error_key)
    return rollout(
        scenario.plant, policy, steps, public_seed=number, key=run_key, index=index, believed=believed
    )


def nominal(system: System) -> Scenario:
    """The scenario in which the system is as modelled."""
    return Scenario("as modelled", system, system.prior.secrets)


def other_scenarios(system: System) -> tuple[Scenario, ...]:
    """Scenarios that a policy made for this system may meet.

    For a platoon: another car-following law, coloured noise, a misjudged secret, secrets between and outside
    the assumed ones, a start that tells. For other systems more noise stands in for the first two.
    """
    general = (misjudged_secret(system), secrets_between(system), secrets_outside(system))
    if isinstance(system, Platoon):
        return (idm_drivers(system), coloured_noise(system), *general, telling_start(system))
    return (*general, telling_start(system), more_noise(system))


def misjudged_secret(system: System) -> Scenario:
    """The owner knows each number of its secret up to 10 %."""
    return Scenario("misjudged secret", system, system.prior.secrets, _MISJUDGED)


def secrets_between(system: System) -> Scenario:
    """True secrets halfway between neighbours of the prior, known to the owner; one class fewer."""
    secrets = _ordered(system)
    if len(secrets) < 2:
        raise ValueError("Between the secrets of a prior there is room only if it has at least two.")
    return _with_secrets("secrets between", system, 0.5 * (secrets[1:] + secrets[:-1]))


def secrets_outside(system: System) -> Scenario:
    """Two true secrets, known to the owner: the ends of the prior, each pushed 30 % further out.

    The ends are the first and the last by the first number of the secret. For positive secrets that grow
    together they are 0.7 times the least and 1.3 times the greatest; the ranges of the fields are kept.
    """
    ends = _ordered(system)[[0, -1]]
    outwards = np.sign(ends - ends[::-1])
    low = [field.low for field in system.secret_fields]
    high = [field.high for field in system.secret_fields]
    return _with_secrets(
        "secrets outside", system, np.clip(ends + _BEYOND * outwards * np.abs(ends), low, high)
    )


def telling_start(system: System) -> Scenario:
    """The mean of x_1 is linear in the secret, with half the start's own sd as its sd over the prior.

    The unit is the sd of x_1 and of one step's noise together, so that a start from one point moves as well.
    """
    masses, secrets = np.exp(system.prior.log_masses), np.asarray(system.prior.secrets)
    first, external = system.prior.secrets[0], system.initial_external()

    def covariance() -> Array:
        start = system.initial(first)
        return start.covariance + system.transition(first, start.mean, external).covariance

    unit = np.sqrt(np.diagonal(evaluate(covariance)))
    centred = secrets - masses @ secrets
    sd = np.sqrt(masses @ centred**2)
    direction = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0.0)
    length = np.sqrt(masses @ (centred @ direction) ** 2)
    slope = _TELLING * unit[:, None] * direction[None, :] / (length if length > 0.0 else 1.0)
    return Scenario("telling start", WithInitial(system, slope=slope), system.prior.secrets)


def more_noise(system: System) -> Scenario:
    """The transition has one and a half times the noise."""
    return Scenario("more noise", WithNoise(system, _NOISIER), system.prior.secrets)


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
    scenario, policy = nominal(plant), Truth(platoon)

    def episode(number: Int[Array, ""]) -> tuple[Array, Array]:
        record = play(scenario, policy, steps, number=number, key=key)
        path = record.states[:-1], record.states[1:], record.public.external
        return jax.vmap(_regression, (None, 0, 0, 0))(platoon, *path)

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


def _ordered(system: System) -> np.ndarray:
    """The secrets of the prior, sorted by their numbers, the first one first."""
    secrets = np.asarray(system.prior.secrets)
    return secrets[np.lexsort(secrets.T[::-1])]


def _with_secrets(name: str, system: System, secrets: np.ndarray) -> Scenario:
    """A scenario with other secrets, equally likely and known to the owner."""
    prior = finite_prior(secrets)
    return Scenario(name, WithPrior(system, prior), prior.secrets)

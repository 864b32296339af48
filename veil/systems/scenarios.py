"""Scenarios: the system as modelled, and systems that differ from the model in which a policy is audited."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.systems.base import Scenario, System, finite_prior, require_rows, series_of
from veil.systems.probes import evaluate
from veil.systems.variants import WithInitial, WithNoise, WithPrior, WithSeries
from veil.types import External, Key, State

_MISJUDGED = 0.1  # relative sd of an owner's error about its secret

_BEYOND = 0.3  # how far beyond the ends of the prior, as a fraction of the secret

_TELLING = 0.5  # sd over the prior of the start's mean, as a fraction of the start's own sd

_NOISIER = 1.5


def nominal(system: System) -> Scenario:
    """The scenario in which the system is as modelled."""
    return Scenario("as modelled", system, system.prior.secrets)


def other_scenarios(system: System) -> tuple[Scenario, ...]:
    """Scenarios that a policy made for this system may meet.

    Every system has a misjudged secret, secrets between and outside the assumed ones, and a start that tells;
    one with exogenous series also another time. In addition come the system's own scenarios; for a system
    without any, more noise.
    """
    general = (misjudged_secret(system), secrets_between(system), secrets_outside(system))
    series, own = series_of(system), system.scenarios()
    if series is not None and series.names:
        general = (*general, another_time(system))
    if own:
        return (*own, *general, telling_start(system))
    return (*general, telling_start(system), more_noise(system))


def other_plants(system: System) -> tuple[Scenario, ...]:
    """Scenarios in which the plant moves by another law: the system's own, or more noise if it has none."""
    return system.scenarios() or (more_noise(system),)


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
    first, external = system.prior.secrets[0], system.first_external()

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


def another_time(system: System) -> Scenario:
    """The run begins halfway between its first row and the end of the exogenous series."""
    series = series_of(system)
    if series is None or not series.names:
        raise ValueError("Only a system with exogenous series has another time.")
    later = series.starting((series.start + series.rows) // 2)
    return Scenario("another time", WithSeries(system, later), system.prior.secrets)


def more_noise(system: System) -> Scenario:
    """The transition has one and a half times the noise."""
    return Scenario("more noise", WithNoise(system, _NOISIER), system.prior.secrets)


def true_data_path(
    system: System, steps: int, *, number: Int[Array, ""], key: Key
) -> tuple[Float[Array, "T_plus_1 N"], Float[Array, "T E"]]:
    """States and external inputs of an episode in which the true output is shared.

    The random numbers are those of `veil.rollout.play` with the same number and key.

    Args:
        system: the plant; its secrets take turns.
        steps: T, the number of releases.
        number: of the episode.
        key: of the whole set of episodes.
    """
    require_rows(system, steps)
    _, episode_key = jr.split(jr.fold_in(key, number))
    _, start_key, run_key = jr.split(episode_key, 3)
    secret = system.prior.secrets[number % system.prior.secrets.shape[0]]

    def step(
        now: tuple[State, External], step_key: Key
    ) -> tuple[tuple[State, External], tuple[Array, Array]]:
        state, external = now
        _, plant_key = jr.split(step_key)
        move_key, reply_key = jr.split(plant_key)
        law = system.transition(secret, state, external)
        after = law.sample(jr.normal(move_key, (law.noise_size,), law.mean.dtype))
        noise = jr.normal(reply_key, (system.reaction_noise_size,), external.dtype)
        return (after, system.next_external(external, system.output(state), noise)), (state, external)

    law = system.initial(secret)
    first = law.sample(jr.normal(start_key, (law.noise_size,), law.mean.dtype))
    start = (first, system.first_external())
    (last, _), (states, external) = jax.lax.scan(step, start, jr.split(run_key, steps))
    return jnp.concatenate([states, last[None]]), external


def _ordered(system: System) -> np.ndarray:
    """The secrets of the prior, sorted by their numbers, the first one first."""
    secrets = np.asarray(system.prior.secrets)
    return secrets[np.lexsort(secrets.T[::-1])]


def _with_secrets(name: str, system: System, secrets: np.ndarray) -> Scenario:
    """A scenario with other secrets, equally likely and known to the owner."""
    prior = finite_prior(secrets)
    return Scenario(name, WithPrior(system, prior), prior.secrets)

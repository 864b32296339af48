"""Scenarios: the system as modelled, and systems that differ from the model in which a policy is audited."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from veil.systems.base import Scenario, System, finite_prior, most_steps, series_of, state_grid
from veil.systems.coloured import WithColouredNoise
from veil.systems.disturbed import WithDrift, WithHeavyTails
from veil.systems.probes import evaluate, true_data_path
from veil.systems.series import CLOCK
from veil.systems.variants import WithInitial, WithNoise, WithNoiseBySecret, WithPrior, WithSeries

_MISJUDGED = 0.1  # relative sd of an owner's error about its secret

_OVERRATED = 0.2  # by how much an owner takes its secret for too large

_BEYOND = 0.3  # how far beyond the ends of the prior, as a fraction of the secret

_TELLING = 0.5  # sd over the prior of the start's mean, as a fraction of the start's own sd

_NOISIER = 1.5

_APART = 2.0  # noise of the last secret against that of the first one, where it depends on the secret

_KEEP, _WHITE = 0.8, 0.3  # of coloured noise: what it keeps per step, and the part that stays white

_DEGREES = 5.0  # of freedom of Student's t, where noise has heavy tails

_DRIFT = 0.2  # of the secret, from the first step to the last

_COARSE = 0.5  # step of a sensor that is coarser than stated, in sd of a step's noise; at least twice stated

_PUSH = 3.0  # what an active adversary adds, in sd of the change of w from step to step under true data

_PATHS = 32  # episodes that this sd is taken from

Excitation = Literal["steps", "sines", "binary sequence"]


def nominal(system: System) -> Scenario:
    """The scenario in which the system is as modelled."""
    return Scenario("as modelled", system, system.prior.secrets)


def brief_scenarios(system: System, steps: int) -> tuple[Scenario, ...]:
    """The few scenarios that every audit tries: those in which the built-in policies lost most.

    They are the first other plant of the system itself (more noise where it has none), noise that depends on
    the secret, an overrated secret, a start that tells, and an active adversary. All but the plant of the
    system itself are one program: they differ in numbers only.

    Args:
        system: any system.
        steps: of a run.
    """
    secrets, plain, slope = system.prior.secrets, np.ones(len(system.prior.secrets)), _telling_slope(system)
    binary = pushes(system, steps, "binary sequence")

    def found(
        name: str,
        *,
        factors: np.ndarray = plain,
        believed: Array = secrets,
        slope: np.ndarray = 0.0 * slope,
        push: np.ndarray = 0.0 * binary,
    ) -> Scenario:
        plant = WithInitial(WithNoiseBySecret(system, factors), slope=slope)
        return Scenario(name, plant, believed, push=jnp.asarray(push, secrets.dtype))

    own = system.scenarios()[:1] or (found("more noise", factors=_NOISIER * plain),)
    general = (
        found("noise by secret", factors=_factors(system)),
        found("overrated secret", believed=(1.0 + _OVERRATED) * secrets),
        found("telling start", slope=slope),
    )
    active = (found(_active("binary sequence"), push=binary),) if np.any(binary) else ()
    return (*own, *general, *active)


def other_scenarios(system: System, steps: int = 50) -> tuple[Scenario, ...]:
    """Scenarios that a policy made for this system may meet: the system's own, then those of every system.

    Every system has a misjudged and an overrated secret, secrets between and outside the assumed ones, a
    start that tells, more noise, noise that depends on the secret, is coloured or has heavy tails, a drifting
    secret, a sensor that is coarser than stated, and an active adversary with three excitations. One with
    exogenous series has another time as well. A scenario of the system itself stands in for a general one of
    the same name.

    Args:
        system: any system of at least two secrets.
        steps: of a run; a drift and excitations depend on it.
    """
    series, own = series_of(system), system.scenarios()
    general = [misjudged_secret(system), overrated_secret(system)]
    general += [secrets_between(system), secrets_outside(system)]
    if series is not None and series.names:
        general.append(another_time(system))
    general += [telling_start(system), more_noise(system), noise_by_secret(system), coloured_noise(system)]
    general += [heavy_tails(system), drifting_secret(system, steps)]
    sensor = coarse_sensor(system)
    general += [sensor] if any(sensor.coarse) else []
    active = [active_adversary(system, steps, kind) for kind in get_args(Excitation)]
    general += [one for one in active if one.push is not None and np.any(np.asarray(one.push))]
    taken = {one.name for one in own}
    return (*own, *(one for one in general if one.name not in taken))


def other_plants(system: System) -> tuple[Scenario, ...]:
    """Scenarios in which the plant moves by another law: the system's own, or more noise if it has none."""
    return system.scenarios() or (more_noise(system),)


def misjudged_secret(system: System) -> Scenario:
    """The owner knows each number of its secret up to 10 %."""
    return Scenario("misjudged secret", system, system.prior.secrets, _MISJUDGED)


def overrated_secret(system: System) -> Scenario:
    """The owner takes every number of its secret for 20 % larger than it is."""
    return Scenario("overrated secret", system, (1.0 + _OVERRATED) * system.prior.secrets)


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
    return Scenario("telling start", WithInitial(system, slope=_telling_slope(system)), system.prior.secrets)


def _telling_slope(system: System) -> np.ndarray:
    """Displacement of the start per unit of the secret, (N, P)."""
    masses, secrets = np.exp(system.prior.log_masses), np.asarray(system.prior.secrets)
    start, noise = _spreads(system)
    centred = secrets - masses @ secrets
    sd = np.sqrt(masses @ centred**2)
    direction = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0.0)
    length = np.sqrt(masses @ (centred @ direction) ** 2)
    unit = np.hypot(start, noise)
    return _TELLING * unit[:, None] * direction[None, :] / (length if length > 0.0 else 1.0)


def _spreads(system: System) -> tuple[np.ndarray, np.ndarray]:
    """The sd of x_1, and that of one step's noise there, per coordinate of the state."""
    first, external = system.prior.secrets[0], system.first_external()

    def covariances() -> tuple[Array, Array]:
        start = system.initial(first)
        return start.covariance, system.transition(first, start.mean, external).covariance

    start, noise = (np.sqrt(np.diagonal(one)) for one in evaluate(covariances))
    return start, noise


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


def noise_by_secret(system: System) -> Scenario:
    """The noise grows with the secret: from 0.71 times that of the model to 1.41 times, in equal ratios."""
    return Scenario("noise by secret", WithNoiseBySecret(system, _factors(system)), system.prior.secrets)


def _factors(system: System) -> np.ndarray:
    """On the noise, per secret of the prior: in equal ratios along the order of the secrets."""
    secrets = np.asarray(system.prior.secrets)
    order = np.lexsort(secrets.T[::-1])
    factors = np.ones(len(secrets))
    factors[order] = np.geomspace(_APART**-0.5, _APART**0.5, len(secrets)) if len(secrets) > 1 else 1.0
    return factors


def coloured_noise(system: System) -> Scenario:
    """Noise of the modelled size; 70 % of its variance are coloured and keep 0.8 of themselves per step."""
    return Scenario("coloured noise", WithColouredNoise(system, _KEEP, _WHITE), system.prior.secrets)


def heavy_tails(system: System) -> Scenario:
    """Noise of the size that the model says, by Student's t with 5 degrees of freedom."""
    return Scenario("heavy tails", WithHeavyTails(system, _DEGREES), system.prior.secrets)


def drifting_secret(system: System, steps: int) -> Scenario:
    """The secret grows by 20 % from the first step to the last; the owner takes it for the first one."""
    plant = WithDrift(system, _DRIFT / max(steps - 1, 1))
    return Scenario("drifting secret", plant, system.prior.secrets)


def coarse_sensor(system: System) -> Scenario:
    """The sensor rounds to half the sd of a step's noise, or to twice what is stated if that is coarser."""
    noise, stated = _spreads(system)[1], np.asarray(state_grid(system))
    steps = tuple(float(step) for step in np.maximum(2.0 * stated, _COARSE * noise))
    return Scenario("coarse sensor", system, system.prior.secrets, coarse=steps)


def active_adversary(system: System, steps: int, kind: Excitation) -> Scenario:
    """Somebody excites the public input and knows how; see `pushes` for the limits.

    Args:
        system: any system.
        steps: of a run.
        kind: of the excitation.
    """
    push = jnp.asarray(pushes(system, steps, kind), system.prior.secrets.dtype)
    return Scenario(_active(kind), system, system.prior.secrets, push=push)


def _active(kind: Excitation) -> str:
    return f"active adversary, {kind}"


def pushes(system: System, steps: int, kind: Excitation) -> np.ndarray:
    """What an active adversary adds to the public input, (T, E) for all fields but the clock.

    At most three times the sd of the change of each input from step to step while true data are shared.
    Private series, and inputs that never change, are left alone.

    Args:
        system: any system.
        steps: T.
        kind: "steps": up in the second quarter of the run, down in the third. "sines": of 12 steps, the
            fields a quarter of that apart. "binary sequence": pseudo-random signs, each for two steps.
    """
    fields = [one for one in system.input_fields if one is not CLOCK]
    time = np.arange(steps)[:, None]
    if kind == "steps":
        quarter = 4 * time // max(steps, 1)
        shape = np.where(quarter == 1, 1.0, np.where(quarter == 2, -1.0, 0.0)) * np.ones(len(fields))
    elif kind == "sines":
        shape = np.sin(2.0 * np.pi * (time + 3 * np.arange(len(fields))) / 12.0)
    else:
        signs = _maximal_sequence()
        shape = signs[(time // 2 + 17 * np.arange(len(fields))) % len(signs)]
    public = np.asarray([not one.private for one in fields], float)
    return _PUSH * _changes(system, steps) * public * shape


def _changes(system: System, steps: int) -> np.ndarray:
    """The sd of the change of each input from step to step, under true data; without the clock."""
    size = len(system.input_fields) - system.has_clock
    steps = min(steps, most_steps(system))
    if steps < 2 or size == 0:
        return np.zeros(size)

    def paths(numbers: Int[Array, " B"]) -> Array:
        def one(number: Int[Array, ""]) -> Array:
            return jnp.diff(true_data_path(system, steps, number=number, key=jr.key(0))[1], axis=0)

        return jax.vmap(one)(numbers)

    return np.std(evaluate(paths, jnp.arange(_PATHS, dtype=jnp.int32)), axis=(0, 1))[:size]


def _maximal_sequence() -> np.ndarray:
    """Signs of a shift register of 7 bits with feedback x⁷ + x⁶ + 1, all 127 of a period."""
    register, signs = 1, []
    for _ in range(127):
        signs.append(1.0 if register & 1 else -1.0)
        feedback = (register ^ (register >> 1)) & 1
        register = (register >> 1) | (feedback << 6)
    return np.asarray(signs)


def _ordered(system: System) -> np.ndarray:
    """The secrets of the prior, sorted by their numbers, the first one first."""
    secrets = np.asarray(system.prior.secrets)
    return secrets[np.lexsort(secrets.T[::-1])]


def _with_secrets(name: str, system: System, secrets: np.ndarray) -> Scenario:
    """A scenario with other secrets, equally likely and known to the owner."""
    prior = finite_prior(secrets)
    return Scenario(name, WithPrior(system, prior), prior.secrets)

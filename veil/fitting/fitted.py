"""The system that a fit describes: the same law of motion with the noise and the prior of the recordings."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import DTypeLike, Float

from veil.beliefs.online import LEAST_SHAPE, Learned, Learner
from veil.beliefs.self_model import ResidualLaw, SelfModel, Sensor
from veil.policies.twin import Twin, plain_self_model
from veil.results.fit import Fit, Individual
from veil.systems.base import System, finite_prior
from veil.systems.coloured import WithColouredNoise
from veil.systems.variants import WithNoise, WithPrior

SLOWEST = 0.98  # share of coloured noise that is left after a step, at most

NO_COLOUR = 0.05  # autocorrelation of the noise after one step; less is taken as white

LEAST_WHITE = 0.02  # share of the noise that stays white, so that every state has noise of its own


def fitted_system(system: System, fit: Fit, individual: str | None = None) -> System:
    """A system with the noise and the prior that were fitted.

    The noise is that of an individual, or the median over all of them. Where it is coloured, it becomes a
    white part and a part that decays by a constant factor per step, with the autocorrelation of the fitted
    noise after one and two steps. Heavy tails and a size that depends on the state are left out: systems have
    Gaussian noise.
    The prior is that of the population, or that of the system where only one individual was recorded. The
    estimate of the individual that is asked for is one more secret.

    Args:
        system: that was fitted.
        fit: to recordings of it.
        individual: name of the one whose noise is used and whose estimate joins the prior; the only one if
            there is one, and none if the fit has no individual of this name.
    """
    if len(fit.individuals[0].noise_factor) != len(system.state_fields) or [
        one.name for one in fit.individuals[0].parameters
    ] != [field.name for field in system.secret_fields]:
        raise ValueError("This fit was made for another system. Fit again with `veil fit`.")
    alone = len(fit.individuals) == 1
    asked = [one for one in fit.individuals if alone or one.name == individual]
    factors = np.median([_factors(one, system, fit.axes) for one in asked or fit.individuals], axis=0)
    colours = np.median([_colour(one, system, fit.axes) for one in asked or fit.individuals], axis=0)
    known = np.asarray(system.prior.secrets) if fit.population is None else fit.population.secrets
    secrets = np.concatenate([known, *(one.values[None] for one in asked)])
    found = WithPrior(WithNoise(system, factors), finite_prior(secrets))
    if np.all(np.abs(colours[:, 0]) < NO_COLOUR):
        return found
    keep, white = zip(*(_decay(first, second) for first, second in colours), strict=True)
    return WithColouredNoise(found, np.asarray(keep), np.asarray(white))


def self_model(system: System, fit: Fit, individual: str | None = None, *, learn: bool = False) -> SelfModel:
    """The law of what an individual reads next, as it was fitted: with colour, heavy tails and size by state.

    Args:
        system: that was fitted.
        fit: to recordings of it.
        individual: name of the one; the only one if there is one.
        learn: whether it goes on learning its parameters and the sizes of its noise along the stream.
    """
    names = [one.name for one in fit.individuals]
    if individual is None and len(names) > 1:
        raise ValueError(f"Say whose self-model is wanted; this fit has {', '.join(names[:5])} ...")
    if individual is not None and individual not in names:
        raise ValueError(f"This fit has no individual {individual!r}; it has {', '.join(names[:5])} ...")
    one = fit.individuals[0 if individual is None else names.index(individual)]
    kind = system.prior.secrets.dtype
    steps = [fit.resolution.get(field.name, 0.0) for field in system.state_fields]
    seen = tuple(field.name in fit.axes for field in system.state_fields)
    law = ResidualLaw(*(jnp.asarray(one.law[name], kind) for name in ("memory", "level", "mixing", "tail")))
    return SelfModel(
        WithNoise(system, np.asarray(one.noise_factor)),
        jnp.asarray(one.values, kind),
        Sensor(seen, jnp.asarray(steps, kind), any(step > 0 for step in steps)),
        law,
        jnp.asarray(one.law["state_mean"], kind),
        jnp.asarray(one.law["state_sd"], kind),
        heavy=one.family.heavy,
        learner=_learner(one, len(fit.axes), kind) if learn else None,
    )


def _learner(one: Individual, coordinates: int, kind: DTypeLike) -> Learner:
    """Goes on from what the recording told, with the weight of its steps."""
    covariance = jnp.asarray(0.5 * (one.covariance + one.covariance.T), kind)
    shape = jnp.full(coordinates, max(0.5 * one.steps, LEAST_SHAPE), kind)
    many = jnp.broadcast_to(covariance, (coordinates, *covariance.shape))
    return Learner(Learned(jnp.zeros((coordinates, len(covariance)), kind), many, shape, shape - 1.0))


def as_well_known(
    twin: Twin, fit: Fit, individual: str | None = None, seed: int = 0, *, learn: bool = False
) -> Twin:
    """A twin whose owners know themselves as well as a fit does, for audits.

    The owner of each secret of the prior has a self-model whose parameters and sizes of noise are off by
    draws from the law of the errors of the fit. The exact reader of an audit then finds what these errors
    tell.

    Args:
        twin: without self-models of its own.
        fit: whose standard errors count.
        individual: name of the one; the first one if not given.
        seed: of the draws.
        learn: whether owners go on learning along the stream.
    """
    names = [one.name for one in fit.individuals]
    one = fit.individuals[names.index(individual) if individual in names else 0]
    secrets, rng = np.asarray(twin.system.prior.secrets), np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(0.5 * (one.covariance + one.covariance.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    off = rng.standard_normal(secrets.shape) @ root.T
    low = [field.low for field in twin.system.secret_fields]
    high = [field.high for field in twin.system.secret_fields]
    believed = np.clip(secrets + off, low, high)
    errors = np.array([each.standard_error / max(each.value, 1e-300) for each in one.noise])
    errors = np.minimum(np.nan_to_num(errors, nan=0.0), 1.0)
    sizes = np.ones((len(secrets), len(twin.system.state_fields)))
    sizes[:, : len(errors)] = np.exp(errors * rng.standard_normal((len(secrets), len(errors))))
    kind, steps = twin.system.prior.secrets.dtype, jnp.zeros(len(twin.axes))
    models = [
        plain_self_model(WithNoise(twin.system, size), jnp.asarray(row, kind), twin.seen, steps.astype(kind))
        for row, size in zip(believed, sizes, strict=True)
    ]
    if learn:
        start = _learner(one, len(twin.axes), kind)
        models = [dataclasses.replace(model, learner=start) for model in models]
    return Twin(
        twin.system,
        models,
        secrets,
        sd=twin.sd,
        centre=twin.centre,
        start=twin.start_by,
        preroll=twin.preroll,
        public=twin.public,
        envelope=twin.envelope,
    )


def _factors(one: Individual, system: System, axes: tuple[str, ...]) -> Float[np.ndarray, " N"]:
    """Factor on the noise of each coordinate, so that its stationary size is that of the fitted noise."""
    found = np.array(one.noise_factor)
    for axis, name in enumerate(axes):
        place = [field.name for field in system.state_fields].index(name)
        found[place] *= np.sqrt(autocovariance(np.array(one.law["memory"][axis]))[0])
    return found


def _colour(one: Individual, system: System, axes: tuple[str, ...]) -> Float[np.ndarray, "N 2"]:
    """Autocorrelation of the noise of each coordinate after one and two steps."""
    found = np.zeros((len(system.state_fields), 2))
    for axis, name in enumerate(axes):
        place = [field.name for field in system.state_fields].index(name)
        covariance = autocovariance(np.array(one.law["memory"][axis]))
        found[place] = covariance[1:3] / covariance[0]
    return found


def autocovariance(memory: Float[np.ndarray, " L"], count: int = 3) -> Float[np.ndarray, " C"]:
    """Of an autoregressive process with unit innovations, by its impulse response.

    A process that would grow, or forget more slowly than a factor `SLOWEST` per step, is damped to it: one
    prediction may be made with such noise, but a system that moves by it for long would run away.

    Args:
        memory: coefficients of lag 1, 2, ...
        count: how many lags, from 0 on.
    """
    length, lags = 400, np.arange(1, len(memory) + 1)
    radius = float(np.max(np.abs(np.roots([1.0, *-memory])), initial=0.0))
    memory = memory * (SLOWEST / max(radius, SLOWEST)) ** lags
    response = np.zeros(length)
    response[0] = 1.0
    for t in range(1, length):
        past = response[max(0, t - len(memory)) : t][::-1]
        response[t] = float(memory[: len(past)] @ past)
    return np.array([response[lag:] @ response[: length - lag] for lag in range(count)])


def _decay(first: float, second: float) -> tuple[float, float]:
    """(r, q) with (1 − q) r = first and (1 − q) r² = second, as far as they are possible."""
    if abs(first) < NO_COLOUR:
        return 0.0, 0.5
    keep = float(np.clip(second / first, -SLOWEST, SLOWEST))
    if keep * first <= 0 or abs(keep) < abs(first):  # the noise forgets faster than any such process
        keep = float(np.clip(first / (1.0 - LEAST_WHITE), -SLOWEST, SLOWEST))
    return keep, float(np.clip(1.0 - first / keep, LEAST_WHITE, 1.0 - LEAST_WHITE))

"""What a way of sharing other than the truth tells along a recorded path, by the adversary that fits it."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.special import log_softmax

from veil.attacks.particle_filter import ParticleFilter
from veil.policies.base import Policy
from veil.recordings.posterior import (
    RecordedPath,
    fresh_releases,
    guide,
    innovations,
    read_noisy,
    releases_on_recording,
    same_whatever_the_secret,
)
from veil.recordings.reader import LogError
from veil.recordings.requirements import dependence
from veil.results.measurement import entropy, information_gain, posterior
from veil.settings import MeasureSettings
from veil.stats import Mean
from veil.step import first_law, release_kind
from veil.systems.base import System
from veil.types import Key, Secret

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Reading:
    """What an adversary got out of the releases.

    Attributes:
        log_likelihood: per draw of the noise, independent filter and secret.
        trail: posterior masses after each release, the mean over the draws.
        method: what it did.
        filtered: whether it needed particles.
    """

    log_likelihood: Float[np.ndarray, "D R K"]
    trail: Float[np.ndarray, "T K"]
    method: str
    filtered: bool


@dataclass(frozen=True)
class Summary:
    """Means over the draws.

    Attributes:
        masses: of the posterior.
        information: KL(posterior ‖ prior).
        drop: of the entropy.
        filter_error: what the filters add to the standard error of `information`.
        disagreement: distance in total variation of a filter's posterior from that of all filters of its
            draw; 1 for a filter that lost the releases under all secrets.
    """

    masses: Float[np.ndarray, " K"]
    information: Mean
    drop: Mean
    filter_error: float
    disagreement: float


def read_shared(
    model: System,
    policy: Policy,
    path: RecordedPath,
    believed: int,
    options: MeasureSettings,
    seen: tuple[bool, ...],
    progress: Progress,
) -> Reading:
    """Share along the path and read.

    Args:
        model: the reader's, which starts where the recording does.
        policy: made for it.
        path: the recording.
        believed: index of what the owner takes its secret for.
        options: the extent.
        seen: which coordinates of the state are recorded.
        progress: called with the stage, how many draws are done, and of how many.
    """
    _recorded_enough(model, policy, seen)
    steps, secret, key = int(path.length), model.prior.secrets[believed], jr.key(options.seed)
    if policy.has_memory:
        return _coupled(model, policy, path, secret, key)
    if release_kind(model, policy).fresh_law().is_point:
        gains, true = _held(model, policy, path, secret, key)
        if not bool(true):
            raise LogError(
                f"{type(policy).__name__} releases without noise something other than the output, for which "
                "there is no adversary here; give it a floor of noise."
            )
        found = np.asarray(gains)[:, :steps]
        method = "one linearised Gaussian filter per secret"
        return Reading(
            found.sum(axis=1)[None, None], _masses(model, np.cumsum(found, axis=1).T), method, False
        )
    swarm = ParticleFilter(model, policy, guide(policy), options.filter_particles)
    draws, trails = [], []
    for number, one in enumerate(jr.split(key, options.draws)):
        progress("filters", number, options.draws)
        noisy = read_noisy(swarm, secret, path.states, path.external, path.length, one)
        draws.append(np.asarray(noisy.log_likelihood))
        trails.append(np.exp(np.asarray(noisy.trail)[:steps]))
    progress("filters", options.draws, options.draws)
    return Reading(np.stack(draws), np.mean(trails, axis=0), "particle filters", True)


def summary(log_likelihood: Float[np.ndarray, "D R K"], log_prior: Float[np.ndarray, " K"]) -> Summary:
    """Bayes' rule per draw, the filters of a draw averaged; then means over the draws.

    The error is that over the draws, or that of the filters if it is larger or there is one draw.
    """
    draws, filters, _ = log_likelihood.shape
    pooled = posterior(log_prior, _averaged(log_likelihood))
    apart = posterior(log_prior, log_likelihood)
    before = entropy(np.exp(log_prior))

    def mean(of: Callable[[np.ndarray], float]) -> tuple[Mean, float]:
        values = np.array([of(one) for one in pooled])
        each = np.array([[of(one) for one in row] for row in apart])
        variance = each.var(axis=1, ddof=1) / filters if filters > 1 else np.zeros(draws)
        filter_error = float(np.sqrt(variance.sum())) / draws
        error = float(values.std(ddof=1) / np.sqrt(draws)) if draws > 1 else 0.0
        return Mean(float(values.mean()), max(error, filter_error)), filter_error

    gained, filter_error = mean(lambda one: information_gain(one, log_prior))
    drop, _ = mean(lambda one: before - entropy(np.exp(one)))
    distances = 0.5 * np.abs(np.exp(apart) - np.exp(pooled)[:, None]).sum(axis=2)
    lost = np.isnan(log_likelihood).any(axis=2) | ~np.isfinite(log_likelihood).any(axis=2)
    disagreement = float(np.where(lost, 1.0, distances).mean())
    return Summary(np.exp(pooled).mean(axis=0), gained, drop, filter_error, disagreement)


def discounted(log_likelihood: Float[np.ndarray, "D R K"], weight: float) -> Float[np.ndarray, "D 1 K"]:
    """The likelihood to a power, after averaging the filters."""
    return weight * _averaged(log_likelihood)[:, None]


def _averaged(log_likelihood: Float[np.ndarray, "D R K"]) -> Float[np.ndarray, "D K"]:
    """Log of the sum over the filters of a draw: their mean, up to a constant that no posterior sees."""
    return np.logaddexp.reduce(np.nan_to_num(log_likelihood, nan=-1e9, neginf=-1e9), axis=1)


def _recorded_enough(model: System, policy: Policy, seen: tuple[bool, ...]) -> None:
    """Refuse a policy that looks at a part of the state which is not recorded."""
    if all(seen):
        return
    used = np.ones(len(seen), bool)
    if not policy.has_memory:
        secret = model.prior.secrets[0]

        def law(state: Array) -> list[Array]:
            return jax.tree.leaves(eqx.filter(first_law(policy, secret, state), eqx.is_inexact_array))

        used = np.asarray(np.any(dependence(law, model.initial(secret).mean), axis=1))
    missing = [
        field.name for field, there, uses in zip(model.state_fields, seen, used, strict=True) if uses > there
    ]
    if missing:
        raise LogError(
            f"{type(policy).__name__} looks at {', '.join(missing)}, which is not recorded; give the column, "
            "or share the truth, with noise, quantised or sub-sampled."
        )


def _coupled(model: System, policy: Policy, path: RecordedPath, secret: Secret, key: Key) -> Reading:
    """A policy whose releases are the same whatever the secret tells nothing."""
    seed, steps = jnp.asarray(0, jnp.int32), int(path.length)
    check = eqx.filter_jit(same_whatever_the_secret)
    if not np.asarray(check(policy, secret, path.states, path.external, seed=seed, key=key))[:steps].all():
        raise LogError(
            f"the releases of {type(policy).__name__} along this recording would differ between secrets, and "
            "there is no adversary for them here."
        )
    nothing = np.zeros((1, 1, len(model.prior.secrets)))
    return Reading(
        nothing, _masses(model, np.zeros((steps, nothing.shape[2]))), "coupling of all secrets", False
    )


@eqx.filter_jit
def _held(
    model: System, policy: Policy, path: RecordedPath, secret: Secret, key: Key
) -> tuple[Float[Array, "K T"], Array]:
    """Gains in log-likelihood per secret and release, and whether fresh releases are the output."""
    public = releases_on_recording(
        policy, secret, path.states, path.external, seed=jnp.asarray(0, jnp.int32), key=key
    )
    fresh = fresh_releases(policy, public)
    true = jnp.all((public.shared == jax.vmap(model.output)(path.states)) | ~fresh[:, None])
    use = fresh & path.used

    def one(theta: Secret) -> Array:
        return jnp.sum(innovations(model, theta, public.shared, path.external, use).log_density, axis=1)

    return jax.vmap(one)(model.prior.secrets), true


def _masses(model: System, log_likelihood: Float[np.ndarray, "T K"]) -> Float[np.ndarray, "T K"]:
    return np.exp(log_softmax(np.asarray(model.prior.log_masses)[None] + log_likelihood, axis=1))

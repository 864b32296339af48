"""What a way of sharing tells about the secret: play episodes, let an adversary read along, score it.

The score of an episode is log(posterior mass of the true secret / its prior mass) after the last release.
Its mean is the leakage in nats if the posterior is exact, and a lower bound on it if it is not: a worse
adversary scores less on average, never more.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import stats

from veil.demos.adversaries import Adversary, Swarm
from veil.demos.ways import Way
from veil.policies import Policy
from veil.rollout import follow, rollout
from veil.systems.base import System
from veil.types import Key


@dataclass(frozen=True)
class Measurement:
    """What one adversary got out of one way of sharing.

    Attributes:
        way: what was measured.
        secrets: the secrets of the prior.
        entropy: H(q) in nats.
        chance: accuracy of guessing by the prior.
        index: true secret per episode.
        score: log(posterior / prior) of the true secret per episode, nats.
        posterior: mass on the true secret per episode and step.
        leakage: mean score, each secret weighted by its prior, and its standard error.
        calibration: mean score minus what the posterior itself claims, and its standard error; near zero
            if the posterior can be believed, below zero if it is too sure.
        correct: episodes in which the likeliest secret was the true one.
        distortion: mean over steps and episodes.
        effective: smallest effective sample size of the true secret as a share of its particles, the worst
            twentieth of the episodes; None without particles.
        lost: episodes in which no particle of the true secret explained a release.
        difference: score of the second adversary minus this one, and its standard error, if compared.
        compared: episodes compared.
    """

    way: Way
    secrets: np.ndarray
    entropy: float
    chance: float
    index: np.ndarray
    score: np.ndarray
    posterior: np.ndarray
    leakage: tuple[float, float]
    calibration: tuple[float, float]
    correct: int
    distortion: float
    effective: float | None
    lost: int
    difference: tuple[float, float] | None = None
    compared: int = 0

    @property
    def accuracy(self) -> tuple[float, float, float]:
        """Share of correct guesses with its 95 % Clopper-Pearson interval."""
        result = stats.binomtest(self.correct, len(self.index))
        interval = result.proportion_ci(0.95, method="exact")
        return float(result.statistic), float(interval.low), float(interval.high)


class _Traces(eqx.Module):
    """What is kept of each episode."""

    log_masses: Float[Array, "B T K"]
    effective: Float[Array, "B T K"]
    depleted: Bool[Array, "B T K"]
    distortion: Float[Array, " B"]


def measure(
    system: System,
    way: Way,
    episodes: int,
    steps: int,
    *,
    key: Key,
    progress: Callable[[int], None] = lambda done: None,
) -> Measurement:
    """Play episodes, equally many per secret, and score the adversary of `way` on them.

    The same key gives the same episodes whatever the adversary, so that two can be compared in pairs.

    Args:
        system: the world.
        way: how to share and who reads along.
        episodes: how many; rounded up to a multiple of the number of secrets, at least two per secret.
        steps: releases per episode.
        key: all randomness.
        progress: told the number of episodes done.
    """
    secrets = len(system.prior.log_masses)
    episodes = secrets * max(2, -(-episodes // secrets))
    index = np.arange(episodes, dtype=np.int32) % secrets
    parts: list[_Traces] = []
    for first in range(0, episodes, way.adversary.batch):
        numbers = np.arange(first, first + way.adversary.batch, dtype=np.int32)
        chosen = jnp.asarray(numbers % secrets)
        parts.append(_play(system, way.policy, way.adversary, steps, chosen, jnp.asarray(numbers), key))
        parts[-1].distortion.block_until_ready()
        progress(min(episodes, first + way.adversary.batch))
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *parts)
    return _summary(system, way, index, joined)


def compare(first: Measurement, second: Measurement) -> Measurement:
    """`first`, with the difference to `second` over the episodes that both saw."""
    count = len(second.index)
    apart = second.score - first.score[:count]
    error = float(np.std(apart, ddof=1) / np.sqrt(count))
    return replace(first, difference=(float(np.mean(apart)), error), compared=count)


def curve(measured: Measurement, secret: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean mass on the true secret per step where it is `secret`, and the standard error of the mean."""
    rows = measured.posterior[measured.index == secret]
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))


@eqx.filter_jit
def _play(
    system: System,
    policy: Policy,
    adversary: Adversary,
    steps: int,
    index: Int[Array, " B"],
    numbers: Int[Array, " B"],
    key: Key,
) -> _Traces:
    """A batch of episodes; an episode depends on its number only, not on the batch."""

    def one(secret: Array, number: Array) -> tuple[Array, ...]:
        play_key, start_key, read_key = jr.split(jr.fold_in(key, number), 3)
        record = rollout(
            system,
            policy,
            steps,
            public_seed=number,
            key=play_key,
            index=secret,
        )
        belief = adversary.start(system, key=start_key)
        trail = follow(system, policy, belief, record.public, key=read_key)
        apart = jax.vmap(system.distortion)(record.states[:-1], record.public.shared)
        return trail.log_masses, trail.health.effective, trail.health.depleted, jnp.mean(apart)

    return _Traces(*jax.vmap(one)(index, numbers))


def _summary(system: System, way: Way, index: np.ndarray, traces: _Traces) -> Measurement:
    """Scores and their statistics."""
    log_prior = np.asarray(system.prior.log_masses, float)
    prior, caution = np.exp(log_prior), way.adversary.caution
    forecast = (1.0 - caution) * np.exp(np.asarray(traces.log_masses, float)) + caution * prior
    rows = np.arange(len(index))
    posterior = forecast[rows, :, index]
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.log(posterior[:, -1]) - log_prior[index]
        claims = np.where(forecast[:, -1] > 0, forecast[:, -1] * (np.log(forecast[:, -1]) - log_prior), 0.0)
    shares = np.asarray(traces.effective, float)[rows, :, index].min(axis=1)
    shares = shares / way.adversary.count if isinstance(way.adversary, Swarm) else None
    return Measurement(
        way=way,
        secrets=np.asarray(system.prior.secrets),
        entropy=float(-(prior @ log_prior)),
        chance=float(prior.max()),
        index=index,
        score=score,
        posterior=posterior,
        leakage=_mean(score, index, prior),
        calibration=_mean(score - claims.sum(axis=1), index, prior),
        correct=int(np.sum(np.argmax(forecast[:, -1], axis=1) == index)),
        distortion=float(np.mean(traces.distortion)),
        effective=None if shares is None else float(np.quantile(shares, 0.05)),
        lost=int(np.sum(np.asarray(traces.depleted)[rows, :, index].any(axis=1))),
    )


def _mean(values: np.ndarray, index: np.ndarray, prior: np.ndarray) -> tuple[float, float]:
    """Mean over secrets by the prior and over the episodes of each, and its standard error."""
    groups = [values[index == k] for k in range(len(prior))]
    mean = prior @ np.array([group.mean() for group in groups])
    squares = np.array([np.var(group, ddof=1) / len(group) for group in groups])
    return float(mean), float(np.sqrt(prior**2 @ squares))

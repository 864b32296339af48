"""The leakage of whole runs from both sides.

With p̂_k an unbiased estimate of p(y|θ_k) and p̂* the estimate of a run that keeps the true path,

    E log p̂(θ*) − log Σ q p̂  (repaired)  ≤  I  ≤  E[ log p̂* − log Σ_k q_k p̂_k ],

in expectation and whatever the filter's quality: log is concave, E p̂_k = p(y|θ_k) and E[1/p̂*] = 1/p(y|θ*).
Each term is bounded by itself, so the runs may share random numbers, and do. An episode that two pilot runs
do not agree on is charged the most that any episode can tell, log 1/q(θ*); the pilots look at the public
transcript only, so that given it the true path stays a fair draw.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veil.attacks.bayes import plans
from veil.attacks.smc import Filter, Pin, public_steps
from veil.auditing.forecast import Forecast, pooled
from veil.auditing.statistics import Mean, stratified_mean
from veil.resampling import scaled_weights
from veil.rollout import Record
from veil.types import Key

DISAGREE = 1.5  # nats between two pilots in any log-likelihood: the episode is not understood
PILOT_A, PILOT_B, MAIN, APART = range(4)


class Sides(eqx.Module):
    """One episode, or many of them (batched [E])."""

    plain: Float[Array, "*E R K"]  # runs: two pilots, the main one, and perhaps one apart from it
    pinned: Float[Array, "*E"]  # the conditional run, with the random numbers of the main one
    effective: Float[Array, "*E"]
    rank: Float[Array, "*E N"]  # of the true x_T among the particles of the true secret


def both_sides(
    swarm: Filter, record: Record, length: Int[Array, ""], *, key: Key, apart: bool = False
) -> Sides:
    """Run the filters of all secrets and the conditional one on one episode of the model itself.

    Args:
        swarm: the filter; its system must be the one that was played.
        record: the episode, its true path included.
        length: releases to use.
        key: the auditor's randomness.
        apart: whether to add the run that components of the secret need.
    """
    public = public_steps(record.public, length)
    plan = plans(swarm, public)
    secrets = jnp.concatenate([swarm.system.prior.secrets, record.secret[None]])
    # The plan of the true secret once more, for the pinned run.
    plan = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[record.index][None]]), plan)
    states = record.states[:-1]
    pinned = jnp.arange(secrets.shape[0], dtype=jnp.int32) == secrets.shape[0] - 1

    def one(run_key: Key, secret: Array, own, pin: Bool[Array, ""]):
        path = Pin(states, jnp.broadcast_to(pin, states.shape[:1]))
        return swarm(secret, public, own, path, key=run_key)

    together = jax.vmap(jax.vmap(one, (None, 0, 0, 0)), (0, None, None, None))
    found = together(jr.split(key, APART + apart), secrets, plan, pinned)
    true = jax.tree.map(lambda leaf: leaf[MAIN, record.index], found.swarm)
    weights = scaled_weights(true.log_weights)
    below = jnp.sum(jnp.where(true.states < states[-1][None, :], weights[:, None], 0.0), axis=0)
    return Sides(
        found.log_likelihood[:, :-1],
        found.log_likelihood[MAIN, -1],
        jnp.min(found.effective[MAIN, :-1]),
        below / jnp.sum(weights),
    )


def bad_episodes(plain: np.ndarray) -> np.ndarray:
    """Episodes on which the two pilots disagree, or in which any number is not finite."""
    apart = np.abs(plain[:, PILOT_A] - plain[:, PILOT_B]).max(axis=1)
    return ~np.isfinite(plain).all(axis=(1, 2)) | ~(apart < DISAGREE)


def upper_scores(sides: Sides, index: np.ndarray, log_prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each episode is charged, and which episodes were charged the most possible."""
    plain, pinned = np.asarray(sides.plain), np.asarray(sides.pinned)
    with np.errstate(invalid="ignore"):
        bad = bad_episodes(plain[:, [PILOT_A, PILOT_B]])
        charged = pinned - np.logaddexp.reduce(log_prior + plain[:, MAIN], axis=1)
    # A number that is not finite in the main run counts as the worst too: never dropped, never helpful.
    unknown = ~np.isfinite(charged)
    return np.where(bad | unknown, -log_prior[index], charged), bad | unknown


def forecast_of(sides: Sides, index: np.ndarray, log_prior: np.ndarray) -> Forecast:
    """The auditor's forecast: the mean of its runs."""
    plain = np.moveaxis(np.asarray(sides.plain)[:, :APART], 1, 0)
    with np.errstate(invalid="ignore"):
        return Forecast(pooled(plain), index, log_prior)


def component_upper(sides: Sides, index: np.ndarray, log_prior: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """What each episode is charged for one component of the secret; `groups` is its value per secret.

    The numerator estimates p(y | group of θ*): the pinned run stands for θ*, runs with other random numbers
    for the rest of the group. Given y, the pair (θ*, path) is a draw from the posterior within the group, so
    the argument of the pinned run holds for the mixture as a whole.
    """
    plain, pinned = np.asarray(sides.plain), np.asarray(sides.pinned)
    numbers = np.where(np.arange(len(groups))[None, :] == index[:, None], pinned[:, None], plain[:, APART])
    same = groups[None, :] == groups[index][:, None]
    log_group = np.logaddexp.reduce(np.where(same, log_prior, -np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        inside = np.logaddexp.reduce(np.where(same, log_prior + numbers, -np.inf), axis=1) - log_group
        charged = inside - np.logaddexp.reduce(log_prior + plain[:, MAIN], axis=1)
        bad = bad_episodes(plain[:, [PILOT_A, PILOT_B]]) | ~np.isfinite(charged)
    return np.where(bad, -log_group, charged)


def upper_bound(sides: Sides, index: np.ndarray, log_prior: np.ndarray) -> Mean:
    """Mean charge: at least the leakage, in expectation."""
    return stratified_mean(upper_scores(sides, index, log_prior)[0], index, np.exp(log_prior))

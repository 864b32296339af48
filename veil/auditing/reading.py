"""Compiled readings of batches of episodes: both sides, curves over time, the receiver's estimate, use."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.attacks.guides import filtered_path
from veil.attacks.kalman import KalmanBank, Observer, Smooth
from veil.attacks.smc import public_steps
from veil.auditing.episodes import private_key
from veil.auditing.result import Curves
from veil.auditing.rungs import Rung
from veil.auditing.sandwich import Sides
from veil.auditing.utility import Use, use
from veil.policies import Policy
from veil.rollout import Record
from veil.systems.base import System
from veil.types import Key

TOGETHER = 4  # episodes that a particle filter takes on at once: what fits a processor's cache


@eqx.filter_jit
def sides_batch(
    rung: Rung,
    records: Record,
    numbers: Int[Array, " B"],
    length: Int[Array, ""],
    play_key: Key,
    key: Key,
    apart: bool,
) -> Sides:
    """Both sides of these episodes."""

    def one(both: tuple[Record, Int[Array, ""]]) -> Sides:
        record, number = both
        own, mine = private_key(play_key, number), jr.fold_in(key, number)
        return rung.sides(record, length, play_key=own, key=mine, apart=apart)

    return jax.lax.map(one, (records, numbers), batch_size=TOGETHER)


@eqx.filter_jit
def use_batch(system: System, records: Record) -> Use:
    """What these episodes cost and gave."""
    return jax.vmap(lambda record: use(system, record))(records)


class Followed(eqx.Module):
    """One episode by a Kalman bank: log-masses after each release, and the error of its estimate of x."""

    log_masses: Float[Array, "T K"]
    tracking: Float[Array, " Y"]  # mean square over the run


@eqx.filter_jit
def follow_batch(system: System, policy: Policy, exact: bool, records: Record, key: Key) -> Followed:
    """Posterior over time, and how well a receiver knows the output who knows the policy."""

    def one(record: Record) -> Followed:
        adversary = Observer(system, policy) if exact else KalmanBank(system, policy)
        log_masses = adversary.trail(record.public, key=key).log_masses
        true = jax.vmap(system.output)(record.states[:-1])
        if exact:
            return Followed(log_masses, jnp.mean((record.public.shared - true) ** 2, axis=0))
        public = public_steps(record.public)
        paths = jax.vmap(lambda secret: filtered_path(system, Smooth(policy), secret, public))
        means = jnp.einsum("tk,ktn->tn", jnp.exp(log_masses), paths(system.prior.secrets))
        error = jax.vmap(system.output)(means) - true
        return Followed(log_masses, jnp.mean(error**2, axis=0))

    return jax.vmap(one)(records)


def curves(log_masses: np.ndarray, index: np.ndarray, log_prior: np.ndarray) -> Curves:
    """Mean score and mean posterior of the true secret over time."""
    rows = np.arange(len(index))
    true = log_masses[rows, :, index]
    prior = np.exp(log_prior)
    groups = [true[index == secret] for secret in range(len(prior))]
    score = sum(prior[k] * (group.mean(axis=0) - log_prior[k]) for k, group in enumerate(groups))
    masses = [np.exp(group) for group in groups]
    return Curves(
        np.asarray(score),
        np.stack([group.mean(axis=0) for group in masses]),
        np.stack([group.std(axis=0) for group in masses]),
    )

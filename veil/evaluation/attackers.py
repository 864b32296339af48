"""Who attacks: those the threat model grants, those who know more, and those who are wrong."""

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from veil.attacks.base import Attack, Attacker, Evidence
from veil.attacks.kalman import KalmanBank
from veil.evaluation.episodes import Progress, episode_numbers, in_batches, select_episodes, silent
from veil.evaluation.scoring import Forecast, calibration, lower_bound
from veil.executors.base import Executor
from veil.io import Store
from veil.laws import Law
from veil.policies.base import Policy
from veil.registry import ATTACKS
from veil.results.parts import AttackResult
from veil.stats import stratified_mean, stratified_rate
from veil.step import Record, Transcript
from veil.systems.base import System
from veil.types import Key

ROLES = ("attack", "mismatched", "assisted")  # in the order of the tables


def attackers(system: System, policy: Policy, kind: Law, *, assisted: bool) -> tuple[Attacker, ...]:
    """All attackers of `veil.registry.ATTACKS` that apply; the learned one is trained apart.

    Args:
        system: the model.
        policy: the one in force.
        kind: the type of its release laws, see `veil.step.release_kind`.
        assisted: whether to include those who know more.
    """
    found = [one for name in ATTACKS for one in ATTACKS[name](system, policy, kind)]
    kept = [one for one in found if assisted or one.role != "assisted"]
    return tuple(sorted(kept, key=lambda one: ROLES.index(one.role)))


class Fixed(eqx.Module):
    """Makes the same attack for every episode. Unlike a lambda it is data, which can be sent and compared."""

    attack: Attack

    def __call__(self, record: Record) -> Attack:
        """The attack, whatever the record."""
        del record
        return self.attack


@eqx.filter_jit
def read_batch(attack: Attack, transcripts: Transcript, numbers: Int[Array, " B"], key: Key) -> Evidence:
    """Read these transcripts by an attack that needs nothing else."""

    def one(transcript: Transcript, number: Int[Array, ""]) -> Evidence:
        return attack(transcript, key=jr.fold_in(key, number))

    return jax.lax.map(lambda both: one(*both), (transcripts, numbers), batch_size=16)


@eqx.filter_jit
def attack_batch(
    make: Callable[[Record], Attack], records: Record, numbers: Int[Array, " B"], key: Key
) -> Evidence:
    """Read these transcripts."""

    def one(record: Record, number: Int[Array, ""]) -> Evidence:
        return make(record)(record.public, key=jr.fold_in(key, number))

    return jax.lax.map(lambda both: one(*both), (records, numbers), batch_size=16)


def run_attack(
    attacker: Attacker,
    records: Record,
    log_prior: np.ndarray,
    *,
    key: Key,
    began: float | None = None,
    progress: Progress = silent,
    store: Store | None = None,
    executor: Executor | None = None,
) -> AttackResult:
    """Let one attacker read episodes, and score what it finds.

    Args:
        attacker: who.
        records: the episodes; only an assisted attacker sees more than their public side.
        log_prior: of the secrets in these episodes.
        key: the attacker's randomness.
        began: when its training began, if it has one.
        progress: called with the stage, how many episodes are done, and of how many.
        store: keeps what was found.
        executor: who computes; this process if not given.
    """
    rows = np.arange(min(attacker.episodes, len(records.index)))
    trained = 0.0 if began is None else time.monotonic() - began
    program, first, shown = attack_batch, attacker.make, records
    if attacker.role != "assisted":  # the same attack for all episodes, which sees the public side only
        program, first = read_batch, attacker.make(select_episodes(records, np.asarray(0)))
        shown = records.public

    def own(part: np.ndarray) -> tuple:
        return (jax.tree.map(lambda leaf: leaf[part], shown), episode_numbers(part), key)

    given = {"executor": executor, "store": store, "kept": Evidence}
    found = in_batches(f"attack: {attacker.name}", program, (first,), own, rows, progress, **given)
    forecast = Forecast(np.asarray(found.value.log_likelihood), np.asarray(records.index)[rows], log_prior)
    return attack_result(attacker.name, attacker.role, forecast, trained + found.seconds, attacker.note)


def attack_result(name: str, role: str, forecast: Forecast, seconds: float, note: str = "") -> AttackResult:
    """The numbers of one attacker."""
    index, prior = forecast.index, forecast.prior
    return AttackResult(
        name,
        role,
        stratified_rate(forecast.hits(), index, prior),
        lower_bound(forecast),
        stratified_mean(forecast.scores(), index, prior),
        calibration(forecast),
        len(index),
        seconds,
        note,
    )


def several_episodes(forecast: Forecast, together: int = 4) -> Forecast:
    """What transcripts of the same secret tell together: their likelihoods multiply."""
    rows: list[np.ndarray] = []
    index: list[int] = []
    for secret in range(len(forecast.prior)):
        own = forecast.log_likelihood[forecast.index == secret]
        sets = len(own) // together
        rows.extend(own[: sets * together].reshape(sets, together, -1).sum(axis=1))
        index.extend([secret] * sets)
    # Interleaved, so that both halves of a repair see every secret.
    order = np.argsort(
        np.concatenate([np.arange(index.count(k)) for k in range(len(forecast.prior))]), kind="stable"
    )
    return Forecast(np.asarray(rows)[order], np.asarray(index)[order], forecast.log_prior)


def longer(system: System, policy: Policy) -> Attacker:
    """Who sees runs of twice the length."""
    return Attacker("twice the horizon", "assisted", Fixed(KalmanBank(system, policy)))

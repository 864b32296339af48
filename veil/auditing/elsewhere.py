"""Attackers trained on transcripts, and worlds that are not the model.

In another world the filters' claims do not hold, so what is measured there comes from a classifier that was
trained on that world's transcripts, and from a Kalman bank that has the right model of it.
"""

import time

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from veil.attacks.kalman import KalmanBank, Translated
from veil.attacks.training import train_attack
from veil.auditing.attackers import Attacker
from veil.auditing.context import Context
from veil.auditing.episodes import TRAINING, chosen, in_batches
from veil.auditing.reading import use_batch
from veil.auditing.result import AttackResult, WorldResult
from veil.auditing.statistics import stratified_mean
from veil.auditing.worlds import World, other_worlds
from veil.policies import PrivatePolicy
from veil.releases import exact_release
from veil.rollout import Record, Transcript

ELSEWHERE = 1024  # test episodes per world


def learned(context: Context, world: World, records: Record) -> AttackResult:
    """Train a classifier on fresh transcripts of a world and let it read the given ones."""
    began = time.monotonic()

    def played(numbers: Int[Array, " B"]) -> tuple[Int[Array, " B"], Transcript]:
        batch = np.asarray(numbers) + TRAINING
        made = context.play(context.policy, world, batch, "playing to train")
        return jnp.asarray(made.index), made.public

    def progress(done: int, total: int) -> None:
        context.progress("training an attacker", done, total)

    size = context.options.training
    attack, training = train_attack(
        played,
        world.plant.prior,
        episodes=size,
        validation=max(64, size // 8),
        key=context.train_key,
        progress=progress,
    )
    note = f"{size} transcripts, validation {training.best:+.3f} nats"
    attacker = Attacker("learned", "attack", lambda _: attack, note=note, key=world.name)
    prior = np.asarray(world.plant.prior.log_masses)
    return context.attack(attacker, records, began=began, log_prior=prior)


def worlds(context: Context) -> tuple[WorldResult, ...]:
    """The policy in every world that is not its model."""
    return tuple(_one_world(context, world) for world in other_worlds(context.system))


def _one_world(context: Context, world: World) -> WorldResult:
    prior = np.exp(np.asarray(world.plant.prior.log_masses))
    numbers = np.arange(-(-ELSEWHERE // len(prior)) * len(prior))
    records = context.play(context.policy, world, numbers, f"playing: {world.name}")
    found = [learned(context, world, records)]
    policy = context.policy
    if not isinstance(policy, PrivatePolicy) and not exact_release(context.kind):
        seen = Translated(policy, world.plant, world.believed)
        right = Attacker(
            "Kalman bank, right model", "attack", lambda _: KalmanBank(world.plant, seen), key=world.name
        )
        found.append(context.attack(right, records, log_prior=np.log(prior)))
    used = in_batches(
        "measuring use", lambda rows: use_batch(world.plant, chosen(records, rows)), numbers, context.progress
    )
    return WorldResult(
        world.name,
        stratified_mean(np.asarray(used.distortion), np.asarray(records.index), prior),
        tuple(found),
        float(-prior @ np.log(prior)),
        float(prior.max()),
    )

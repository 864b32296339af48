"""What is measured of one policy: each stage gives arrays by name, so that it can be kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from paper.reproduction.charges import charge_batch
from paper.reproduction.reader import Reader, read_batch
from veil.attacks.learned import train_attack
from veil.evaluation.episodes import (
    TRAINING,
    Progress,
    episode_numbers,
    evaluation_keys,
    in_batches,
    play_episodes,
    select_episodes,
)
from veil.evaluation.evaluate import Evaluation
from veil.policies.base import Policy
from veil.step import Record, Transcript
from veil.systems.platoon import Platoon
from veil.systems.scenarios import nominal
from veil.types import Key

Arrays = dict[str, np.ndarray]

CANDIDATES = (
    1  # ways of bounding a leakage that are tried; the next ones take far longer, and are for `veil audit`
)

_QUANTITIES = [field.name for field in Platoon.quantity_fields]


def driven(found: Evaluation) -> Arrays:
    """Per episode: fuel in mL/s, E[a²], E[(Δa)²], speed in m/s, distortion."""
    quantities = np.asarray(found.use.quantities)
    return {
        "index": found.index,
        "fuel": np.asarray(found.use.cost),
        "squared": quantities[:, _QUANTITIES.index("mean squared acceleration")],
        "change": quantities[:, _QUANTITIES.index("mean squared change of acceleration")],
        "speed": np.asarray(found.records.states)[:, :-1, 0].mean(axis=1),
        "distortion": np.asarray(found.use.distortion),
    }


def audited(found: Evaluation) -> Arrays:
    """Both sides of the leakage, and whether the verdict believes them."""
    verdict, leakage = found.verdict(), found.leakage
    return {
        "index": found.index,
        "distortion": np.asarray(found.use.distortion),
        "lower": np.array([leakage.lower.value, leakage.lower.error]),
        "upper": np.array([leakage.upper.value, leakage.upper.error]),
        "entropy": np.array(leakage.entropy),
        "verdict": np.array(verdict.name),
        "reasons": np.array(verdict.reasons, dtype=np.str_),
        "method": np.array("none applies" if found.bounder is None else found.method),
        "particles": np.array(found.particles),
    }


def read(
    system: Platoon, policy: Policy, records: Record, particles: int, *, key: Key, progress: Progress
) -> Arrays:
    """Posterior of the secret and mean of the state after each release, by one and the same reader."""
    reader = Reader(system, policy, particles)

    def own(part: np.ndarray) -> tuple:
        return (select_episodes(records, part), episode_numbers(part), key)

    rows = np.arange(len(records.index))
    found = in_batches(f"reading, {particles} particles", read_batch, (reader,), own, rows, progress).value
    return {
        "index": np.asarray(records.index),
        "log_masses": np.asarray(found.log_masses),
        "means": np.asarray(found.means),
        "states": np.asarray(records.states)[:, :-1],
        "shared": np.asarray(records.public.shared),
    }


TRANSCRIPTS = 4096  # that an attacker is trained on


def attacked(
    system: Platoon, policy: Policy, records: Record, *, steps: int, seed: int, progress: Progress
) -> Arrays:
    """Scores of a classifier of transcripts: their mean is a lower bound on the leakage, whatever it learned.

    Args:
        system: the plant.
        policy: whose transcripts it is trained on: the audited one, with the particles of its training.
        records: the audited episodes.
        steps: releases per episode.
        seed: of the evaluation.
        progress: called with the stage, how much is done, and of how much.
    """
    keys = evaluation_keys(seed)

    def played(numbers: Int[Array, " B"]) -> tuple[Int[Array, " B"], Transcript]:
        own = {"key": keys.episodes, "stage": "playing to train", "progress": progress}
        made = play_episodes(nominal(system), policy, steps, np.asarray(numbers) + TRAINING, **own)
        return jnp.asarray(made.index), made.public

    def report(done: int, total: int) -> None:
        progress("training an attacker", done, total)

    sizes = {"episodes": TRANSCRIPTS, "validation": TRANSCRIPTS // 8, "key": keys.training}
    attack, _ = train_attack(played, system.prior, **sizes, progress=report)

    def score(record: Record) -> Array:
        masses = attack(record.public, key=keys.filters).log_posterior(system.prior)
        return masses[record.index] - system.prior.log_masses[record.index]

    index, scores = np.asarray(records.index), eqx.filter_jit(jax.vmap(score))(records)
    return {"index": index, "score": np.asarray(scores)}


def charged(policy: Policy, records: Record, progress: Progress) -> Arrays:
    """The paper's bound per episode, as it is and clamped."""

    def own(part: np.ndarray) -> tuple:
        return (select_episodes(records, part),)

    rows = np.arange(len(records.index))
    found = in_batches("the paper's bound", charge_batch, (policy,), own, rows, progress).value
    return {name: np.asarray(values) for name, values in {"index": records.index, **vars(found)}.items()}

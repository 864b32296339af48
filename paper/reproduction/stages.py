"""What is measured of one policy: each stage gives arrays by name, so that it can be kept."""

import numpy as np

from paper.reproduction.charges import Charges, charge_batch
from paper.reproduction.reader import Reader, Reading, read_batch
from veil.evaluation.attackers import episode_numbers
from veil.evaluation.episodes import in_batches, select_episodes
from veil.evaluation.evaluate import (
    Context,
    bound_leakage,
    choose_bounder,
    utility_of,
    verdict_without_attacks,
)
from veil.step import Record
from veil.systems.platoon import Platoon
from veil.systems.scenarios import nominal

Arrays = dict[str, np.ndarray]

RUNGS = (
    2  # ways to bound a leakage that are tried; what comes after takes far longer, and is for `veil audit`
)

_QUANTITIES = [field.name for field in Platoon.quantity_fields]


def played(context: Context, count: int) -> Record:
    """The first episodes, equally many per secret, with the same random numbers for every policy."""
    return context.play(context.policy, nominal(context.system), np.arange(count), "playing")


def driven(context: Context, count: int) -> Arrays:
    """Per episode: fuel in mL/s, E[a²], E[(Δa)²], speed in m/s, distortion."""
    records = played(context, count)
    use = utility_of(context, records)
    return {
        "index": np.asarray(records.index),
        "fuel": np.asarray(use.cost),
        "squared": np.asarray(use.quantities)[:, _QUANTITIES.index("mean squared acceleration")],
        "change": np.asarray(use.quantities)[:, _QUANTITIES.index("mean squared change of acceleration")],
        "speed": np.asarray(records.states)[:, :-1, 0].mean(axis=1),
        "distortion": np.asarray(use.distortion),
    }


def audited(context: Context, records: Record) -> Arrays:
    """Both sides of the leakage, and whether the gate believes them."""
    rung = choose_bounder(context, RUNGS)
    sides, scored = bound_leakage(context, rung, records)
    verdict, leakage = verdict_without_attacks(context, rung, sides, scored), scored.leakage
    return {
        "index": np.asarray(records.index),
        "distortion": np.asarray(utility_of(context, records).distortion),
        "lower": np.array([leakage.lower.value, leakage.lower.error]),
        "upper": np.array([leakage.upper.value, leakage.upper.error]),
        "entropy": np.array(leakage.entropy),
        "verdict": np.array(verdict.name),
        "reasons": np.array(verdict.reasons, dtype=np.str_),
        "method": np.array("none applies" if rung is None else rung.name),
        "particles": np.array(0 if rung is None else rung.particles),
    }


def read(context: Context, records: Record, particles: int) -> Arrays:
    """Posterior of the secret and mean of the state after each release, by one and the same reader."""
    system, policy = context.system, context.policy
    assert isinstance(system, Platoon)
    reader = Reader(system, policy, particles)

    def run(part: np.ndarray) -> Reading:
        return read_batch(reader, select_episodes(records, part), episode_numbers(part), context.own_key)

    rows = np.arange(len(records.index))
    found = in_batches(f"reading, {particles} particles", run, rows, context.progress)
    return {
        "index": np.asarray(records.index),
        "log_masses": np.asarray(found.log_masses),
        "means": np.asarray(found.means),
        "states": np.asarray(records.states)[:, :-1],
        "shared": np.asarray(records.public.shared),
    }


def charged(context: Context, count: int) -> Arrays:
    """The paper's bound per episode, as it is and clamped."""
    policy = context.policy
    records = played(context, count)

    def run(part: np.ndarray) -> Charges:
        return charge_batch(policy, select_episodes(records, part))

    found = in_batches("the paper's bound", run, np.arange(count), context.progress)
    return {name: np.asarray(values) for name, values in {"index": records.index, **vars(found)}.items()}

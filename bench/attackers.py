"""What each attacker of the audit costs per episode-step, and how narrow the two sides get.

The bootstrap filter is given as many particles as it can move in the time of the twisted one.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from bench import report
from bench.timing import Timed, race
from veil.attacks import LeastSquares
from veil.attacks.guides import Guide, Local, Twisted, Unguided
from veil.attacks.kalman import KalmanBank
from veil.attacks.particle_filter import Bayes, ParticleFilter
from veil.evaluation.bounds import ParticleBounder
from veil.evaluation.episodes import play_batch
from veil.evaluation.evaluate import bound_batch
from veil.evaluation.scoring import score
from veil.policies import GaussianNoise
from veil.systems import Platoon
from veil.systems.scenarios import nominal

NOISES = ((0.02, 0.02), (0.25, 0.43), (2.0, 3.4))
KEY = jr.key(3)


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Race the attackers, measure the widths, print, and return what to record."""
    del folder
    episodes, steps, counts = (16, 10, (16, 32, 64)) if fast else (64, 50, (32, 128, 1296))
    with jax.enable_x64(True):
        speed = _speed(episodes, steps, counts[1])
        widths = [
            _width(noise, episodes, steps, counts, fast=fast) for noise in (NOISES[:1] if fast else NOISES)
        ]
    return {"microseconds_per_episode_step": speed, "widths": widths, "episodes": episodes, "steps": steps}


def _speed(episodes: int, steps: int, particles: int) -> dict[str, float]:
    """Time per episode-step of each attacker, four secrets, one run each."""
    system = Platoon()
    policy = GaussianNoise(system, jnp.asarray(NOISES[1]))
    numbers = jnp.arange(episodes, dtype=jnp.int32)
    public = play_batch(nominal(system), policy, steps, numbers, KEY).public
    attacks = {
        "Kalman bank": KalmanBank(system, policy),
        "least squares": LeastSquares(system),
        f"bootstrap, {particles}": Bayes(system, policy, Unguided(), particles),
        f"guided, {particles}": Bayes(system, policy, Local(), particles),
        f"twisted, {particles}": Bayes(system, policy, Twisted(), particles),
    }

    def job(attack):
        @jax.jit
        def read(transcripts):
            return jax.lax.map(
                lambda transcript: attack(transcript, key=KEY).log_likelihood, transcripts, batch_size=4
            )

        return lambda: read(public)

    timed = race({name: job(attack) for name, attack in attacks.items()}, rounds=3, patience=10.0)
    speed = {name: 1e6 * entry.seconds / (episodes * steps) for name, entry in timed.items()}
    rows = [[name, f"{value:.2f}"] for name, value in speed.items()]
    note = f"Platoon, noise {NOISES[1]}, {episodes} episodes of {steps} steps, float64."
    report.table("Attackers", ["attacker, particles per secret", "µs per episode-step"], rows, note)
    return speed


def _width(
    noise: tuple[float, float], episodes: int, steps: int, counts: tuple[int, ...], *, fast: bool
) -> dict[str, object]:
    """Both sides by twisted filters, and by a bootstrap filter of the same cost and one of many particles."""
    small, large, many = counts
    entrants: dict[str, tuple[Guide, int]] = {
        f"twisted, {small}": (Twisted(), small),
        f"twisted, {large}": (Twisted(), large),
        f"bootstrap, {large}": (Unguided(), large),
        f"bootstrap, {many}": (Unguided(), many),
    }
    jobs = {name: _sides(noise, guide, count, episodes, steps) for name, (guide, count) in entrants.items()}
    timed = race(jobs, rounds=1 if fast else 2, patience=10.0)
    found = {name: _numbers(entry, episodes, steps) for name, entry in timed.items()}
    # At equal time: particles scale linearly.
    pace = found[f"twisted, {large}"]["microseconds"] / found[f"bootstrap, {large}"]["microseconds"]
    equal = max(8, round(large * pace))
    name = f"bootstrap, {equal} (equal time)"
    entry = race({name: _sides(noise, Unguided(), equal, episodes, steps)}, rounds=1, patience=5.0)[name]
    found[name] = _numbers(entry, episodes, steps)
    rows = [
        [
            name,
            f"{it['microseconds']:.0f}",
            *(f"{it[key]:.4f}" for key in ("lower", "upper", "width")),
            f"{it['bad']:.0%}",
        ]
        for name, it in found.items()
    ]
    columns = [
        "filter, particles per secret",
        "µs per episode-step",
        "lower",
        "upper",
        "width",
        "not understood",
    ]
    report.table(
        f"Two sides at noise sd {noise}", columns, rows, "Three runs per secret and the pinned ones."
    )
    return {"noise": noise, **found}


def _sides(noise: tuple[float, float], guide: Guide, particles: int, episodes: int, steps: int):
    system = Platoon()
    policy = GaussianNoise(system, jnp.asarray(noise))
    numbers = jnp.arange(episodes, dtype=jnp.int32)
    records = play_batch(nominal(system), policy, steps, numbers, KEY)
    bounder = ParticleBounder("", ParticleFilter(system, policy, guide, particles))
    length = jnp.asarray(steps, jnp.int32)
    log_prior = np.asarray(system.prior.log_masses)

    def job():
        with jax.enable_x64(True):
            bound = jax.block_until_ready(bound_batch(bounder, False, records, numbers, length, KEY, KEY))
        return bound, np.asarray(records.index), log_prior

    return job


def _numbers(entry: Timed, episodes: int, steps: int) -> dict[str, float]:
    bound, index, log_prior = entry.result  # pyright: ignore[reportGeneralTypeIssues]
    scored = score(bound, index, log_prior)
    lower = scored.leakage.lower.value
    upper = float(np.average(scored.upper))
    return {
        "microseconds": 1e6 * entry.seconds / (episodes * steps),
        "lower": lower,
        "upper": upper,
        "width": upper - lower,
        "bad": float(scored.bad.mean()),
    }

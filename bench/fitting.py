"""System identification: Veil against peers on recordings that were simulated for it, by held-out log scores.

Peers predict points, which are scored as Gaussian laws with the covariance of their held-in errors. They run
in an environment of their own (`make .venv-peers/.peers`), since they ask for an older jax.
"""

import json
import math
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bench import report
from veil.fitting import fit
from veil.recordings import read_recording
from veil.settings import FitSettings
from veil.systems.base import System
from veil.systems.battery import Battery, drive_cycle
from veil.systems.building import Building, winter_month
from veil.systems.driver import Driver, stop_and_go

PEERS = Path(__file__).parents[1] / ".venv-peers/bin/python"
SEEDS = 4


class Simulated(NamedTuple):
    """One run of a system, row by row."""

    name: str
    """of the system, as in `systems`"""
    system: System
    columns: dict[str, np.ndarray]
    """of the recording, by the names of the fields"""
    readings: np.ndarray
    """(T, y): the states that are recorded"""
    inputs: np.ndarray
    """(T, u): what peers get as inputs"""
    extra: dict[str, np.ndarray]
    """what one peer alone gets"""


def systems(steps: int, seed: int) -> dict[str, System]:
    """The systems, with series of their own for each seed."""
    weather = winter_month(steps + 1, seed)
    return {
        "building, one capacity": Building(series=weather, envelope=False),
        "building, two capacities": Building(series=weather),
        "driver": Driver(series=stop_and_go(steps + 1, seed=seed)),
        "battery": Battery(series=drive_cycle(steps + 1, seed)),
    }


def simulated(name: str, system: System, steps: int, seed: int) -> Simulated:
    """A run under inputs that excite the system; the secret is one of the prior's.

    Args:
        name: of the system, as in `systems`.
        system: to simulate.
        steps: how many; there is one row more.
        seed: of secret, inputs and noise.
    """
    numbers, rows = np.random.default_rng(seed), steps + 1
    secret = system.prior.secrets[seed % len(system.prior.secrets)]
    series = np.asarray(system.series.values, float)[:rows]  # pyright: ignore[reportAttributeAccessIssue]
    own = _inputs(name, numbers, rows, series)
    clock = np.arange(rows, dtype=float)[:, None]
    external = np.concatenate([own, series, clock], axis=1)
    size = len(system.state_fields)
    noise = jnp.asarray(numbers.standard_normal((rows, size)))
    first = system.initial(secret)

    def step(state, given):
        now, draw = given
        law = system.transition(secret, state, now)
        return law.mean + law.scale @ draw, state

    start = first.mean + first.scale @ noise[0]
    _, states = jax.lax.scan(step, start, (jnp.asarray(external, start.dtype), noise.astype(start.dtype)))
    states = np.asarray(states, float)
    seen = len(system.shared_fields)
    readings = states[:, :seen]
    fields = [*system.state_fields[:seen], *system.external_fields, *system.exogenous_fields]
    values = np.concatenate([readings, own, series], axis=1)
    columns = {field.name: column for field, column in zip(fields, values.T, strict=True)}
    return Simulated(
        name, system, columns, readings, *_for_peers(system, secret, states, own, series, external)
    )


def _inputs(name: str, numbers: np.random.Generator, rows: int, series: np.ndarray) -> np.ndarray:
    """Shifts of the set-point, limits of the current, or the speed and spacing of the vehicle ahead."""
    held = np.repeat(numbers.uniform(-1.0, 1.0, rows // 6 + 1), 6)[:rows]
    if name.startswith("building"):
        return 1.5 * held[:, None]
    if name == "battery":
        return 0.3 + 0.2 * held[:, None]
    smooth = np.convolve(series[:, 0], np.full(5, 0.2), mode="same")
    smooth[:4], smooth[-4:] = series[:4, 0], series[-4:, 0]
    return np.stack([smooth, np.full(rows, 20.0)], axis=1)


def _for_peers(system, secret, states, own, series, external) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    if isinstance(system, Building):
        heating = jax.vmap(lambda x, w: system.heating(secret, x, system.inputs(w)))
        power = np.asarray(
            heating(jnp.asarray(states, jnp.float32), jnp.asarray(external, jnp.float32)), float
        )
        heat = power + float(system.body_heat) * series[:, 2]
        inputs = np.stack([own[:, 0], series[:, 0], series[:, 2]], axis=1)
        return inputs, {"heat": heat, "outdoor": series[:, 0]}
    if isinstance(system, Battery):
        return own[:, :1] * series[:, :1], {}
    return own[:, :1], {}


def gaussian_score(errors: np.ndarray, held_in: int) -> float:
    """Mean log density of the held-out errors, under a Gaussian law with the covariance of the others."""
    covariance = np.atleast_2d(np.cov(errors[:held_in].T, bias=True))
    late = errors[held_in:] - errors[:held_in].mean(axis=0)
    squares = np.einsum("ti,ij,tj->t", late, np.linalg.inv(covariance), late)
    constant = np.linalg.slogdet(covariance)[1] + errors.shape[1] * math.log(2.0 * math.pi)
    return float(-0.5 * (np.mean(squares) + constant))


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Simulate, fit by Veil and by the peers, print, and return what to record."""
    steps, seeds = (200, 1) if fast else (1000, SEEDS)
    place = folder / "fitting"
    data = recorded(place, steps, seeds)
    if PEERS.exists():
        by_peers(place)
    else:
        report.console.print("The peers sit out: `make .venv-peers/.peers` installs them.")
    scores, seconds = by_veil(data)
    return compared(place, data, scores, seconds)


def recorded(place: Path, steps: int, seeds: int) -> dict[str, Simulated]:
    """Simulate all recordings and write what the peers get.

    Args:
        place: folder for the files; others in it are removed.
        steps: of each recording.
        seeds: recordings of each system.
    """
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    data = dict[str, Simulated]()
    for seed in range(seeds):
        for name, system in systems(steps, seed).items():
            made, key = simulated(name, system, steps, seed), f"recording-{len(data):02d}"
            data[key] = made
            kept = {"readings": made.readings, "inputs": made.inputs, "held_in": np.array(_held_in(made))}
            np.savez(place / f"{key}.npz", allow_pickle=False, **kept, **made.extra)
    return data


def _held_in(made: Simulated) -> int:
    return round((1.0 - FitSettings().held_out) * (len(made.readings) - 1))


def by_veil(data: Mapping[str, Simulated]) -> tuple[dict[str, float], dict[str, float]]:
    """Held-out log scores of Veil's fits, and seconds of processor time.

    Args:
        data: recordings.
    """
    scores, seconds = dict[str, float](), dict[str, float]()
    for key, made in data.items():
        began = time.process_time()
        found = fit(made.system, read_recording(made.columns), FitSettings())
        seconds[key] = time.process_time() - began
        scores[key] = found.individuals[0].score
    return scores, seconds


def by_peers(place: Path) -> None:
    """Let the peers predict all recordings in a folder."""
    subprocess.run([PEERS, Path(__file__).with_name("fitting_by_peers.py"), place], check=True)


def compared(
    place: Path, data: Mapping[str, Simulated], scores: Mapping[str, float], seconds: Mapping[str, float]
) -> dict[str, object]:
    """Score what the peers predicted, print, and return what to record.

    Args:
        place: folder with the answers of the peers, if there are any.
        data: recordings.
        scores: of Veil.
        seconds: of Veil.
    """
    all_scores = {(key, "Veil"): score for key, score in scores.items()}
    all_seconds = {(key, "Veil"): one for key, one in seconds.items()}
    answers = place / "peers.json"
    for line in json.loads(answers.read_text()) if answers.exists() else []:
        key, peer, made = line["recording"], line["peer"], data[line["recording"]]
        errors = np.load(place / line["predictions"], allow_pickle=False) - made.readings[1:]
        all_scores[key, peer] = gaussian_score(errors, _held_in(made))
        all_seconds[key, peer] = line["seconds"]
    names = {key: made.name for key, made in data.items()}
    return _told(names, all_scores, all_seconds, len(next(iter(data.values())).readings) - 1)


def _told(
    names: dict[str, str],
    scores: Mapping[tuple[str, str], float],
    seconds: Mapping[tuple[str, str], float],
    steps,
) -> dict[str, object]:
    """Print one line for each system and method; scores, differences and times to record."""
    rows, kept = [], {}
    for name in dict.fromkeys(names.values()):
        keys = [key for key, own in names.items() if own == name]
        for method in dict.fromkeys(method for key, method in scores if key in keys):
            own = np.array([scores[key, method] for key in keys])
            gap = own - np.array([scores[key, "Veil"] for key in keys])
            times = [seconds[key, method] for key in keys]
            error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else math.nan
            later = float(np.median(times[1:])) if len(times) > 1 else math.nan
            shown = "" if method == "Veil" else f"{gap.mean():+.3f} ± {error:.3f}"
            label = name if method == "Veil" else ""
            duration = [report.duration(times[0]), report.duration(later) if len(times) > 1 else "–"]
            rows.append([label, method, f"{own.mean():.3f}", shown, *duration])
            kept[f"{name}: {method}"] = {
                "score": float(own.mean()),
                "behind": -float(gap.mean()),
                "standard_error": error,
                "seconds_first": times[0],
                "seconds_later": later,
            }
    note = (
        "Held-out log score, nats per step, mean over recordings; difference to Veil's with its standard "
        f"error over pairs. {len(names)} recordings of {steps} steps, the last 30 % held out. Processor time "
        "of a fit: the first, with compilation, and the median of the others. darkgreybox is told the "
        "heating power, Veil is not."
    )
    columns = ["system", "", "log score", "less Veil's", "first fit", "later fits"]
    report.table("System identification on simulated recordings", columns, rows, note)
    return {"fits": kept, "steps": steps}

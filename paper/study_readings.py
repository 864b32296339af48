"""Which reading of the controller explains which printed column, with policies that nobody trained.

Plain numpy, so that the answer does not hang on the library: the platoon from equilibrium under the readings
B, C, D and F of the controller, shared as it is, with noise, with a constant push and noise, and blindly. For
every reading the push and the noise are fitted to the printed continuous column, the half-widths of a blind
draw on a 5 by 5 grid to the printed discrete one; what is reported is measured on fresh random numbers.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from paper.reproduction.printed import PRINTED, What, Who

DRIVERS = np.array([(0.4, 0.5), (0.7, 0.8), (1.0, 1.1), (1.3, 1.4)])
# (spacing, speed) of the automated vehicle's own, and on what the driver shares.
GAINS = {
    "B": ((0.5, -0.5), (0.2, -0.2)),
    "C": ((0.5, -0.5), (-0.2, 0.2)),
    "D": ((0.1, -0.5), (-0.2, 0.05)),
    "F": ((0.1, -0.5), (-0.2, 0.2)),
}
STEPS, DT = 50, 0.2
CENTRE = np.array([15.0, 20.0])  # m/s, m
GRID = np.linspace(-1.0, 1.0, 5)
WHAT: tuple[What, ...] = ("fuel", "squared", "change")
COLUMNS: tuple[Who, ...] = ("true", "discrete", "continuous")
PUBLISHED = Path(__file__).parent / "readings.json"

Share = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From states [..., 2] and normal and uniform numbers [..., 3] to what is shared [..., 2]."""


def drive(reading: str, share: Share, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Per secret and episode: fuel, E[a²], E[(Δa)²], mean distortion, mean speed. [4, E] each."""
    own, follower = (np.array(pair) for pair in GAINS[reading])
    random = np.random.default_rng(seed)
    first, second = DRIVERS[:, 0][:, None], DRIVERS[:, 1][:, None]
    shape = (len(DRIVERS), episodes)
    speed, spacing = np.full(shape, 15.0), np.full(shape, 20.0)
    leader, ahead, gap = np.full(shape, 15.0), np.full(shape, 15.0), np.full(shape, 20.0)
    fuel, accelerations, distances, speeds = [], [], [], []
    for _ in range(STEPS):
        # The same numbers for every secret and every way of sharing.
        noise = np.broadcast_to(random.standard_normal((1, episodes, 4)), (*shape, 4))
        dice = np.broadcast_to(
            np.concatenate(
                [random.standard_normal((1, episodes, 2)), random.random((1, episodes, 2))], axis=2
            ),
            (*shape, 4),
        )
        state = np.stack([speed, spacing], axis=-1)
        shared = share(state, dice)
        apart = shared - state
        distances.append(np.sqrt(3.0 * apart[..., 0] ** 2 + apart[..., 1] ** 2))
        wanted = 15.0 * (1.0 - np.cos(np.pi * np.clip((spacing - 5.0) / 30.0, 0.0, 1.0)))
        pull = np.clip(first * (wanted - speed) + second * (ahead - speed), -5.0, 5.0)
        after = np.clip(speed + DT * pull, 0.0, 30.0) + DT * 0.1 * noise[..., 0]
        a = (after - speed) / DT
        engine = 0.333 + 0.00108 * speed**2 + 1.2 * a
        burnt = 0.444 + 0.09 * engine * speed + 0.054 * np.maximum(a, 0.0) ** 2 * speed
        fuel.append(np.where(engine > 0.0, burnt, 0.444))
        accelerations.append(a)
        speeds.append(speed)
        push = own[0] * (gap - 20.0) + own[1] * (ahead - 15.0)
        push = push + follower[0] * (shared[..., 1] - 20.0) + follower[1] * (shared[..., 0] - 15.0)
        spacing = spacing + DT * (ahead - speed) + 0.1 * noise[..., 1]
        gap = gap + DT * (leader - ahead) + 0.1 * noise[..., 2]
        ahead = np.clip(ahead + DT * np.clip(push, -5.0, 5.0), 0.0, 30.0)
        leader, speed = 15.0 + np.sqrt(0.1) * noise[..., 3], after
    a = np.stack(accelerations)
    return {
        "fuel": np.mean(fuel, axis=0),
        "squared": np.mean(a**2, axis=0),
        "change": np.mean(np.diff(a, axis=0) ** 2, axis=0),
        "distortion": np.mean(distances, axis=0),
        "speed": np.mean(speeds, axis=0),
    }


def truth(state: np.ndarray, dice: np.ndarray) -> np.ndarray:
    """As it is."""
    del dice
    return state


def pushed(push: np.ndarray, sd: np.ndarray) -> Share:
    """A constant on top, and Gaussian noise; m/s and m."""
    return lambda state, dice: state + push + sd * dice[..., :2]


def constant(state: np.ndarray, dice: np.ndarray) -> np.ndarray:
    """Blind: 15 m/s and 20 m."""
    del dice
    return np.broadcast_to(CENTRE, state.shape)


def uniform(reach: np.ndarray) -> Share:
    """Blind: every point of a 5 by 5 grid around (15, 20) alike."""
    return lambda state, dice: CENTRE + reach * GRID[np.minimum((5.0 * dice[..., 2:]).astype(int), 4)]


def off(found: dict[str, np.ndarray], column: Who) -> np.ndarray:
    """Of the twelve numbers from the printed ones."""
    return np.concatenate([found[what].mean(axis=1) - PRINTED[what][column] for what in WHAT])


def fitted(
    reading: str, column: Who, make: Callable[[np.ndarray], Share], starts: list[list[float]]
) -> np.ndarray:
    """Parameters of a way of sharing that bring all twelve numbers near the printed column."""

    def miss(parameters: np.ndarray, episodes: int) -> float:
        return float(np.sum((100.0 * off(drive(reading, make(parameters), episodes, 1), column)) ** 6))

    options = {"xatol": 0.01, "fatol": 1e-3, "maxiter": 250}
    tries = [minimize(miss, start, (150,), method="Nelder-Mead", options=options) for start in starts]
    best = min(tries, key=lambda one: one.fun).x
    return minimize(miss, best, (1000,), method="Nelder-Mead", options=options | {"maxiter": 120}).x


def row(reading: str, share: Share, episodes: int) -> dict[str, object]:
    """What the tables say of one way of sharing under one reading."""
    found = drive(reading, share, episodes, 2)
    line: dict[str, object] = {what: np.round(found[what].mean(axis=1), 5).tolist() for what in WHAT}
    errors = [found[what].std(axis=1, ddof=1).max() / np.sqrt(episodes) for what in WHAT]
    line |= {"standard_errors": np.round(errors, 6).tolist()}
    line |= {what: round(float(found[what].mean()), 4) for what in ("distortion", "speed")}
    line["largest_difference"] = {
        column: round(float(np.abs(off(found, column)).max()), 4) for column in COLUMNS
    }
    return line


def study(episodes: int) -> dict[str, object]:
    """All readings and all ways of sharing."""
    readings = {}
    for reading in GAINS:
        near = fitted(
            reading,
            "continuous",
            lambda p: pushed(p[:2], np.abs(p[2:])),
            [[0.0, 0.0, 1.0, 1.5], [-0.5, 1.0, 0.5, 2.0], [0.5, -1.0, 1.5, 1.0], [1.0, 2.0, 0.5, 0.5]],
        )
        wide = fitted(reading, "discrete", lambda p: uniform(np.abs(p)), [[2.5, 5.0], [1.0, 3.0]])
        ways: dict[str, tuple[Share, list[float]]] = {
            "true": (truth, []),
            "constant": (constant, []),
            "noise": (pushed(np.zeros(2), np.array([2.0, 3.4])), [2.0, 3.4]),
            "uniform": (uniform(np.array([2.5, 5.0])), [2.5, 5.0]),
            "pushed": (pushed(near[:2], np.abs(near[2:])), [*near[:2], *np.abs(near[2:])]),
            "uniform_fitted": (uniform(np.abs(wide)), [*np.abs(wide)]),
        }
        readings[reading] = {
            name: row(reading, share, episodes) | {"parameters": np.round(numbers, 3).tolist()}
            for name, (share, numbers) in ways.items()
        }
        for name, line in readings[reading].items():
            print(reading, name, line["largest_difference"], line["distortion"], line["parameters"])
    return {
        "episodes_per_secret": episodes,
        "gains": {name: {"own": own, "follower": follower} for name, (own, follower) in GAINS.items()},
        "parameters": {
            "noise": "sd of speed (m/s) and spacing (m)",
            "uniform": "half-width of the 5 by 5 grid, speed (m/s) and spacing (m)",
            "pushed": "constant push of speed and spacing, then the sd of each",
        },
        "readings": readings,
    }


WAYS = {
    "true": "True Data",
    "constant": "blind: always (15, 20)",
    "noise": "noise",
    "uniform": "blind: uniform on a 5 by 5 grid",
    "pushed": "constant push and noise, fitted",
    "uniform_fitted": "blind: uniform, fitted",
}


def read() -> dict[str, Any]:
    """The published study; empty where there is none."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8")) if PUBLISHED.exists() else {}


def table(content: dict[str, Any]) -> str:
    """Largest differences from the printed columns, as RESULTS.md and deviations.md show them."""
    columns = ["from True Data", "from Discrete Policy", "from Continuous Policy"]
    lines = [["reading and way of sharing", "parameters", "distortion", *columns], ["---", *["---:"] * 5]]
    for reading, ways in content["readings"].items():
        for way, line in ways.items():
            numbers = ", ".join(f"{value:g}" for value in line["parameters"]) or "–"
            largest = [line["largest_difference"][column] for column in COLUMNS]
            cells = (f"{line['distortion']:.2f}", *(f"{value:.3f}" for value in largest))
            lines.append([f"{reading}: {WAYS[way]}", numbers, *cells])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(
        description="Untrained ways of sharing under four readings of the controller."
    )
    parser.add_argument("--out", type=Path, default=Path("paper/readings.json"), help="file to write")
    parser.add_argument("--episodes", type=int, default=2000, help="episodes per secret that are reported")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(study(options.episodes), indent=1) + "\n")


if __name__ == "__main__":
    main()

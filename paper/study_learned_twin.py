"""What does learning win on a twin? Cost and distortion of learned twins against the plain one.

On a twin there is nothing to trade for leakage: whatever public function of (ε, w) is released, the bound is
the same. A learner can lower the cost of the system for distortion. Each row is a training at another price
of distortion, or with another seed; differences are paired, by the same random numbers. `learned_twin.json`
has the numbers.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
import tyro

from veil.evaluation.episodes import play_episodes
from veil.evaluation.evaluate import use_of
from veil.learners.design import initial_policy
from veil.learners.pathwise import PathwisePreset
from veil.learners.training import train_policy
from veil.policies import Policy
from veil.problem import Objective, problem
from veil.settings import PolicyDesign, TrainSettings
from veil.stats import Mean, stratified_mean
from veil.systems import Platoon, System
from veil.systems.scenarios import nominal
from veil.types import as_float64

PAGE = Path("paper/learned_twin.json")

STEPS = 50

PRICES = ((0.2, 0), (0.2, 1), (0.02, 0), (0.002, 0))
"""Of distortion, ml per unit and step, with the seed of the training"""


@dataclass(frozen=True)
class Row:
    """A learned twin beside the plain one, on the platoon.

    Attributes:
        price: of distortion, cost units per unit and step.
        seed: of the training.
        fuel: per cent of the twin's fuel that is saved, paired; negative where more is burnt.
        fuel_error: its standard error.
        distortion: mean per step.
        distortion_error: its standard error.
        twin_distortion: that of the twin.
        more: distortion that is added, paired.
        more_error: its standard error.
        episodes: that were played.
    """

    price: float
    seed: int
    fuel: float
    fuel_error: float
    distortion: float
    distortion_error: float
    twin_distortion: float
    more: float
    more_error: float
    episodes: int


@dataclass(frozen=True)
class Study:
    """Train learned twins and compare each with the twin that it started from."""

    out: Path = PAGE
    """file to write; rows that it has are kept"""
    episodes: int = 1024
    """episodes of the comparison"""
    updates: int = 250
    """of a training"""

    def main(self) -> None:
        """Train what is missing, measure, write."""
        rows = read(self.out) if self.out.exists() else []
        done = {(row.price, row.seed) for row in rows}
        for price, seed in PRICES:
            if (price, seed) not in done:
                rows.append(self.row(price, seed))
                print(line(rows[-1]), flush=True)
                content = {"steps": STEPS, "system": "platoon", "rows": [asdict(row) for row in rows]}
                self.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(table(rows))

    def row(self, price: float, seed: int) -> Row:
        """One training."""
        system = Platoon()
        fresh = initial_policy(PolicyDesign(start="twin"), system, STEPS, key=jr.key(seed))
        options = TrainSettings(updates=self.updates, seed=seed)
        task = problem(system, STEPS, Objective(privacy_weight=0.0, distortion_price=price))
        learner = PathwisePreset().build(options)
        trained = train_policy((task,), learner, fresh, options).policy
        ours, index = played(system, trained, self.episodes)
        theirs, _ = played(system, fresh, self.episodes)
        prior = np.exp(np.asarray(system.prior.log_masses, float))

        def mean(values: np.ndarray) -> Mean:
            return stratified_mean(values, index, prior)

        fuel = mean(100.0 * (theirs[0] - ours[0]) / theirs[0].mean())
        distortion, more = mean(ours[1]), mean(ours[1] - theirs[1])
        return Row(
            price,
            seed,
            *(fuel.value, fuel.error, distortion.value, distortion.error),
            *(mean(theirs[1]).value, more.value, more.error, len(index)),
        )


def played(system: System, policy: Policy, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Fuel and distortion of each episode as rows, and whose it was, in double precision."""
    with jax.enable_x64(True):
        system, policy = as_float64((system, policy))
        found = play_episodes(nominal(system), policy, STEPS, np.arange(episodes), key=jr.key(77))
        use = use_of(system, found)
        return np.stack([use.cost, use.distortion]), np.asarray(found.index)


def read(path: Path = PAGE) -> list[Row]:
    """The rows of a file."""
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def line(row: Row) -> str:
    """One row of the table."""
    fuel = f"{row.fuel:.2f} ({row.fuel_error:.2f})"
    cells = [f"{row.price:g}", str(row.seed), fuel, f"{row.distortion:.3f}", f"{row.twin_distortion:.3f}"]
    return f"| {' | '.join(cells)} |"


def table(rows: list[Row]) -> str:
    """As in docs/choosing.md."""
    heads = ("price of distortion", "seed", "fuel saved, %", "distortion", "the twin's")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *map(line, rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    tyro.cli(Study).main()

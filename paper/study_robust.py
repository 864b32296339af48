"""When the plant is not the model: worst-case leakage against distortion over a family of plants.

The owner believes in the platoon's own drivers. Plants: these, secrets mistaken by 20 %, IDM drivers with
gains fitted by least squares, and coloured driver noise. In each plant the adversary knows the plant; the
policy does not. Transport with more and more noise and noise alone are measured beside policies trained on
all plants together, each by filters that know its plant. Leakage is the audit's two-sided measurement.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.random as jr
import tyro

from veil.learners import Pathwise, initial_policy, train_policy
from veil.learners.base import EMPHASIS, Family, robust
from veil.learners.selection import sample
from veil.policies import GaussianNoise, Policy, ResidualPolicy, Transport
from veil.problem import Objective
from veil.settings import PolicyDesign, TrainSettings
from veil.systems import Platoon

FRESH = 9_000_000  # numbers of the episodes that are reported; no training and no evaluation in one uses them


@dataclass(frozen=True)
class Row:
    """One policy: its largest mean distortion; per plant lower side, upper side and error of the leakage."""

    kind: str
    value: float
    distortion: float
    plants: dict[str, tuple[float, float, float]]

    @property
    def worst(self) -> str:
        """The plant with the largest upper side."""
        return max(self.plants, key=lambda name: self.plants[name][1])


@dataclass(frozen=True)
class Study:
    """Robust training against transport and noise."""

    out: Path = Path("build/studies")
    """folder for robust.json and robust.png"""
    episodes: int = 512
    """fresh episodes per policy and plant"""
    updates: int = 150
    """gradient steps per trained policy"""
    steps: int = 50
    """releases per episode"""
    weights: tuple[float, ...] = (20.0, 80.0)
    """privacy weights of the trained policies, cost units per nat"""
    seed: int = 0
    """seed of all randomness"""

    def run(self) -> None:
        """Train, measure, print, write, draw."""
        system = Platoon()
        fresh = initial_policy(PolicyDesign(), system, self.steps, key=jr.key(self.seed))
        assert isinstance(fresh, ResidualPolicy)  # by its design
        spread = fresh.scaling.output.spread
        family, rows = robust(system, self.steps), []
        for factor in (0.05, 0.2, 0.5, 1.0, 2.0):
            policy = Transport(system, factor * spread)
            rows.append(self.measured(family, "transport", factor, policy))
        for factor in (1.0, 2.0, 4.0, 8.0, 16.0):
            rows.append(self.measured(family, "noise", factor, GaussianNoise(system, factor * spread)))
        for weight in self.weights:
            rows.append(self.measured(family, "robust", weight, self.trained(system, fresh, weight)))
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "robust.json").write_text(
            json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8"
        )
        draw(rows, self.out / "robust.png")

    def trained(self, system: Platoon, fresh: ResidualPolicy, weight: float) -> Policy:
        """On all plants together."""
        family = robust(system, self.steps, Objective(privacy_weight=weight))
        options = TrainSettings(
            updates=self.updates, evaluate_every=self.updates, evaluation_episodes=64, seed=self.seed
        )
        learner = Pathwise(16, options.updates, options.learning_rate, emphasis=EMPHASIS)
        return train_policy(family, learner, fresh, options).policy

    def measured(self, family: Family, kind: str, value: float, policy: Policy) -> Row:
        """Both sides in every plant; the worst counts."""
        plants, distortion = {}, 0.0
        for problem in family:
            found = sample(problem, policy, self.episodes, self.seed, FRESH)
            lower, upper = found.leakage.lower, found.leakage.upper
            plants[problem.scenario.name] = (lower.value, upper.value, upper.error)
            distortion = max(distortion, float(found.distortion.mean()))
        row = Row(kind, value, distortion, plants)
        leakages = "; ".join(f"{name} {low:.3f} to {high:.3f}" for name, (low, high, _) in plants.items())
        print(
            f"{kind:>10} {value:<5g} distortion {distortion:.3f}, worst {row.worst}: {leakages}", flush=True
        )
        return row


def draw(rows: list[Row], path: Path) -> None:
    """Worst-case leakage against distortion, one line per kind."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for kind, marker in (("noise", "s"), ("transport", "o"), ("robust", "*")):
        own = sorted((row for row in rows if row.kind == kind), key=lambda row: row.distortion)
        worst = [row.plants[row.worst] for row in own]
        up, bars = [upper for _, upper, _ in worst], [3.0 * error for _, _, error in worst]
        size = 12 if kind == "robust" else 6
        across = [row.distortion for row in own]
        axes.errorbar(across, up, yerr=bars, marker=marker, markersize=size, capsize=2, label=kind)
    axes.set_xscale("log")
    axes.set_xlabel("largest mean distortion per step")
    axes.set_ylabel("worst-case leakage, nats (upper side)")
    axes.set_ylim(bottom=0.0)
    axes.legend(title="policy")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    tyro.cli(Study).run()

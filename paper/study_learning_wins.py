"""Where transport is not the best: what is shared comes back, and the owner pays for what it does.

In the scalar loop x' = θ x + w the environment answers w' = reply · y, and the owner's cost is the squared
level. Transport hides the gain at the least distortion and does not care what the answer does; a learned
policy may share a level that hides the gain *and* brings back a better answer. All policies are measured on
the same fresh episodes, so that differences of the objective are paired.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import jax.random as jr
import numpy as np
import tyro

from veil.learners import Pathwise, initial_policy, train_policy
from veil.learners.selection import EpisodeSample, sample
from veil.policies import GaussianNoise, Policy, Transport
from veil.problem import Objective, Problem, problem
from veil.settings import PolicyDesign, TrainSettings
from veil.systems import Gain

FRESH = 9_000_000  # numbers of the episodes that are reported; no training and no evaluation in one uses them
REPLY = -0.5
STEPS = 20


@dataclass(frozen=True)
class Study:
    """Learned policy against transport, displacement and noise where feedback is costly."""

    out: Path = Path("build/studies")
    """folder for learning_wins.json"""
    episodes: int = 2048
    """fresh episodes per policy"""
    updates: int = 200
    """gradient steps"""
    seed: int = 0
    """seed of all randomness"""

    def run(self) -> None:
        """Train, measure all, print, write."""
        system = Gain(reply=REPLY)
        task = problem(system, STEPS, Objective(privacy_weight=10.0, distortion_price=0.05))
        fresh = initial_policy(PolicyDesign(), system, STEPS, key=jr.key(self.seed))
        options = TrainSettings(
            updates=self.updates,
            evaluate_every=min(50, self.updates),
            evaluation_episodes=256,
            seed=self.seed,
        )
        learner = Pathwise(48, options.updates, options.learning_rate)
        learned = train_policy((task,), learner, fresh, options).policy
        spread = fresh.scaling.output.spread  # pyright: ignore[reportAttributeAccessIssue]
        floor = PolicyDesign().floor * spread
        others: dict[str, Policy] = {"learned": learned, "transport": Transport(system, floor)}
        for way in (0.0, 0.5, 0.75, 0.9):
            others[f"displacement, {way:g} of the way"] = Transport(system, floor, displacement=way)
        for factor in (0.5, 2.0):
            others[f"noise, {factor:g} spreads"] = GaussianNoise(system, factor * spread)
        found = {
            name: sample(task, policy, self.episodes, self.seed, FRESH) for name, policy in others.items()
        }
        rows = [_row(task, name, one, found["learned"]) for name, one in found.items()]
        for row in rows:
            print(
                f"{row['name']:>30}  leakage {row['lower']:.4f} to {row['upper']:.4f}  "
                f"distortion {row['distortion']:.3f}  cost {row['cost']:.3f}  total {row['total']:.3f}  "
                f"above learned {row['above']:.3f} ± {row['error']:.3f}"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "learning_wins.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _row(task: Problem, name: str, one: EpisodeSample, learned: EpisodeSample) -> dict[str, float | str]:
    """Means over episodes, and the paired difference of the objective with its standard error."""
    totals = one.totals(task)
    above = totals - learned.totals(task)
    return {
        "name": name,
        "lower": one.leakage.lower.value,
        "upper": one.leakage.upper.value,
        "distortion": float(one.distortion.mean()),
        "cost": float(one.cost.mean()),
        "total": float(totals.mean()),
        "above": float(above.mean()),
        "error": float(np.std(above, ddof=1) / np.sqrt(len(above))),
    }


if __name__ == "__main__":
    tyro.cli(Study).run()

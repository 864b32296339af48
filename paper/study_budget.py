"""Does the budget hold? The budgeted loop on the platoon, audited by filters that are not its own.

Policies under budgets of 0.02, 0.1 and 0.5 nats: true data, noise, transport, and a trained policy. In each
cell episodes of the budgeted loop are played, which no other cell uses, and measured from both sides, until
the standard error is a fifth of the budget; "holds" means that the mean upper side is at most the budget plus
two standard errors. Beside the score, log(posterior/prior) of the true secret, stands its Rao-Blackwell form,
KL(posterior ‖ prior): the same mean where the posterior is right, with a smaller error.

The table in docs/budget.md is `table` of paper/budget.json, a copy of the file that this study writes.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from veil.evaluation.evaluate import Evaluation, evaluate
from veil.evaluation.scoring import Scored, score
from veil.evaluation.utility import Use
from veil.learners import run as runs
from veil.learners import training
from veil.policies import GaussianNoise, Policy, Transport, Truth
from veil.policies.budgeted import Exhausted
from veil.registry import LEARNERS
from veil.settings import AuditSettings, ObjectiveWeights
from veil.sharing.budget import budgeted
from veil.stats import stratified_mean
from veil.step import Record
from veil.systems import Platoon
from veil.types import as_float32, as_float64

FIRST = 7_000_000  # number of the first episode; no training and no evaluation in one uses these
APART = 100_000  # between the first episodes of two cells: more than any cell plays
BLOCK = 1024


@dataclass(frozen=True)
class Cell:
    """One budgeted loop.

    Attributes:
        policy: its name.
        exhausted: what happens to a release that would overspend.
        budget: nats.
        lower: mean lower side of the audited leakage, nats.
        upper: mean upper side, nats.
        error: standard error of the upper side, nats.
        divergence: mean of KL(posterior ‖ prior), nats.
        divergence_error: its standard error.
        charged: mean total charge, nats.
        excess: mean of KL(posterior ‖ prior) minus the charges of the same episode, nats.
        excess_error: its standard error.
        released: mean number of steps released as intended.
        blurred: mean number of steps released with noise added.
        distortion: mean per step.
        fuel: per cent above true data, paired.
        fuel_error: its standard error, per cent.
        episodes: how many were audited.
    """

    policy: str
    exhausted: str
    budget: float
    lower: float
    upper: float
    error: float
    divergence: float
    divergence_error: float
    charged: float
    excess: float
    excess_error: float
    released: float
    blurred: float
    distortion: float
    fuel: float
    fuel_error: float
    episodes: int

    @property
    def holds(self) -> bool:
        """Whether the audited leakage keeps the budget, in the words of the definitions."""
        return self.upper <= self.budget + 2.0 * self.error


@dataclass(frozen=True)
class Study:
    """Audit budgeted loops on the platoon."""

    out: Path = Path("build/studies")
    """folder for budget.json and for the trained policy"""
    run: Path | None = None
    """folder of a `veil train platoon`; trained into OUT/budget-run if left out (3 minutes)"""
    budgets: tuple[float, ...] = (0.02, 0.1, 0.5)
    """nats per episode"""
    most: int = 4096
    """episodes per cell at most, in blocks of 512"""
    steps: int = 50
    """releases per episode"""
    seed: int = 11
    """seed of all randomness"""

    def main(self) -> None:
        """Audit every cell, print, write."""
        self.out.mkdir(parents=True, exist_ok=True)
        policies = self.policies()
        wanted: tuple[tuple[str, Exhausted, tuple[float, ...]], ...] = (
            *((name, "blind", self.budgets) for name in policies),
            ("noise", "withhold", (0.1,)),
            ("noise", "blur", (0.1,)),
        )
        cells = []
        for name, exhausted, budgets in wanted:
            for budget in budgets:
                first = FIRST + APART * len(cells)
                cells.append(self.cell(name, policies[name], exhausted, budget, first))
                print(line(cells[-1], self.steps), flush=True)
                rows = [asdict(cell) | {"holds": cell.holds} for cell in cells]
                (self.out / "budget.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")

    def policies(self) -> dict[str, Policy]:
        """By name, in double precision."""
        trained = self.trained()
        with jax.enable_x64(True):
            system = as_float64(Platoon())
            return {
                "true data": Truth(system),
                "noise": GaussianNoise(system, jnp.asarray([0.25, 0.43])),
                "transport": Transport(system, jnp.asarray([0.06, 0.1])),
                "pathwise": as_float64(trained),
            }

    def trained(self) -> Policy:
        """The policy of a run, trained if there is none."""
        folder = self.run or self.out / "budget-run"
        with jax.enable_x64(False):
            system = as_float32(Platoon())
            if not (folder / runs.POLICY).exists():
                preset = LEARNERS["pathwise"]()
                settings = runs.Settings(
                    "platoon", self.steps, preset.design, ObjectiveWeights(), preset.training, preset.leakage
                )
                runs.begin(folder, settings)
                training.finish_run(
                    folder, settings, training.train_run(settings, system, folder, lambda line: None)
                )
            policy = runs.load_policy(folder, system)
            assert isinstance(policy, Policy)
            return policy

    def cell(self, name: str, inner: Policy, exhausted: Exhausted, budget: float, first: int) -> Cell:
        """Play and measure until the error is small enough."""
        with jax.enable_x64(True):
            policy, blocks = budgeted(inner, budget, exhausted, steps=self.steps), list[tuple]()
            while True:
                block = self.evaluated(policy, first + BLOCK * len(blocks), BLOCK, candidates=1)
                assert block.bounder is not None
                blocks.append((block.bound, block.records, block.use))
                bound, records, use = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
                index, log_prior = np.asarray(records.index), block.forecast.log_prior
                scored = score(bound, index, log_prior, method=block.bounder.method)
                if scored.leakage.upper.error <= budget / 5.0 or len(index) >= self.most:
                    return self.summary(name, exhausted, budget, records, use, scored, first)

    def evaluated(self, policy: Policy, first: int, episodes: int, candidates: int) -> Evaluation:
        """Evaluate so many episodes from this number on."""
        settings = AuditSettings(steps=self.steps, episodes=episodes, seed=self.seed)
        return evaluate(policy.system, policy, settings=settings, candidates=candidates, first_episode=first)

    def summary(
        self,
        name: str,
        exhausted: str,
        budget: float,
        records: Record,
        ours: Use,
        scored: Scored,
        first: int,
    ) -> Cell:
        """One row of the table."""
        index, prior, leakage = np.asarray(records.index), scored.forecast.prior, scored.leakage
        rows = np.arange(min(1024, len(index)))
        truth = self.evaluated(Truth(as_float64(Platoon())), first, len(rows), candidates=0)
        theirs_cost = np.asarray(truth.use.cost)
        change = 100.0 * (np.asarray(ours.cost)[rows] - theirs_cost) / theirs_cost.mean()
        fuel = stratified_mean(change, index[rows], prior)
        gate = np.asarray(records.public.features)[:, :, -3:]
        blurred, charges, claims = gate[:, :, 2] > 0, gate[:, :, 0].sum(axis=1), scored.forecast.claims()
        divergence, excess = (stratified_mean(part, index, prior) for part in (claims, claims - charges))
        return Cell(
            policy=name,
            exhausted=exhausted,
            budget=budget,
            lower=leakage.lower.value,
            upper=leakage.upper.value,
            error=leakage.upper.error,
            divergence=divergence.value,
            divergence_error=divergence.error,
            charged=stratified_mean(charges, index, prior).value,
            excess=excess.value,
            excess_error=excess.error,
            released=float((gate[:, :, 1] * ~blurred).sum(axis=1).mean()),
            blurred=float(blurred.sum(axis=1).mean()),
            distortion=float(np.mean(ours.distortion)),
            fuel=fuel.value,
            fuel_error=fuel.error,
            episodes=len(index),
        )


def line(cell: Cell, steps: int) -> str:
    """A row for people."""
    verdict = "holds" if cell.holds else "BROKEN"
    return (
        f"{cell.policy:>10} {cell.exhausted:>8}  B {cell.budget:<5g} "
        f"audited {cell.lower:.4f} to {cell.upper:.4f} ({cell.error:.4f})  KL {cell.divergence:.4f} "
        f"({cell.divergence_error:.4f})  charged {cell.charged:.4f}  "
        f"{verdict:>6}  released {cell.released:.1f} + {cell.blurred:.1f} blurred of {steps}  "
        f"distortion {cell.distortion:.3f}  fuel {cell.fuel:+.2f} % ({cell.fuel_error:.2f})  "
        f"{cell.episodes} episodes"
    )


COLUMNS = (
    *("policy", "when exhausted", "budget", "audited leakage, nats", "KL(posterior ‖ prior)", "charged"),
    *("KL − charged", "released as intended (of 50)", "blurred", "distortion", "fuel against true data"),
    "episodes",
)


def table(cells: list[Cell]) -> str:
    """The table for docs/budget.md, standard errors in brackets."""
    lines = [" | ".join(COLUMNS), "|".join("---" for _ in COLUMNS)]
    for cell in cells:
        lower, upper = (max(side, 0.0) for side in (cell.lower, cell.upper))
        row = (
            *(cell.policy, cell.exhausted, f"{cell.budget:g}"),
            f"{min(lower, upper):.3f} to {upper:.3f} ({cell.error:.3f})",
            f"{cell.divergence:.3f} ({cell.divergence_error:.3f})",
            *(f"{cell.charged:.3f}", f"{cell.excess:+.3f} ({cell.excess_error:.3f})"),
            *(f"{cell.released:.1f}", f"{cell.blurred:.1f}", f"{cell.distortion:.2f}"),
            *(f"{cell.fuel:+.2f} % ({cell.fuel_error:.2f})", f"{cell.episodes:,}"),
        )
        lines.append(" | ".join(row))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def read(path: Path) -> list[Cell]:
    """The cells of a file that this study wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Cell(**{name: value for name, value in row.items() if name != "holds"}) for row in rows]


if __name__ == "__main__":
    tyro.cli(Study).main()

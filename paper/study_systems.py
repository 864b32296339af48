"""What do the building, the driver and the battery leak, and what does privacy cost them?

True data, noise, transport and the counterfactual policy on each system. The tables of docs/building.md,
docs/driver.md and docs/battery.md are those of systems.json.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import tyro

from veil.evaluation.audit import audit
from veil.policies import Counterfactual, GaussianNoise, Policy, Transport, Truth
from veil.settings import AuditSettings
from veil.systems import Battery, Building, Driver, System

# The unit of noise per shared field, about one typical deviation of the release between the secrets.
UNITS = {"building": (0.5,), "driver": (0.3, 0.6), "battery": (30.0, 0.005)}

MAKE = {"building": Building, "driver": Driver, "battery": Battery}

STEPS = {"building": 24, "driver": 25, "battery": 30}


@dataclass(frozen=True)
class Cell:
    """One policy on one system.

    Attributes:
        system: its name.
        policy: its name in the table.
        verdict: of the audit.
        low: nats that are proven to leak.
        high: nats that leak at most; None where nothing is certified.
        entropy: H(q), nats.
        accuracy: how often the best attacker is right.
        distortion: mean per step, in the unit of the system.
        parts: each part of the cost per step, by its name.
        true_parts: the same when true data are shared, under the same random numbers.
        episodes: that were played.
    """

    system: str
    policy: str
    verdict: str
    low: float
    high: float | None
    entropy: float
    accuracy: float
    distortion: float
    parts: dict[str, float]
    true_parts: dict[str, float]
    episodes: int


@dataclass(frozen=True)
class Study:
    """Audit the systems that come with Veil beside the platoon."""

    out: Path = Path("build/studies")
    """folder for systems.json"""
    episodes: int = 256
    """episodes per cell"""
    only: str = ""
    """name of one system; all of them if left out"""

    def main(self) -> None:
        """Audit every cell, print, write; cells that are in the file already are left."""
        self.out.mkdir(parents=True, exist_ok=True)
        file = self.out / "systems.json"
        cells = read(file) if file.exists() else []
        done = {(cell.system, cell.policy) for cell in cells}
        for name in [self.only] if self.only else list(MAKE):
            for title, policy in policies(name, MAKE[name]()).items():
                if (name, title) in done:
                    continue
                cells.append(self.cell(name, title, policy))
                print(line(cells[-1]), flush=True)
                file.write_text(json.dumps([asdict(one) for one in cells], indent=1) + "\n", encoding="utf-8")
                jax.clear_caches()

    def cell(self, name: str, title: str, policy: Policy) -> Cell:
        """Audit one policy."""
        settings = AuditSettings(
            steps=STEPS[name], episodes=self.episodes, assisted=False, seed=11, scenarios="none"
        )
        found = audit(policy.system, policy, settings)
        rows = [row for row in found.utility if row.weight is not None]
        best = found.best_attack
        distortion = found.quantity("distortion")
        assert distortion is not None and best is not None
        return Cell(
            system=name,
            policy=title,
            verdict=found.verdict.name,
            low=found.interval[0],
            high=found.interval[1] if found.verdict.certified else None,
            entropy=found.leakage.entropy,
            accuracy=best.accuracy.value,
            distortion=distortion.value.value,
            parts={row.name: row.value.value for row in rows},
            true_parts={row.name: row.true_data.value for row in rows if row.true_data is not None},
            episodes=found.episodes,
        )


def policies(name: str, system: System) -> dict[str, Policy]:
    """The ways of sharing in the table."""
    unit = jnp.asarray(UNITS[name])
    return {
        "true data": Truth(system),
        "noise": GaussianNoise(system, unit),
        "transport": Transport(system, 0.2 * unit),
        "counterfactual": Counterfactual(system),
    }


def read(file: Path) -> list[Cell]:
    """The cells of a file."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [Cell(**row) for row in rows]


def line(cell: Cell) -> str:
    """One row of a table."""
    most = "not certified" if cell.high is None else f"{cell.high:.3f}"
    parts = [f"{value:.4g}" for value in cell.parts.values()]
    shown = [
        cell.policy,
        f"{cell.low:.3f}",
        most,
        f"{cell.distortion:.3g}",
    ]
    return f"| {' | '.join([*shown, *parts])} |"


def table(cells: list[Cell], system: str) -> str:
    """The table of a page."""
    own = [cell for cell in cells if cell.system == system]
    units = {part.name: part.unit for part in MAKE[system].cost_fields}
    names = [
        "sharing",
        "at least, nats",
        "at most, nats",
        "distortion",
    ]
    names += [f"{name}, {units[name]} per step" for name in own[0].parts]
    return "\n".join([f"| {' | '.join(names)} |", "|---" * len(names) + "|", *map(line, own)])


if __name__ == "__main__":
    tyro.cli(Study).main()

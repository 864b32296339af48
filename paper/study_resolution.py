"""What does rounding leak? Policies behind sensors of several resolutions, attacked by what rounding leaves.

Counterfactual, transport and a trained policy on the platoon, and the first two on `gain`, with states read
and releases emitted in steps of 1e-6, 0.001, 0.01 and 0.1. Two faulty counterfactual policies stand beside
them: one reads the rounded state as if it were exact, the other adds uniform noise of one step to it first.
Their releases are emitted in steps of 1e-9, so that nothing but the transform protects the owner.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import tyro

from paper.study_budget import Study as BudgetStudy
from veil.evaluation.audit import audit
from veil.laws import recovered
from veil.policies import Counterfactual, Policy, Transport
from veil.policies.base import with_sensor
from veil.policies.counterfactual import split_memory
from veil.settings import AuditSettings
from veil.systems import Gain, Platoon, System, WithResolution, with_resolution

RESOLUTIONS = (1e-6, 0.001, 0.01, 0.1)

FINE = 1e-9  # steps in which the faulty policies emit


class ReadAsExact(Counterfactual):
    """Takes its readings for states."""

    def init_memory(self, secret, state, *, key):
        """The noise of x_1, as if the reading were exact."""
        del key
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        return _moved(self.system.initial(secret), state, laws)

    def update_memory(self, memory, secret, state, external, after, *, key):
        """The noise of a step, as if both readings were exact."""
        del key
        laws = jax.vmap(self.system.transition, (0, 0, None))(self.system.prior.secrets, memory, external)
        return _moved(self.system.transition(secret, state, external), after, laws)


class Dithered(Counterfactual):
    """Adds uniform noise of one step to its readings, and takes the sum for the state."""

    def init_memory(self, secret, state, *, key):
        """The noise of x_1, and the sum."""
        state = self._sum(state, key)
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        return jnp.concatenate([_moved(self.system.initial(secret), state, laws).ravel(), state])

    def update_memory(self, memory, secret, state, external, after, *, key):
        """The noise of a step between two sums."""
        copies, before = split_memory(self.system, memory)
        assert before is not None  # the last sum
        after = self._sum(after, key)
        laws = jax.vmap(self.system.transition, (0, 0, None))(self.system.prior.secrets, copies, external)
        own = self.system.transition(secret, before, external)
        return jnp.concatenate([_moved(own, after, laws).ravel(), after])

    def _sum(self, state, key):
        steps = jnp.asarray([field.resolution for field in self.system.state_fields], state.dtype)
        return state + steps * (jr.uniform(key, state.shape, state.dtype) - 0.5)


def _moved(own, value, laws):
    noise = recovered(own, value, jnp.zeros_like(value))
    return jax.vmap(lambda law: law.sample(noise))(laws)


@dataclass(frozen=True)
class Cell:
    """One policy behind one sensor.

    Attributes:
        system: its name.
        policy: its name.
        resolution: step of the sensor, in the units of the fields.
        ratio: largest step over the sd of one step's noise, over the fields.
        verdict: of the audit.
        upper: upper end of the interval of the leakage, nats; None where no method applies.
        gains: lower bound of each attacker, nats, and its standard error.
        distortion: mean per step.
        episodes: how many were audited.
    """

    system: str
    policy: str
    resolution: float
    ratio: float
    verdict: str
    upper: float | None
    gains: dict[str, tuple[float, float]]
    distortion: float
    episodes: int

    @property
    def best(self) -> tuple[str, float, float]:
        """The attacker with the highest lower bound, its bound and its standard error."""
        name = max(self.gains, key=lambda one: self.gains[one][0])
        return name, *self.gains[name]


@dataclass(frozen=True)
class Study:
    """Attack policies behind sensors that round."""

    out: Path = Path("build/studies")
    """folder for resolution.json and for the trained policy"""
    run: Path | None = None
    """folder of a `veil train platoon`; trained into OUT/budget-run if left out (3 minutes)"""
    episodes: int = 1024
    """episodes per cell"""
    steps: int = 50
    """releases per episode"""

    def main(self) -> None:
        """Audit every cell, print, write; cells that are in the file already are left."""
        self.out.mkdir(parents=True, exist_ok=True)
        file = self.out / "resolution.json"
        cells = read(file) if file.exists() else []
        done = {(cell.system, cell.policy, cell.resolution) for cell in cells}
        for step in RESOLUTIONS:
            for name, policy in self.policies(step).items():
                system = "gain" if name.startswith("gain") else "platoon"
                key = (system, name.removeprefix("gain "), step)
                if key not in done:
                    cells.append(self.cell(*key, policy))
                    print(line(cells[-1]), flush=True)
                    rows = json.dumps([asdict(cell) for cell in cells], indent=1) + "\n"
                    file.write_text(rows, encoding="utf-8")
                    jax.clear_caches()  # a hundred audits would fill the memory with programs

    def policies(self, step: float) -> dict[str, Policy]:
        """By name; those on `gain` begin with its name."""
        trained = BudgetStudy(self.out, self.run).trained()
        found = dict[str, Policy]()
        for prefix, base, sd in (("gain ", Gain(), [0.2]), ("", Platoon(), [0.06, 0.1])):
            system, faulty = with_resolution(base, step), finely_emitted(base, step)
            found[f"{prefix}counterfactual"] = Counterfactual(system)
            found[f"{prefix}transport"] = Transport(system, jnp.asarray(sd))
            found[f"{prefix}read as exact"] = ReadAsExact(faulty)
            found[f"{prefix}uniform noise"] = Dithered(faulty)
        return found | {"pathwise": with_sensor(trained, step)}

    def cell(self, system: str, name: str, step: float, policy: Policy) -> Cell:
        """Audit one policy."""
        faulty = isinstance(policy, ReadAsExact | Dithered)
        settings = AuditSettings(
            steps=self.steps, episodes=self.episodes, assisted=False, seed=21, scenarios="none"
        )
        found = audit(policy.system, policy, settings)
        fair = [row for row in found.attacks if row.role == "attack" and row.name not in ("prior", "Bayes")]
        distortion = next(one for one in found.utility if one.name == "distortion")
        return Cell(
            system=system,
            policy=name,
            resolution=step,
            ratio=coarseness(policy.system, step),
            verdict=found.verdict.name,
            upper=None if faulty or found.verdict.refused else found.leakage.high,
            gains={row.name: (row.lower.value, row.lower.error) for row in fair},
            distortion=distortion.value.value,
            episodes=found.episodes,
        )


def finely_emitted(system: System, step: float) -> System:
    """The system with this sensor, and releases in much finer steps."""
    count = len(system.state_fields), len(system.shared_fields)
    return WithResolution(system, [step] * count[0], [FINE] * count[1])


def coarseness(system: System, step: float) -> float:
    """The step over the smallest sd of one step's noise."""
    secret = system.prior.secrets[0]
    law = system.transition(secret, system.initial(secret).mean, system.first_external())
    return float(step / jnp.min(jnp.diagonal(law.scale)))


def line(cell: Cell) -> str:
    """A row for people."""
    name, gain, error = cell.best
    upper = "no bound" if cell.upper is None else f"at most {cell.upper:.4f}"
    return (
        f"{cell.system:>8} {cell.policy:>15} {cell.resolution:<7g} "
        f"best attack {gain:.4f} ({error:.4f}) by {name}, "
        f"{upper}, {cell.verdict}, distortion {cell.distortion:.4f}"
    )


def table(cells: list[Cell]) -> str:
    """The table for docs/resolution.md, standard errors in brackets."""
    head = (
        *("system", "policy", "resolution", "in sd of one step's noise", "best attack on rounding, nats"),
        *("leakage at most, nats", "distortion"),
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join("---" for _ in head) + "|"]
    for cell in cells:
        name, gain, error = cell.best
        upper = "no bound" if cell.upper is None else f"{cell.upper:.4f}"
        row = (
            *(cell.system, cell.policy, f"{cell.resolution:g}", f"{cell.ratio:.2g}"),
            f"{max(gain, 0.0):.3f} ({error:.3f}), {name}",
            *(upper, f"{cell.distortion:.3f}"),
        )
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def read(path: Path) -> list[Cell]:
    """The cells of a file that this study wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Cell(**row | {"gains": {k: tuple(v) for k, v in row["gains"].items()}}) for row in rows]


if __name__ == "__main__":
    tyro.cli(Study).main()

"""The audits behind the tables of README.md and docs/audit.md, with the worst world that was tried.

Every row is kept in the file as soon as it is done, so that a study that was stopped goes on. Rows whose
`source` says so were written down from audits made before this study was there; worlds came later.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from paper.reproduction.blind import constant
from veil.beliefs.particles import ParticleSpec, Scheme
from veil.evaluation.audit import try_scenarios
from veil.evaluation.evaluate import Evaluation, evaluate
from veil.learners import run as runs
from veil.policies import Counterfactual, GaussianNoise, Policy, Transport, Truth, Twin
from veil.results.parts import BELIEVED, worst_of
from veil.settings import AuditSettings
from veil.stats import stratified_mean
from veil.systems import Platoon
from veil.types import as_float32, as_float64
from veil.version import __version__

PAGE = Path("paper/audits.json")

RUN = Path("reproduce/runs/pathwise")

FLOOR = (0.06, 0.1)  # m/s and m

EPISODES = 1024

SMALLEST = 0.01  # nats that are worth a word

SLOW = ("bootstrap",)  # takes ten times as long to play; no other world is tried


@dataclass(frozen=True)
class Row:
    """One audit of the platoon over 50 releases.

    Attributes:
        title: of the way of sharing.
        episodes: that were audited.
        lower: mean lower side of the leakage, nats.
        upper: mean upper side; None where the gate refuses.
        error: the larger standard error of the two; None where it was not kept.
        limit: upper end of the interval, nats; likewise.
        distortion: mean per step.
        fuel: per cent against true data, paired.
        source: version that made it.
        worst: name of the world with the largest lower bound; empty where no world was tried.
        worst_lower: that bound, nats: what the attacker there gains at least, corrected for all attackers.
        worst_error: the standard error of its mean.
        looked: how other worlds were tried: "brief", or what was done before audits did so; empty for not.
    """

    title: str
    episodes: int
    lower: float
    upper: float | None
    error: float | None
    limit: float | None
    distortion: float
    fuel: float
    source: str = __version__
    worst: str = ""
    worst_lower: float = 0.0
    worst_error: float = 0.0
    looked: str = ""


def ways(run: Path) -> dict[str, tuple[str, Callable[[Platoon], Policy]]]:
    """Title and policy."""

    def noise(*sd: float) -> Callable[[Platoon], Policy]:
        return lambda system: GaussianNoise(system, jnp.asarray(sd))

    def learned(system: Platoon) -> Policy:
        with jax.enable_x64(False):
            return runs.load_policy(run, as_float32(system))

    def blurred(system: Platoon) -> Policy:
        return Transport(system, jnp.asarray(FLOOR), ParticleSpec(256, Scheme()))

    return {
        "truth": ("true data", Truth),
        "constant": ("blind: always (15 m/s, 20 m)", constant),
        "noise_small": ("noise (0.02 m/s, 0.02 m)", noise(0.02, 0.02)),
        "noise": ("noise (0.25 m/s, 0.43 m)", noise(0.25, 0.43)),
        "noise_large": ("noise (2 m/s, 3.4 m)", noise(2.0, 3.4)),
        "transport": (
            "transport, noise floor (0.06 m/s, 0.1 m)",
            lambda system: Transport(system, jnp.asarray(FLOOR)),
        ),
        "bootstrap": ("the same, belief of a bootstrap filter with 256 particles", blurred),
        "counterfactual": ("counterfactual", Counterfactual),
        "twin": ("twin, not fitted", Twin),
        "learned": ("learned on transport (`veil train`)", learned),
    }


def measured(system: Platoon, title: str, policy: Policy, true: Evaluation | None) -> Row:
    """Audit one way of sharing."""
    episodes = 512 if "bootstrap" in title else EPISODES
    found = evaluate(system, policy, settings=AuditSettings(episodes=episodes), candidates=2)
    prior = np.exp(np.asarray(system.prior.log_masses, float))
    leakage, fuel = found.leakage, np.asarray(found.use.cost)
    extra = 0.0
    if true is not None:
        theirs = np.asarray(true.use.cost)[: len(fuel)]
        extra = stratified_mean(100.0 * (fuel - theirs) / theirs.mean(), found.index, prior).value
    believed = found.verdict().name in BELIEVED
    distortion = stratified_mean(np.asarray(found.use.distortion), found.index, prior).value
    sides = leakage.lower.value, leakage.upper.value if believed else None
    errors = max(leakage.lower.error, leakage.upper.error)
    measured = (len(found.index), *sides, errors, leakage.high, distortion, extra)
    return Row(title, *measured, __version__)


def in_other_worlds(row: Row, system: Platoon, policy: Policy) -> Row:
    """The same with the worst world of a brief look, unless a worse one is known."""
    worst = worst_of(try_scenarios(system, policy, AuditSettings()))
    assert worst is not None  # a platoon has other worlds
    if worst.low < row.worst_lower:
        return replace(row, looked=f"{row.looked}, brief".strip(", "))
    found = {"worst": worst.scenario.name, "worst_lower": worst.low, "worst_error": worst.attack.lower.error}
    return replace(row, looked="brief", **found)


def read(path: Path) -> dict[str, Row]:
    """The rows of a file; none where there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Row(**row) for name, row in content["rows"].items()}


def leakage_text(row: Row) -> str:
    """Both sides, or the upper end of the interval where the sides are equal and nothing was found."""
    lower = max(row.lower, 0.0)
    if row.upper is None:
        return f"at least {lower:.3f}"
    if f"{lower:.3f}" == f"{row.upper:.3f}":
        return f"{lower:.3f}"
    return f"{lower:.3f} to {row.upper:.3f}"


def worst_text(row: Row) -> str:
    """The worst world that was tried."""
    if not row.worst:
        return ""
    if row.worst_lower < SMALLEST:
        return "nothing proven"
    return f"at least {math.floor(100.0 * row.worst_lower) / 100.0:.2f} ({row.worst})"


def table(rows: dict[str, Row]) -> str:
    """As in docs/audit.md."""
    lines = ["| sharing | episodes | leakage | s.e. | interval up to | mean distortion | worst world tried |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in rows.values():
        error, limit = ("" if one is None else f"{one:.3f}" for one in (row.error, row.limit))
        cells = (row.title, row.episodes, leakage_text(row), error, limit)
        lines.append("| " + " | ".join(map(str, (*cells, f"{row.distortion:.3f}", worst_text(row)))) + " |")
    return "\n".join(lines) + "\n"


SHORT = ("truth", "constant", "noise", "noise_large", "transport", "counterfactual", "twin", "learned")


def short_table(rows: dict[str, Row]) -> str:
    """As in README.md."""
    lines = ["| sharing | leakage, nats | worst world tried | mean distortion | fuel against true data |"]
    lines += ["|---|---|---|---|---|"]
    for name in [one for one in SHORT if one in rows]:
        row = rows[name]
        fuel = "" if name == "truth" else f"{row.fuel:+.2f} %".replace("-", "−")
        cells = (row.title, leakage_text(row), worst_text(row), f"{row.distortion:.2f}", fuel)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description="The audits that README.md and docs/audit.md show.")
    parser.add_argument("--out", type=Path, default=PAGE, help="file to write; rows that it has are kept")
    parser.add_argument("--run", type=Path, default=RUN, help="folder of the learned policy")
    options = parser.parse_args()
    done = read(options.out)
    with jax.enable_x64(True):
        system = as_float64(Platoon())
        true = None
        if set(known := ways(options.run)) - set(done):
            true = evaluate(system, Truth(system), settings=AuditSettings(episodes=EPISODES), candidates=0)
        for name in sorted(known, key="twin".__eq__):  # the slowest ones last
            title, make = known[name]
            if name in done and ("brief" in done[name].looked or name in SLOW):
                continue
            row = done.get(name) or measured(system, title, make(system), None if name == "truth" else true)
            done[name] = row if name in SLOW else in_other_worlds(row, system, make(system))
            print(done[name], flush=True)
            content = {"version": __version__, "unit": "nats", "horizon": 50, "entropy": float(np.log(4.0))}
            ordered = {key: asdict(done[key]) for key in known if key in done}
            options.out.write_text(json.dumps(content | {"rows": ordered}, indent=1) + "\n")
    print(table(done))


if __name__ == "__main__":
    main()

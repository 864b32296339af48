"""The measurements of docs/learning.md: trained policies of the platoon, its frontier and two more studies.

`veil train`, `veil audit` and `veil frontier` are run as the page names them, then `study_learning_wins` and
`study_robust`. What is done is kept in the folder, so that a study that was stopped goes on. The tables and
the sentences with numbers are made from `learning.json`.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from paper.reproduction.tables import markdown
from paper.study_learning_wins import Study as Wins
from paper.study_robust import Study as Robust
from veil.io import write_json
from veil.results import Audit, Frontier
from veil.results.frontier import needed
from veil.version import __version__

PUBLISHED = Path(__file__).parent / "learning.json"

NATS = 0.05  # that families are compared at

STARTS = {"transport": "`veil train platoon`", "plain": "`veil train platoon --start plain`"}

KINDS = {
    "noise": "noise",
    "displacement": "displacement",
    "transport": "learned on transport",
    "plain": "learned from noise",
}

WINS = {
    "learned": "learned",
    "transport": "transport",
    "displacement, 0.9 of the way": "displacement, 0.9 of the way",
    "displacement, 0.75 of the way": "displacement, 0.75 of the way",
    "noise, 0.5 spreads": "noise, half a spread",
}

ROBUST = {
    ("transport", 0.05): "transport, noise 0.05 spreads",
    ("transport", 0.5): "transport, noise 0.5 spreads",
    ("noise", 1.0): "noise, 1 spread",
    ("noise", 4.0): "noise, 4 spreads",
    ("robust", 80.0): "trained on all four",
}

PLANTS = {
    "as modelled": "as modelled",
    "secret mistaken by 20%": "secrets mistaken by 20 %",
    "idm drivers": "IDM drivers",
    "coloured noise": "coloured noise",
}


def veil(*words: str) -> None:
    """Run a command; it goes on where it was, and ends at once where it is done."""
    print("veil", *words, flush=True)
    subprocess.run([sys.executable, "-m", "veil", *words], check=True)


def trained(start: str, folder: Path) -> dict[str, Any]:
    """Train a policy, audit it, and keep what the table needs."""
    run, audit = folder / f"run-{start}", folder / f"audit-{start}"
    if not (audit / "audit.json").exists():
        veil("train", "platoon", "--start", start, "--out", str(run))
        veil("audit", str(run), "--scenarios", "none", "--out", str(audit))
    found = Audit.load(audit)
    fuel = found.quantity("cost")
    assert fuel is not None and fuel.change is not None
    tracking = [found.quantity(f"tracking error, {axis}") for axis in ("speed", "spacing")]
    distortion = found.quantity("distortion")
    assert distortion is not None
    posteriors = [
        float(found.posteriors[found.index == k, k].mean()) for k in range(found.posteriors.shape[1])
    ]
    leakage = found.leakage
    return {
        "episodes": found.episodes,
        "particles": found.particles,
        "verdict": found.verdict.name,
        "lower": leakage.lower.value,
        "upper": leakage.upper.value,
        "error": max(leakage.lower.error, leakage.upper.error),
        "distortion": distortion.value.value,
        "fuel": fuel.change.value,
        "fuel_error": fuel.change.error,
        "tracking": [one.value.value for one in tracking if one is not None],
        "posterior": posteriors,
    }


def frontier(folder: Path) -> dict[str, Any]:
    """The points of `veil frontier platoon`, and the distortion that each family needs."""
    if not (folder / "frontier.json").exists():
        veil("frontier", "platoon", "--out", str(folder))
    points = Frontier.load(folder).points
    least = {kind: needed([one for one in points if one.goal.kind == kind], NATS) for kind in KINDS}
    return {
        "points": [
            {
                "kind": one.goal.kind,
                "value": one.goal.value,
                "trusted": one.trusted,
                "lower": one.leakage.lower.value,
                "upper": one.leakage.upper.value,
                "error": max(one.leakage.lower.error, one.leakage.upper.error),
                "distortion": one.distortion.value,
                "episodes": one.episodes,
            }
            for one in points
        ],
        "needed": {kind: {"distortion": one.distortion, "bound": one.bound} for kind, one in least.items()},
    }


def smaller(study: Wins | Robust, name: str) -> list[dict[str, Any]]:
    """The rows of a study that writes them into a folder at its end."""
    path = study.out / name
    if not path.exists():
        study.run()
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Study:
    """All measurements of docs/learning.md."""

    out: Path = Path("build/studies/learning.json")
    """file to write"""
    folder: Path = Path("build/studies/learning")
    """folder for the trainings, audits and points; what is there is not made again"""

    def run(self) -> None:
        """Make what is missing, and write after each part; the frontier, which takes an hour, comes last."""
        content = {"version": __version__, "unit": "nats"}
        if self.out.exists():
            content = json.loads(self.out.read_text(encoding="utf-8"))
        robust = Robust(self.folder, episodes=256, updates=100, weights=(80.0,))
        parts: dict[str, Callable[[], Any]] = {
            "trained": lambda: {start: trained(start, self.folder) for start in STARTS},
            "gain": lambda: smaller(Wins(self.folder), "learning_wins.json"),
            "robust": lambda: smaller(robust, "robust.json"),
            "frontier": lambda: frontier(self.folder / "frontier"),
        }
        self.out.parent.mkdir(parents=True, exist_ok=True)
        for name, make in parts.items():
            if name not in content:
                content[name] = make()
                write_json(self.out, content)


def read() -> dict[str, Any]:
    """The published study."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


def trained_table(content: dict[str, Any]) -> str:
    """Policies that were trained, as audited."""
    heads = ("policy", "leakage, nats", "mean distortion", "fuel against true data", "tracking, m/s and m")
    rows = []
    for start, title in STARTS.items():
        one = content["trained"][start]
        leakage = f"{max(one['lower'], 0.0):.3f} to {one['upper']:.3f} ({one['error']:.3f})"
        fuel = f"{one['fuel']:+.2f} % ± {1.96 * one['fuel_error']:.2f}"
        tracking = ", ".join(f"{value:.3f}" for value in one["tracking"])
        posterior = ", ".join(f"{value:.3f}" for value in one["posterior"])
        rows.append((title, leakage, f"{one['distortion']:.3f}", fuel, tracking, posterior))
    return markdown((*heads, "posterior on θ\\*"), rows)


def frontier_table(content: dict[str, Any]) -> str:
    """Upper sides at their distortions, one family a line; points that the audit refuses are left out."""
    rows = []
    for kind, title in KINDS.items():
        own = [one for one in content["frontier"]["points"] if one["kind"] == kind and one["trusted"]]
        own = [one for one in sorted(own, key=lambda one: one["distortion"]) if one["distortion"] > 0.0]
        rows.append(
            (title, ", ".join(f"{max(one['upper'], 0.0):.3f} at {one['distortion']:.3f}" for one in own))
        )
    return markdown(("family", "upper bound of the leakage in nats, at a mean distortion"), rows)


def frontier_words(content: dict[str, Any]) -> str:
    """The distortion that every family needs, against noise."""
    found = content["frontier"]["needed"]
    noise = found["noise"]["distortion"]
    parts = []
    for kind, title in KINDS.items():
        least = found[kind]["distortion"]
        if kind == "noise" or least is None:
            continue
        most = "at most " if found[kind]["bound"] else ""
        parts.append(f"{title} {most}{least:.3f} (1/{noise / least:.0f})")
    return f"For {NATS} nats, noise needs a mean distortion of {noise:.2f}, {'; '.join(parts)}."


def gain_table(content: dict[str, Any]) -> str:
    """Where feedback is costly: the objective and its parts."""
    rows = []
    by_name = {one["name"]: one for one in content["gain"]}
    for name, title in WINS.items():
        one = by_name[name]
        leakage = f"{max(one['lower'], 0.0):.3f} to {max(one['upper'], 0.0):.3f}"
        above = "" if name == "learned" else f"{one['above']:.2f} ± {one['error']:.2f}"
        parts = (f"{one[part]:.2f}" for part in ("distortion", "cost", "total"))
        rows.append((title, leakage, *parts, above))
    return markdown(
        ("policy", "leakage, nats", "distortion", "cost", "objective", "above the learned one"), rows
    )


def robust_table(content: dict[str, Any]) -> str:
    """Upper sides in four plants, with the standard error of the largest, and the largest distortion."""
    found = {(one["kind"], one["value"]): one for one in content["robust"]}
    rows = []
    for way, title in ROBUST.items():
        one = found[way]
        uppers = (f"{max(one['plants'][plant][1], 0.0):.3f}" for plant in PLANTS)
        error = max(error for _, _, error in one["plants"].values())
        rows.append((title, f"{one['distortion']:.2f}", *uppers, f"{error:.3f}"))
    return markdown(("policy", "largest distortion", *PLANTS.values(), "standard error, at most"), rows)


def tables(content: dict[str, Any]) -> Sequence[str]:
    """All that stands in docs/learning.md, of the parts that were measured."""
    makers: dict[str, Sequence[Callable[[dict[str, Any]], str]]] = {
        "trained": (trained_table,),
        "frontier": (frontier_table, frontier_words),
        "gain": (gain_table,),
        "robust": (robust_table,),
    }
    return [make(content) for part, some in makers.items() if part in content for make in some]


if __name__ == "__main__":
    tyro.cli(Study).run()

"""Folders as `veil train`, `veil audit`, `veil share` and `veil frontier` leave them, made by hand."""

import json
import math

import jax
import jax.numpy as jnp

from tests.evaluation.made_audits import LEAK, audit, with_scenarios
from veil.beliefs import KalmanBelief
from veil.learners import run as runs
from veil.learners import training
from veil.learners.run import METRICS, Settings
from veil.learners.selection import SelectionScore
from veil.learners.training import Trained
from veil.policies import LearnedPolicy
from veil.policies.plain import NoiseKernel
from veil.results.frontier import Frontier
from veil.results.parts import Point
from veil.settings import FrontierGoal, ObjectiveWeights, PolicyDesign, TrainSettings
from veil.sharing import Ledger
from veil.stats import Leakage, Mean
from veil.systems import Platoon, System

SETTINGS = Settings(
    "platoon",
    50,
    PolicyDesign(),
    ObjectiveWeights(),
    TrainSettings(updates=40, evaluate_every=20, evaluation_episodes=64),
    "estimate",
)
SCORE = SelectionScore(
    Leakage(Mean(0.001, 0.002), Mean(0.006, 0.002), math.log(4)),
    Mean(66.0, 1.0),
    Mean(0.12, 0.01),
    4.0,
    0.01,
    9.0,
)
CHARGES = (0.0, 0.013, 0.021, 0.0, 0.004)
DECISIONS = ("released", "released", "released", "blind", "released")


class Noisy(LearnedPolicy):
    """Noise on true data, its sd being what was learned; compiles faster than a network."""

    system: System
    network: jax.Array

    def start(self, *, key):
        del key
        return KalmanBelief.start(self.system)

    def features(self, belief, external, time):
        return jnp.zeros(0, belief.log_masses.dtype)

    def kernel(self, features, external, time):
        del features, external, time
        return NoiseKernel(self.system, self.network)


def certified():
    """An audit that bounds the leakage, as modelled and in other scenarios."""
    return with_scenarios(audit(lower=0.012, upper=0.014))


def leaking():
    """An audit that proves a leak."""
    return audit("certified_leak", [LEAK], lower=1.37, upper=1.385)


def audit_folder(folder, made=None):
    """As `veil audit` leaves it, its pictures apart."""
    (made or leaking()).save(folder)
    return folder


def run_folder(folder, *, audited=True, shared=True):
    """As `veil train`, `veil audit` and `veil share` leave it."""
    runs.begin(folder, SETTINGS)
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in metrics()))
    training.finish_run(
        folder, SETTINGS, Trained(Noisy(Platoon(), jnp.array([0.1, 0.2])), SCORE, 40, 20, "all updates made")
    )
    if audited:
        audit_folder(folder / "audit", certified())
    if shared:
        ledger(folder / "share" / "ledger.jsonl")
    return folder


def metrics():
    """One line per update, looks at 0, 20 and 40."""
    lines = [{"update": 0.0, "seconds": 60.0} | SCORE.metrics()]
    for update in range(1, 41):
        line = {
            "update": float(update),
            "seconds": 0.5,
            "leakage": 0.1 / update,
            "distortion": 0.12,
            "cost": 66.0,
        }
        lines.append(line | (SCORE.metrics() if update % 20 == 0 else {}))
    return lines


def ledger(path, budget=0.1):
    """Five steps of a stream."""
    about = {
        "system": "platoon",
        "seed": 3,
        "budget": budget,
        "policy": "abc",
        "shared": ["speed", "spacing"],
    }
    with Ledger(path, about) as book:
        for place, (charge, decision) in enumerate(zip(CHARGES, DECISIONS, strict=True)):
            total = math.fsum(CHARGES[: place + 1])
            book.append({"step": place + 1, "charge": charge, "total": total, "decision": decision})
    return path


def frontier_folder(folder, system="platoon"):
    """Three families, one of them not to be believed."""
    points = [_point("noise", at, at, 0.8 / at) for at in (1.0, 3.0, 9.0)]
    points += [_point("transport", weight, 0.1, 0.4 / weight) for weight in (5.0, 80.0)]
    points += [_point("quantised", 1.0, 0.7, math.log(4), "not_enough_particles")]
    Frontier(system, 50, Mean(0.099, 0.001), tuple(points), 0, 0.2, 100).save(folder)
    return folder


def _point(kind, value, distortion, upper, verdict="certifiable"):
    leakage = Leakage(Mean(upper - 0.001, 0.002), Mean(upper, 0.002), math.log(4))
    use = Mean(distortion, 0.001), Mean(2.0, 0.1), Mean(0.3, 0.05)
    reasons = () if verdict == "certifiable" else ("no method applies",)
    return Point(FrontierGoal(kind, value), leakage, verdict, reasons, *use, 128, 512, 3.5)

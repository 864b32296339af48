"""Learning on the platoon: time to a private policy, updates per second, compile time, memory."""

import math
import time
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.random as jr

from bench import report
from veil.learners import Pathwise, initial_policy, train_policy
from veil.problem import problem
from veil.registry import LEARNERS
from veil.settings import PolicyDesign, Preset
from veil.systems import Platoon

NATS, DISTORTION = 0.05, 1.0  # what a policy must reach on fresh episodes
KEY = jr.key(5)
OURS = {
    "pathwise, on transport": LEARNERS["pathwise"](),
    "pathwise, plain": replace(LEARNERS["pathwise"](), design=PolicyDesign(start="plain")),
    "ddpg, repaired": LEARNERS["ddpg"](),
}


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Train, time single updates, print, and return what to record."""
    del folder
    steps = 10 if fast else 50
    reached = {name: _reach(preset, steps, fast=fast) for name, preset in OURS.items()}
    if not report.missing("stable_baselines3"):
        reached |= {"Stable-Baselines3 TD3": _peer(steps, fast=fast)}
    ours = reached["pathwise, on transport"]["seconds"]
    rows = [
        [name, _seconds(found["seconds"]), _ratio(found["seconds"], found["whole"], ours), *_end(found)]
        for name, found in reached.items()
    ]
    report.table(
        f"Wall clock to {NATS} nats at distortion ≤ {DISTORTION:g}",
        [
            "learner",
            "goal reached after",
            "ratio",
            "time in all",
            "leakage in the end",
            "distortion in the end",
        ],
        rows,
        "From nothing: units, compiling and evaluations included; leakage on fresh episodes. Of ours it is "
        "the upper side of an auditor's particles, of the peer the sum over steps that its environment tells "
        f"(limit {_limit(fast):g} s; its best evaluation counts).",
    )
    sizes = [(0, 32), (0, 8)] if fast else [(0, 16), (0, 32), (0, 64), (32, 32), (81, 32)]
    speed = [_speed(particles, episodes, steps) for particles, episodes in sizes]
    rows = [
        [
            "Kalman" if not one["particles"] else f"{one['particles']:.0f} particles",
            f"{one['episodes']:.0f}",
            f"{one['updates_per_second']:.2f}",
            f"{one['compiling']:.1f} s",
            f"{one['megabytes']:.0f} MB",
        ]
        for one in speed
    ]
    columns = ["belief of the policy, per secret", "episodes", "updates per second", "compiling", "memory"]
    note = f"Plain network, {steps} steps, four secrets. Memory is what the compiled update asks for."
    report.table("One update", columns, rows, note)
    return {"reach": reached, "updates": speed, "steps": steps}


def _reach(preset: Preset, steps: int, *, fast: bool) -> dict[str, float]:
    """Train as the command line does by default, and note the first evaluation that is good enough."""
    began, hits = time.perf_counter(), []

    def keep(line: dict[str, float]) -> None:
        good = line.get("upper", 1e9) <= NATS and line.get("fresh_distortion", 1e9) <= DISTORTION
        if good and not hits:
            hits.append(time.perf_counter() - began)

    options = (
        replace(preset.training, updates=4, evaluate_every=2, evaluation_episodes=32)
        if fast
        else preset.training
    )
    policy = initial_policy(preset.design, Platoon(), steps, key=KEY)
    trained = train_policy(
        (problem(Platoon(), steps),), LEARNERS[options.learner]().build(options), policy, options, report=keep
    )
    return {
        "seconds": hits[0] if hits else float("nan"),
        "whole": time.perf_counter() - began,
        "leakage": trained.score.leakage.upper.value,
        "distortion": trained.score.distortion.value,
        "updates": float(trained.updates),
    }


def _peer(steps: int, *, fast: bool) -> dict[str, float]:
    from bench.actor_critic_by_peer import reach

    return reach(steps, (NATS, DISTORTION), _limit(fast))


def _limit(fast: bool) -> float:
    return 10.0 if fast else 300.0


def _end(found: dict[str, float]) -> list[str]:
    whole, leakage, distortion = (found[name] for name in ("whole", "leakage", "distortion"))
    return [report.duration(whole), f"{leakage:.3f}", f"{distortion:.2f}"]


def _ratio(seconds: float, whole: float, ours: float) -> str:
    """How many times longer than ours; at least so many where the goal was not reached."""
    if math.isnan(ours):
        return "–"
    return f"{seconds / ours:.1f}×" if math.isfinite(seconds) else f"> {whole / ours:.1f}×"


def _speed(particles: int, episodes: int, steps: int) -> dict[str, float]:
    """Compile one update and time a few."""
    policy = initial_policy(PolicyDesign(start="plain", particles=particles), Platoon(), steps, key=KEY)
    family, learner = (problem(Platoon(), steps),), Pathwise(episodes)
    progress = learner.begin(family, policy, key=KEY)
    began = time.perf_counter()
    update = eqx.filter_jit(learner.update)
    program = update.lower(family, progress, key=KEY).compile()  # pyright: ignore[reportFunctionMemberAccess]
    compiling = time.perf_counter() - began
    progress, _ = jax.block_until_ready(program(family, progress, key=KEY))
    began, done = time.perf_counter(), 0
    while done < 3 or time.perf_counter() - began < 3.0:
        progress, _ = jax.block_until_ready(program(family, progress, key=KEY))
        done += 1
    plan = program.compiled.memory_analysis()
    return {
        "particles": float(particles),
        "episodes": float(episodes),
        "updates_per_second": done / (time.perf_counter() - began),
        "compiling": compiling,
        "megabytes": plan.temp_size_in_bytes / 2.0**20 if plan else float("nan"),
    }


def _seconds(value: float) -> str:
    return report.duration(value) if value == value else "not reached"

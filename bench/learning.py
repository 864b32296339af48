"""Learning on the platoon: time to a private policy, updates per second, compile time, memory."""

import time
from pathlib import Path

import equinox as eqx
import jax
import jax.random as jr

from bench import report
from veil.learners import Design, Pathwise, Training, designed, train
from veil.problem import problem
from veil.systems import Platoon

NATS, DISTORTION = 0.05, 1.0  # what a policy must reach on fresh episodes
KEY = jr.key(5)


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Train, time single updates, print, and return what to record."""
    del folder
    steps = 10 if fast else 50
    reached = {start: _reach(start, steps, fast=fast) for start in ("transport", "plain")}
    rows = [
        [start, *(_seconds(found[name]) for name in ("seconds", "whole")), f"{found['distortion']:.2f}"]
        for start, found in reached.items()
    ]
    report.table(
        f"Wall clock to {NATS} nats at distortion ≤ {DISTORTION:g}",
        ["start of the policy", "first look that shows it", "whole training", "distortion in the end"],
        rows,
        "From nothing: units, compiling and looks included. Leakage is the upper side on fresh episodes.",
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


def _reach(start: str, steps: int, *, fast: bool) -> dict[str, float]:
    """Train as the command line does by default, and note the first look that is good enough."""
    began, hits = time.perf_counter(), []

    def told(line: dict[str, float]) -> None:
        good = line.get("upper", 1e9) <= NATS and line.get("fresh_distortion", 1e9) <= DISTORTION
        if good and not hits:
            hits.append(time.perf_counter() - began)

    options = Training(updates=4, look=2, looked=32) if fast else Training()
    design = Design(start="transport" if start == "transport" else "plain")
    policy = designed(design, Platoon(), steps, key=KEY)
    learner = Pathwise(options.episodes, options.updates, options.learning_rate)
    trained = train((problem(Platoon(), steps),), learner, policy, options, report=told)
    return {
        "seconds": hits[0] if hits else float("nan"),
        "whole": time.perf_counter() - began,
        "leakage": trained.look.leakage.upper.value,
        "distortion": trained.look.distortion.value,
        "updates": float(trained.updates),
    }


def _speed(particles: int, episodes: int, steps: int) -> dict[str, float]:
    """Compile one update and time a few."""
    policy = designed(Design(start="plain", particles=particles), Platoon(), steps, key=KEY)
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

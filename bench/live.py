"""Latency of a live release on the platoon, with charge, account and durable writes, and of a restart."""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np

from bench import report
from veil.policies import Counterfactual, GaussianNoise, Policy, Transport
from veil.sharing import Sharer
from veil.systems import Platoon, System
from veil.types import as_float64

WARM = 20  # steps that are not counted
HERE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Case:
    """A stream, and what is asked of its latency in milliseconds."""

    name: str
    policy: str
    particles: int
    steps: int
    p50: float
    p99: float


CASES = (
    Case("Kalman, transport", "transport", 0, 20_000, 1.0, 3.0),
    Case("Kalman, noise", "noise", 0, 20_000, 1.0, 3.0),
    Case("no belief, counterfactual", "counterfactual", 0, 20_000, 1.0, 3.0),
    Case("81 particles, noise", "noise", 81, 20_000, 2.5, 5.0),
    Case("1296 particles, noise", "noise", 1296, 1_000, float("inf"), 60.0),
)


def made(name: str) -> Policy:
    """A policy by name, in double precision."""
    with jax.enable_x64(True):
        system = as_float64(Platoon())
        if name == "transport":
            return Transport(system, jnp.asarray([0.06, 0.1]))
        if name == "counterfactual":
            return Counterfactual(system)
        return GaussianNoise(system, jnp.asarray([0.25, 0.43]))


class Plant:
    """The platoon with its own random numbers."""

    def __init__(self, system: System, seed: int = 0):
        self.numbers = np.random.default_rng(seed)
        self.state, self.external = np.array([15.0, 20.0]), np.array([15.0, 15.0, 20.0])
        secret = system.prior.secrets[1]

        def step(state, external, shared, noise):
            after = system.transition(secret, state, external).sample(noise[:2])
            return after, system.next_external(external, shared, noise[2:])

        self._step = jax.jit(step)

    def step(self, shared: np.ndarray) -> None:
        """Move on."""
        with jax.enable_x64(True):
            moved = self._step(self.state, self.external, shared, self.numbers.normal(size=4))
        self.state, self.external = (np.asarray(part) for part in moved)


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Stream, print, and return what to record."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as place:
        disk = _disk(Path(place))
        streams = [
            _stream(case, Path(place), 60 if fast else case.steps) for case in CASES[: 1 if fast else None]
        ]
        before = 200 if fast else 20_000
        restart = _restart(Path(place), before)
    report.table(
        "Live release: milliseconds from the state to the durable record",
        [
            "belief and policy",
            "steps",
            "p50",
            "p99",
            "largest",
            "asked p50",
            "asked p99",
            "of it write p50",
            "RSS",
        ],
        [_row(case, found) for case, found in zip(CASES, streams, strict=False)],
        f"A durable write alone takes {disk[0]:.2f} ms (p50), {disk[1]:.2f} ms (p99) on this disk. "
        f"From a restart to the first release: {restart:.2f} s, 3 asked (compilation cache warm, {before} "
        "steps in the ledger).",
    )
    return {"disk": disk, "streams": streams, "restart_seconds": restart}


def _row(case: Case, found: dict[str, float]) -> list[str]:
    p50, p99 = found["p50"], found["p99"]
    return [
        case.name,
        str(int(found["steps"])),
        f"{p50:.2f} {report.verdict(p50, at_most=case.p50)}",
        f"{p99:.2f} {report.verdict(p99, at_most=case.p99)}",
        f"{found['largest']:.1f}",
        f"{case.p50:g}",
        f"{case.p99:g}",
        f"{found['write']:.2f}",
        f"+{found['growth']:.1f} MB",
    ]


def _disk(place: Path, count: int = 300) -> tuple[float, float]:
    """Milliseconds of an append with fdatasync."""
    opened, times = os.open(place / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND), []
    for _ in range(count):
        began = time.perf_counter()
        os.write(opened, b"x" * 400 + b"\n")
        os.fdatasync(opened)
        times.append(1e3 * (time.perf_counter() - began))
    os.close(opened)
    return float(np.median(times)), float(np.quantile(times, 0.99))


def _stream(case: Case, place: Path, steps: int) -> dict[str, float]:
    """One stream without a limit; times in milliseconds."""
    policy, path = made(case.policy), place / f"{case.name}.jsonl"
    plant, times, inside, memory = Plant(policy.system), [], [], 0.0
    with Sharer(
        policy,
        1,
        particles=case.particles,
        ledger=path,
        account=path.with_suffix(".account"),
        resolution=0.0,
    ) as sharer:
        for number in range(steps + WARM):
            began = time.perf_counter()
            release = sharer.share(plant.state, plant.external)
            times.append(1e3 * (time.perf_counter() - began))
            inside.append(release.receipt.milliseconds)
            assert release.shared is not None  # nothing is refused without a limit
            plant.step(release.shared)
            if number == min(steps // 2, 1000):
                memory = _resident()
    counted = np.array(times[WARM:])
    return {
        "steps": float(steps),
        "p50": float(np.median(counted)),
        "p99": float(np.quantile(counted, 0.99)),
        "largest": float(counted.max()),
        "write": float(np.median(counted - np.array(inside[WARM:]))),
        "growth": _resident() - memory,
    }


def _resident() -> float:
    """Megabytes, the most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _restart(place: Path, before: int) -> float:
    """Seconds from the start of `veil share` on an old ledger to its first release: the median of five."""
    secret, ledger = place / "secret.json", place / "restart.jsonl"
    secret.write_text("1")
    secret.chmod(0o600)
    command = [
        sys.executable,
        "-m",
        "veil",
        "share",
        "platoon",
        "--policy",
        "transport",
        "--sd",
        "0.06",
        "0.1",
        "--resolution",
        "0",
    ]
    command += ["--secret-file", str(secret), "--ledger", str(ledger)]
    lines = b"".join(_line(step) for step in range(1, before + 1))
    subprocess.run(command, input=lines, cwd=HERE, check=True, capture_output=True)
    times = []
    for step in range(before + 1, before + 6):
        began = time.perf_counter()
        with subprocess.Popen(
            command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as stream:
            assert stream.stdin is not None and stream.stdout is not None
            stream.stdin.write(_line(step))
            stream.stdin.flush()
            assert stream.stdout.readline()
            times.append(time.perf_counter() - began)
    return float(np.median(times))


def _line(step: int) -> bytes:
    external = {"leader_speed": 15.0, "automated_speed": 15.0, "automated_spacing": 20.0}
    state = {"speed": 15.0, "spacing": 20.0}
    return (json.dumps({"step": step, "state": state, "external": external}) + "\n").encode()

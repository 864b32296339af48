"""KL mixture entropy: ours against numpy, PyTorch and KeOps, on the same inputs to the same digits.

Peers get precisions and log-determinants for nothing; ours starts from covariances.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

from bench import memory, report
from bench.entropy_by_peers import in_keops, in_numpy, in_torch
from bench.mixture_inputs import Inputs, inputs, truth
from bench.timing import Job, Timed, race
from veil.laws import gaussian
from veil.leakage import kl_entropy

BEST = "PyTorch, best matmul"  # whole or in chunks of rows, whichever is fastest on the day
PLAIN = "Veil, default compiler options"
ASKED = {"KeOps": 20.0, "PyTorch, dense": 60.0, "PyTorch, one matmul": 15.0, BEST: 15.0}
ASKED_GRADIENT = 10.0  # times the value
ASKED_MEMORY = 200.0  # megabytes
ASKED_AGREEMENT = 1e-4  # nats


def entropy(weight, mean, covariance):
    """Ours, from weights, means and covariances."""
    return kl_entropy(jnp.log(weight), gaussian(mean, covariance))


# With these, vectors fill registers of 512 bits, as the peers' libraries do; the door of Veil uses them too.
WIDE: dict[str, bool | str] = {"xla_cpu_prefer_vector_width": "512"}


def ours(given: Inputs) -> dict[str, Job]:
    """Value, and value with gradients in weights, means and covariances."""
    arguments = tuple(map(jnp.asarray, (given.weight, given.mean, given.covariance)))
    value, plain = jax.jit(entropy, compiler_options=WIDE), jax.jit(entropy)
    both = jax.jit(jax.value_and_grad(entropy, (0, 1, 2)), compiler_options=WIDE)
    return {
        "Veil": lambda: value(*arguments),
        PLAIN: lambda: plain(*arguments),
        "Veil, value and gradient": lambda: both(*arguments),
    }


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Race, check that all agree, print, and return what to record."""
    count = 1024 if fast else 5184
    given = inputs(count)
    jobs = {**ours(given), **in_torch(given), **in_keops(given, folder / "keops"), **in_numpy(given)}
    timed = race(jobs, rounds=3 if fast else 20, patience=2.0 if fast else 15.0)
    right = truth(given)
    errors = {name: abs(_value(entry.result) - right) for name, entry in timed.items()}
    ratios, best = _ratios(timed)
    gradient = timed["Veil, value and gradient"].seconds / timed["Veil"].seconds
    kinds = ("value",) if fast else ("value", "gradient")
    extra = {kind: memory.measure(kind, count) for kind in kinds}
    _print_times(count, timed, errors)
    _print_ratios(ratios, gradient, max(errors.values()), best)
    _print_memory(extra)
    return {
        "components": count,
        "seconds": {name: entry.seconds for name, entry in timed.items()},
        "error_nats": errors,
        "ratios": ratios,
        "noise": {name: timed[best if name == BEST else name].noise + timed["Veil"].noise for name in ratios},
        "asked": ASKED,
        "best_matmul": best,
        "gradient_over_value": gradient,
        "memory_megabytes": extra,
    }


def _value(result) -> float:
    return float(result[0] if isinstance(result, tuple) else result)


def _ratios(timed: dict[str, Timed]) -> tuple[dict[str, float], str]:
    """Times ours of the peers that took part, and which of the matrix products was the best."""
    products = [name for name in timed if "matmul" in name]
    best = min(products, key=lambda name: timed[name].seconds, default="")
    base = timed["Veil"].seconds
    names = {asked: best if asked == BEST else asked for asked in ASKED}
    return {asked: timed[name].seconds / base for asked, name in names.items() if name in timed}, best


def _print_times(count: int, timed: dict[str, Timed], errors: dict[str, float]) -> None:
    base = timed["Veil"].seconds
    rows = [
        [name, report.duration(t.seconds), f"{t.cores:.1f}", f"{t.seconds / base:.1f}", f"{errors[name]:.0e}"]
        for name, t in sorted(timed.items(), key=lambda item: item[1].seconds)
    ]
    title = f"KL mixture entropy, {count} components in the plane, full covariances, float32"
    note = "Least of interleaved calls. Error: against float64."
    report.table(title, ["", "time", "cores", "times ours", "error, nats"], rows, note)


def _print_ratios(ratios: dict[str, float], gradient: float, error: float, best: str) -> None:
    rows = []
    for name, ratio in ratios.items():
        asked = ASKED[name]
        passed = report.verdict(ratio, at_least=asked)
        rows.append([f"{name} / Veil", f"{ratio:.1f}", f"≥ {asked:.0f}", passed])
    within = report.verdict(gradient, at_most=ASKED_GRADIENT)
    rows.append(["value and gradient / value", f"{gradient:.1f}", f"≤ {ASKED_GRADIENT:.0f}", within])
    agree = report.verdict(error, at_most=ASKED_AGREEMENT)
    rows.append(["largest error, nats", f"{error:.0e}", f"≤ {ASKED_AGREEMENT:.0e}", agree])
    report.table(
        "What was asked", ["", "measured", "asked", ""], rows, f"Best matmul: {best}." if best else ""
    )


def _print_memory(extra: dict[str, memory.Extra]) -> None:
    rows = []
    for kind, megabytes in extra.items():
        passed = report.verdict(megabytes["running"], at_most=ASKED_MEMORY)
        shown = [f"{megabytes[part]:.0f}" for part in ("compiling", "running", "planned")]
        rows.append([kind, *shown, f"< {ASKED_MEMORY:.0f}", passed])
    columns = ["", "compiling", "running", "XLA's plan", "asked", ""]
    report.table("Peak extra memory of ours, MB", columns, rows, memory.HOW)

"""KL mixture entropy: ours against numpy, PyTorch and KeOps, on the same inputs to the same digits.

Peers get precisions and log-determinants for nothing; ours starts from covariances.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bench import memory, report
from bench.timing import Job, Timed, race
from veil.laws import gaussian
from veil.leakage import kl_entropy

THREADS = 2
CHUNKS = (32, 128, 512, 1024)
LOG_TWO_PI = float(np.log(2.0 * np.pi))

ASKED = {"KeOps": 20.0, "PyTorch, dense": 60.0, "PyTorch, best matmul": 15.0}
ASKED_GRADIENT = 10.0  # times the value
ASKED_MEMORY = 200.0  # megabytes
ASKED_AGREEMENT = 1e-4  # nats


@dataclass(frozen=True)
class Inputs:
    """A mixture in float32, with what peers get for nothing."""

    weight: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    log_det: np.ndarray


def inputs(count: int, size: int = 2, seed: int = 0) -> Inputs:
    """Means of spread 2, standard deviations from 0.3 to about 1, correlated, Dirichlet weights."""
    generator = np.random.default_rng(seed)
    mean = 2.0 * generator.standard_normal((count, size))
    root = 0.3 * generator.standard_normal((count, size, size))
    covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)
    weight = generator.dirichlet(np.ones(count))
    arrays = (weight, mean, covariance, np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1])
    return Inputs(*(np.asarray(array, np.float32) for array in arrays))


def truth(given: Inputs) -> float:
    """The value in float64, row by row."""
    weight, mean = given.weight.astype(float), given.mean.astype(float)
    covariance = given.covariance.astype(float)
    precision, log_det = np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]
    total, size = 0.0, mean.shape[1]
    for i in range(len(weight)):
        apart = mean[i] - mean
        square = np.einsum("jk,jkl,jl->j", apart, precision, apart)
        trace = np.einsum("kl,jkl->j", covariance[i], precision)
        divergence = 0.5 * (square + trace - size + log_det - log_det[i])
        overlap = np.log(weight @ np.exp(-divergence))
        total += weight[i] * (0.5 * (log_det[i] + size * (1.0 + LOG_TWO_PI)) - overlap)
    return total


# ---- contestants ----


def entropy(weight, mean, covariance):
    """Ours, from weights, means and covariances."""
    return kl_entropy(jnp.log(weight), gaussian(mean, covariance))


def ours(given: Inputs) -> dict[str, Job]:
    """Value, and value with gradients in weights, means and covariances."""
    arguments = tuple(map(jnp.asarray, (given.weight, given.mean, given.covariance)))
    value, both = jax.jit(entropy), jax.jit(jax.value_and_grad(entropy, (0, 1, 2)))
    return {"Veil": lambda: value(*arguments), "Veil, value and gradient": lambda: both(*arguments)}


def in_numpy(given: Inputs) -> dict[str, Job]:
    """Dense broadcasting, float32."""
    size = given.mean.shape[1]

    def dense():
        apart = given.mean[:, None] - given.mean[None]
        square = np.einsum("ijk,jkl,ijl->ij", apart, given.precision, apart)
        trace = np.einsum("ikl,jlk->ij", given.covariance, given.precision)
        divergence = 0.5 * (square + trace - size + given.log_det[None] - given.log_det[:, None])
        overlap = np.log(np.exp(-divergence) @ given.weight)
        return given.weight @ (0.5 * (given.log_det + size * (1.0 + LOG_TWO_PI)) - overlap)

    return {"numpy, dense": dense}


def in_torch(given: Inputs) -> dict[str, Job]:
    """Dense broadcasting, and the bilinear form as one matrix product or several."""
    if report.missing("torch"):
        return {}
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(THREADS)
    weight, mean, covariance, precision, log_det = map(torch.from_numpy, asdict(given).values())
    size, log_weight = mean.shape[1], torch.log(weight)
    entropies = 0.5 * (log_det + size * (1.0 + LOG_TWO_PI))

    def dense():
        apart = mean[:, None] - mean[None]
        square = (torch.einsum("jkl,ijl->ijk", precision, apart) * apart).sum(-1)
        trace = torch.einsum("ikl,jlk->ij", covariance, precision)
        divergence = 0.5 * (square + trace - size + log_det[None] - log_det[:, None])
        return weight @ (entropies - torch.logsumexp(log_weight[None] - divergence, 1))

    def features():
        centred = mean - weight @ mean
        second = covariance + centred[:, :, None] * centred[:, None, :]
        drift = torch.einsum("nij,nj->ni", precision, centred)
        own = log_weight - 0.5 * ((drift * centred).sum(1) + log_det)
        i, j = torch.tril_indices(size, size)
        natural = torch.where(i == j, -0.5, -1.0) * precision[:, i, j]
        rows = torch.cat([second[:, i, j], centred, torch.ones_like(own)[:, None]], 1)
        return rows, torch.cat([natural, drift, own[:, None]], 1).T.contiguous()

    def by_product(chunk: int):
        def job():
            rows, columns = features()
            parts = [torch.logsumexp(part @ columns, 1) for part in rows.split(chunk)]
            return weight @ (entropies - torch.cat(parts) - 0.5 * (log_det + size))

        return job

    count = len(given.weight)
    chunked = {f"PyTorch, matmul by {chunk} rows": by_product(chunk) for chunk in CHUNKS if chunk < count}
    return {"PyTorch, dense": dense, "PyTorch, one matmul": by_product(count), **chunked}


def in_keops(given: Inputs, cache: Path) -> dict[str, Job]:
    """A LazyTensor that is never formed, compiled to C++."""
    if report.missing("pykeops") or report.missing("torch"):
        return {}
    if not shutil.which("g++"):
        report.console.print("KeOps needs the C++ compiler g++, which is not here, and sits out.")
        return {}
    cache.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("KEOPS_CACHE_FOLDER", str(cache.resolve()))
    os.environ.setdefault("PYKEOPS_VERBOSE", "0")
    import torch  # pyright: ignore[reportMissingImports]
    from pykeops.torch import LazyTensor  # pyright: ignore[reportMissingImports]

    weight, mean, covariance, precision, log_det = map(torch.from_numpy, asdict(given).values())
    count, size = mean.shape
    entropies = 0.5 * (log_det + size * (1.0 + LOG_TWO_PI))

    def rows(array):
        return LazyTensor(array.reshape(count, 1, -1).contiguous())

    def columns(array):
        return LazyTensor(array.reshape(1, count, -1).contiguous())

    def lazy():
        apart, sharp = rows(mean) - columns(mean), columns(precision)
        spread = (apart | sharp.matvecmult(apart)) + (sharp | rows(covariance))
        divergence = 0.5 * (spread - size + columns(log_det) - rows(log_det))
        overlap = (columns(torch.log(weight)) - divergence).logsumexp(1).reshape(count)
        return weight @ (entropies - overlap)

    return {"KeOps": lazy}


# ---- the comparison ----


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Race, check that all agree, print, and return what to record."""
    count = 1024 if fast else 5184
    given = inputs(count)
    jobs = {**ours(given), **in_torch(given), **in_keops(given, folder / "keops"), **in_numpy(given)}
    timed = race(jobs, rounds=3 if fast else 12, patience=2.0 if fast else 15.0)
    right = truth(given)
    errors = {name: abs(_value(entry.result) - right) for name, entry in timed.items()}
    best = min((name for name in timed if "matmul" in name), key=lambda name: timed[name].seconds, default=None)
    peers = {"KeOps": "KeOps", "PyTorch, dense": "PyTorch, dense", "PyTorch, best matmul": best}
    ratios = {
        asked: timed[name].seconds / timed["Veil"].seconds for asked, name in peers.items() if name in timed
    }
    gradient = timed["Veil, value and gradient"].seconds / timed["Veil"].seconds
    extra = {kind: memory.measure(kind, count) for kind in ("value", "gradient")}
    _print_times(count, timed, errors)
    _print_ratios(ratios, gradient, max(errors.values()), best)
    _print_memory(extra)
    return {
        "components": count,
        "seconds": {name: entry.seconds for name, entry in timed.items()},
        "error_nats": errors,
        "ratios": ratios,
        "asked": ASKED,
        "best_matmul": best,
        "gradient_over_value": gradient,
        "memory_megabytes": extra,
    }


def _value(result) -> float:
    return float(result[0] if isinstance(result, tuple) else result)


def _print_times(count: int, timed: dict[str, Timed], errors: dict[str, float]) -> None:
    base = timed["Veil"].seconds
    rows = [
        [name, report.duration(t.seconds), f"{t.cores:.1f}", f"{t.seconds / base:.1f}", f"{errors[name]:.0e}"]
        for name, t in sorted(timed.items(), key=lambda item: item[1].seconds)
    ]
    title = f"KL mixture entropy, {count} components in the plane, full covariances, float32"
    note = "Least of interleaved calls. Error: against float64."
    report.table(title, ["", "time", "cores", "times ours", "error, nats"], rows, note)


def _print_ratios(ratios: dict[str, float], gradient: float, error: float, best: str | None) -> None:
    rows = [
        [f"{name} / Veil", f"{ratio:.1f}", f"≥ {ASKED[name]:.0f}", report.verdict(ratio, ASKED[name])]
        for name, ratio in ratios.items()
    ]
    at_most: Callable[[float, float], str] = lambda value, asked: report.verdict(value, asked, at_most=True)  # noqa: E731
    rows += [
        ["value and gradient / value", f"{gradient:.1f}", "≤ 10", at_most(gradient, ASKED_GRADIENT)],
        ["largest disagreement, nats", f"{error:.0e}", "≤ 1e-4", at_most(error, ASKED_AGREEMENT)],
    ]
    report.table("What was asked", ["", "measured", "asked", ""], rows, f"Best matmul: {best}." if best else "")


def _print_memory(extra: dict[str, memory.Extra]) -> None:
    rows = [
        [kind, f"{e['first_call']:.0f}", f"{e['later_call']:.0f}", f"{e['compiler']:.0f}", f"< {ASKED_MEMORY:.0f}"]
        + [report.verdict(max(e["first_call"], e["later_call"]), ASKED_MEMORY, at_most=True)]
        for kind, e in extra.items()
    ]
    columns = ["", "first call", "later call", "XLA's plan", "asked", ""]
    report.table("Peak extra memory of ours, MB", columns, rows, memory.HOW)

"""KL mixture entropy as peers would write it: numpy, PyTorch and KeOps, in float32."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench import report
from bench.mixture_inputs import LOG_TWO_PI, Inputs
from bench.timing import Job

THREADS = 2
CHUNKS = (128, 256, 512, 1024)


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

"""Chunks on Ray: processes on this machine, or a cluster. Nothing else in the library knows Ray."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax

from veil.executors import messages
from veil.executors.base import (
    ONE_THREAD,
    THREADS,
    Chunk,
    Done,
    Executor,
    ExecutorError,
    Failed,
    Lost,
    Outcome,
    reason_of,
)

OBJECT_STORE = 200_000_000  # bytes of shared memory on this machine; a stage has a few megabytes on its way

POLL = 0.5  # seconds after which Ctrl-C is noticed

START_UP = {
    # A small machine may be slow to start; Ray gives up too early, and its dashboard takes 200 MB.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


class OnRay(Executor):
    """Computes chunks by Ray, one chunk per processor at a time.

    Every worker runs programs of one thread, unless `XLA_FLAGS` says otherwise here. Workers are processes
    that Ray starts anew: JAX is never forked. A cluster must have the same versions of Veil, JAX and Python.

    Args:
        workers: processes on this machine.
        address: of a cluster instead: `auto` on one of its machines, or HOST:PORT.
    """

    def __init__(self, workers: int = 0, address: str = ""):
        super().__init__()
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ExecutorError(
                "Ray is not installed here. Install the extra: pip install 'veil[ray]'."
            ) from error
        if not address and workers < 1:
            raise ExecutorError("Give at least 1 worker, or the address of a cluster.")
        self._ray, self._processors = ray, set[str]()
        for name, value in START_UP.items():
            os.environ.setdefault(name, value)
        environment = {"env_vars": worker_environment(here=not address)}
        given = {"runtime_env": environment, "log_to_driver": False, "logging_level": logging.ERROR}
        if not address:
            given |= {"num_cpus": workers, "num_gpus": 0, "object_store_memory": OBJECT_STORE}
            given |= {"include_dashboard": False}
        try:
            with warnings.catch_warnings():
                # Ray starts its own programs: the copy of this process runs another program at once.
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                ray.init(address=address or "local", **given)
        except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
            where = f"There is no Ray cluster at {address}" if address else "Ray does not start here"
            raise ExecutorError(f"{where}: {str(error).strip().splitlines()[0]}") from error
        # The wait for a lost worker is ours: a chunk that ends every worker must be named in the end.
        self._remote = ray.remote(max_retries=0, num_cpus=1)(compute_packed)
        self._ours = messages.versions()

    @property
    def workers(self) -> int:
        """Processors of the machines that are there now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def notes(self) -> list[str]:
        """What people should know about the workers that computed so far."""
        if len(self._processors) < 2:
            return []
        return ["The workers have different kinds of processors: last bits may depend on which one computed."]

    def outcomes(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Outcome]]:
        """As workers finish; a few more chunks than workers are on their way."""
        ray, sent = self._ray, _Sent(self._ray)
        waiting, on_its_way = list(enumerate(chunks)), dict[Any, int]()
        try:
            while waiting or on_its_way:
                self.check()
                room = self.workers + 2 - len(on_its_way)
                for place, chunk in waiting[:room] if room > 0 else []:
                    waiting.pop(0)
                    try:
                        shared, own = sent.shared(chunk), messages.pack(chunk.own())
                    except messages.UNSENDABLE as error:
                        raise ExecutorError(f"{chunk.label} cannot be sent to a worker: {error}") from error
                    on_its_way[self._remote.remote(self._ours, chunk.place, shared, own)] = place
                for ready in ray.wait(list(on_its_way), timeout=POLL)[0]:
                    yield on_its_way.pop(ready), self._outcome(ready)
        finally:
            for ref in on_its_way:
                ray.cancel(ref, force=True)

    def _outcome(self, ready: Any) -> Outcome:
        try:
            answer = self._ray.get(ready)
        except self._ray.exceptions.RayTaskError as error:
            return Failed(str(error).strip().splitlines()[-1])
        except self._ray.exceptions.RayError as error:  # the worker, its machine or the object is gone
            return Lost(f"its worker ended: {type(error).__name__}")
        if "versions" in answer:
            raise ExecutorError(messages.disagreement(self._ours, answer["versions"]))
        if "reason" in answer:
            return Failed(answer["reason"])
        self._processors.add(answer["processor"])
        with jax.enable_x64(True):
            return Done(
                messages.unpack(answer["value"], {}),
                answer["seconds"],
                answer["where"],
                answer["processor_seconds"],
            )

    def close(self) -> None:
        """Leave the cluster, or end the processes on this machine."""
        self._ray.shutdown()


class _Sent:
    """What all chunks of a stage share is sent once."""

    def __init__(self, ray: Any):
        self._ray, self._sent = ray, dict[int, Any]()

    def shared(self, chunk: Chunk) -> Any:
        if id(chunk.shared) not in self._sent:
            if chunk.function.__module__ == "__main__":
                raise messages.UnsendableError("its function is part of the script that runs; import it.")
            self._sent[id(chunk.shared)] = self._ray.put(messages.pack(chunk.shared))
        return self._sent[id(chunk.shared)]


def worker_environment(*, here: bool) -> dict[str, str]:
    """Environment variables of a worker: threads, precision and compiled programs as in this process.

    Args:
        here: whether workers run on this machine, so that they find the same files.
    """
    found = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ONE_THREAD), THREADS: "1", "NPROC": "1"}
    found |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_ENABLE_X64": "1"}
    if "JAX_PLATFORMS" in os.environ:
        found["JAX_PLATFORMS"] = os.environ["JAX_PLATFORMS"]
    if here:
        found["PYTHONPATH"] = os.pathsep.join(
            path or os.getcwd() for path in sys.path if "site-packages" not in path
        )
        folder = getattr(jax.config, "jax_compilation_cache_dir", None)
        if folder:
            found["JAX_COMPILATION_CACHE_DIR"] = str(folder)
            found["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
    return found


@lru_cache(maxsize=16)
def _shared(content: bytes, sources: tuple[tuple[str, tuple[str, bytes]], ...]) -> tuple:
    """The same object for all chunks of a stage, so that its program is compiled once."""
    return messages.unpack(content, dict(sources))


def compute_packed(
    expected: dict[str, str],
    place: str,
    shared: tuple[bytes, messages.Sources],
    own: tuple[bytes, messages.Sources],
) -> dict[str, Any]:
    """Compute a chunk in this worker; the answer says what became of it.

    Args:
        expected: versions of the process that asks.
        place: of the function, as MODULE:NAME.
        shared: packed arguments of all chunks of a stage.
        own: packed arguments of this chunk.
    """
    if messages.versions() != expected:
        return {"versions": messages.versions()}
    began, processor = time.monotonic(), time.process_time()
    try:
        with jax.enable_x64(True):
            first = _shared(shared[0], tuple(sorted(shared[1].items())))
            rest = messages.unpack(*own)
        module, _, name = place.partition(":")
        chunk = Chunk("", messages.named(module, name), first, lambda: rest)
        value = messages.pack(chunk.compute())[0]
    except Exception as error:  # whatever a system of the user's does
        return {"reason": reason_of(error)}
    answer = {"value": value, "seconds": time.monotonic() - began, "where": messages.process_name()}
    spent = time.process_time() - processor
    return answer | {"processor": messages.processor(), "processor_seconds": spent}

"""Chunks on Ray: processes on this machine, or a cluster. Nothing else in the library knows Ray."""

import logging
import math
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
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

POLL = 0.5  # seconds after which Ctrl-C is noticed, and machines are counted again

TASK_SECONDS = 0.5  # that short chunks are sent together for: what a lost worker costs at most, or its chunk

TASK_BYTES = 20_000_000  # that they bring along or give, at most

LEAST_SECONDS = 0.25  # of a task, if there are chunks enough: shorter ones cost more to hand out

FIRST_SECONDS = 4.0  # after which a worker gives back what is left of a task whose chunks nobody knows yet

SHARES = 3  # tasks per worker that the rest of a stage is cut into, so that all end at the same time

START_UP = {
    # A small machine may be slow to start; Ray gives up too early, and its dashboard takes 200 MB.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


class OnRay(Executor):
    """Computes chunks by Ray, one per processor at a time. Short ones are sent several at a time.

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
        self._counted, self._workers, self._open = -math.inf, 1, dict[int, dict[Any, _Task]]()
        environment, outside = worker_environment(here=not address), dict(os.environ)
        given: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address:
            given["runtime_env"] = {"env_vars": environment}
        else:
            given |= {"num_cpus": workers, "num_gpus": 0, "object_store_memory": OBJECT_STORE}
            given |= {"include_dashboard": False}
            os.environ.update(environment)  # Ray's processes inherit it; a `runtime_env` would take seconds
        try:
            os.environ.update({name: os.environ.get(name, value) for name, value in START_UP.items()})
            with warnings.catch_warnings():
                # Ray starts its own programs: the copy of this process runs another program at once.
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                ray.init(address=address or "local", **given)
        except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
            where = f"There is no Ray cluster at {address}" if address else "Ray does not start here"
            raise ExecutorError(f"{where}: {str(error).strip().splitlines()[0]}") from error
        finally:
            for name in environment.keys() & os.environ.keys():
                del os.environ[name]
            os.environ.update({name: outside[name] for name in environment if name in outside})
        # The wait for a lost worker is ours: a chunk that ends every worker must be named in the end.
        self._remote = ray.remote(max_retries=0, num_cpus=1)(compute_packed)
        self._ours = messages.versions()

    @property
    def workers(self) -> int:
        """Processors of the machines that are there now, or were a moment ago: to ask takes long."""
        now = time.monotonic()
        if now - self._counted > POLL:
            self._counted, self._workers = now, self._count()
        return self._workers

    def _count(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def notes(self) -> list[str]:
        """What people should know about the workers that computed so far."""
        if len(self._processors) < 2:
            return []
        return ["The workers have different kinds of processors: last bits may depend on which one computed."]

    def outcomes(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Outcome]]:
        """As workers finish; a few more tasks than workers are on their way."""
        ray, sent, pace = self._ray, _Sent(self._ray), _Pace()
        waiting, on_its_way = deque(enumerate(chunks)), dict[Any, _Task]()
        self._open[id(on_its_way)] = on_its_way
        try:
            while waiting or on_its_way:
                self.check()
                while waiting:
                    free = pace.free(self.workers, self._others(on_its_way), len(on_its_way))
                    if free < 1:
                        break
                    if not pace.known:  # the first to be sent tells how heavy they are
                        pace.weigh(len(sent.own([waiting[0][1]])[0]))
                    some = _next_task(waiting, pace.together(len(waiting), self.workers, free))
                    first, seconds = some[0][1], math.inf if pace.known else FIRST_SECONDS
                    shared, own = sent.shared(first), sent.own([chunk for _, chunk in some])
                    pace.weigh(len(own[0]) / len(some))
                    on_its_way[self._remote.remote(self._ours, first.place, shared, own, seconds)] = some
                for ready in ray.wait(list(on_its_way), timeout=POLL)[0]:
                    some = on_its_way.pop(ready)
                    found = self._outcomes(ready, len(some), pace)
                    waiting.extendleft(reversed(some[len(found) :]))  # what the worker gave back
                    yield from ((place, outcome) for (place, _), outcome in zip(some, found, strict=False))
        finally:
            del self._open[id(on_its_way)]
            for ref in on_its_way:
                ray.cancel(ref, force=True)

    def _others(self, mine: "dict[Any, _Task]") -> int:
        """Tasks of other stages that are on their way."""
        return sum(len(each) for each in list(self._open.values()) if each is not mine)

    def _outcomes(self, ready: Any, count: int, pace: "_Pace") -> Sequence[Outcome]:
        """What became of each chunk of a task, or of the first ones, if its worker gave back the others."""
        try:
            answer = self._ray.get(ready)
        except self._ray.exceptions.RayTaskError as error:
            return count * [Failed(str(error).strip().splitlines()[-1])]
        except self._ray.exceptions.RayError as error:  # the worker, its machine or the object is gone
            return count * [Lost(f"its worker ended: {type(error).__name__}")]
        if "versions" in answer:
            raise ExecutorError(messages.disagreement(self._ours, answer["versions"]))
        if "reason" in answer:
            return count * [Failed(answer["reason"])]
        self._processors.add(answer["processor"])
        with jax.enable_x64(True):
            return [self._outcome(one, answer["where"], pace) for one in answer["chunks"]]

    def _outcome(self, one: dict[str, Any], where: str, pace: "_Pace") -> Outcome:
        if "reason" in one:
            return Failed(one["reason"])
        pace.weigh(len(one["value"]))
        pace.took(one["seconds"])
        return Done(messages.unpack(one["value"], {}), one["seconds"], where, one["processor_seconds"])

    def close(self) -> None:
        """Leave the cluster, or end the processes on this machine."""
        self._ray.shutdown()


# Chunks that are sent together, with their places in the sequence.
_Task = list[tuple[int, Chunk]]


def _next_task(waiting: deque[tuple[int, Chunk]], most: int) -> _Task:
    """Take so many chunks, or fewer: those of a task share their function and its first arguments."""
    found = [waiting.popleft()]
    first = found[0][1]
    while waiting and len(found) < most:
        chunk = waiting[0][1]
        if first.alone or chunk.alone or chunk.place != first.place or chunk.shared is not first.shared:
            break
        found.append(waiting.popleft())
    return found


class _Pace:
    """How many chunks of a stage make a task: as many as take `TASK_SECONDS`.

    The first worker that computes some of a stage compiles its program, so that it is given many. It gives
    back those that it has not begun after `FIRST_SECONDS`. A short stage is computed by that worker alone.
    """

    def __init__(self) -> None:
        self._seconds, self._bytes = math.inf, 1.0

    @property
    def known(self) -> bool:
        """Whether it is known what a chunk takes."""
        return math.isfinite(self._seconds)

    def took(self, seconds: float) -> None:
        """Note what a chunk took. The least counts, because the first of each worker compiles."""
        self._seconds = max(min(self._seconds, seconds), 1e-4)

    def weigh(self, size: float | int) -> None:
        """Note how many bytes a chunk brings along, or gives."""
        self._bytes = max(self._bytes, size)

    def together(self, left: int, workers: int, free: int) -> int:
        """How many of the chunks that are left make the next task.

        Args:
            left: chunks.
            workers: that there are.
            free: tasks that may be sent now.
        """
        if not self.known:
            return max(1, min(-(-left // free), int(TASK_BYTES / self._bytes)))
        share = max(left / (SHARES * workers), LEAST_SECONDS / self._seconds)
        return max(1, int(min(TASK_SECONDS / self._seconds, TASK_BYTES / self._bytes, share)))

    def free(self, workers: int, others: int, mine: int) -> int:
        """How many tasks may be sent now.

        Until it is known what a chunk takes, no more than there are idle workers: each of them would compile.

        Args:
            workers: that there are.
            others: tasks of other stages on their way.
            mine: tasks of this stage on their way.
        """
        return (workers + 2 if self.known else max(1, workers - others)) - mine


class _Sent:
    """What all chunks of a stage share is sent once."""

    def __init__(self, ray: Any):
        self._ray, self._sent = ray, dict[int, Any]()

    def shared(self, chunk: Chunk) -> Any:
        if id(chunk.shared) not in self._sent:
            if chunk.function.__module__ == "__main__":
                raise ExecutorError(
                    f"{chunk.label} cannot be sent to a worker: "
                    "its function is part of the script that runs; import it."
                )
            self._sent[id(chunk.shared)] = self._ray.put(_packed(chunk, chunk.shared))
        return self._sent[id(chunk.shared)]

    def own(self, chunks: Sequence[Chunk]) -> tuple[bytes, messages.Sources]:
        """Packed list of the other arguments of each chunk."""
        return _packed(chunks[0], [chunk.own() for chunk in chunks])


def _packed(chunk: Chunk, thing: object) -> tuple[bytes, messages.Sources]:
    try:
        return messages.pack(thing)
    except messages.UNSENDABLE as error:
        raise ExecutorError(f"{chunk.label} cannot be sent to a worker: {error}") from error


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
            found["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # every worker would compile again
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
    seconds: float = math.inf,
) -> dict[str, Any]:
    """Compute the chunks of a task in this worker; the answer says what became of each.

    If it takes long, only the first ones are computed, and the answer is shorter than the task.

    Args:
        expected: versions of the process that asks.
        place: of the function, as MODULE:NAME.
        shared: packed arguments of all chunks of a stage.
        own: packed list of the other arguments of each chunk.
        seconds: after which no further chunk is begun.
    """
    began = time.monotonic()
    if messages.versions() != expected:
        return {"versions": messages.versions()}
    try:
        with jax.enable_x64(True):
            first = _shared(shared[0], tuple(sorted(shared[1].items())))
            rests = messages.unpack(*own)
        module, _, name = place.partition(":")
        function = messages.named(module, name)
    except Exception as error:  # whatever a file of the user's does
        return {"reason": reason_of(error)}
    found = list[dict[str, Any]]()
    for rest in rests:
        if found and time.monotonic() - began > seconds:
            break
        found.append(_computed(Chunk("", function, first, partial(tuple, rest))))
    return {"chunks": found, "where": messages.process_name(), "processor": messages.processor()}


def _computed(chunk: Chunk) -> dict[str, Any]:
    began, processor = time.monotonic(), time.process_time()
    try:
        value = messages.pack(chunk.compute())[0]
    except Exception as error:  # whatever a system of the user's does
        return {"reason": reason_of(error)}
    spent = time.process_time() - processor
    return {"value": value, "seconds": time.monotonic() - began, "processor_seconds": spent}

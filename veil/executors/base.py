"""Work in chunks: what a chunk is, who computes chunks, and how their results come together.

A chunk is a call of a function of a module with arguments that are data: settings, arrays, and objects of
classes that have a name. Whoever computes it, and wherever, the result is the same: all randomness is in the
arguments, a chunk has a fixed size, and the compiled program is the same one.
"""

import abc
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np

from veil.executors.messages import sources_of
from veil.io import Store, fingerprint
from veil.version import __version__

TRIES = 5  # times that a chunk may lose its worker; after the first it is sent alone

HOPELESS = 3  # chunks that fail before any is computed: then it is not the chunk

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""XLA flags of every worker: programs of one thread, whose bits do not depend on the number of cores."""

THREADS = "VEIL_THREADS"  # environment variable: threads of this process that compute chunks


class ExecutorError(RuntimeError):
    """Nothing can be computed there; the text says why and what to do."""


class StoppedError(Exception):
    """A stage ends early because another one failed or was interrupted."""


class ChunkError(RuntimeError):
    """Some chunks cannot be computed, and are named; all others were computed and kept.

    Attributes:
        reasons: what is wrong with each of them, by its label.
    """

    def __init__(self, reasons: dict[str, str]):
        self.reasons = reasons
        first, *others = [f"{label}: {reason}" for label, reason in reasons.items()]
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(f"{first}{more}")


@dataclass(frozen=True)
class Chunk:
    """A call of a function of a module.

    Attributes:
        label: what it is, for people.
        function: of a module; what it returns is data.
        shared: its first arguments, the same object for all chunks of a stage.
        own: gives its other arguments, when they are needed.
        alone: whether it is sent to a worker by itself, since the last worker that had it was lost.
    """

    label: str
    function: Callable[..., Any]
    shared: tuple
    own: Callable[[], tuple] = tuple
    alone: bool = False

    @property
    def place(self) -> str:
        """Where the function is, as MODULE:NAME."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def compute(self) -> Any:
        """The result, with arrays of numpy. Functions that train in single precision say so themselves."""
        with jax.enable_x64(True):
            made = self.function(*self.shared, *self.own())
            return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, made)


@dataclass(frozen=True)
class Done:
    """A chunk that was computed.

    Attributes:
        value: its result.
        seconds: that computing took, on the wall.
        where: name of the process, for people.
        processor: seconds of processor time, where its process did nothing else; else 0.
    """

    value: Any
    seconds: float
    where: str = ""
    processor: float = 0.0


@dataclass(frozen=True)
class Failed:
    """A chunk whose function raised an error: once more would not help.

    Attributes:
        reason: the error in one line, with its place.
        error: itself, where it was raised in this process.
    """

    reason: str
    error: Exception | None = None


@dataclass(frozen=True)
class Lost:
    """A chunk whose worker ended before it was computed: it is tried again."""

    reason: str


Outcome = Done | Failed | Lost


@dataclass
class Times:
    """When chunks came, as seconds since the executor began to start; what `summary` tells.

    Attributes:
        began: when that was.
        first: when the first chunk was computed; None before.
        last: when the last one was.
        seconds: that each chunk took.
        processor: seconds of processor time of the workers.
        lost: how many lost their worker.
    """

    began: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float = 0.0
    seconds: list[float] = field(default_factory=list)
    processor: float = 0.0
    lost: int = 0

    def add(self, outcome: Outcome) -> None:
        """Note when an outcome came."""
        self.lost += isinstance(outcome, Lost)
        if isinstance(outcome, Done):
            self.last = time.monotonic() - self.began
            self.first = self.last if self.first is None else self.first
            self.seconds.append(outcome.seconds)
            self.processor += outcome.processor


class Executor(abc.ABC):
    """Computes chunks: here, in other processes, or on other machines.

    Threads of one process may call `outcomes` at the same time. Use an executor as a context, or close it.
    """

    def __init__(self) -> None:
        self.times, self._stopped = Times(), False

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """How many chunks are computed at the same time."""

    @property
    def remote(self) -> bool:
        """Whether chunks are computed in other processes, to which everything must be sent."""
        return True

    @property
    def stages(self) -> int:
        """How many stages should hand in chunks at the same time, so that no worker waits."""
        return 2 * self.workers + 2

    @abc.abstractmethod
    def outcomes(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Outcome]]:
        """Try each chunk once; give its place in the sequence and what became of it, as they come.

        Closing the iterator cancels the rest. After `stop` it ends with `StoppedError` within seconds.

        Args:
            chunks: in any number.
        """

    def stop(self) -> None:
        """Let all iterators end; chunks that are on their way are given up."""
        self._stopped = True

    def check(self) -> None:
        """Raise `StoppedError` after `stop`."""
        if self._stopped:
            raise StoppedError

    def close(self) -> None:  # noqa: B027  (this process holds nothing)
        """Give back what it holds; called once."""

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.close()


class InProcess(Executor):
    """Computes chunks in this process, on two threads. The first of each call is alone, since it compiles."""

    @property
    def workers(self) -> int:
        """Two, unless the environment says otherwise."""
        return int(os.environ.get(THREADS, "2"))

    @property
    def remote(self) -> bool:
        """Everything is here."""
        return False

    @property
    def stages(self) -> int:
        """As many: one compiles while another computes."""
        return self.workers

    def outcomes(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Outcome]]:
        """In turn, on the first thread that is free; an interrupt ends them with the present chunks."""
        if not chunks:
            return
        yield 0, self._one(chunks[0])
        pool = ThreadPoolExecutor(self.workers)
        try:
            places = {pool.submit(self._one, chunk): place for place, chunk in enumerate(chunks) if place}
            for ready in as_completed(places):
                yield places[ready], ready.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # Ctrl-C ends here

    def _one(self, chunk: Chunk) -> Outcome:
        self.check()
        began = time.monotonic()
        try:
            return Done(chunk.compute(), time.monotonic() - began)
        except Exception as error:  # whatever a system of the user's does
            return Failed(reason_of(error), error)


def reason_of(error: Exception) -> str:
    """An error in one line, with the place where it was raised."""
    line, text = traceback.extract_tb(error.__traceback__)[-1], str(error).strip().splitlines()
    where = f"{os.path.basename(line.filename)}, line {line.lineno}"
    return f"{type(error).__name__}: {text[0] if text else 'no message'} ({where})"


def run_chunks(
    executor: Executor,
    chunks: Sequence[Chunk],
    *,
    kept: type | None = None,
    store: Store | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Done]:
    """The results of all chunks, in their order. Those that the store has are not computed again.

    A chunk that lost its worker is tried again. If some cannot be computed, a `ChunkError` names them, after
    all others were computed and kept; if the first ones all fail, it does not wait for the others.

    Args:
        executor: who computes.
        chunks: what.
        kept: class of the results, whose fields are arrays; None if they are not worth a file.
        store: where they are kept, each in a file named by the fingerprint of what it computes.
        progress: called with how many are done.
    """
    kind, shelf = kept or dict, store or Store()
    marks = chunk_fingerprints(chunks) if kept is not None and shelf.folder is not None else []
    found, failed, tries = dict[int, Done](), dict[int, Failed | Lost](), Counter[int]()
    for place, mark in enumerate(marks):
        arrays = shelf.find(mark)
        if arrays is not None:
            seconds = float(arrays.pop(SECONDS))
            value = object.__new__(kind)  # a batch of what the class is written for one of
            for name, values in arrays.items():
                object.__setattr__(value, name, values)
            found[place] = Done(value, seconds)
    progress(len(found))
    waiting = [place for place in range(len(chunks)) if place not in found]
    while waiting:
        lost = list[int]()
        given = [replace(chunks[place], alone=tries[place] > 0) for place in waiting]
        for which, outcome in executor.outcomes(given):
            place = waiting[which]
            executor.times.add(outcome)
            if isinstance(outcome, Done):
                found[place] = outcome
                if marks:
                    arrays = {**vars(outcome.value), SECONDS: np.asarray(outcome.seconds)}
                    shelf.put(marks[place], arrays)
                progress(len(found))
            elif isinstance(outcome, Lost) and tries[place] + 1 < TRIES:
                tries[place] += 1
                lost.append(place)
            else:
                failed[place] = outcome
                if not found and len(failed) >= HOPELESS:
                    lost = []
                    break
        waiting = sorted(lost)
    if failed:
        again = f" ({TRIES} times)"
        reasons = {
            chunks[place].label: outcome.reason + again * isinstance(outcome, Lost)
            for place, outcome in sorted(failed.items())
        }
        causes = [outcome.error for outcome in failed.values() if isinstance(outcome, Failed)]
        raise ChunkError(reasons) from next(iter(causes), None)
    return [found[place] for place in range(len(chunks))]


SECONDS = "seconds"  # that a chunk took, beside its arrays in the file


def chunk_fingerprints(chunks: Sequence[Chunk]) -> list[str]:
    """What names the file of each chunk: changes with its function, its arguments, or the user's code."""
    marks = dict[int, str]()
    for chunk in chunks:
        if id(chunk.shared) not in marks:
            marks[id(chunk.shared)] = fingerprint(chunk.place, chunk.shared, sources_of(chunk.shared))
    return [fingerprint(marks[id(chunk.shared)], chunk.place, chunk.own(), __version__) for chunk in chunks]

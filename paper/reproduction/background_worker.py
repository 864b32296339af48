"""A second process for the columns that take as long as all others together: it only fills the folder.

Stages are kept on disk, so the first process finds them there; what is missing because the second one failed,
or was never started, it does itself.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paper.reproduction.engine import Report, Work
from paper.reproduction.options import Extent
from veil.executors.base import Chunk, ChunkError, Executor, run_chunks
from veil.learners.training import seen_by_workers

SLOWEST = "ddpg"


def meanwhile(work: Work) -> tuple[str, ...]:
    """What the second process does: the slowest column, and all that is only trained."""
    return tuple(one.name for one in (*work.columns, *work.more) if one.name == SLOWEST or one in work.more)


def measure(work: Work, names: tuple[str, ...]) -> None:
    """Train and measure these columns; those of the full run are told by the looks of their training."""
    for name in names:
        study = work.study(name)
        if study.column.part == "full":
            _ = study.as_trained
            continue
        _ = study.audited, study.driven, study.read, study.charged, study.attacked


@contextmanager
def background(work: Work, names: tuple[str, ...], prepare: Callable[[], None]) -> Iterator[None]:
    """Have columns measured by another process meanwhile; at the end it is waited for.

    Args:
        work: the whole.
        names: of the columns.
        prepare: sets up JAX in the other process as it is set up here; importable by name.
    """
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    queue = context.SimpleQueue()
    child = context.Process(
        target=_child, args=(names, prepare, work.extent, work.folder, queue), daemon=True
    )
    child.start()
    listener = threading.Thread(target=_listen, args=(queue.get, work.report), daemon=True)
    listener.start()
    try:
        yield
        child.join()
    finally:
        child.terminate()
        child.join()
        queue.put(None)
        listener.join()


def measure_column(name: str, extent: Extent, folder: str, token: str) -> None:
    """Measure one column in a worker, which must see the folder."""
    if not (Path(folder) / token).exists():
        raise FileNotFoundError(
            f"this machine does not see {folder}; put it on a disk that all machines share"
        )
    measure(Work(extent, Path(folder), (name,)), (name,))


def by_workers(work: Work, executor: Executor) -> None:
    """Have all columns measured by workers; those that need another one come behind it, unless that failed.

    Args:
        work: the whole.
        executor: whose workers.
    """
    columns, reasons = (*work.columns, *work.more), dict[str, str]()
    first, behind = ([one for one in columns if bool(one.like or one.run) is late] for late in (False, True))
    with seen_by_workers(work.folder) as (place, token):
        for some in (first, behind):
            names = [one.name for one in some if not reasons.keys() & {label(one.like), label(one.run)}]
            chunks = [Chunk(label(name), measure_column, (name, work.extent, place, token)) for name in names]
            try:
                run_chunks(
                    executor,
                    chunks,
                    progress=lambda done, names=names: work.report("columns", "measured", done, len(names)),
                )
            except ChunkError as error:
                reasons |= error.reasons
    if reasons:
        raise ChunkError(reasons)


def label(name: str) -> str:
    """What the chunk of a column is called."""
    return f"column {name}"


def _child(names: tuple[str, ...], prepare: Callable[[], None], extent: Extent, folder: Path, queue) -> None:
    """Measure; Ctrl-C ends it quietly, for the first process speaks."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        prepare()
        measure(Work(extent, folder, names, report=lambda *line: queue.put(line)), names)
    except KeyboardInterrupt:
        pass


def _end_with_parent() -> None:
    """Two runs in one folder would be in each other's way, so this one must not outlive its own."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # called in the child only
    parent.join()
    os._exit(1)


def _listen(get: Callable[[], tuple[str, str, int, int] | None], report: Report) -> None:
    while (line := get()) is not None:
        report(*line)

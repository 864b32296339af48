"""The folder of a training: metrics as JSON lines, and a checkpoint to go on from."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from veil.learners.base import Progress
from veil.learners.course import Course
from veil.learners.loggers import JsonLines, Logger
from veil.learners.looks import Look
from veil.learners.options import Training
from veil.learners.store import StoreError, about, load_arrays, save_arrays
from veil.policies.learned import LearnedPolicy

METRICS, CHECKPOINT = "metrics.jsonl", "checkpoint.safetensors"


class Diary:
    """Tells loggers what happens and finds where it stopped; keeps nothing without a folder.

    A checkpoint of another training (another problem, policy, option or version) is not read.
    """

    def __init__(
        self, folder: Path | None, fingerprint: str, options: Training, loggers: Sequence[Logger] = ()
    ):
        self.folder, self.fingerprint, self.options = folder, fingerprint, options
        self.loggers = tuple(loggers)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.loggers = (JsonLines(folder / METRICS), *loggers)

    def resume(self, progress: Progress, policy: LearnedPolicy) -> Course | None:
        """The course at the last checkpoint, if there is one; starts the loggers.

        Args:
            progress: of the learner at its beginning: what the checkpoint has the shape of.
            policy: likewise.
        """
        path = None if self.folder is None else self.folder / CHECKPOINT
        found = None if path is None else self._checkpoint(path, progress, policy)
        before = {} if found is None else {"update": found.updates}
        for logger in self.loggers:
            logger.start({**asdict(self.options), **before})
        return found

    def _checkpoint(self, path: Path, progress: Progress, policy: LearnedPolicy) -> Course | None:
        try:
            words = about(path)
            if words.pop("fingerprint") != self.fingerprint:
                return None
            progress, best = load_arrays(path, (progress, policy))
            look = Look.read(words.pop("look"))
        except (StoreError, KeyError):  # none, or not whole: begin again
            return None
        return Course(progress, best, look, **words)  # pyright: ignore[reportArgumentType]

    def save(self, course: Course) -> None:
        """A checkpoint; a crash leaves the last one whole."""
        if self.folder is None:
            return
        words = {"fingerprint": self.fingerprint, "look": asdict(course.look)}
        words |= {"best_at": course.best_at, "waited": course.waited}
        save_arrays(self.folder / CHECKPOINT, (course.progress, course.best), words)

    def write(self, line: dict[str, float]) -> None:
        """The metrics of one update, or of the look before the first."""
        for logger in self.loggers:
            logger.log(int(line["update"]), line)

    def close(self) -> None:
        """Nothing more will be written."""
        for logger in self.loggers:
            logger.close()

"""The folder of a training: metrics as JSON lines, and a checkpoint to go on from."""

import json
from dataclasses import asdict
from pathlib import Path

from veil.learners.base import Progress
from veil.learners.course import Course
from veil.learners.looks import Look
from veil.learners.store import StoreError, about, load_arrays, save_arrays
from veil.policies.learned import LearnedPolicy

METRICS, CHECKPOINT = "metrics.jsonl", "checkpoint.safetensors"


class Diary:
    """Writes what happens and finds where it stopped; does nothing without a folder.

    A checkpoint of another training (another problem, policy, option or version) is not read.
    """

    def __init__(self, folder: Path | None, fingerprint: str):
        self.folder, self.fingerprint = folder, fingerprint
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def resume(self, progress: Progress, policy: LearnedPolicy) -> Course | None:
        """The course at the last checkpoint, if there is one; metrics after it are dropped.

        Args:
            progress: of the learner at its beginning: what the checkpoint has the shape of.
            policy: likewise.
        """
        if self.folder is None:
            return None
        found = self._checkpoint(self.folder / CHECKPOINT, progress, policy)
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() and found else []
        kept = [line for line in lines if found is not None and _update(line) <= found.updates]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
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
        if self.folder is None:
            return
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _update(line: str) -> float:
    """Which update a line of metrics speaks of; infinity for one that was cut short."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError):
        return float("inf")

"""The folder of a training: metrics as JSON lines, and a checkpoint to go on from."""

import json
from dataclasses import replace
from pathlib import Path

from veil.learners.course import Course
from veil.learners.store import StoreError, about, load_arrays, save_arrays

METRICS, CHECKPOINT = "metrics.jsonl", "checkpoint.safetensors"


class Diary:
    """Writes what happens and finds where it stopped; does nothing without a folder.

    A checkpoint of another training (another problem, policy, option or version) is not read.
    """

    def __init__(self, folder: Path | None, fingerprint: str):
        self.folder, self.fingerprint = folder, fingerprint
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def resume(self, course: Course) -> Course:
        """The course at the last checkpoint, or the given one; metrics after it are dropped."""
        if self.folder is None:
            return course
        found = self._checkpoint(course)
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() and found.updates else []
        kept = [line for line in lines if _update(line) <= found.updates]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        return found

    def _checkpoint(self, course: Course) -> Course:
        assert self.folder is not None
        path = self.folder / CHECKPOINT
        try:
            words = about(path)
            if words["fingerprint"] != self.fingerprint:
                return course
            progress, best = load_arrays(path, (course.progress, course.best))
        except (StoreError, KeyError):  # none, or not whole: begin again
            return course
        merit, best_at, waited = words["merit"], words["best_at"], words["waited"]
        assert isinstance(merit, list) and isinstance(best_at, int) and isinstance(waited, int)
        return replace(
            course, progress=progress, best=best, merit=(merit[0], merit[1]), best_at=best_at, waited=waited
        )

    def save(self, course: Course) -> None:
        """A checkpoint; a crash leaves the last one whole."""
        if self.folder is None:
            return
        words = {"fingerprint": self.fingerprint, "merit": list(course.merit)}
        words |= {"best_at": course.best_at, "waited": course.waited}
        save_arrays(self.folder / CHECKPOINT, (course.progress, course.best), words)

    def write(self, line: dict[str, float]) -> None:
        """The metrics of one update."""
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

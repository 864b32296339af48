"""The one train loop: update, look, keep the best, save, stop when nothing gets better."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from veil.auditing.store import fingerprint
from veil.learners.base import Family, Learner, Progress
from veil.learners.course import Course
from veil.learners.diary import Diary
from veil.learners.loggers import Logger
from veil.learners.looks import Look, examine
from veil.learners.options import Training
from veil.policies.learned import LearnedPolicy
from veil.precision import single
from veil.types import Key

Report = Callable[[dict[str, float]], None]
_TRAINING = 0x7EA1  # keeps the keys of training apart from those of audits with the same seed


@dataclass(frozen=True)
class Trained:
    """What training gave.

    Attributes:
        policy: the best one by fresh episodes.
        look: what was seen of it there.
        updates: how many were made.
        best: after how many of them the policy was kept.
        reason: why training ended.
    """

    policy: LearnedPolicy
    look: Look
    updates: int
    best: int
    reason: str


def train(
    family: Family,
    learner: Learner,
    policy: LearnedPolicy,
    options: Training | None = None,
    *,
    report: Report = lambda metrics: None,
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
) -> Trained:
    """Train a policy, in single precision.

    Args:
        family: the problem, or one per plant that the policy may meet.
        learner: how to improve it.
        policy: where to start; the result is never worse on the episodes that are looked at.
        options: how long, and how often to look.
        report: told the metrics of every update, with those of a look when there was one; first of all those
            of the policy that it begins with, or of the best so far where it goes on.
        folder: where the course is kept; a training that was interrupted there goes on as if it had not been.
        loggers: told the metrics besides `metrics.jsonl` in that folder.
    """
    options = options or Training()
    with jax.enable_x64(False):
        family, learner, policy = single(family), single(learner), single(policy)
        diary = Diary(folder, fingerprint(family, learner, policy, options), options, loggers)
        try:
            return _train(family, learner, policy, diary, report)
        finally:
            diary.close()


def _train(family: Family, learner: Learner, policy: LearnedPolicy, diary: Diary, report: Report) -> Trained:
    """The loop."""
    options = diary.options
    key = jr.fold_in(jr.key(options.seed), _TRAINING)
    began, progress = time.monotonic(), learner.begin(family, policy, key=jr.fold_in(key, options.updates))
    update, found = eqx.filter_jit(learner.update), diary.resume(progress, policy)
    if found is None:
        found, update = _begun(family, policy, options, update, (family, progress, key))
        line = {"update": 0.0, "seconds": time.monotonic() - began} | found.look.metrics()
        diary.save(found)
        diary.write(line)
    else:
        line = {"update": float(found.updates)} | found.look.metrics()
    report(line)
    course = found
    while course.updates < options.updates and not _tired(course, options):
        began = time.monotonic()
        own = jr.fold_in(key, course.progress.updates)
        progress, metrics = update(family, course.progress, key=own)
        course, line = replace(course, progress=progress), {k: float(v) for k, v in metrics.items()}
        line |= {"update": float(course.updates)}
        if course.updates % options.look == 0 or course.updates == options.updates:
            look = examine(family, progress.policy, options.looked, options.seed)
            course, line = course.judged(look), line | look.metrics()
            diary.save(course)
        line |= {"seconds": time.monotonic() - began}
        diary.write(line)
        report(line)
    reason = f"no better in {options.patience} looks" if _tired(course, options) else "all updates made"
    return Trained(course.best, course.look, course.updates, course.best_at, reason)


def _begun(
    family: Family, policy: LearnedPolicy, options: Training, update: Any, given: tuple[Family, Progress, Key]
) -> tuple[Course, Any]:
    """The policy that training starts from is the first to be judged; meanwhile the update is compiled."""
    family, progress, key = given

    def compiled() -> Any:
        with jax.enable_x64(False):  # threads do not inherit it
            return update.lower(family, progress, key=key).compile()

    workers = ThreadPoolExecutor(1)
    try:
        ready = workers.submit(compiled)
        look = examine(family, policy, options.looked, options.seed)
        return Course(progress, policy, look), ready.result()
    finally:
        workers.shutdown(wait=False)


def _tired(course: Course, options: Training) -> bool:
    return 0 < options.patience <= course.waited

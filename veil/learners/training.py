"""The one train loop: update, evaluate on fresh episodes, keep the best, save, stop when nothing improves."""

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.evaluation.episodes import side_by_side
from veil.executors.base import Chunk, ChunkError, Executor, InProcess, run_chunks
from veil.executors.messages import whole_fingerprint
from veil.io import StoreError, about, load_arrays, replace_bytes, save_arrays
from veil.leakage.per_step import Measure
from veil.learners.base import Family, Learner, Progress, robust
from veil.learners.design import initial_policy
from veil.learners.loggers import JsonLines, Logger
from veil.learners.run import CHECKPOINT, METRICS, RUN, Result, Run, Settings, begin, history
from veil.learners.selection import SelectionScore, evaluate_family
from veil.policies.base import LearnedPolicy
from veil.problem import Objective, Problem
from veil.registry import LEARNERS
from veil.settings import PolicyDesign, TrainSettings
from veil.systems.base import System
from veil.systems.scenarios import nominal
from veil.types import Key, as_float32


@dataclass(frozen=True)
class TrainState:
    """Where a training stands: the learner, and the best policy so far with what was seen of it.

    Attributes:
        progress: of the learner.
        best: the best policy so far.
        score: what its evaluation found.
        best_at: after how many updates it was found.
        waited: evaluations since then.
    """

    progress: Progress
    best: LearnedPolicy
    score: SelectionScore
    best_at: int = 0
    waited: int = 0

    @property
    def updates(self) -> int:
        """How many were made."""
        return int(self.progress.updates)

    def scored(self, score: SelectionScore) -> "TrainState":
        """After an evaluation of the present policy: the best so far, or one more without progress."""
        if score.merit < self.score.merit:
            return replace(self, best=self.progress.policy, score=score, best_at=self.updates, waited=0)
        return replace(self, waited=self.waited + 1)


class RunLog:
    """Tells loggers what happens and finds where it stopped; keeps nothing without a folder.

    A checkpoint of another training (another problem, policy, option or version) is not read.
    """

    def __init__(
        self, folder: Path | None, fingerprint: str, options: TrainSettings, loggers: Sequence[Logger] = ()
    ):
        self.folder, self.fingerprint, self.options = folder, fingerprint, options
        self.loggers = tuple(loggers)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.loggers = (JsonLines(folder / METRICS), *loggers)

    def resume(self, progress: Progress, policy: LearnedPolicy) -> TrainState | None:
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

    def _checkpoint(self, path: Path, progress: Progress, policy: LearnedPolicy) -> TrainState | None:
        try:
            words = about(path)
            if words.pop("fingerprint") != self.fingerprint:
                return None
            progress, best = load_arrays(path, (progress, policy))
            score = SelectionScore.read(words.pop("score"))
        except (StoreError, KeyError):  # none, or not whole: begin again
            return None
        return TrainState(progress, best, score, **words)  # pyright: ignore[reportArgumentType]

    def save(self, course: TrainState) -> None:
        """A checkpoint; a crash leaves the last one whole."""
        if self.folder is None:
            return
        words = {"fingerprint": self.fingerprint, "score": asdict(course.score)}
        words |= {"best_at": course.best_at, "waited": course.waited}
        save_arrays(self.folder / CHECKPOINT, (course.progress, course.best), words)

    def write(self, line: dict[str, float]) -> None:
        """The metrics of one update, or of the evaluation before the first."""
        for logger in self.loggers:
            logger.log(int(line["update"]), line)

    def close(self) -> None:
        """Nothing more will be written."""
        for logger in self.loggers:
            logger.close()


Report = Callable[[dict[str, float]], None]

Ending = Callable[[list[dict[str, float]]], str]
"""Why a training is to end, from the metrics of all updates so far; empty while it is to go on."""


def never(lines: list[dict[str, float]]) -> str:
    """No ending but that of the settings."""
    del lines
    return ""


_TRAINING = 0x7EA1  # keeps the keys of training apart from those of audits with the same seed


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
        policy: the best policy, by evaluations on fresh episodes.
        score: of the best policy in its evaluation.
        updates: number of updates made.
        best: the update after which the policy was kept.
        reason: why training ended.
        last: the policy after the last update; None where it was not kept.
    """

    policy: LearnedPolicy
    score: SelectionScore
    updates: int
    best: int
    reason: str
    last: LearnedPolicy | None = None


def train_policy(
    family: Family,
    learner: Learner,
    policy: LearnedPolicy,
    options: TrainSettings | None = None,
    *,
    report: Report = lambda metrics: None,
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
    executor: Executor | None = None,
    ending: Ending = never,
) -> Trained:
    """Train a policy by a learner, in single precision.

    Args:
        family: the problem, or one problem per plant that the policy may meet.
        learner: the algorithm.
        policy: where to start; on the evaluation episodes, the result is never worse.
        options: how long to train, and how often to evaluate.
        report: called with the metrics of every update, and of an evaluation where there was one; first with
            those of the policy that training starts from, or of the best so far where it is continued.
        folder: where checkpoints are written; a training that was interrupted there is continued.
        loggers: called like `report`, besides `metrics.jsonl` in the folder.
        executor: whose worker trains; if it is another process, `report` is called once, at the end, and
            loggers are not.
        ending: asked after every update; a reason ends the training before its last update, with an
            evaluation. For another process it must be importable by name.
    """
    options = options or TrainSettings()
    if executor is not None and executor.remote:
        return _train_elsewhere(family, learner, policy, options, report, folder, executor, ending)
    with jax.enable_x64(False):
        family, learner, policy = as_float32(family), as_float32(learner), as_float32(policy)
        diary = RunLog(folder, whole_fingerprint(family, learner, policy, options), options, loggers)
        try:
            return _train(family, learner, policy, diary, report, ending)
        finally:
            diary.close()


def _train(
    family: Family, learner: Learner, policy: LearnedPolicy, diary: RunLog, report: Report, ending: Ending
) -> Trained:
    """The training loop itself."""
    options = diary.options
    key = jr.fold_in(jr.key(options.seed), _TRAINING)
    began, progress = time.monotonic(), learner.begin(family, policy, key=jr.fold_in(key, options.updates))
    update, found = eqx.filter_jit(learner.update), diary.resume(progress, policy)
    if found is None:
        found, update = _begun(family, policy, options, update, (family, progress, key))
        line = {"update": 0.0, "seconds": time.monotonic() - began} | found.score.metrics()
        diary.save(found)
        diary.write(line)
        lines = [line]
    else:
        line = {"update": float(found.updates)} | found.score.metrics()
        lines = [] if diary.folder is None else history(diary.folder)
    report(line)
    course, ended = found, ending(lines)
    while course.updates < options.updates and not _tired(course, options) and not ended:
        began = time.monotonic()
        own = jr.fold_in(key, course.progress.updates)
        progress, metrics = update(family, course.progress, key=own)
        course, line = replace(course, progress=progress), {k: float(v) for k, v in metrics.items()}
        line |= {"update": float(course.updates)}
        ended = ending([*lines, line])
        if ended or course.updates % options.evaluate_every == 0 or course.updates == options.updates:
            score = evaluate_family(family, progress.policy, options.evaluation_episodes, options.seed)
            course, line = course.scored(score), line | score.metrics()
            diary.save(course)
        line |= {"seconds": time.monotonic() - began}
        lines.append(line)
        diary.write(line)
        report(line)
    tired = f"no better in {options.patience} evaluations" if _tired(course, options) else ""
    reason = ended or tired or "all updates made"
    found = course.best, course.score, course.updates, course.best_at
    return Trained(*found, reason, course.progress.policy)


def _train_elsewhere(
    family: Family,
    learner: Learner,
    policy: LearnedPolicy,
    options: TrainSettings,
    report: Report,
    folder: Path | None,
    executor: Executor,
    ending: Ending,
) -> Trained:
    """One chunk: the whole training. A worker that sees the folder keeps checkpoints in it."""
    with seen_by_workers(folder) as (place, token):
        paths = [] if folder is None else [folder / CHECKPOINT, folder / METRICS]
        files = {path.name: path.read_bytes() for path in paths if path.exists()}
        shared = (family, learner, policy, options, place, token, files, ending)
        label = f"training {folder.name}" if folder is not None else "training"
        (done,) = run_chunks(executor, [Chunk(label, train_chunk, shared)])
    trained, files = done.value
    for name, content in files.items():
        assert folder is not None
        replace_bytes(folder / name, content)
    report({"update": float(trained.updates)} | trained.score.metrics())
    with jax.enable_x64(False):
        return replace(trained, policy=_as_arrays(trained.policy), last=_as_arrays(trained.last))


def _as_arrays(policy: Any) -> Any:
    """With arrays of JAX again."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, policy)


@contextmanager
def seen_by_workers(folder: Path | None) -> Iterator[tuple[str, str]]:
    """The place of a folder, and a word in it by which a worker knows that it sees the same folder."""
    if folder is None:
        yield "", ""
        return
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield str(folder.resolve()), mark.name
    finally:
        mark.unlink(missing_ok=True)


def train_chunk(
    family: Family,
    learner: Learner,
    policy: LearnedPolicy,
    options: TrainSettings,
    place: str,
    token: str,
    files: dict[str, bytes],
    ending: Ending = never,
) -> tuple[Trained, dict[str, bytes]]:
    """A training in a worker: the result, and the files of its folder if whoever asks cannot see them.

    Args:
        family: as of `train_policy`, like the next three.
        learner: the algorithm.
        policy: where to start.
        options: how long to train, and how often to evaluate.
        place: of the folder for checkpoints; empty for none.
        token: name of a file in it; if it is not there, this is another machine's folder.
        files: checkpoint and metrics of an earlier sitting, for a worker that does not see the folder.
        ending: as of `train_policy`.
    """
    if not place or (Path(place) / token).exists():
        seen = Path(place) if place else None
        return train_policy(family, learner, policy, options, folder=seen, ending=ending), {}
    with tempfile.TemporaryDirectory(prefix="veil-") as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        trained = train_policy(family, learner, policy, options, folder=Path(name), ending=ending)
        return trained, {file: (Path(name) / file).read_bytes() for file in (CHECKPOINT, METRICS)}


def _begun(
    family: Family,
    policy: LearnedPolicy,
    options: TrainSettings,
    update: Any,
    given: tuple[Family, Progress, Key],
) -> tuple[TrainState, Any]:
    """The policy that training starts from is the first to be evaluated; meanwhile the update is compiled."""
    family, progress, key = given

    def compiled() -> Any:
        with jax.enable_x64(False):  # threads do not inherit it
            return update.lower(family, progress, key=key).compile()

    workers = ThreadPoolExecutor(1)
    try:
        ready = workers.submit(compiled)
        score = evaluate_family(family, policy, options.evaluation_episodes, options.seed)
        return TrainState(progress, policy, score), ready.result()
    finally:
        workers.shutdown(wait=False)


def _tired(course: TrainState, options: TrainSettings) -> bool:
    return 0 < options.patience <= course.waited


_DESIGN = 0xDE51  # keeps the keys of the first weights apart from those of training and of audits


def train(
    system: System,
    settings: TrainSettings | None = None,
    *,
    steps: int = 50,
    objective: Objective | None = None,
    design: PolicyDesign | None = None,
    measure: Measure | None = None,
    report: Report = lambda metrics: None,
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
    executor: Executor | None = None,
    ending: Ending = never,
) -> Trained:
    """Train a sharing policy for a system, as the command `veil train` does.

    Args:
        system: any system that `veil.check_system` finds fit for pathwise learning.
        settings: how long and how fast to train, and with which learner.
        steps: T, the number of releases per episode.
        objective: the weights of leakage and distortion against the cost of the system.
        design: the policy before training; by default a network on top of transport.
        measure: the leakage method of the objective; by default an unbiased estimate.
        report: called with the metrics of every update.
        folder: where checkpoints are written; a training that was interrupted there is continued.
        loggers: called like `report`, and when training starts and ends.
        executor: whose worker trains, see `train_policy`; this process if not given.
        ending: a reason to end before the last update, see `train_policy`.
    """
    settings, design = settings or TrainSettings(), design or PolicyDesign()
    with jax.enable_x64(False):
        system, policy = as_float32(system), untrained(system, settings, steps=steps, design=design)
        counts = as_float32(objective or Objective()), measure or Measure()
        family = (Problem(nominal(system), steps, *counts),)
        if settings.robust:
            family = robust(system, steps, *counts)
        learner = LEARNERS[settings.learner]().build(settings)
        given = {"report": report, "folder": folder, "loggers": loggers, "executor": executor}
        return train_policy(family, learner, policy, settings, ending=ending, **given)


def untrained(system: System, settings: TrainSettings, *, steps: int, design: PolicyDesign) -> LearnedPolicy:
    """The policy that a training with these settings starts from, in single precision.

    Args:
        system: the model.
        settings: whose seed counts.
        steps: T, the number of releases per episode.
        design: of the policy.
    """
    with jax.enable_x64(False):
        key = jr.fold_in(jr.key(settings.seed), _DESIGN)
        return initial_policy(design, as_float32(system), steps, key=key)


def train_run(
    settings: Settings,
    system: System,
    folder: Path,
    report: Report,
    loggers: Sequence[Logger] = (),
    executor: Executor | None = None,
    ending: Ending = never,
) -> Trained:
    """Train as the settings say; one that was interrupted in this folder goes on.

    Args:
        settings: of the run.
        system: that they name.
        folder: of the run.
        report: called with the metrics of every update.
        loggers: called likewise.
        executor: whose worker trains; this process if not given.
        ending: a reason to end before the last update, see `train_policy`.
    """
    weights = settings.objective
    return train(
        system,
        settings.training,
        steps=settings.steps,
        objective=Objective(
            weights.price_of_a_nat(settings.steps), weights.distortion_price, weights.distortion_limit
        ),
        design=settings.design,
        measure=Measure(settings.leakage),
        report=report,
        folder=folder,
        loggers=loggers,
        executor=executor,
        ending=ending,
    )


def finish_run(folder: Path, settings: Settings, trained: Trained) -> Run:
    """Write the policy, then the result; a crash in between leaves a run that is not finished."""
    score, leakage = trained.score, trained.score.leakage
    result = Result(
        lower=leakage.lower.value,
        upper=leakage.upper.value,
        standard_error=max(leakage.lower.error, leakage.upper.error),
        entropy=leakage.entropy,
        distortion=score.distortion.value,
        cost=score.cost.value,
        updates=trained.updates,
        best=trained.best,
        reason=trained.reason,
        seconds=sum(line["seconds"] for line in history(folder)),
    )
    run = Run(settings, result, trained.policy)
    run.save(folder)
    return run


SweepReport = Callable[[str, str, int, int], None]


def sweep_settings(settings: Settings, seeds: int, weights: Sequence[float]) -> dict[str, Settings]:
    """The settings of every training by the name of its folder.

    Args:
        settings: of the first; its seed is the first of the seeds.
        seeds: how many.
        weights: privacy weights; if there are none, that of the settings.
    """
    found = dict[str, Settings]()
    for weight in weights or (settings.objective.privacy_weight,):
        for seed in range(settings.training.seed, settings.training.seed + seeds):
            training = replace(settings.training, seed=seed)
            objective = replace(settings.objective, privacy_weight=weight)
            found[f"weight-{weight:g}-seed-{seed}"] = replace(
                settings, objective=objective, training=training
            )
    return found


def train_sweep(
    wanted: Mapping[str, Settings],
    system: System,
    folder: Path,
    *,
    report: SweepReport = lambda name, stage, done, total: None,
    executor: Executor | None = None,
    failed: Callable[[str, str], None] | None = None,
) -> dict[str, Run]:
    """Train what is not trained yet, each in its own folder; an interrupted training goes on.

    Args:
        wanted: settings by the name of the folder.
        system: that they name.
        folder: of all.
        report: called with the training, its stage, how far it is, and of how much.
        executor: who trains; this process, one after the other, if not given.
        failed: called with each training that failed and the reason; without it a `ChunkError` names them,
            after the others have ended.
    """
    executor = executor or InProcess()
    found, reasons = dict[str, Run](), dict[str, str]()
    for name, settings in wanted.items():  # before anything is computed
        if (folder / name / RUN).exists() and Run.load(folder / name).settings != settings:
            raise StoreError(f"{folder / name} holds a run with other settings. Give another folder.")

    def train(name: str, settings: Settings) -> Callable[[SweepReport], None]:
        place, updates = folder / name, settings.training.updates

        def job(report: SweepReport) -> None:
            if not (place / RUN).exists():
                begin(place, settings)
            run = Run.load(place)
            if not run.finished:
                report(name, "training", 0, updates)
                try:
                    trained = train_run(
                        settings,
                        system,
                        place,
                        lambda line: report(name, "training", int(line["update"]), updates),
                        executor=executor,
                    )
                except ChunkError as error:
                    reasons[name] = str(error)
                    return
                run = finish_run(place, settings, trained)
            found[name] = run

        return job

    at_once = None if executor.remote else 1
    side_by_side([train(*one) for one in wanted.items()], report, executor, at_once=at_once)
    if reasons and failed is None:
        raise ChunkError(reasons)
    for name, reason in reasons.items():
        assert failed is not None
        failed(name, reason)
    return {name: found[name] for name in wanted if name in found}

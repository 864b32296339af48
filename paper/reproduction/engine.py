"""The work of a reproduction: columns are trained and measured in turn, and nothing is done twice."""

import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from paper.reproduction import stages
from paper.reproduction.adapt import from_equilibrium, with_particles, with_system
from paper.reproduction.charges import chargeable
from paper.reproduction.columns import BY_NAME, MORE, Column, selected, settings
from paper.reproduction.ending import ending
from paper.reproduction.options import Extent
from paper.reproduction.stages import Arrays
from veil.distortion import expected_distance
from veil.evaluation.episodes import evaluation_keys, play_episodes, select_episodes
from veil.evaluation.evaluate import Evaluation, evaluate
from veil.io import Store, StoreError, fingerprint, load_arrays, replace_text, save_arrays
from veil.learners import run as runs
from veil.learners import training
from veil.policies.base import Policy
from veil.policies.plain import GaussianNoise
from veil.results.parts import BELIEVED
from veil.settings import AuditSettings
from veil.step import Record
from veil.systems.platoon import Platoon
from veil.systems.scenarios import nominal
from veil.types import as_float32, as_float64
from veil.version import __version__

Report = Callable[[str, str, int, int], None]

RATIO = (1.0, 1.7)  # sd of noise on speed (m/s) to that on spacing (m)

LAST = "last.safetensors"  # the policy after the last update, beside the best of the looks


class Clock:
    """The processor time of a training, over all its sittings, kept beside it at every look.

    Args:
        folder: of the run.
    """

    FILE = "processor.txt"

    def __init__(self, folder: Path):
        self.path, self.last = folder / self.FILE, time.process_time()
        self.spent = float(self.path.read_text(encoding="utf-8")) if self.path.exists() else 0.0

    def told(self, line: dict[str, float]) -> None:
        """After an update; what an interruption loses is not counted."""
        now = time.process_time()
        self.spent, self.last = self.spent + now - self.last, now
        if "upper" in line:
            replace_text(self.path, f"{self.spent}\n")


class Work:
    """A reproduction on its way.

    Args:
        extent: how much of it.
        folder: where every stage is kept once it is done.
        only: names of columns; those that they are compared with come along.
        report: called with the column, the stage, how far that is, and of how much.
        full: whether the trainings of the full run belong to it.
    """

    def __init__(
        self,
        extent: Extent,
        folder: Path,
        only: Iterable[str] = (),
        report: Report = lambda column, stage, done, total: None,
        full: bool = False,
    ):
        self.extent, self.folder, self.report, self.full = extent, folder, report, full
        self.columns, self.more = selected(only), MORE if full else ()
        self._studies: dict[str, Study] = {}

    def study(self, name: str) -> "Study":
        """The column of this name."""
        if name not in self._studies:
            self._studies[name] = Study(self, BY_NAME[name])
        return self._studies[name]

    @property
    def learned(self) -> tuple[Column, ...]:
        """The columns whose policies are learned."""
        return tuple(column for column in self.columns if column.preset is not None)


class Study:
    """One column: its policy, and what was measured of it. Everything is made when it is first asked for."""

    def __init__(self, work: Work, column: Column):
        self.work, self.column, self.extent = work, column, work.extent
        self.part = "policy"

    def progress(self, stage: str, done: int, total: int) -> None:
        """Say which column and which part of it this is about."""
        self.work.report(f"{self.column.name}: {self.part}", stage, done, total)

    @property
    def run(self) -> Path:
        """The folder of its training."""
        return self.work.folder / "runs" / (self.column.run or self.column.name)

    @cached_property
    def system(self) -> Platoon:
        """The platoon from a spread start, in double precision."""
        with jax.enable_x64(True):
            return as_float64(Platoon())

    @cached_property
    def as_trained(self) -> Policy:
        """The policy with the belief that it was made with."""
        with jax.enable_x64(True):
            column = self.column
            if column.make is not None:
                return as_float64(column.make(self.system))
            if column.like:
                return self._noise(column.like)
            return as_float64(self._learned())

    @cached_property
    def policy(self) -> Policy:
        """The policy as it is evaluated: with more particles, if it has any."""
        return with_particles(self.as_trained, self.extent.particles)

    def _noise(self, like: str) -> GaussianNoise:
        """Noise whose mean distortion is that of another column; it is proportional to the sd."""
        weights = np.asarray(self.system.distortion_weights)
        once = expected_distance(weights, np.zeros(2), np.diag(np.square(RATIO))).value
        factor = float(np.mean(self.work.study(like).audited["distortion"])) / once
        return GaussianNoise(self.system, jnp.asarray(RATIO, float) * factor)

    def _learned(self) -> Policy:
        """As trained before, gone on with, or trained now: the iterate that is asked for."""
        extent, folder = self.extent, self.run
        wanted = settings(self.column, extent.steps, extent.training_fraction, extent.seed)
        try:
            found = runs.Run.load(folder)
        except StoreError:  # none, or not whole
            found = None
        if found is None or found.settings != wanted:
            runs.clear(folder)
            (folder / Clock.FILE).unlink(missing_ok=True)
            runs.begin(folder, wanted)
            found = runs.Run(wanted)
        if found.result is None:
            clock = Clock(folder)

            def report(line: dict[str, float]) -> None:
                clock.told(line)
                self.progress("training", int(line["update"]), wanted.training.updates)

            self.progress("training", 0, wanted.training.updates)
            rule = ending if self.column.settles else training.never
            trained = training.train_run(wanted, self.system, folder, report, ending=rule)
            save_arrays(folder / LAST, trained.policy if trained.last is None else trained.last, {})
            training.finish_run(folder, wanted, trained)
        with jax.enable_x64(False):
            if self.column.which == "first":
                given = {"steps": wanted.steps, "design": wanted.design}
                return training.untrained(self.system, wanted.training, **given)
            policy = runs.load_policy(folder, as_float32(self.system))
            if self.column.which == "last":
                policy = load_arrays(folder / LAST, policy)
        assert isinstance(policy, Policy)
        return policy

    @cached_property
    def store(self) -> Store:
        """Finished stages; those of another policy or extent are not read."""
        mark = fingerprint(self.as_trained, self.extent, __version__)
        return Store(self.work.folder / "columns" / self.column.name, mark)

    def evaluated(
        self,
        system: Platoon,
        policy: Policy,
        episodes: int,
        candidates: int,
        records: Record | None = None,
    ) -> Evaluation:
        """Evaluate a policy in a system.

        Args:
            system: the model, which is also the plant.
            policy: the one in force.
            episodes: all secrets together.
            candidates: how many ways of bounding its leakage are tried.
            records: those episodes, if they were played already.
        """
        settings = AuditSettings(steps=self.extent.steps, episodes=episodes, seed=self.extent.seed)
        given = {"records": records, "progress": self.progress, "store": self.store}
        return evaluate(system, policy, settings=settings, candidates=candidates, **given)

    def played(self, policy: Policy, count: int) -> Record:
        """The first episodes, equally many per secret, with the same random numbers for every policy."""
        key, numbers = evaluation_keys(self.extent.seed).episodes, np.arange(count)
        return play_episodes(
            nominal(self.system), policy, self.extent.steps, numbers, key=key, progress=self.progress
        )

    @property
    def secrets(self) -> int:
        """How many."""
        return len(self.system.prior.secrets)

    def _kept(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        store = self.store  # needs the policy, which may have to be trained
        self.part = name

        def timed() -> Arrays:
            began, spent = time.monotonic(), time.process_time()
            found = make()
            took = {"seconds": time.monotonic() - began, "processor": time.process_time() - spent}
            return {**found, **{key: np.array(value) for key, value in took.items()}}

        with jax.enable_x64(True):
            return store.keep(name, timed)

    @property
    def seconds(self) -> float:
        """That its stages took, and its training if that is its own."""
        parts = (self.audited, self.driven, self.read, self.charged, self.attacked)
        found = sum(float(part.get("seconds", 0.0)) for part in parts if part is not None)
        if self.column.preset is None or self.column.run:
            return found
        result = runs.Run.load(self.run).result
        return found + (0.0 if result is None else result.seconds)

    @property
    def processor(self) -> dict[str, float]:
        """Seconds of processor time by stage, that of its training included if that is its own."""
        names = ("audited", "driven", "read", "charged", "attacked")
        parts = {name: part for name in names if (part := getattr(self, name)) is not None}
        found = {name: float(part["processor"]) for name, part in parts.items() if "processor" in part}
        if self.column.preset is not None and not self.column.run:
            found["training"] = self.trained_for
        return found

    @property
    def trained_for(self) -> float:
        """Seconds of processor time of its training, over all sittings."""
        return Clock(self.run).spent

    @cached_property
    def driven(self) -> Arrays:
        """Fuel and accelerations from equilibrium, see `stages.driven`."""

        def make() -> Arrays:
            level, episodes = from_equilibrium(self.system), self.secrets * self.extent.table_episodes
            policy = with_system(self.policy, level)
            return stages.driven(self.evaluated(level, policy, episodes, candidates=0))

        return self._kept("driven", make)

    @cached_property
    def records(self) -> Record:
        """The episodes that are audited, of which the first are read."""
        per_secret = max(-(-self.extent.audit_episodes // self.secrets), self.extent.read_episodes, 2)
        with jax.enable_x64(True):
            return self.played(self.policy, self.secrets * per_secret)

    @cached_property
    def audited(self) -> Arrays:
        """Leakage from both sides and distortion, see `stages.audited`."""

        def make() -> Arrays:
            episodes = self.extent.audit_episodes
            found = self.evaluated(
                self.system, self.policy, episodes, stages.CANDIDATES, records=self.records
            )
            return stages.audited(found)

        return self._kept("audited", make)

    @cached_property
    def attacked(self) -> Arrays | None:
        """What a trained attacker finds where nothing bounds from above, see `stages.attacked`."""
        if str(self.audited["verdict"]) in BELIEVED or self.policy.has_memory:
            return None

        def make() -> Arrays:
            given = {"steps": self.extent.steps, "seed": self.extent.seed, "progress": self.progress}
            return stages.attacked(self.system, self.as_trained, self.records, **given)

        return self._kept("attacked", make)

    @cached_property
    def read(self) -> Arrays | None:
        """Posteriors and means over time, see `stages.read`; None where the owner's memory decides."""
        if self.policy.has_memory:
            return None
        rows = np.arange(self.secrets * self.extent.read_episodes)

        def make() -> Arrays:
            some, key = select_episodes(self.records, rows), evaluation_keys(self.extent.seed).filters
            given = {"key": key, "progress": self.progress}
            return stages.read(self.system, self.policy, some, self.extent.particles, **given)

        return self._kept("read", make)

    @cached_property
    def charged(self) -> Arrays | None:
        """The paper's bound under the policy's own belief, see `stages.charged`; None without one."""
        if not chargeable(self.policy):
            return None
        count = self.secrets * self.extent.bound_episodes

        def make() -> Arrays:
            return stages.charged(self.as_trained, self.played(self.as_trained, count), self.progress)

        return self._kept("charged", make)

    @property
    def history(self) -> list[dict[str, float]]:
        """The course of its training."""
        assert self.column.preset is not None
        _ = self.as_trained
        return runs.history(self.run)

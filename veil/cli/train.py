"""`veil train`: learn a sharing policy, in a folder that other commands take as one."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli import systems
from veil.cli.mistakes import Mistake, complain, known
from veil.learners.options import PRESETS, Design, Leakage, Training, Weights

if TYPE_CHECKING:
    from veil.learners.runs import Run, Settings

FOLDER = "(default: runs/SYSTEM-START, or runs/SYSTEM-LEARNER)"


@dataclass(frozen=True)
class Train:
    """Learn a policy that shares useful data and tells little about the secret.

    Exit code 0: trained; 2: a mistake on the command line; 130: stopped by Ctrl-C, after which the same
    command goes on where it was.
    """

    system: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SYSTEM]")] = "platoon"
    """System to share in: platoon, coloured_platoon, idm_platoon or gain"""
    design: Design = field(default_factory=Design)
    weights: Weights = field(default_factory=Weights)
    training: Training = field(default_factory=Training)
    steps: int = 50
    """Releases per episode"""
    leakage: Leakage = "estimate"
    """Leakage of a step (nats) to learn by: unbiased estimate, closed-form bound, or a bound of the paper"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint=FOLDER)] = None
    """Folder of the run; `veil audit --policy PATH` takes it"""
    again: bool = False
    """Forget what is in the folder and begin anew"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        try:
            self.check()
        except Mistake as mistake:
            complain("train", mistake)

    def check(self) -> None:
        """All that can be checked without building the system."""
        known("system", self.system, systems.NAMES)
        if self.steps < 1:
            raise Mistake("give at least --steps 1, the number of releases per episode.")
        learner, grid = self.training.learner, self.design.start == "grid"
        if grid != (learner == "a2c") and learner != "pathwise":
            raise Mistake(
                f"--learner {learner} learns {'with' if learner == 'a2c' else 'without'} --start grid."
            )
        if not 0 <= self.training.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")

    @classmethod
    def usual(cls, arguments: list[str]) -> "Train":
        """What is usual for the learner that the command line names: its flags begin there."""
        words = " ".join(arguments).replace("=", " ").split()
        named = words[words.index("--learner") + 1 :][:1] if "--learner" in words else []
        preset = next((kept for name, kept in PRESETS.items() if [name] == named), PRESETS["pathwise"])
        return cls(design=preset.design, training=preset.training, leakage=preset.leakage)

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        learner, start = self.training.learner, self.design.start
        return self.out or Path("runs") / f"{self.system}-{start if learner == 'pathwise' else learner}"

    @property
    def settings(self) -> "Settings":
        """All that the result depends on."""
        from veil.learners.runs import Settings

        return Settings(self.system, self.steps, self.design, self.weights, self.training, self.leakage)

    def run(self) -> None:
        """Train what is not trained yet; print the result and what to do with it."""
        from veil.cli import train_report
        from veil.learners import runs
        from veil.learners.store import StoreError

        try:
            if self.again:
                runs.clear(self.folder)
            found = self.found()
            if found is None:
                runs.begin(self.folder, self.settings)
        except (Mistake, StoreError, OSError) as mistake:
            complain("train", mistake)
        if found is not None and found.result is not None:
            print(f"Already trained in {self.folder}; --again trains anew.\n")
        else:
            found = self.fit()
        train_report.show(found, self.folder)

    def found(self) -> "Run | None":
        """The run that the folder holds, if any; refuses one with other settings."""
        from veil.cli.trained import command
        from veil.learners import runs

        if not (self.folder / runs.RUN).exists():
            return None
        run = runs.read(self.folder)
        if run.settings != self.settings:
            raise Mistake(
                f"{self.folder} holds a run with other settings: {command(run.settings, self.folder)}\n"
                "Give another --out, or --again to replace it."
            )
        return run

    def fit(self) -> "Run":
        """Train with progress on stderr, write, draw."""
        from veil.cli import learning, train_report
        from veil.learners import runs

        settings = self.settings
        try:
            with train_report.progress(settings.training.updates, self.folder) as report:
                trained = runs.fit(settings, systems.build(self.system), self.folder, report)
            lines, limit = runs.history(self.folder), self.weights.distortion_limit
            learning.draw(lines, trained.best, limit, self.folder / learning.PICTURE)
            return runs.finish(self.folder, settings, trained)
        except KeyboardInterrupt:
            print(train_report.stopped(runs.history(self.folder)), file=sys.stderr)
            sys.exit(130)
        except OSError as mistake:
            complain("train", mistake)

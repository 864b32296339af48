"""`veil train`: make a sharing policy, in a folder that other commands take as one."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from veil.cli import config, systems
from veil.cli.fields import Setting
from veil.cli.mistakes import Mistake, complain, known
from veil.cli.own_system import short
from veil.cli.policies import SD, TAKES, Choice
from veil.settings import PRESETS, LeakageMethodName, ObjectiveWeights, PolicyDesign, TrainSettings

if TYPE_CHECKING:
    from veil.learners.loggers import Logger
    from veil.learners.run import Ready, Run, Settings


FOLDER = "(default: runs/SYSTEM-POLICY)"

CONFIG = "config.toml"


@dataclass(frozen=True)
class ReadyMade:
    """Numbers of policies that need no training."""

    sd: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SD [SD ...]", help_behavior_hint=SD)] = ()
    """Sd of the noise per shared axis, in its unit"""
    step: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STEP [STEP ...]", help_behavior_hint="")] = ()
    """Cell of the quantiser per shared axis, in its unit"""
    every: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """Steps per fresh release of the subsampled policy"""
    share: float = 1.0
    """How far transport moves the output, from 0 to 1"""


@dataclass(frozen=True)
class Train:
    """Make a policy that shares useful data and tells little about the secret.

    pathwise, ddpg, ddpg_printed and a2c learn; transport, counterfactual, blind, noise, quantised,
    subsampled and truth are ready at once. Ctrl-C (exit code 130) loses nothing: the same command goes
    on where it was.

    Example: `veil train platoon --policy pathwise --privacy-weight 80 --distortion-budget 4`
    """

    system: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SYSTEM]")] = "platoon"
    """platoon, coloured_platoon, idm_platoon, gain, or your own as FILE.py:NAME"""
    policy: str = "pathwise"
    """Learner, or policy that is ready at once, by name"""
    steps: int = 50
    """Releases per episode"""
    leakage: LeakageMethodName = "estimate"
    """Leakage of a step in nats: an unbiased estimate, or a bound"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint=FOLDER)] = None
    """Folder of the run"""
    again: bool = False
    """Forget what is in the folder and begin anew"""
    log: Literal["json", "tensorboard"] = "json"
    """json for metrics.jsonl only, or tensorboard as well"""
    weights: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    training: TrainSettings = field(default_factory=TrainSettings)
    design: PolicyDesign = field(default_factory=PolicyDesign)
    ready: ReadyMade = field(default_factory=ReadyMade)

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        systems.check(self.system)
        known("policy", self.policy, (*PRESETS, *TAKES))
        if self.steps < 1:
            raise Mistake("give at least --steps 1, the number of releases per episode.")
        if not 0 <= self.training.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")
        if self.policy in TAKES:
            self.choice.check()
            return
        if self.ready != ReadyMade():
            raise Mistake(f"--sd, --step, --every and --share are for {', '.join(TAKES)}.")
        grid = self.design.start == "grid"
        if grid != (self.policy == "a2c") and self.policy != "pathwise":
            raise Mistake(f"--policy {self.policy} learns {'without' if grid else 'with'} --start grid.")

    @classmethod
    def usual(cls, given: Mapping[str, list[str]]) -> "Train":
        """What is usual for the policy that was named: its flags begin there."""
        named = given.get("policy", ())
        name, preset = next(
            ((name, kept) for name, kept in PRESETS.items() if [name] == named),
            ("pathwise", PRESETS["pathwise"]),
        )
        return cls(policy=name, design=preset.design, training=preset.training, leakage=preset.leakage)

    @property
    def choice(self) -> Choice:
        """The policy that is ready at once."""
        ready = self.ready
        return Choice(self.policy, ready.sd, ready.step, ready.every, self.design.particles, ready.share)

    def kept(self, setting: Setting) -> bool:
        """Whether the policy depends on it."""
        if setting.name in ("system", "policy"):
            return True
        if setting.name == "particles" or self.policy not in TAKES:
            return setting.group != "ready" and setting.name not in ("out", "again", "log")
        return setting.group == "ready"

    @property
    def idle(self) -> bool:
        """Whether something was asked of learning that a policy without it cannot do."""
        usual = self.usual({})
        asked = replace(self, design=replace(self.design, particles=usual.design.particles))
        parts = ("weights", "training", "design", "leakage", "steps")
        return any(getattr(asked, part) != getattr(usual, part) for part in parts)

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        start, preset = self.design.start, PRESETS.get(self.policy)  # pyright: ignore[reportArgumentType, reportCallIssue]
        other = f"-{start}" if preset and start != preset.design.start else ""
        return self.out or Path("runs") / f"{short(self.system)}-{self.policy}{other}"

    @property
    def settings(self) -> "Settings | Ready":
        """All that the policy depends on."""
        from veil.learners.run import Ready, Settings

        if self.policy in TAKES:
            return Ready(self.system, self.choice.named(systems.build(self.system)))
        training = replace(self.training, learner=self.policy)
        return Settings(self.system, self.steps, self.design, self.weights, training, self.leakage)

    def run(self) -> None:
        """Make what is not made yet; print the result and what to do with it."""
        from veil.cli import train_report
        from veil.io import StoreError
        from veil.learners import run as runs

        try:
            loggers = self.loggers()
            if self.again:
                runs.clear(self.folder)
            found, settings = self.found(), self.settings
            if found is None:
                self.begin()
            if found is not None and found.finished:
                print(f"Already trained in {self.folder}; --again trains anew.\n")
            else:
                found = self.make(settings, loggers)
        except (Mistake, StoreError, OSError) as mistake:
            complain("train", mistake)
        train_report.show(found, self.folder)

    def loggers(self) -> "tuple[Logger, ...]":
        """Whom metrics are told besides the file."""
        if self.log == "json":
            return ()
        from veil.learners.loggers import TensorBoard

        return (TensorBoard(self.folder / "tensorboard"),)

    def found(self) -> "Run | None":
        """The run that the folder holds, if any; refuses one with other settings."""
        from veil.cli.trained import command
        from veil.learners import run as runs

        if not (self.folder / runs.RUN).exists():
            return None
        run = runs.Run.load(self.folder)
        if run.settings != self.settings:
            raise Mistake(
                f"{self.folder} holds a run with other settings: {command(run.settings, self.folder)}\n"
                "Give another --out, or --again to replace it."
            )
        return run

    def begin(self) -> None:
        """Say in the folder what is going to be made, also as a file that `--config` takes."""
        from veil.learners import run as runs

        runs.begin(self.folder, self.settings)
        (self.folder / CONFIG).write_text(config.text(self, self.kept), encoding="utf-8")

    def make(self, settings: "Settings | Ready", loggers: "tuple[Logger, ...]") -> "Run":
        """Train with progress on stderr, write, draw; what needs no training is only written."""
        from veil.cli import learning, train_report
        from veil.learners import run as runs

        system = systems.build(self.system)
        if isinstance(settings, runs.Ready):
            if self.idle:
                print(f"{self.policy} is not trained: flags of learning change nothing.", file=sys.stderr)
            return runs.keep(self.folder, settings, system)
        try:
            with train_report.progress(settings.training.updates, self.folder) as report:
                trained = runs.fit(settings, system, self.folder, report, loggers)
            lines, limit = runs.history(self.folder), self.weights.distortion_limit
            learning.draw(lines, trained.best, limit, self.folder / learning.PICTURE)
            return runs.finish(self.folder, settings, trained)
        except KeyboardInterrupt:
            print(train_report.stopped(runs.history(self.folder)), file=sys.stderr)
            sys.exit(130)

"""`veil train`: make a sharing policy, in a folder that other commands take as one."""

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from veil.cli.console import Mistake, clock, complain, grid, known, point_progress, written
from veil.cli.parser import Flag, Parameters, Setting, toml_text
from veil.cli.subject import (
    PolicyChoice,
    SensorChoice,
    build_system,
    check_system,
    train_command,
    trust_words,
)
from veil.cli.workers import WorkerChoice
from veil.registry import LEAKAGE, LEARNERS, POLICIES, SYSTEMS, system_name
from veil.settings import ObjectiveWeights, PolicyDesign, SweepSettings, TrainSettings

if TYPE_CHECKING:
    from veil.learners.loggers import Logger
    from veil.learners.run import Ready, Result, Run, Settings


FOLDER = "default: runs/SYSTEM-POLICY"

CONFIG = "config.toml"


@dataclass(frozen=True)
class Train:
    """Make a policy that shares useful data and tells little about the secret.

    Ctrl-C (exit code 130) loses nothing: the same command goes on where it was. `veil train --policy
    noise --help` shows the settings of a policy that needs no training.

    Example: `veil train platoon --policy pathwise --privacy-weight 80 --distortion-limit 4`
    """

    system: Annotated[str, Flag("[SYSTEM]", positional=True, names=SYSTEMS)] = "platoon"
    """{names}, or FILE.py:NAME"""
    policy: Annotated[str, Flag(names=(*LEARNERS, *POLICIES))] = "pathwise"
    """Learner, or policy that is ready at once: {names}"""
    steps: int = 50
    """Releases per episode"""
    leakage: Annotated[str, Flag(choices=lambda: LEAKAGE.able("of_step"))] = "estimate"
    """How the leakage of a step is computed, in nats"""
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder of the run"""
    again: bool = False
    """Forget what is in the folder and begin anew"""
    log: Literal["json", "tensorboard"] = "json"
    """json for metrics.jsonl only, or tensorboard as well"""
    sensor: SensorChoice = field(default_factory=SensorChoice)
    sweep: SweepSettings = field(default_factory=SweepSettings)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    weights: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    training: TrainSettings = field(default_factory=TrainSettings)
    design: PolicyDesign = field(default_factory=PolicyDesign)
    parameters: Annotated[Mapping[str, Any], Parameters(POLICIES)] = field(default_factory=dict)
    """Settings of policies that need no training."""

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        check_system(self.system)
        known("policy", self.policy, (*LEARNERS, *POLICIES))
        if self.steps < 1:
            raise Mistake("give at least --steps 1, the number of releases per episode.")
        if not 0 <= self.training.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")
        if self.where.any and not self.sweep.several:
            raise Mistake("workers train several policies at a time: add --seeds or --privacy-weights.")
        if self.policy in POLICIES:
            if self.sweep.several:
                raise Mistake(
                    f"{self.policy} is not trained; --seeds and --privacy-weights are for learners."
                )
            self.choice.check(self.system)
            return
        foreign = ", ".join(f"--{name}" for name in self.parameters)
        if foreign:
            raise Mistake(f"{foreign} is for policies that need no training: {', '.join(POLICIES)}.")
        starts = LEARNERS.header(self.policy).starts
        if self.design.start not in starts:
            raise Mistake(f"--policy {self.policy} learns with --start {' or '.join(starts)}.")

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> "Train":
        """What is usual for the policy that was named: its flags begin there."""
        name = given["policy"] if given.get("policy") in LEARNERS else "pathwise"
        preset = LEARNERS.header(name)()
        return cls(policy=name, design=preset.design, training=preset.training, leakage=preset.leakage)

    @classmethod
    def shown(cls, setting: Setting, given: Mapping[str, Any]) -> bool:
        """Whether help shows a setting: those of learning, or those of the policy that needs no training."""
        if given.get("policy") not in POLICIES:
            return setting.group != "parameters"
        takes = [one.name for one in fields(POLICIES.header(given["policy"]))]
        own = setting.group in ("", "sensor") and setting.name not in ("steps", "leakage")
        return setting.name in takes or own

    @property
    def choice(self) -> PolicyChoice:
        """The policy that is ready at once; a number that learned policies have too is in their design."""
        takes, usual = fields(POLICIES.header(self.policy)), PolicyDesign()
        common = {one.name: getattr(self.design, one.name) for one in takes if hasattr(usual, one.name)}
        changed = {name: value for name, value in common.items() if value != getattr(usual, name)}
        return PolicyChoice(self.policy, {**self.parameters, **changed})

    def kept(self, setting: Setting) -> bool:
        """Whether the policy depends on it."""
        if setting.name in ("system", "policy"):
            return True
        if setting.group == "sensor":
            return bool(self.sensor.resolution)
        if self.policy in POLICIES:
            return setting.name in self.choice.parameters
        apart = setting.group in ("parameters", "sweep", "where")
        return not apart and setting.name not in ("out", "again", "log")

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
        start = self.design.start
        usual = self.policy in POLICIES or start == LEARNERS.header(self.policy)().design.start
        return (
            self.out
            or Path("runs") / f"{system_name(self.system)}-{self.policy}{'' if usual else f'-{start}'}"
        )

    @property
    def settings(self) -> "Settings | Ready":
        """All that the policy depends on."""
        from veil.learners.run import Ready, Settings

        resolution = self.sensor.recorded(build_system(self.system)) if self.sensor.resolution else {}
        if self.policy in POLICIES:
            return Ready(self.system, self.choice.settings(build_system(self.system)), resolution)
        training = replace(self.training, learner=self.policy)
        return Settings(
            self.system, self.steps, self.design, self.weights, training, self.leakage, resolution
        )

    def run(self) -> None:
        """Make what is not made yet; print the result and what to do with it."""
        from veil.io import StoreError
        from veil.learners import run as runs

        if self.sweep.several:
            self.train_all()
            return
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
        show(found, self.folder)

    def train_all(self) -> None:
        """Train every seed and weight that is missing; print one table."""
        from veil.io import StoreError
        from veil.learners import run as runs
        from veil.learners.training import sweep_settings, train_sweep

        settings, failed = self.settings, list[str]()
        assert isinstance(settings, runs.Settings)  # of a learner
        wanted = sweep_settings(settings, self.sweep.seeds, self.sweep.privacy_weights)
        try:
            if self.again:
                for name in wanted:
                    runs.clear(self.folder / name)
            with self.where.executor() as executor, point_progress() as report:
                found = train_sweep(
                    wanted,
                    self.sensor.wrap(build_system(self.system)),
                    self.folder,
                    report=report,
                    executor=executor,
                    failed=lambda name, reason: failed.append(f"{name} failed: {reason}"),
                )
        except (StoreError, OSError) as mistake:
            complain("train", mistake)
        except KeyboardInterrupt:
            print(f"Stopped. What is trained is in {self.folder}; the same command goes on.", file=sys.stderr)
            sys.exit(130)
        show_all(found, self.folder)
        if failed:
            raise Mistake(f"{' '.join(failed)} The others are trained; the same command tries again.")

    def loggers(self) -> "tuple[Logger, ...]":
        """Who receives the metrics besides the file."""
        if self.log == "json":
            return ()
        from veil.learners.loggers import TensorBoard

        return (TensorBoard(self.folder / "tensorboard"),)

    def found(self) -> "Run | None":
        """The run that the folder holds, if any; refuses one with other settings."""
        from veil.learners import run as runs

        if not (self.folder / runs.RUN).exists():
            return None
        run = runs.Run.load(self.folder)
        if run.settings != self.settings:
            raise Mistake(
                f"{self.folder} holds a run with other settings: {train_command(run.settings, self.folder)}\n"
                "Give another --out, or --again to replace it."
            )
        return run

    def begin(self) -> None:
        """Say in the folder what is going to be made, also as a file that `--config` takes."""
        from veil.learners import run as runs

        runs.begin(self.folder, self.settings)
        (self.folder / CONFIG).write_text(toml_text(self, self.kept), encoding="utf-8")

    def make(self, settings: "Settings | Ready", loggers: "tuple[Logger, ...]") -> "Run":
        """Train with progress on stderr, write, draw; what needs no training is only written."""
        from veil.learners import run as runs
        from veil.learners import run_plots, training

        system = self.sensor.wrap(build_system(self.system))
        if isinstance(settings, runs.Ready):
            if self.idle:
                print(f"{self.policy} is not trained: flags of learning change nothing.", file=sys.stderr)
            return runs.keep(self.folder, settings, system)
        try:
            with progress(settings.training.updates, self.folder) as report:
                trained = training.train_run(settings, system, self.folder, report, loggers)
            lines, limit = runs.history(self.folder), self.weights.distortion_limit
            figure = run_plots.training_figure(lines, trained.best, limit)
            if figure is not None:
                figure.savefig(self.folder / run_plots.PICTURE, dpi=130)
            return training.finish_run(self.folder, settings, trained)
        except KeyboardInterrupt:
            print(stopped(runs.history(self.folder)), file=sys.stderr)
            sys.exit(130)


Line = dict[str, float]

Report = Callable[[Line], None]

FIRST = "compiling, and evaluating the policy to start from"


@contextmanager
def progress(updates: int, folder: Path) -> Iterator[Report]:
    """A live bar on a terminal, one line per evaluation elsewhere."""
    _warn(folder)
    if not sys.stderr.isatty():
        print(FIRST, file=sys.stderr, flush=True)
        yield _lines(updates)
        return
    seen: list[Line] = []
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    columns = (TextColumn("update"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns)
    bar = bars.add_task("", total=updates)
    with Live(Group(bars, Text(FIRST)), console=Console(stderr=True), refresh_per_second=4) as live:

        def report(line: Line) -> None:
            seen.append(line)
            bars.update(bar, completed=line["update"])
            live.update(Group(bars, Text(trade(seen))))

        yield report


def _warn(folder: Path) -> None:
    """Say so where a checkpoint is there and cannot be used."""
    from veil.io import StoreError, about
    from veil.learners.run import CHECKPOINT

    path = folder / CHECKPOINT
    try:
        if path.exists():
            about(path)
    except StoreError:
        print(f"{path} is damaged, so training begins again at the first update.", file=sys.stderr)


def _lines(updates: int) -> Report:
    began, printed = time.monotonic(), list[Line]()

    def tell(line: Line) -> None:
        taken, printed[len(printed) :] = clock(time.monotonic() - began), [line]
        where = f"update {line['update']:.0f} of {updates}"
        if len(printed) == 1 and line["update"] > 0:
            print(
                f"going on after {where}; best so far: {evaluation_text(line)}", file=sys.stderr, flush=True
            )
        elif "upper" in line:
            print(f"{where}: {evaluation_text(line)}, after {taken}", file=sys.stderr, flush=True)

    return tell


def trade(seen: list[Line]) -> str:
    """The trade-off as the last update saw it, and as the last evaluation did."""
    last, evaluations = seen[-1], [line for line in seen if "upper" in line]
    live = ""
    if "price" in last:
        live = f"training: leakage {last['leakage']:.4f} nats, distortion {last['distortion']:.3g}, "
        live += f"cost {last['cost']:.4g}, price {last['price']:.3g}\n"
    return f"{live}evaluation at {evaluations[-1]['update']:.0f}: {evaluation_text(evaluations[-1])}"


def evaluation_text(line: Line) -> str:
    """What an evaluation found, in words."""
    sides = f"leakage {line['lower']:.4f} to {line['upper']:.4f} nats"
    price = f", price {line['price']:.3g}" if "price" in line else ""
    return f"{sides}, distortion {line['fresh_distortion']:.3g}, cost {line['fresh_cost']:.4g}{price}"


def stopped(history: list[Line]) -> str:
    """After Ctrl-C: how far it came, and from where the next one goes on."""
    last = history[-1]["update"] if history else 0
    saved = max([line["update"] for line in history if "upper" in line], default=0)
    start = (
        f"goes on from update {saved:.0f}, the last evaluation"
        if saved
        else "begins again: no evaluation was reached"
    )
    return f"Stopped after update {last:.0f}. The same command {start}."


def show(run: "Run", folder: Path) -> None:
    """Print the result, the next command and the paths."""
    from veil.learners.run import Settings

    words, settings = ["veil", "audit", str(folder), *trust_words(folder)], run.settings
    if isinstance(settings, Settings):
        assert run.result is not None
        episodes = settings.training.evaluation_episodes
        title = f"Policy on {settings.system}, {settings.steps} releases, {episodes} fresh episodes"
        grid(title, ("", "value"), rows(settings, run.result))
        print("The policy was chosen by these episodes; an audit on others has the last word:")
    else:
        print(
            f"The policy {POLICIES.name_of(settings.sharing)} needs no training. An audit says what it tells:"
        )
    print(f"  {shlex.join(words)}")
    written(sorted(path for path in folder.iterdir() if path.is_file()))


def show_all(found: "Mapping[str, Run]", folder: Path) -> None:
    """One row per training, and the next command."""
    table = list[tuple[str, ...]]()
    for name, run in found.items():
        if run.result is not None:
            sides = f"{run.result.lower:.4f} to {run.result.upper:.4f}"
            distortion, cost = f"{run.result.distortion:.3f}", f"{run.result.cost:.4g}"
            table.append((name, sides, distortion, cost, str(run.result.updates)))
    heads = ("training", "leakage, nats", "distortion per step", "cost per episode", "updates")
    grid(f"Trainings in {folder}, on the episodes that they were chosen by", heads, table)
    if table:
        print(f"An audit on other episodes has the last word, e.g.:\n  veil audit {folder / table[0][0]}")


def rows(settings: "Settings", result: "Result") -> list[tuple[str, ...]]:
    """The rows of the table."""
    limit, entropy = settings.objective.distortion_limit, result.entropy
    error = f" ± {result.standard_error:.4f}" if math.isfinite(result.standard_error) else ""
    ends = [f"{max(0.0, side) / entropy:.1%}" for side in (result.lower, result.upper)] if entropy > 0 else []
    shares = [(f"of H(q) = {entropy:.3f} nats", " to ".join(ends))] if ends else []
    return [
        ("leakage, nats", f"{result.lower:.4f} to {result.upper:.4f}{error}"),
        *shares,
        ("distortion per step", f"{result.distortion:.3f} (budget {limit:g})"),
        ("cost per episode", f"{result.cost:.4g}"),
        ("updates", f"{result.updates}, the best after {result.best}"),
        ("ended by", result.reason),
        ("time", clock(result.seconds)),
    ]

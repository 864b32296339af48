"""`veil simulate`: episodes as arrays, so that anyone can attack from outside."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, progress
from veil.cli.parser import Flag
from veil.cli.subject import (
    STEPS,
    PolicyChoice,
    SensorChoice,
    check_subject,
    run_folder,
    run_system,
    subject,
    usual_steps,
)
from veil.registry import SYSTEMS

if TYPE_CHECKING:
    from veil.step import Record
    from veil.systems.base import System


@dataclass(frozen=True)
class Simulate:
    """Play episodes and write what was shared, so that anyone can attack it.

    The file holds the arrays secret (E,), state (E, T, n), external (E, T, e), shared (E, T, m),
    features (E, T, f), public_seed (E,), last_state (E, n) and private (E, T, p), the series that only the
    owner knows. An adversary may see external, shared, features and public_seed. `veil audit --transcripts
    FILE` judges the same episodes.

    A file that ends in .csv is a recording of true states and inputs instead, one row per step, with the
    columns that `veil measure` looks for; `episode` and `secret` tell its episodes apart.

    Example: `veil simulate runs/platoon-pathwise --episodes 1024 --out transcripts.npz`
    """

    run_or_system: Annotated[str, Flag("RUN", positional=True, names=SYSTEMS)]
    """Folder of `veil train`, or a system ({names}, FILE.py:NAME) together with --policy"""
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    sensor: SensorChoice = field(default_factory=SensorChoice)
    episodes: int = 128
    """Episodes to play; the secrets of the prior take turns"""
    steps: Annotated[int, Flag(default=f"default: those of the run, or {STEPS}")] = 0
    """Releases per episode"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same file"""
    trust_code: bool = False
    """Run the Python file that the folder names as its system; only for folders of your own making"""
    out: Path = Path("transcripts.npz")
    """File of the arrays, or of a recording if it ends in .csv"""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        check_subject(self.run_or_system, self.sharing, self.trust_code)
        if self.episodes < 1 or self.steps < 0:
            raise Mistake("--episodes and --steps are counts; give positive numbers.")
        if not 0 <= self.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")

    def run(self) -> None:
        """Play, write, and say what is where."""
        from veil.evaluation.transcript_file import save

        self.out.parent.mkdir(parents=True, exist_ok=True)
        steps, system, records = self.play()
        if self.out.suffix == ".csv":
            from veil.evaluation.transcript_file import save_recording

            save_recording(records, self.out, system)
            print(f"{self.episodes} episodes of {steps} steps as a recording in {self.out}; measured by")
            run = run_folder(self.run_or_system)
            place = run_system(run) if run else self.run_or_system
            words = ["veil", "measure", str(self.out), "--system", place, "--each", "episode"]
            print(f"  {shlex.join([*words, *self.sensor.words()])}")
            return
        save(records, self.out, system)
        print(f"{self.episodes} episodes of {steps} releases in {self.out}; judged by")
        policy = [] if run_folder(self.run_or_system) else self.sharing.words()
        policy += self.sensor.words()
        policy += ["--trust-code"] if self.trust_code else []
        words = ["veil", "audit", self.run_or_system, *policy, "--transcripts", str(self.out)]
        words += ["--out", f"{self.out.with_suffix('')}-audit"]
        print(f"  {shlex.join(words)}")

    def play(self) -> "tuple[int, System, Record]":
        """The releases per episode, the system, and the episodes."""
        from veil.evaluation.episodes import simulate
        from veil.settings import SimulateSettings

        _, system, policy = subject(self.run_or_system, self.sharing, self.sensor, self.trust_code)
        steps = self.steps or usual_steps(run_folder(self.run_or_system) or self.sharing.run)
        with progress() as report:
            settings = SimulateSettings(self.episodes, steps, self.seed)
            return steps, system, simulate(system, policy, settings, progress=report)

"""`veil measure`: what a recorded trajectory tells about the secret behind it, if it were shared."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import REFUSED, Mistake, check_owner, complain, grid, paragraphs, progress, written
from veil.cli.parser import Flag
from veil.cli.recordings import ColumnChoice, content, read, show
from veil.cli.subject import PolicyChoice, SensorChoice, build_for, build_system, check_system
from veil.cli.workers import WorkerChoice
from veil.registry import SYSTEMS, fit_folder, system_name
from veil.settings import MeasureSettings, ReadSettings

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.recordings import Recording
    from veil.results.measurement import Measurement
    from veil.systems.base import System


FOLDER = "default: measure/LOG, or measure/LOG-POLICY"

OWNER = "fingerprint.txt"  # of the settings that made what the folder holds


@dataclass(frozen=True)
class Measure:
    """Measure what a recorded trajectory tells about the secret, as it is or shared by a policy.

    Exit code 0: a leak was found or ruled out in at least one recording; 3: nothing can be said about
    any; 2: a mistake on the command line or in the file.

    Example: `veil measure drive.csv --columns speed=v spacing=gap automated_speed=v_lead`
    """

    log: Annotated[Path, Flag("LOG.csv", positional=True)]
    """CSV or Parquet file with named columns and one row per step"""
    system: Annotated[str, Flag(names=SYSTEMS)] = "platoon"
    """Model of what was recorded: {names}, or your own as FILE.py:NAME"""
    chosen: ColumnChoice = field(default_factory=ColumnChoice)
    reading: ReadSettings = field(default_factory=ReadSettings)
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    sensor: SensorChoice = field(default_factory=SensorChoice)
    extent: MeasureSettings = field(default_factory=MeasureSettings)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the files and the picture"""
    again: bool = False
    """Replace another measurement in the folder"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        check_system(self.system)
        self.sharing.check(self.system)

    @property
    def folder(self) -> Path:
        """Where the files go."""
        policy = self.sharing.run.name if self.sharing.run else self.sharing.policy
        own = "" if policy == PolicyChoice.policy else f"-{policy}"
        return self.out or Path("measure") / f"{self.log.stem}{own}"

    def run(self) -> None:
        """Read, measure, print, write."""
        from veil.recordings import RecordingError
        from veil.recordings.bound import bind

        try:
            system = self.sensor.wrap(build_system(self.system), self.sharing.run)
            logs = read(self.log, system, self.chosen, self.reading)
            mark = self.fingerprint(system, logs)
            if not self.again:
                path = self.folder / "measure.json"
                check_owner(path, self.folder / OWNER, mark, "measurement", described(path))
            show(logs)
            for log in logs if system.exogenous_fields else ():
                bind(system, log)  # whether series are long enough, before anything is written
            self.folder.mkdir(parents=True, exist_ok=True)
            found, failed = self.measured(system, logs)
            said = " ".join(f"{name} cannot be measured: {reason}." for name, reason in failed.items())
            if not found:
                raise Mistake(said)
        except (Mistake, RecordingError, OSError) as mistake:
            complain("measure", mistake)
        (self.folder / OWNER).write_text(mark, encoding="utf-8")
        publish(found, self.folder)
        if failed:
            raise Mistake(f"{said} The files have the other recordings.")
        from veil.results.measurement import DECIDED

        if not any(each.verdict.name in DECIDED for each in found):
            sys.exit(REFUSED)

    def fingerprint(self, system: "System", logs: "list[Recording]") -> str:
        """Changes with anything that the measurement depends on."""
        from veil.executors.messages import whole_fingerprint
        from veil.version import __version__

        return whole_fingerprint(system, self.policy(system), self.extent, content(logs), __version__)

    def measured(
        self, system: "System", logs: "list[Recording]"
    ) -> "tuple[list[Measurement], dict[str, str]]":
        """Measure one after another, or by workers, with progress on stderr; also what failed, and why."""
        from veil.recordings.measure import measure_all

        subjects, failed = [(self.model(system, log), log) for log in logs], dict[str, str]()
        with self.where.executor() as executor, progress() as report:
            given = {"progress": report, "executor": executor, "failed": failed.__setitem__}
            found = measure_all(subjects, self.policy, self.extent, **given)
        return [replace(one, system=system_name(self.system)) for one in found], failed

    def model(self, system: "System", log: "Recording") -> "System":
        """The model of a recording: with a fit, that of its individual."""
        if fit_folder(self.system) is None:
            return system
        return self.sensor.wrap(build_for(self.system, log.name), self.sharing.run)

    @property
    def policy(self) -> "Callable[[System], Policy]":
        """Makes the policy for a model; workers can be sent it."""
        return partial(self.sharing.build, place=self.system)


def described(path: Path) -> str:
    """What a measure.json is about, in a few words."""
    from veil.results.measurement import load_measurements
    from veil.results.parts import ResultError

    try:
        found = load_measurements(path.parent)
        names = found[0].name if len(found) == 1 else f"{len(found)} recordings"
        return f"{names}, {found[0].way}"
    except (ResultError, IndexError):
        return "a file that cannot be read"


def spread(what: str, nats: Sequence[float]) -> str:
    """The median and the range of a number over all individuals."""
    values = sorted(max(0.0, value) for value in nats)
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    return f"{what}: median {(low + high) / 2:.3f} nats, from {values[0]:.3f} to {values[-1]:.3f}."


def publish(found: "Sequence[Measurement]", folder: Path) -> None:
    """Write the files and the picture, print the table, the verdict and the paths."""
    from veil.results.measurement import (
        PICTURE,
        columns_table,
        measurements_table,
        plot_measurements,
        save_measurements,
    )

    paths = [*save_measurements(found, folder), folder / PICTURE]
    plot_measurements(found).savefig(folder / PICTURE, dpi=130)
    grid(*columns_table(found))
    grid(*measurements_table(found))
    if len(found) == 1:
        paragraphs(found[0].summary())
    else:
        names = [each.verdict.title for each in found]
        counts = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        paragraphs(
            f"Verdicts: {counts}. {spread('Information', [each.information.value for each in found])} "
            f"{spread('Discounted for the misfit', [each.discounted_information.value for each in found])} "
            "measure.json has a sentence on each."
        )
    paragraphs("\n".join(["", *found[0].assumptions]))
    written(paths)

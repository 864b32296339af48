"""`veil measure`: what a recorded trajectory tells about the secret behind it, if it were shared."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import REFUSED, Mistake, check_owner, complain, grid, paragraphs, progress, written
from veil.cli.parser import Flag
from veil.cli.recordings import ColumnChoice, content, read, show
from veil.cli.subject import PolicyChoice, SensorChoice, build_for, build_system, check_system
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
            found = self.measured(system, logs)
        except (Mistake, RecordingError, OSError) as mistake:
            complain("measure", mistake)
        (self.folder / OWNER).write_text(mark, encoding="utf-8")
        publish(found, self.folder)
        from veil.results.measurement import DECIDED

        if not any(each.verdict.name in DECIDED for each in found):
            sys.exit(REFUSED)

    def fingerprint(self, system: "System", logs: "list[Recording]") -> str:
        """Changes with anything that the measurement depends on."""
        from veil.executors.messages import whole_fingerprint
        from veil.version import __version__

        return whole_fingerprint(system, self.policy(system), self.extent, content(logs), __version__)

    def measured(self, system: "System", logs: "list[Recording]") -> "list[Measurement]":
        """Measure one after another, with progress on stderr."""
        from veil.recordings.measure import measure

        found = []
        with progress() as report:
            for number, log in enumerate(logs):
                report("recordings", number, len(logs))
                model = system
                if fit_folder(self.system) is not None:
                    model = self.sensor.wrap(build_for(self.system, log.name), self.sharing.run)
                one = measure(model, log, self.policy, self.extent, progress=report)
                found.append(replace(one, system=system_name(self.system)))
            report("recordings", len(logs), len(logs))
        return found

    def policy(self, model: "System") -> "Policy":
        """The policy for a model."""
        return self.sharing.build(model, self.system)


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

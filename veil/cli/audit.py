"""`veil audit`: what a sharing policy tells about the secret, as tables, files, pictures and a verdict."""

import json
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from veil.cli.console import REFUSED, Mistake, check_owner, complain, grid, paragraphs, progress, written
from veil.cli.parser import Flag
from veil.cli.subject import (
    PolicyChoice,
    SensorChoice,
    check_subject,
    run_folder,
    run_system,
    subject,
    usual_steps,
)
from veil.cli.workers import WorkerChoice
from veil.registry import SYSTEMS, system_name
from veil.settings import AuditSettings

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.results import audit as result
    from veil.step import Record
    from veil.systems.base import System


FOLDER = "default: audit/SYSTEM-POLICY, or RUN/audit"


@dataclass(frozen=True)
class Audit:
    """Measure how many nats about the secret a sharing policy leaks, and give a verdict.

    Exit code 0: a bound or a leak is certified; 3: the audit refuses to certify; 2: a mistake on the
    command line; 130: stopped by Ctrl-C, after which the same command goes on where it was.

    Example: `veil audit platoon --policy noise --sd 0.25 0.43`
    """

    system: Annotated[str, Flag("[SYSTEM or RUN]", positional=True, names=SYSTEMS)] = "platoon"
    """{names}, your own system as FILE.py:NAME, or a folder of `veil train`"""
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    sensor: SensorChoice = field(default_factory=SensorChoice)
    extent: AuditSettings = field(default_factory=AuditSettings)
    where: WorkerChoice = field(default_factory=WorkerChoice)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the files and the pictures"""
    transcripts: Annotated[Path | None, Flag(default="")] = None
    """File of recorded episodes, as of `veil simulate`, instead of fresh ones"""
    again: bool = False
    """Replace another audit in the folder"""
    trust_code: bool = False
    """Run the Python file that the folder names as its system; only for folders of your own making"""
    explain: bool = False
    """Print all that the verdict is based on, and the leakage by secret"""

    def __post_init__(self) -> None:
        """Refuse what cannot be audited."""
        check_subject(self.system, self.sharing, self.trust_code)
        extent = self.extent
        if not 0.0 <= extent.interval < math.inf:
            raise Mistake("--interval is a width in nats; give 0 to use all episodes, or e.g. 0.02.")
        if not extent.seconds > 0.0:
            raise Mistake("--seconds is a time; give a positive number, or leave it out for no limit.")
        if not 0 <= extent.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> "Audit":
        """What is usual for what was named: a run is audited over as many steps as it was trained for."""
        run = run_folder(given.get("system", cls.system)) or PolicyChoice(given.get("policy", "truth")).run
        return cls(extent=AuditSettings(steps=usual_steps(run))) if run else cls()

    @property
    def folder(self) -> Path:
        """Where the files go."""
        run = run_folder(self.system) or self.sharing.run
        if run:
            return self.out or run / "audit"
        return self.out or Path("audit") / f"{system_name(self.system)}-{self.sharing.policy}"

    def run(self) -> None:
        """Audit, print, write; the exit code says whether anything was certified."""
        try:
            system, policy = self.build()
            self.folder.mkdir(parents=True, exist_ok=True)
        except (Mistake, OSError) as mistake:
            complain("audit", mistake)
        try:
            found = self.measure(system, policy)
        except KeyboardInterrupt:
            print(
                f"Stopped. Finished stages are kept in {self.folder / 'parts'}; the same command goes on.",
                file=sys.stderr,
            )
            sys.exit(130)
        if publish(found, self.folder, explain=self.explain):
            sys.exit(REFUSED)

    def build(self) -> "tuple[System, Policy]":
        """The system and the policy; checks what depends on both."""
        _, system, policy = subject(self.system, self.sharing, self.sensor, self.trust_code)
        least = 2 * len(system.prior.secrets)
        if self.extent.episodes < least:
            raise Mistake(f"give at least --episodes {least}, two per secret; 1024 for a narrow interval.")
        return system, policy

    def measure(self, system: "System", policy: "Policy") -> "result.Audit":
        """The audit itself, with progress on stderr."""
        from veil.evaluation import audit as engine
        from veil.executors.messages import whole_fingerprint
        from veil.io import Store
        from veil.version import __version__

        records = self.recorded(system, policy)
        run = run_folder(self.system)
        place = run_system(run) if run else self.system
        flags = ["--policy", str(run)] if run else self.sharing.words()
        flags += self.sensor.words()
        mark = whole_fingerprint(system, policy, self.extent, records, __version__)
        self.check_folder(mark)
        store = Store(self.folder, mark)
        given: dict[str, Any] = {"records": records, "store": store}
        with self.where.executor() as executor, progress() as report:
            found = engine.audit(system, policy, self.extent, progress=report, executor=executor, **given)
        return replace(found, system=system_name(place), place=place, policy_flags=tuple(flags))

    def check_folder(self, mark: str) -> None:
        """Refuse a folder that holds another audit, unless its policy has been trained anew since.

        Args:
            mark: fingerprint of this audit; the parts of the one in the folder have one too.
        """
        path, policy = self.folder / "audit.json", self.folder.parent / "policy.safetensors"
        trained_since = policy.exists() and path.exists() and path.stat().st_mtime < policy.stat().st_mtime
        if not self.again and not trained_since:
            check_owner(path, self.folder / "parts" / "audit.txt", mark, "audit", described(path))

    def recorded(self, system: "System", policy: "Policy") -> "Record | None":
        """The episodes of the file, if there is one."""
        if self.transcripts is None:
            return None
        from veil.evaluation.transcript_file import TranscriptError, load

        try:
            return load(self.transcripts, system, policy)
        except TranscriptError as mistake:
            complain("audit", mistake)


def described(path: Path) -> str:
    """What an audit.json is about, in a few words."""
    try:
        line = json.loads(path.read_text(encoding="utf-8"))
        extent = f"{line['episodes']} episodes of {line['horizon']} releases"
        policy = shlex.join(line["command"]["policy"]) or line["policy"]
        return f"{line['system']} {policy}, {extent}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a file that cannot be read"


def publish(found: "result.Audit", folder: Path, *, explain: bool) -> bool:
    """Write the files and pictures, print tables, verdict and paths; whether the verdict is a refusal.

    Args:
        found: the audit.
        folder: where the files go.
        explain: whether to print all that the verdict is based on.
    """
    from veil.results.audit_tables import audit_tables

    paths = [*found.save(folder), *found.save_pictures(folder)]
    for table in audit_tables(found, explain=explain):
        grid(*table)
    paragraphs(found.summary())
    written(paths)
    return found.verdict.refused

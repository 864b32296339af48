"""`veil audit`: what a sharing policy tells about the secret, as tables, files, pictures and a verdict."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli.bars import bars
from veil.cli.mistakes import Mistake, complain
from veil.cli.policies import Choice, agree, run_folder, subject
from veil.settings import AuditSettings

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.results import audit as result
    from veil.step import Record
    from veil.systems.base import System


REFUSED = 3  # exit code where nothing can be certified

FOLDER = "(default: audit/SYSTEM-POLICY, or RUN/audit)"

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Audit:
    """Measure how many nats about the secret a sharing policy leaks, and give a verdict.

    Exit code 0: a bound or a leak is certified; 3: the audit refuses to certify; 2: a mistake on the
    command line; 130: stopped by Ctrl-C, after which the same command goes on where it was.

    Example: `veil audit platoon --policy noise --sd 0.25 0.43`
    """

    system: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SYSTEM or RUN]")] = "platoon"
    """System (platoon, coloured_platoon, idm_platoon, gain, FILE.py:NAME), or a folder of `veil train`"""
    sharing: Choice = field(default_factory=Choice)
    extent: AuditSettings = field(default_factory=AuditSettings)
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint=FOLDER)] = None
    """Folder for the files and the pictures"""
    transcripts: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """File of recorded episodes, as of `veil simulate`, instead of fresh ones"""
    explain: bool = False
    """Print all that the verdict is based on, and the leakage by secret"""

    def __post_init__(self) -> None:
        """Refuse what cannot be audited."""
        try:
            self.check()
        except Mistake as mistake:
            complain("audit", mistake)

    def check(self) -> None:
        """All that can be checked without building the system."""
        agree(self.system, self.sharing)
        extent = self.extent
        if not 0.0 <= extent.interval < math.inf:
            raise Mistake("--interval is a width in nats; give 0 to use all episodes, or e.g. 0.02.")
        if not extent.seconds > 0.0:
            raise Mistake("--seconds is a time; give a positive number, or leave it out for no limit.")
        if not 0 <= extent.seed < 1 << 32:
            raise Mistake("--seed must be between 0 and 4294967295.")

    @property
    def folder(self) -> Path:
        """Where the files go."""
        run = run_folder(self.system)
        return self.out or (run / "audit" if run else self.sharing.folder(self.system))

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
        _, system, policy = subject(self.system, self.sharing)
        least = 2 * len(system.prior.secrets)
        if self.extent.episodes < least:
            raise Mistake(f"give at least --episodes {least}, two per secret; 1024 for a narrow interval.")
        return system, policy

    def measure(self, system: "System", policy: "Policy") -> "result.Audit":
        """The audit itself, with progress on stderr."""
        from veil.evaluation import audit as engine
        from veil.io import Store, fingerprint
        from veil.version import __version__

        records = self.recorded(system, policy)
        store = Store(self.folder, fingerprint(system, policy, self.extent, records, __version__))
        with progress() as report:
            return engine.audit(system, policy, self.extent, records=records, progress=report, store=store)

    def recorded(self, system: "System", policy: "Policy") -> "Record | None":
        """The episodes of the file, if there is one."""
        if self.transcripts is None:
            return None
        from veil.evaluation.transcript_file import TranscriptError, load

        try:
            return load(self.transcripts, system, policy)
        except TranscriptError as mistake:
            complain("audit", mistake)


def publish(found: "result.Audit", folder: Path, *, explain: bool) -> bool:
    """Write the files and pictures, print tables, verdict and paths; whether the verdict is a refusal."""
    from veil.cli import audit_table

    paths = [*found.save(folder), *found.save_pictures(folder)]
    audit_table.show(found, explain=explain)
    audit_table.paragraphs(found.summary())
    print("\nWritten to")
    for path in paths:
        print(f"  {path}")
    return found.verdict.refused


@contextmanager
def progress() -> Iterator[Report]:
    """A bar per stage on a terminal, a line per stage elsewhere. The first batch includes compiling."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with bars() as shown:
        tasks = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total)
            elif done == 0:  # the same stage once more
                shown.reset(tasks[stage], total=total)
            shown.update(tasks[stage], completed=done, total=total)

        yield report


def _lines() -> Report:
    """One line when a stage begins; a stage that comes back is not told again."""
    told = set()

    def report(stage: str, done: int, total: int) -> None:
        del done
        if stage not in told:
            print(f"{stage} ({total})", file=sys.stderr, flush=True)
            told.add(stage)

    return report

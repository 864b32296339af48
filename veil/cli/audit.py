"""`veil audit`: what a sharing policy tells about the secret, as tables, files, pictures and a verdict."""

import json
import math
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import REFUSED, Mistake, Rows, complain, grid, number, paragraphs, progress, written
from veil.cli.parser import Flag
from veil.cli.subject import PolicyChoice, check_subject, run_folder, run_system, subject
from veil.registry import SYSTEMS, system_name
from veil.settings import AuditSettings

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.results import audit as result
    from veil.results.parts import AttackResult, ScenarioResult
    from veil.stats import Leakage, Rate
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
    extent: AuditSettings = field(default_factory=AuditSettings)
    out: Annotated[Path | None, Flag(default=FOLDER)] = None
    """Folder for the files and the pictures"""
    transcripts: Annotated[Path | None, Flag(default="")] = None
    """File of recorded episodes, as of `veil simulate`, instead of fresh ones"""
    again: bool = False
    """Replace another audit in the folder"""
    explain: bool = False
    """Print all that the verdict is based on, and the leakage by secret"""

    def __post_init__(self) -> None:
        """Refuse what cannot be audited."""
        check_subject(self.system, self.sharing)
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
        run = run_folder(self.system)
        place = run_system(run) if run else self.system
        flags = ("--policy", str(run)) if run else tuple(self.sharing.words())
        mark = fingerprint(system, policy, self.extent, records, __version__)
        self.check_folder(mark)
        store = Store(self.folder, mark)
        with progress() as report:
            found = engine.audit(system, policy, self.extent, records=records, progress=report, store=store)
        return replace(found, system=system_name(place), place=place, policy_flags=flags)

    def check_folder(self, mark: str) -> None:
        """Refuse a folder that holds another audit, unless its policy has been trained anew since.

        Args:
            mark: fingerprint of this audit; the parts of the one in the folder have one too.
        """
        path, owner = self.folder / "audit.json", self.folder / "parts" / "audit.txt"
        if self.again or not path.exists():
            return
        if owner.exists() and owner.read_text(encoding="utf-8") == mark:
            return
        policy = self.folder.parent / "policy.safetensors"
        if policy.exists() and path.stat().st_mtime < policy.stat().st_mtime:
            return
        told = f"{self.folder} holds another audit: {described(path)}."
        raise Mistake(f"{told} Give another --out, or --again to replace it.")

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
    paths = [*found.save(folder), *found.save_pictures(folder)]
    show(found, explain=explain)
    paragraphs(found.summary())
    written(paths)
    return found.verdict.refused


ROLES = {"attack": "", "assisted": "knows more", "mismatched": "wrong model"}


def show(audit: "result.Audit", *, explain: bool) -> None:
    """Print all tables that have something to say."""
    measured = f"{audit.policy} on {audit.system}, {audit.episodes} episodes of {audit.horizon} releases"
    by = f"{audit.method}, {audit.particles} particles per secret" if audit.particles else audit.method
    grid(f"Leakage: {measured}, by {by}", LEAKAGE, leakage_rows(audit))
    grid(f"Attackers (chance {audit.chance:.3f})", ATTACKS, [attack_row(row) for row in audit.attacks])
    grid("Use", USE, use_rows(audit))
    grid(
        "Scenarios that differ from the model",
        SCENARIOS,
        [line for row in audit.scenarios for line in scenario_rows(row)],
    )
    if explain:
        parts = [*audit.secrets, *audit.components]
        grid("By secret and by component", PARTS, [(row.name, *sides(row.leakage)) for row in parts])
        grid("What the verdict is based on", GATE, [(name, value(x)) for name, x in gate(audit).items()])


LEAKAGE = ("releases", "lower ± s.e.", "upper ± s.e.", "interval, nats", "interval, bits", "of H(q)")

ATTACKS = ("attacker", "knows", "accuracy [95 %]", "lower ± s.e.", "raw", "calibration", "episodes", "note")

USE = ("use", "value ± s.e.", "unit", "with true data", "change, %")

SCENARIOS = ("scenario", "attacker", "accuracy [95 %]", "chance", "lower ± s.e.", "H(q)", "distortion")

PARTS = ("about", *LEAKAGE[1:-1], "of the most")

GATE = ("input", "value")


def leakage_rows(audit: "result.Audit") -> Rows:
    """The leakage at a few times and at the end."""
    rows = [(str(row.step), *sides(row.leakage)) for row in audit.times if row.step != audit.horizon]
    return [*rows, (str(audit.horizon), *sides(audit.leakage))]


def sides(leakage: "Leakage") -> tuple[str, ...]:
    """Both sides, and the interval with its errors in nats, in bits and as a share of all there is."""
    low, high, entropy = leakage.low, leakage.high, leakage.entropy
    share = f"{low / entropy:.0%} to {high / entropy:.0%}" if entropy > 0 else ""
    return (
        number(leakage.lower),
        number(leakage.upper),
        f"[{low:.3f}, {high:.3f}]",
        f"[{low / math.log(2):.3f}, {high / math.log(2):.3f}]",
        share,
    )


def attack_row(row: "AttackResult") -> tuple[str, ...]:
    """The row of one attacker."""
    return (
        row.name,
        ROLES.get(row.role, row.role),
        rate(row.accuracy),
        number(row.lower),
        value(row.raw.value),
        number(row.calibration),
        str(row.episodes),
        row.note,
    )


def use_rows(audit: "result.Audit") -> Rows:
    """What sharing this way costs and gives."""
    return [
        (
            row.name,
            number(row.value),
            row.unit,
            number(row.true_data) if row.true_data else "",
            number(row.change, 1) if row.change else "",
        )
        for row in audit.utility
    ]


def scenario_rows(row: "ScenarioResult") -> Rows:
    """One line per attacker of a scenario; what is common is said once."""
    common = (f"{row.chance:.3f}", f"{row.entropy:.3f}", number(row.distortion))
    lines = []
    for place, line in enumerate(row.attacks):
        chance, entropy, distortion = common if place == 0 else ("", "", "")
        name = row.name if place == 0 else ""
        lines.append((name, line.name, rate(line.accuracy), chance, number(line.lower), entropy, distortion))
    return lines


def gate(audit: "result.Audit") -> "dict[str, float | str | bool]":
    """The gate's inputs by readable names."""
    return {name.replace("_", " "): x for name, x in audit.verdict.inputs.items()}


def rate(share: "Rate") -> str:
    """A share and its interval."""
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]"


def value(x: "float | str | bool") -> str:
    """One number, or a word."""
    if isinstance(x, bool | str):
        return str(x)
    return f"{x:.4g}" if math.isfinite(x) else "unknown"

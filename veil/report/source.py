"""What a folder of `veil train` or of `veil audit` holds."""

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from veil.io import StoreError
from veil.learners import run as runs
from veil.learners.run import Run, Settings
from veil.learners.training import METRICS
from veil.report.audit_reader import AUDIT, Found, read_audit
from veil.report.blocks import ReportError
from veil.sharing.account import Account, read_account
from veil.sharing.ledger import LedgerError

LEDGERS = ("share/ledger.jsonl", "ledger.jsonl")

POLICIES = {
    "Truth": "truth",
    "GaussianNoise": "noise",
    "Quantised": "quantised",
    "Subsampled": "subsampled",
    "Blind": "blind",
    "Transport": "transport",
    "Counterfactual": "counterfactual",
}

USUAL_STEPS = 50  # releases per episode that `veil audit` takes if it is told nothing

SLACK = 60.0  # seconds by which copying may mix up the ages of files


@dataclass(frozen=True)
class Source:
    """One run.

    Attributes:
        folder: where it is.
        name: what people call it.
        run: settings and result of the training; None where only an audit was given.
        history: metrics of the training, one line per update.
        audit: None where there is none yet.
        account: the ledger of the live stream; None where nothing was shared.
        environment: where the run was begun, as its file says; empty where there is none.
        note: what makes the reader think twice; empty if nothing does.
    """

    folder: Path
    name: str
    run: Run | None
    history: tuple[dict[str, float], ...]
    audit: Found | None
    account: Account | None
    environment: dict[str, object]
    note: str = ""

    @property
    def learned(self) -> bool:
        """Whether its policy is the result of a training."""
        return self.run is not None and self.run.result is not None

    @property
    def system(self) -> str:
        """Its name without capitals and underscores, as classes and commands differ in them."""
        if self.run is not None:
            return plain_name(self.run.settings.system)
        return plain_name(self.audit.system) if self.audit is not None else ""

    @property
    def command_system(self) -> str:
        """Its name on the command line."""
        if self.run is not None:
            return self.run.settings.system
        return snake(self.audit.system) if self.audit is not None else ""

    @property
    def horizon(self) -> int:
        """Releases per episode."""
        if self.audit is not None:
            return self.audit.horizon
        settings = None if self.run is None else self.run.settings
        return settings.steps if isinstance(settings, Settings) else USUAL_STEPS

    @property
    def policy(self) -> str:
        """What commands call the way of sharing, as far as the folder tells."""
        if self.run is not None:
            return str(self.folder)
        return POLICIES.get(self.audit.policy, "POLICY") if self.audit is not None else "POLICY"

    def audit_command(self, *more: str) -> str:
        """What audits it, with further flags; of an audit only the kind of policy is known."""
        words = ["veil", "audit", self.command_system, "--policy", self.policy]
        words += [] if self.horizon == USUAL_STEPS else ["--steps", str(self.horizon)]
        return shlex.join([*words, *more])


def plain_name(name: str) -> str:
    """`idm_platoon` and `IdmPlatoon` are one system."""
    return name.replace("_", "").lower()


def snake(name: str) -> str:
    """`IdmPlatoon` as commands spell it."""
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name).lstrip("_")


def collect(folder: Path, name: str = "") -> Source:
    """All that a folder holds; `ReportError` says what is wrong with it."""
    if not folder.is_dir():
        raise ReportError(f"no folder {folder}. Give one that `veil train` or `veil audit` made.")
    trained = (folder / runs.RUN).exists()
    place = folder / "audit" if trained else folder
    if not trained and not (place / AUDIT).exists():
        raise ReportError(
            f"{folder} has neither {runs.RUN} of a training nor {AUDIT} of an audit. `veil train` and "
            "`veil audit` make such folders; an audit that was stopped goes on by the same command."
        )
    run, history = _training(folder) if trained else (None, ())
    audit = read_audit(place) if (place / AUDIT).exists() else None
    made = Source(folder, name or label(folder), run, history, audit, _account(folder), _environment(folder))
    return replace(made, note=_doubt(made))


def label(folder: Path) -> str:
    """The name of a folder; an audit of a run is called by both."""
    path = folder.resolve()
    return f"{path.parent.name}/{path.name}" if path.name == "audit" else path.name


def told_apart(sources: list[Source]) -> list[Source]:
    """With names that no two share: more of the path, or a number."""
    names = [source.name for source in sources]
    return [
        replace(source, name=f"{source.name} ({place})") if names.count(source.name) > 1 else source
        for place, source in enumerate(sources, 1)
    ]


def _training(folder: Path) -> tuple[Run, tuple[dict[str, float], ...]]:
    try:
        run, history = runs.read(folder), tuple(runs.history(folder))
    except (StoreError, OSError, UnicodeDecodeError) as error:
        raise ReportError(str(error)) from error
    if not run.finished:
        raise ReportError(f"the run in {folder} is not finished: the command that began it goes on.")
    if not all(isinstance(line, dict) and "update" in line for line in history):
        raise ReportError(f"{folder / METRICS} was changed. {runs.ADVICE}")
    return run, history


def _environment(folder: Path) -> dict[str, object]:
    """What a run says of where it was begun; not worth an error where it cannot be read."""
    try:
        content = json.loads((folder / runs.ENVIRONMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _account(folder: Path) -> Account | None:
    """The ledger, verified to its end; a broken chain is an error, never a gap in the report."""
    path = next((folder / name for name in LEDGERS if (folder / name).exists()), None)
    try:
        return None if path is None else read_account(path)
    except LedgerError as error:
        raise ReportError(str(error)) from error
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}).") from error


def _doubt(source: Source) -> str:
    """Whether the audit can be that of the run beside it."""
    if source.run is None or source.audit is None:
        return ""
    again = f"Audit again: {source.audit_command()}"
    if plain_name(source.audit.system) != source.system:
        return f"The audit in this folder is about another system, {source.audit.system}. {again}"
    ages = [path.stat().st_mtime for path in (source.folder / "audit" / AUDIT, source.folder / runs.POLICY)]
    if ages[0] < ages[1] - SLACK:
        return f"The audit is older than the policy, so it may be about another one. {again}"
    return ""

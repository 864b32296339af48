"""What the folders of `veil train`, `veil audit` and `veil frontier` hold, collected for one report."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.attacks.guides import filtered_path
from veil.attacks.kalman import GaussianisedPolicy, KalmanBank
from veil.attacks.particle_filter import public_steps
from veil.io import StoreError
from veil.learners import run as runs
from veil.learners.manifest import ADVICE
from veil.learners.run import METRICS, Run, Settings, load_policy
from veil.policies.base import Policy
from veil.registry import fit_folder, system_name
from veil.reports.blocks import Block, Column, Missing, ReportError
from veil.results.audit import FILE as AUDIT
from veil.results.audit import Audit
from veil.results.fit import Fit
from veil.results.frontier import Frontier
from veil.results.parts import ResultError
from veil.rollout import rollout
from veil.sharing.account import Account, read_account
from veil.sharing.ledger import LedgerError
from veil.step import release_kind
from veil.systems.base import Nouns, System
from veil.systems.variants import with_resolution
from veil.types import Key, as_float64

SEED = 7  # of the simulated world; the same episode whenever a report is made

Path3 = Float[Array, "3 T Y"]


@dataclass(frozen=True)
class Episode:
    """Over time, in the units of the shared axes.

    Attributes:
        names: of the shared axes.
        units: of the shared axes.
        true: (T, Y) what sharing without protection would release.
        shared: (T, Y) what was released.
        estimated: (T, Y) best estimate of the true one by a reader who knows the policy.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    true: np.ndarray
    shared: np.ndarray
    estimated: np.ndarray


def play(folder: Path, system: System, steps: int) -> Episode:
    """Play the policy of a run, in a simulated world whose secret is one of the prior's."""
    with jax.enable_x64(True):
        system = as_float64(system)
        policy = as_float64(load_policy(folder, system))
        true, shared, estimated = np.asarray(_paths(system, policy, steps, jr.key(SEED)))
    fields = system.shared_fields
    names, units = (tuple(getattr(field, kind) for field in fields) for kind in ("name", "unit"))
    return Episode(names, units, true, shared, estimated)


@eqx.filter_jit
def _paths(system: System, policy: Policy, steps: int, key: Key) -> Path3:
    """True, shared and estimated, one above the other."""
    play_key, read_key = jr.split(key)
    seed = jnp.asarray(SEED, jnp.int32)
    record = rollout(system, policy, steps, public_seed=seed, key=play_key)
    outputs = jax.vmap(system.output)
    true, shared = outputs(record.states[:-1]), record.public.shared
    # Where releases carry no noise, no filter reads them better than they are.
    if policy.has_memory or release_kind(system, policy).fresh_law().is_point:
        return jnp.stack([true, shared, shared])
    log_masses = KalmanBank(system, policy).trail(record.public, key=read_key).log_masses
    public = public_steps(record.public)
    path = jax.vmap(lambda secret: filtered_path(system, GaussianisedPolicy(policy), secret, public))
    means = jnp.einsum("tk,ktn->tn", jnp.exp(log_masses), path(system.prior.secrets))
    return jnp.stack([true, shared, outputs(means)])


LEDGERS = ("share/ledger.jsonl", "ledger.jsonl")

USUAL_STEPS = 50  # releases per episode that `veil audit` takes by default

SLACK = 60.0  # seconds by which copying may mix up the ages of files

Build = Callable[[str], System | None]


@dataclass(frozen=True)
class Source:
    """One run.

    Attributes:
        folder: where it is.
        name: what people call it.
        run: settings and result of the training; None where only an audit was given.
        audit: None where there is none yet.
        account: the ledger of the live stream; None where nothing was shared.
        environment: where the run was begun, as its file says; empty where there is none.
        nouns: what sentences call the system and its secret.
        note: what makes the reader think twice; empty if nothing does.
    """

    folder: Path
    name: str
    run: Run | None
    audit: Audit | None
    account: Account | None
    environment: dict[str, object]
    nouns: Nouns = Nouns()  # noqa: RUF009 (frozen)
    note: str = ""

    @property
    def learned(self) -> bool:
        """Whether its policy is the result of a training."""
        return self.run is not None and self.run.result is not None

    @property
    def system(self) -> str:
        """Its name, the same in all files and commands."""
        if self.run is not None:
            return system_name(self.run.settings.system)
        return "" if self.audit is None else self.audit.system

    @property
    def place(self) -> str:
        """Where the command line finds the system."""
        if self.run is not None:
            return self.run.settings.system
        return "" if self.audit is None else self.audit.place or self.audit.system

    @property
    def fit(self) -> Fit | None:
        """The fit that the system comes from; None where it does not, or the folder is not there any more."""
        folder = fit_folder(self.place)
        if folder is None:
            return None
        try:
            return Fit.load(folder)
        except ResultError as error:
            raise ReportError(str(error)) from error

    @property
    def horizon(self) -> int:
        """Releases per episode."""
        if self.audit is not None:
            return self.audit.horizon
        settings = None if self.run is None else self.run.settings
        return settings.steps if isinstance(settings, Settings) else USUAL_STEPS

    @property
    def policy_flags(self) -> tuple[str, ...]:
        """What chooses the policy on the command line, as far as the folder tells."""
        if self.run is not None:
            return "--policy", str(self.folder), *self.sensor_flags
        return (self.audit and self.audit.policy_flags) or ("--policy", "POLICY")

    @property
    def sensor_flags(self) -> tuple[str, ...]:
        """The resolution that the audit was asked for on its command line; a run knows its own."""
        flags = () if self.audit is None else self.audit.policy_flags
        place = flags.index("--resolution") if "--resolution" in flags else len(flags)
        return flags[place : place + 2]

    @property
    def audited_run(self) -> str:
        """The folder of the run that was audited, where only the audit was given; empty if it was none."""
        flags = self.policy_flags
        named = flags[flags.index("--policy") + 1] if "--policy" in flags else ""
        return named if self.run is None and (Path(named) / runs.RUN).exists() else ""

    def audit_command(self, *more: str) -> str:
        """The command that audits it, with further flags."""
        words = ["veil", "audit", self.place, *self.policy_flags]
        settings = None if self.run is None else self.run.settings
        usual = (
            settings.steps if isinstance(settings, Settings) else USUAL_STEPS
        )  # an audit takes those of a run
        words += [] if self.horizon == usual and not self.audited_run else ["--steps", str(self.horizon)]
        again = [] if self.audit is None else ["--again"]  # it replaces the one that is there
        return shlex.join([*words, *more, *again])

    def not_audited(self) -> Missing:
        """What stands where an audit would."""
        return Missing(f"{self.name} has not been audited yet.", self.audit_command())


@dataclass(frozen=True)
class Material:
    """All that one report is made of.

    Attributes:
        title: of the report.
        sources: the runs, in the order of their columns.
        episodes: one simulated episode by the name of its run, where the policy is known.
        frontier: None where none was given.
        date: of the report, for people; empty if it does not matter.
    """

    title: str
    sources: tuple[Source, ...]
    episodes: dict[str, Episode]
    frontier: Frontier | None = None
    date: str = ""

    @property
    def audited(self) -> list[tuple[str, Audit]]:
        """Names and audits of the runs that have one."""
        return [(source.name, source.audit) for source in self.sources if source.audit is not None]

    def columns(self, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
        """What a section has to say about each run."""
        return tuple(Column(source.name, make(source)) for source in self.sources)

    def own_columns(self, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
        """Columns of the runs that something is there of, or could be.

        A way of sharing that was not learned has no training, and often no ledger and no episode. That is
        said where there is nothing else to say, and left out beside runs that have them.
        """
        columns = [column for column in self.columns(make) if column.blocks]
        learned = {source.name for source in self.sources if source.learned}
        kept = [
            one for one in columns if one.name in learned or not all(x.kind == "missing" for x in one.blocks)
        ]
        return tuple(kept or columns)


def gather(
    folders: Sequence[Path],
    *,
    names: Sequence[str] = (),
    frontier: Path | None = None,
    title: str = "",
    date: str = "",
    build: Build = lambda name: None,
) -> Material:
    """Read all folders; `ReportError` says what is wrong with one of them.

    Args:
        folders: of `veil train` or `veil audit`, in the order of their columns.
        names: what to call them; the names of the folders if not given.
        frontier: folder of `veil frontier`.
        title: of the report.
        date: of the report, for people.
        build: the system of a name, to play a simulated episode in; None where it is not known.
    """
    if names and len(names) != len(folders):
        raise ReportError(f"{len(folders)} folders need as many names, not {len(names)}.")
    given = zip(folders, names or [""] * len(folders), strict=True)
    sources = distinct_names([collect(folder, name) for folder, name in given])
    known = None
    if frontier is not None:
        try:
            known = Frontier.load(frontier)
        except ResultError as error:
            raise ReportError(str(error)) from error
    _same_system(sources, "" if known is None else known.system, frontier)
    episodes = {}
    for place, source in enumerate(sources):
        system = None if source.run is None else build(source.run.settings.system)
        if system is not None:
            assert source.run is not None
            steps = source.run.settings.resolution
            system = with_resolution(system, steps) if steps else system
            sources[place] = replace(source, nouns=system.nouns)
            episodes[source.name] = play(source.folder, system, source.horizon)
    said = title or f"What sharing tells about {sources[0].nouns.secret}"
    return Material(said, tuple(sources), episodes, known, date)


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
    try:
        run = _run(folder) if trained else None
        audit = Audit.load(place) if (place / AUDIT).exists() else None
    except ResultError as error:
        raise ReportError(str(error)) from error
    nouns = Nouns() if audit is None else audit.nouns
    given = folder, name or label(folder), run, audit, _account(folder), _environment(folder), nouns
    made = Source(*given)
    return replace(made, note=_doubt(made))


def label(folder: Path) -> str:
    """The name of a folder; an audit of a run is called by both."""
    path = folder.resolve()
    return f"{path.parent.name}/{path.name}" if path.name == "audit" else path.name


def distinct_names(sources: list[Source]) -> list[Source]:
    """With names that no two share: a number is added where they do."""
    names = [source.name for source in sources]
    return [
        replace(source, name=f"{source.name} ({place})") if names.count(source.name) > 1 else source
        for place, source in enumerate(sources, 1)
    ]


def _same_system(sources: Sequence[Source], other: str, frontier: Path | None) -> None:
    """Numbers of different systems mean nothing beside each other."""
    first = sources[0]
    for source in sources[1:]:
        if source.system != first.system:
            raise ReportError(
                f"{first.folder} is about {first.system}, {source.folder} about {source.system}. Make a "
                "report for each."
            )
    if other and other != first.system:
        raise ReportError(f"the frontier in {frontier} is about {other}, not {first.system}.")


def _run(folder: Path) -> Run:
    try:
        run = Run.load(folder)
    except (StoreError, OSError, UnicodeDecodeError) as error:
        raise ReportError(str(error)) from error
    if not run.finished:
        raise ReportError(f"the run in {folder} is not finished: the command that began it goes on.")
    if not all(isinstance(line, dict) and "update" in line for line in run.history):
        raise ReportError(f"{folder / METRICS} was changed. {ADVICE}")
    return run


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
    if source.audit.system != source.system:
        return f"The audit in this folder is about another system, {source.audit.system}. {again}"
    ages = [path.stat().st_mtime for path in (source.folder / "audit" / AUDIT, source.folder / runs.POLICY)]
    if ages[0] < ages[1] - SLACK:
        return f"The audit is older than the policy, so it may be about another one. {again}"
    return ""

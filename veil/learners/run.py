"""The folder of a run: what was trained, how, and what came out. Nothing secret is in it.

`run.json` holds the settings and, once training has ended, the result. `policy.safetensors` holds the policy.
Each of the two files holds a checksum of the other, so that a change of either is noticed. `environment.json`
says where the run was begun, `policy.json` what the arrays of the policy are.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.random as jr
import numpy as np

from veil.io import StoreError, about, load_arrays, plain, replace_text, save_arrays, write_json
from veil.learners.design import initial_policy
from veil.learners.manifest import ADVICE, check_manifest, environment, manifest
from veil.policies.base import Policy
from veil.registry import LEAKAGE, POLICIES
from veil.results import text
from veil.settings import ObjectiveWeights, PolicyDesign, TrainSettings
from veil.systems.base import System
from veil.types import as_float64
from veil.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure


METRICS, CHECKPOINT = "metrics.jsonl", "checkpoint.safetensors"


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides the version of the library.

    Attributes:
        system: its name.
        steps: T, releases per episode.
        design: of the policy.
        objective: the weights.
        training: how long and how fast.
        leakage: how that of a step is measured while learning.
        resolution: step of the sensor and of the releases by the name of the field; empty where none was
            asked for, so that the fields of the system say it.
    """

    system: str
    steps: int
    design: PolicyDesign
    objective: ObjectiveWeights
    training: TrainSettings
    leakage: str
    resolution: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a method that there is not."""
        if self.leakage not in LEAKAGE.able("of_step"):
            raise ValueError(f"leakage cannot be {self.leakage!r}.")


@dataclass(frozen=True)
class Ready:
    """A policy that needs no training.

    Attributes:
        system: its name.
        sharing: the settings of the policy, of a class in `veil.registry.POLICIES`.
        resolution: as in `Settings`.
    """

    system: str
    sharing: Any
    resolution: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What training gave, measured on the episodes that policies are chosen by.

    Attributes:
        lower: mean lower side of the leakage, nats.
        upper: mean upper side of the leakage, nats.
        standard_error: the larger one of the two sides, nats.
        entropy: H(q), the most that can leak, nats.
        distortion: per step.
        cost: per episode.
        updates: how many were made.
        best: after how many of them the policy was kept.
        reason: why training ended.
        seconds: that updates and evaluations took, in all sittings; what an interruption lost is not counted.
    """

    lower: float
    upper: float
    standard_error: float
    entropy: float
    distortion: float
    cost: float
    updates: int
    best: int
    reason: str
    seconds: float


@dataclass(frozen=True, repr=False)
class Run:
    """How a policy was made, and what came out; a training without a result is not finished.

    `print(run)` shows the main numbers, a notebook also a picture. `save` and `load` keep the folder of a
    run, `plot` draws the training. Two runs are equal if their settings and results are.

    Attributes:
        settings: of the training, or of a policy that needs none.
        result: None where there was no training, or where it is not finished.
        policy: None where it was not loaded.
        history: metrics of all updates.
    """

    settings: Settings | Ready
    result: Result | None = None
    policy: Policy | None = field(default=None, compare=False)
    history: tuple[dict[str, float], ...] = field(default=(), compare=False)

    @property
    def finished(self) -> bool:
        """Whether there is a policy."""
        return self.result is not None or isinstance(self.settings, Ready)

    def __str__(self) -> str:
        return "\n".join([self._title(), text.text_table(("", ""), self._rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        figure = self.plot() if self.history and self.result is not None else None
        said = "Audit it before you rely on it." if self.finished else "The training is not finished."
        return text.notebook_page(self._title(), said, ("", ""), self._rows(), figure)

    def _title(self) -> str:
        settings = self.settings
        if isinstance(settings, Ready):
            return f"Run: {POLICIES.name_of(settings.sharing)} on {settings.system}, without training"
        state = "finished" if self.finished else "not finished"
        return f"Run: {settings.training.learner} on {settings.system}, {settings.steps} releases, {state}"

    def _rows(self) -> list[tuple[str, str]]:
        found, settings = self.result, self.settings
        if found is None or isinstance(settings, Ready):
            return [("made by", ", ".join(f"{name} {value}" for name, value in _flat(asdict(settings))))]
        sides = f"{text.signed(found.lower, 3)} to {text.at_most(found.upper)} of {found.entropy:.3f} nats"
        return [
            ("leakage", f"{sides}, standard error {found.standard_error:.3f}"),
            ("distortion", f"{found.distortion:.3f} per step"),
            ("cost", f"{found.cost:.3f} per episode"),
            ("updates", f"{found.updates} in {text.clock(found.seconds)}; {found.reason}"),
            (
                "policy kept",
                f"after update {found.best}, on {settings.training.evaluation_episodes} episodes",
            ),
        ]

    def save(self, folder: Path | str) -> list[Path]:
        """Write the policy, then the result; a crash in between leaves a run that is not finished.

        The folder also gets environment.json and the metrics of the training where it has none yet.
        """
        if not self.finished or self.policy is None:
            raise ValueError("Only a finished run that has its policy can be saved.")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / ENVIRONMENT).exists():
            write_json(folder / ENVIRONMENT, environment())
        if self.history and not (folder / METRICS).exists():
            replace_text(folder / METRICS, "".join(f"{json.dumps(line)}\n" for line in self.history))
        content = _content(self)
        save_arrays(folder / POLICY, self.policy, {"run": _digest(content)})
        write_json(folder / MANIFEST, manifest(self.policy, self.settings.system, _sum(folder)))
        write_json(folder / RUN, content | {"policy": _sum(folder)})
        return [folder / name for name in (RUN, POLICY, MANIFEST, ENVIRONMENT)]

    @classmethod
    def load(cls, folder: Path | str, system: System | None = None) -> "Run":
        """The run of a folder. Whatever is wrong with it is a `StoreError` that says what to do.

        Args:
            folder: of `veil train`.
            system: the one that run.json names, to load the policy for; None leaves the policy out.
        """
        folder = Path(folder)
        run = replace(_read(folder), history=tuple(history(folder)))
        return run if system is None else replace(run, policy=load_policy(folder, system))

    def plot(self) -> "Figure":
        """Leakage and distortion over the updates; a `ValueError` where there was no training."""
        from veil.learners.run_plots import training_figure

        limit = math.inf if isinstance(self.settings, Ready) else self.settings.objective.distortion_limit
        best = 0 if self.result is None else self.result.best
        figure = training_figure(self.history, best, limit)
        if figure is None:
            raise ValueError("This run has no training to draw.")
        return figure


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Names and values, those of groups one after the other; what is empty is left out."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value)
        elif value not in (None, (), "", 0):
            yield name.replace("_", " "), value


Built = TypeVar("Built")


def from_dict(kind: type[Built], given: object) -> Built:
    """A dataclass of this kind; a `ValueError` says what does not fit."""
    assert is_dataclass(kind)
    hints, names = get_type_hints(kind), [one.name for one in fields(kind)]
    if not isinstance(given, dict) or sorted(given) != sorted(names):
        raise ValueError(f"it needs {', '.join(names)}, and nothing else there.")
    return kind(**{name: _value(name, hints[name], given[name]) for name in names})  # pyright: ignore[reportReturnType]


def _value(name: str, kind: Any, given: object) -> object:
    if is_dataclass(kind) and isinstance(kind, type):
        return from_dict(kind, given)
    if get_origin(kind) is tuple:
        if not isinstance(given, list | tuple):
            raise ValueError(f"{name} cannot be {given!r}.")
        return tuple(_value(name, get_args(kind)[0], one) for one in given)
    if get_origin(kind) is dict:
        if not isinstance(given, dict):
            raise ValueError(f"{name} cannot be {given!r}.")
        return {str(key): _value(name, get_args(kind)[1], one) for key, one in given.items()}
    if get_origin(kind) is Literal:
        right = given in get_args(kind)
    elif kind is float:  # not finite is null in the file
        given = math.nan if given is None else given
        right = isinstance(given, int | float) and not isinstance(given, bool)
        given = float(given) if isinstance(given, int | float) else given
    else:
        right = type(given) is kind
    if not right:
        raise ValueError(f"{name} cannot be {given!r}.")
    return given


RUN, POLICY = "run.json", "policy.safetensors"

ENVIRONMENT, MANIFEST = "environment.json", "policy.json"


def begin(folder: Path, settings: Settings | Ready) -> None:
    """Make the folder, and say in it what is going to be made, and where."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ENVIRONMENT, environment())
    write_json(folder / RUN, _content(Run(settings)))


def clear(folder: Path) -> None:
    """Remove a run, its settings first; other files in the folder stay."""
    for name in (RUN, POLICY, MANIFEST, ENVIRONMENT, CHECKPOINT, METRICS):
        (folder / name).unlink(missing_ok=True)


def keep(folder: Path, ready: Ready, system: System) -> Run:
    """The same for a policy that needs no training, in double precision."""
    with jax.enable_x64(True):
        run = Run(ready, policy=ready.sharing.build(as_float64(system)))
        run.save(folder)
    return run


def _read(folder: Path) -> Run:
    """Settings and result."""
    path = folder / RUN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_by = content.pop("veil")
        policy, result = content.pop("policy", None), content.pop("result", None)
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error}). {ADVICE}") from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is not the file of a run. {ADVICE}") from error
    if not isinstance(made_by, str) or made_by.split(".")[:2] != __version__.split(".")[:2]:
        raise StoreError(f"{path} was made by veil {made_by}; this is {__version__}. {ADVICE}")
    try:
        settings = _ready(content) if "sharing" in content else from_dict(Settings, content)
        run = Run(settings, None if result is None else from_dict(Result, result))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} was changed: {error} {ADVICE}") from error
    if run.finished and (policy != _sum(folder) or about(folder / POLICY) != _words(run, made_by)):
        raise StoreError(
            f"{path} and {POLICY} do not belong together: one is missing or was changed. {ADVICE}"
        )
    return run


def _ready(content: dict[str, Any]) -> Ready:
    """A policy that needs no training, from what a file says."""
    if sorted(content) != ["resolution", "sharing", "system"] or not isinstance(content["sharing"], dict):
        raise ValueError("it needs resolution, sharing, system, and nothing else there.")
    sharing = dict(content["sharing"])
    name = str(sharing.pop("policy", ""))
    POLICIES.check(name)
    resolution: Any = _value("resolution", dict[str, float], content["resolution"])
    return Ready(str(content["system"]), from_dict(POLICIES[name], sharing), resolution)


def load_policy(folder: Path, system: System) -> Policy:
    """The policy of a finished run, for the system that `run.json` names."""
    run = _read(folder)
    if not run.finished:
        raise StoreError(f"The run in {folder} is not finished: the command that began it goes on.")
    check_manifest(folder / MANIFEST)
    settings = run.settings
    if isinstance(settings, Ready):
        skeleton = settings.sharing.build(system)
    else:  # all that is random in the skeleton is replaced, units included
        skeleton = initial_policy(settings.design, system, settings.steps, key=jr.key(0))
    return _with_system(load_arrays(folder / POLICY, skeleton), skeleton, folder)


def _with_system(policy: Policy, skeleton: Policy, folder: Path) -> Policy:
    """The policy with the system that was named; `StoreError` where it was made for another one.

    The arrays of a folder hold the numbers of its system, prior included. A folder may come from elsewhere:
    what charges releases must be the system that the user named.

    Args:
        policy: as it was loaded.
        skeleton: the same policy in the named system, before its arrays were replaced.
        folder: of the run, for messages.
    """

    def is_system(part: object) -> bool:
        return isinstance(part, System)

    def checked(theirs: Any, ours: Any) -> Any:
        if not is_system(ours):
            return theirs
        pairs = list(zip(jax.tree.leaves(theirs.prior), jax.tree.leaves(ours.prior), strict=True))
        what = "prior" if _differ(pairs) else "system"
        if _differ(list(zip(jax.tree.leaves(theirs), jax.tree.leaves(ours), strict=True))):
            raise StoreError(
                f"{folder} was made for another {what}: its numbers are not those of the system that is "
                "named. Train again for this one, or name the one that it was made for."
            )
        return ours

    return jax.tree.map(checked, policy, skeleton, is_leaf=is_system)


def _differ(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether some numbers are not the same, up to single precision."""
    return not all(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-7) for a, b in pairs)


def history(folder: Path) -> list[dict[str, float]]:
    """The metrics of all updates; a line that was cut short ends them."""
    path, lines = folder / METRICS, []
    try:
        written = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read ({error}). {ADVICE}") from error
    for line in written.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _content(run: Run, made_by: str = __version__) -> dict[str, object]:
    content: dict[str, Any] = {"veil": made_by, **asdict(run.settings)}
    if isinstance(run.settings, Ready):
        content["sharing"] = {"policy": POLICIES.name_of(run.settings.sharing), **content["sharing"]}
    return content if run.result is None else content | {"result": plain(asdict(run.result))}


def _words(run: Run, made_by: str) -> dict[str, object]:
    return {"run": _digest(_content(run, made_by))}


def _digest(content: Mapping[str, object]) -> str:
    """Of everything but the time taken, so that the same training gives the same file."""
    result = content.get("result")
    timeless = {**result, "seconds": None} if isinstance(result, dict) else None
    content = {**content, "result": timeless}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sum(folder: Path) -> str:
    """Of the bytes of the policy; empty where there is none."""
    path = folder / POLICY
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

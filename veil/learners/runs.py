"""The folder of a run: what was trained, how, and what came out. Nothing secret is in it.

`run.json` holds the settings and, once training has ended, the result. `policy.safetensors` holds the policy.
Each of the two remembers the other, so that a change of either is noticed.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.random as jr

from veil import __version__
from veil.auditing.files import plain, replace_text
from veil.auditing.worlds import faithful
from veil.leakage.stage import Measure
from veil.learners.choice import chosen
from veil.learners.design import designed
from veil.learners.diary import CHECKPOINT, METRICS
from veil.learners.families import robust
from veil.learners.loop import Report, Trained, train
from veil.learners.options import Design, Leakage, Training, Weights
from veil.learners.store import StoreError, about, load_arrays, save_arrays
from veil.policies.learned import LearnedPolicy
from veil.precision import single
from veil.problem import Objective, Problem
from veil.systems.base import System

RUN, POLICY = "run.json", "policy.safetensors"
ADVICE = "Restore the file, or begin anew with `veil train --again`."
_DESIGN = 0xDE51  # keeps the keys of the first weights apart from those of training and of audits
Part = TypeVar("Part")


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
    """

    system: str
    steps: int
    design: Design
    objective: Weights
    training: Training
    leakage: Leakage


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
        seconds: that updates and looks took, in all sittings; what an interruption lost is not counted.
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


@dataclass(frozen=True)
class Run:
    """The content of run.json; without a result it is not finished."""

    settings: Settings
    result: Result | None = None


def begin(folder: Path, settings: Settings) -> None:
    """Make the folder, and say in it what is going to be trained."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, _content(Run(settings)))


def clear(folder: Path) -> None:
    """Remove a run, its settings first; other files in the folder stay."""
    for name in (RUN, POLICY, CHECKPOINT, METRICS):
        (folder / name).unlink(missing_ok=True)


def fit(settings: Settings, system: System, folder: Path, report: Report) -> Trained:
    """Train as the settings say; one that was interrupted in this folder goes on."""
    with jax.enable_x64(False):
        system, options, weights = single(system), settings.training, settings.objective
        key = jr.fold_in(jr.key(options.seed), _DESIGN)
        policy = designed(settings.design, system, settings.steps, key=key)
        objective = Objective(weights.privacy_weight, weights.distortion_price, weights.distortion_limit)
        measure = Measure(settings.leakage)
        family = (Problem(faithful(system), settings.steps, objective, measure),)
        if options.robust:
            family = robust(system, settings.steps, objective, measure)
        return train(family, chosen(options), policy, options, report=report, folder=folder)


def finish(folder: Path, settings: Settings, trained: Trained) -> Run:
    """Write the policy, then the result; a crash in between leaves a run that is not finished."""
    look, leakage = trained.look, trained.look.leakage
    result = Result(
        lower=leakage.lower.value,
        upper=leakage.upper.value,
        standard_error=max(leakage.lower.error, leakage.upper.error),
        entropy=leakage.entropy,
        distortion=look.distortion.value,
        cost=look.cost.value,
        updates=trained.updates,
        best=trained.best,
        reason=trained.reason,
        seconds=sum(line["seconds"] for line in history(folder)),
    )
    run = Run(settings, result)
    content = _content(run)
    save_arrays(folder / POLICY, trained.policy, {"run": _digest(content)})
    _write(folder, content | {"policy": _sum(folder)})
    return run


def read(folder: Path) -> Run:
    """The run of this folder. Whatever is wrong with it is a `StoreError` that says what to do."""
    path = folder / RUN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_by = content.pop("veil")
        policy, result = content.pop("policy", None), content.pop("result", None)
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error}). {ADVICE}") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StoreError(f"{path} is not the file of a run. {ADVICE}") from error
    if not isinstance(made_by, str) or made_by.split(".")[:2] != __version__.split(".")[:2]:
        raise StoreError(f"{path} was made by veil {made_by}; this is {__version__}. {ADVICE}")
    try:
        run = Run(_made(Settings, content), None if result is None else _made(Result, result))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} was changed: {error} {ADVICE}") from error
    if run.result is not None and (policy != _sum(folder) or about(folder / POLICY) != _words(run, made_by)):
        raise StoreError(
            f"{path} and {POLICY} do not belong together: one is missing or was changed. {ADVICE}"
        )
    return run


def load_policy(folder: Path, system: System) -> LearnedPolicy:
    """The policy of a finished run, for the system that `run.json` names."""
    run = read(folder)
    if run.result is None:
        raise StoreError(f"The run in {folder} is not finished: the command that began it goes on.")
    # All that is random in the skeleton is replaced, units included.
    skeleton = designed(run.settings.design, system, run.settings.steps, key=jr.key(0))
    return load_arrays(folder / POLICY, skeleton)


def history(folder: Path) -> list[dict[str, float]]:
    """The metrics of all updates; a line that was cut short ends them."""
    path, lines = folder / METRICS, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _content(run: Run, made_by: str = __version__) -> dict[str, object]:
    content = {"veil": made_by, **asdict(run.settings)}
    return content if run.result is None else content | {"result": plain(asdict(run.result))}


def _words(run: Run, made_by: str) -> dict[str, object]:
    return {"run": _digest(_content(run, made_by))}


def _write(folder: Path, content: Mapping[str, object]) -> None:
    replace_text(folder / RUN, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


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


def _made(kind: type[Part], given: object) -> Part:
    """A dataclass from what the file says: every field, each of its type; no more."""
    assert is_dataclass(kind)
    hints, names = get_type_hints(kind), [field.name for field in fields(kind)]
    if not isinstance(given, dict) or sorted(given) != sorted(names):
        raise ValueError(f"it needs {', '.join(names)}, and nothing else there.")
    return kind(**{name: _value(name, hints[name], given[name]) for name in names})  # pyright: ignore[reportReturnType]


def _value(name: str, kind: Any, given: object) -> object:
    if is_dataclass(kind) and isinstance(kind, type):
        return _made(kind, given)
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

"""The folder of a run: what was trained, how, and what came out. Nothing secret is in it.

`run.json` holds the settings and, once training has ended, the result. `policy.safetensors` holds the policy.
Each of the two remembers the other, so that a change of either is noticed. `environment.json` says where it
was begun, `policy.json` what the arrays of the policy are.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import jax
import jax.random as jr

from veil import __version__
from veil.auditing.files import plain, replace_text
from veil.leakage.stage import Measure
from veil.learners.design import designed
from veil.learners.diary import CHECKPOINT, METRICS
from veil.learners.learning import learn
from veil.learners.loggers import Logger
from veil.learners.loop import Report, Trained
from veil.learners.provenance import SCHEMA, environment, manifest
from veil.learners.reading import made
from veil.learners.run import Ready, Result, Run, Settings
from veil.learners.store import StoreError, about, load_arrays, save_arrays
from veil.policies import Policy, PrivatePolicy
from veil.precision import doubled
from veil.problem import Objective
from veil.systems.base import System

RUN, POLICY = "run.json", "policy.safetensors"
ENVIRONMENT, MANIFEST = "environment.json", "policy.json"
ADVICE = "Restore the file, or begin anew with `veil train --again`."


def begin(folder: Path, settings: Settings | Ready) -> None:
    """Make the folder, and say in it what is going to be made, and where."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / ENVIRONMENT, environment())
    _write(folder / RUN, _content(Run(settings)))


def clear(folder: Path) -> None:
    """Remove a run, its settings first; other files in the folder stay."""
    for name in (RUN, POLICY, MANIFEST, ENVIRONMENT, CHECKPOINT, METRICS):
        (folder / name).unlink(missing_ok=True)


def fit(
    settings: Settings, system: System, folder: Path, report: Report, loggers: Sequence[Logger] = ()
) -> Trained:
    """Train as the settings say; one that was interrupted in this folder goes on."""
    weights = settings.objective
    return learn(
        system,
        settings.steps,
        Objective(weights.privacy_weight, weights.distortion_price, weights.distortion_limit),
        training=settings.training,
        design=settings.design,
        measure=Measure(settings.leakage),
        report=report,
        folder=folder,
        loggers=loggers,
    )


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
    return _saved(folder, Run(settings, result), trained.policy)


def keep(folder: Path, ready: Ready, system: System) -> Run:
    """The same for a policy that needs no training, in double precision."""
    with jax.enable_x64(True):
        return _saved(folder, Run(ready), ready.named.build(doubled(system)))


def _saved(folder: Path, run: Run, policy: Policy | PrivatePolicy) -> Run:
    content = _content(run)
    save_arrays(folder / POLICY, policy, {"run": _digest(content)})
    _write(folder / MANIFEST, manifest(policy, run.settings.system, _sum(folder)))
    _write(folder / RUN, content | {"policy": _sum(folder)})
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
        settings = made(Ready if "named" in content else Settings, content)
        run = Run(settings, None if result is None else made(Result, result))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} was changed: {error} {ADVICE}") from error
    if run.finished and (policy != _sum(folder) or about(folder / POLICY) != _words(run, made_by)):
        raise StoreError(
            f"{path} and {POLICY} do not belong together: one is missing or was changed. {ADVICE}"
        )
    return run


def load_policy(folder: Path, system: System) -> Policy | PrivatePolicy:
    """The policy of a finished run, for the system that `run.json` names."""
    run = read(folder)
    if not run.finished:
        raise StoreError(f"The run in {folder} is not finished: the command that began it goes on.")
    _check_manifest(folder / MANIFEST)
    settings = run.settings
    if isinstance(settings, Ready):
        return load_arrays(folder / POLICY, settings.named.build(system))
    # All that is random in the skeleton is replaced, units included.
    skeleton = designed(settings.design, system, settings.steps, key=jr.key(0))
    return load_arrays(folder / POLICY, skeleton)


def _check_manifest(path: Path) -> None:
    """Refuse arrays in an order that this version does not know."""
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
    except FileNotFoundError:  # for readers outside; the arrays are checked by their sum and shapes
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not the manifest of a policy. {ADVICE}") from error
    if schema != SCHEMA:
        raise StoreError(f"{path} has schema {schema}; this version reads {SCHEMA}. {ADVICE}")


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


def _write(path: Path, content: Mapping[str, object]) -> None:
    replace_text(path, json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


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

"""Folders of `veil train` as other commands meet them."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.learners.run import Ready, Settings
    from veil.policies.base import Policy
    from veil.systems.base import System


STEPS = 50  # releases per episode, unless said otherwise


def load(folder: Path, system: "System", name: str) -> "Policy":
    """The policy of a finished run for the system of this name; a `StoreError` says what is wrong."""
    from veil.io import StoreError
    from veil.learners import run as runs

    run = runs.Run.load(folder)
    made_for = run.settings.system
    if made_for != name:
        raise StoreError(f"{folder} was trained for another system; name that one: {made_for}.")
    if not run.finished:
        raise StoreError(f"the run in {folder} is not finished. Go on with {command(run.settings, folder)}")
    return runs.load_policy(folder, system)


def command(settings: "Settings | Ready", folder: Path) -> str:
    """The command line that makes this; flags that say what is usual are left out."""
    from veil.learners.run import Ready

    words = ["veil", "train", settings.system]
    words += _ready(settings) if isinstance(settings, Ready) else _learned(settings)
    return shlex.join([*words, "--out", str(folder)])


def _ready(settings: "Ready") -> list[str]:
    named, words = settings.named, list[str]()
    for flag, usual in (("sd", ()), ("step", ()), ("every", 0), ("particles", 0), ("share", 1.0)):
        value = getattr(named, flag)
        if value != usual:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return ["--policy", named.name, *words]


def _learned(settings: "Settings") -> list[str]:
    from veil.cli.fields import settings as flags
    from veil.settings import PRESETS, ObjectiveWeights

    policy = settings.training.learner
    usual = PRESETS[policy]
    words = [] if policy == "pathwise" else ["--policy", policy]
    words += [] if settings.steps == STEPS else ["--steps", str(settings.steps)]
    words += [] if settings.leakage == usual.leakage else ["--leakage", settings.leakage]
    parts = (
        (settings.objective, ObjectiveWeights()),
        (settings.training, usual.training),
        (settings.design, usual.design),
    )
    for part, default in parts:
        for one in flags(type(part), default):
            value = getattr(part, one.field)
            if value != one.default:
                words += [one.flag, *([] if value is True else [str(value)])]
    return words

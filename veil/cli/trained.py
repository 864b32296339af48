"""Folders of `veil train` as other commands meet them."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.learners.runs import Settings
    from veil.policies import LearnedPolicy
    from veil.systems import System


def load(folder: Path, system: "System", name: str) -> "LearnedPolicy":
    """The policy of a finished run for the system of this name; a `StoreError` says what is wrong."""
    from veil.learners import runs
    from veil.learners.store import StoreError

    run = runs.read(folder)
    made_for = run.settings.system
    if made_for != name:
        raise StoreError(f"{folder} was trained for another system; name that one: {made_for}.")
    if run.result is None:
        raise StoreError(f"the run in {folder} is not finished. Go on with {command(run.settings, folder)}")
    return runs.load_policy(folder, system)


def command(settings: "Settings", folder: Path) -> str:
    """The command line that trains this; flags that say what is the default are left out."""
    from veil.learners.options import Design, Training, Weights

    words = ["veil", "train", settings.system]
    given: dict[str, object] = {}
    defaults: dict[str, object] = {"steps": 50, "leakage": "estimate"}
    for part, kind in (
        (settings.objective, Weights),
        (settings.design, Design),
        (settings.training, Training),
    ):
        given |= vars(part)
        defaults |= {field.name: field.default for field in fields(kind)}
    given |= {"steps": settings.steps, "leakage": settings.leakage}
    for name, value in given.items():
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join([*words, "--out", str(folder)])

"""Folders of `veil train` as other commands meet them."""

import shlex
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
    """The command line that trains this; flags that say what is usual are left out."""
    from veil.learners.options import PRESETS, Weights

    usual = PRESETS[settings.training.learner]
    words = ["veil", "train", settings.system]
    given, defaults = dict[str, object](), dict[str, object]()
    parts = (settings.design, usual.design), (settings.training, usual.training)
    for part, default in ((settings.objective, Weights()), *parts):
        given, defaults = given | vars(part), defaults | vars(default)
    given |= {"steps": settings.steps, "leakage": settings.leakage}
    defaults |= {"steps": 50, "leakage": usual.leakage}
    if settings.training.learner != "pathwise":
        words += ["--learner", settings.training.learner]
    for name, value in given.items():
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join([*words, "--out", str(folder)])

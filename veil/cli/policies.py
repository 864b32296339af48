"""Policies by name, for every command that takes one."""

import math
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli import systems
from veil.cli.mistakes import Mistake, known
from veil.cli.own_system import is_own, short

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.policies.registry import Named
    from veil.systems.base import System


# Which of the flags each policy takes.
TAKES: dict[str, tuple[str, ...]] = {
    "truth": (),
    "noise": ("sd",),
    "quantised": ("step",),
    "subsampled": ("sd", "every"),
    "blind": ("sd",),
    "transport": ("sd", "particles", "share"),
    "counterfactual": ("sd",),
}

NEEDS = {"noise": "sd", "quantised": "step", "subsampled": "every"}

RUN = "run.json"  # in the folder of a run

SD = "(blind, transport: 0.05)"


@dataclass(frozen=True)
class Choice:
    """The sharing policy."""

    policy: str = "truth"
    """truth, noise, quantised, subsampled, blind, transport, counterfactual, or a folder of `veil train`"""
    sd: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SD [SD ...]", help_behavior_hint=SD)] = ()
    """Sd of the noise per shared axis, in its unit"""
    step: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STEP [STEP ...]", help_behavior_hint="")] = ()
    """Cell of the quantiser per shared axis, in its unit"""
    every: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """Steps per fresh release of the subsampled policy"""
    particles: int = 0
    """Particles per secret of transport; 0 for Kalman filters"""
    share: float = 1.0
    """How far transport moves the output, from 0 to 1"""

    @property
    def run(self) -> Path | None:
        """The folder of a trained policy, if that is what was asked for; a name comes first."""
        folder = Path(self.policy)
        return folder if self.policy not in TAKES and (folder / RUN).exists() else None

    def folder(self, system: str) -> Path:
        """Where an audit goes that was given no place."""
        return self.run / "audit" if self.run else Path("audit") / f"{short(system)}-{self.policy}"

    def check(self) -> None:
        """Refuse what no system could do with."""
        if self.run is None:
            _known(self.policy)
        takes = TAKES.get(self.policy, ())
        given = [one.name for one in fields(self)[1:] if getattr(self, one.name) != one.default]
        for flag in [flag for flag in given if flag not in takes]:
            users = ", ".join(name for name, flags in TAKES.items() if flag in flags)
            hint = " The number of releases per episode is --steps." if flag == "step" else ""
            raise Mistake(f"--policy {self.policy} takes no --{flag}; that is for {users}.{hint}")
        if not 0.0 <= self.share <= 1.0:
            raise Mistake("--share is between 0 and 1, e.g. --share 0.8 for most of the way.")
        if self.every < 0 or self.particles < 0:
            raise Mistake("--every and --particles are counts; give positive numbers or leave them out.")
        needed = NEEDS.get(self.policy, "")
        if needed and needed not in given:
            raise Mistake(f"--policy {self.policy} needs --{needed}. {_example(needed)}")
        numbers("sd", self.sd)
        numbers("step", self.step)

    def named(self, system: "System | None" = None) -> "Named":
        """The policy by its name and numbers; a system tells whether there is one per axis."""
        from veil.policies.registry import Named

        sd, step = numbers("sd", self.sd, system), numbers("step", self.step, system)
        return Named(self.policy, sd, step, self.every, self.particles, self.share)

    def build(self, system: "System", name: str = "") -> "Policy":
        """The policy for a system; its name tells whether a trained policy was made for it."""
        self.check()
        return _trained(self.run, system, name) if self.run else self.named(system).build(system)


def run_folder(run_or_system: str) -> Path | None:
    """The folder of a run, if that is what was given; the name of a system comes first."""
    folder = Path(run_or_system)
    return folder if run_or_system not in systems.NAMES and (folder / RUN).exists() else None


def agree(run_or_system: str, sharing: Choice) -> None:
    """Refuse what is neither a run nor a system, and a policy beside the one of a run."""
    if run_folder(run_or_system):
        if sharing != Choice():
            raise Mistake(f"{run_or_system} has its own policy; leave out --policy and its flags.")
        return
    if not is_own(run_or_system) and (os.sep in run_or_system or Path(run_or_system).exists()):
        raise Mistake(f"{run_or_system} is not the folder of a run: no {RUN} in it. `veil train` makes one.")
    systems.check(run_or_system, " Or give the folder of a `veil train`, or your own system as FILE.py:NAME.")
    sharing.check()


def subject(run_or_system: str, sharing: Choice) -> "tuple[str, System, Policy]":
    """The system, its name and the policy, of a run or by their names."""
    folder = run_folder(run_or_system)
    if folder is None:
        system = systems.build(run_or_system)
        return run_or_system, system, sharing.build(system, run_or_system)
    from veil.io import StoreError
    from veil.learners import run as runs

    try:
        name = runs.Run.load(folder).settings.system
        systems.check(name)
    except StoreError as error:
        raise Mistake(str(error)) from error
    system = systems.build(name)
    return name, system, _trained(folder, system, name)


def numbers(flag: str, given: tuple[str, ...], system: "System | None" = None) -> tuple[float, ...]:
    """Positive numbers from `0.1 0.2`, `"0.1 0.2"` or `0.1,0.2`; one per shared axis if a system is given."""
    words = [word for word in re.split(r"[\s,]+", " ".join(given)) if word]
    try:
        values = tuple(float(word) for word in words)
    except ValueError:
        raise Mistake(f"--{flag} must be numbers, got '{' '.join(given)}'. {_example(flag)}") from None
    if not all(0.0 < value < math.inf for value in values):
        raise Mistake(f"--{flag} must be positive and finite, got {' '.join(words)}. {_example(flag)}")
    if system is not None and values and len(values) != len(system.shared_fields):
        axes = ", ".join(f"{axis.name} [{axis.unit}]".replace(" []", "") for axis in system.shared_fields)
        raise Mistake(f"--{flag} needs one number per shared axis: {axes}. It got {len(values)}.")
    return values


def _trained(folder: Path, system: "System", name: str) -> "Policy":
    """The policy of a run folder."""
    from veil.cli import trained
    from veil.io import StoreError

    try:
        return trained.load(folder, system, name)
    except StoreError as error:
        raise Mistake(str(error)) from error


def _known(policy: str) -> None:
    if policy not in TAKES and Path(policy).exists():
        raise Mistake(
            f"{policy} is not the folder of a trained policy: no {RUN} in it. `veil train` makes one."
        )
    known("policy", policy, TAKES, " Or give the folder of a `veil train`.")


def _example(flag: str) -> str:
    examples = {"sd": "--sd 0.25 0.43", "step": "--step 0.5 1.0", "every": "--every 5"}
    return f"For a platoon try {examples[flag]}."

"""Policies by name, for every command that takes one."""

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from veil.policies import Policy, PrivatePolicy
    from veil.systems import System

# Which of the flags each policy takes.
TAKES: dict[str, tuple[str, ...]] = {
    "truth": (),
    "noise": ("sd",),
    "quantised": ("step",),
    "subsampled": ("sd", "every"),
    "blind": ("sd",),
    "transport": ("sd", "particles"),
    "counterfactual": ("sd",),
}
NEEDS = {"noise": "sd", "quantised": "step", "subsampled": "every"}
FLOOR = 0.05  # sd per axis where a policy needs some noise and none was given
SD = f"(default: {FLOOR:g} for blind and transport, otherwise none)"


class Mistake(ValueError):
    """Something on the command line that cannot be done; the text says what can."""


@dataclass(frozen=True)
class Choice:
    """The sharing policy."""

    policy: str = "truth"
    """truth, noise, quantised, subsampled, blind, transport or counterfactual"""
    sd: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SD [SD ...]", help_behavior_hint=SD)] = ()
    """Standard deviation of the noise, one per shared axis in its unit, e.g. --sd 0.25 0.43 for m/s and m"""
    step: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STEP [STEP ...]", help_behavior_hint="")] = ()
    """Cell of the quantiser, one per shared axis in its unit"""
    every: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """Steps per fresh release of the subsampled policy; in between the last one is repeated"""
    particles: int = 0
    """Particles per secret in the belief of the transport policy; 0 for Kalman filters"""

    def check(self) -> None:
        """Refuse what no system could do with."""
        if self.policy not in TAKES:
            raise Mistake(f"no policy '{self.policy}'. {nearest(self.policy, TAKES)}")
        given = {"sd": self.sd, "step": self.step, "every": self.every, "particles": self.particles}
        for flag in [flag for flag, value in given.items() if value and flag not in TAKES[self.policy]]:
            users = ", ".join(name for name, flags in TAKES.items() if flag in flags)
            hint = " The number of releases per episode is --steps." if flag == "step" else ""
            raise Mistake(f"--policy {self.policy} takes no --{flag}; that is for {users}.{hint}")
        if self.every < 0 or self.particles < 0:
            raise Mistake("--every and --particles are counts; give positive numbers or leave them out.")
        needed = NEEDS.get(self.policy, "")
        if needed and not given[needed]:
            raise Mistake(f"--policy {self.policy} needs --{needed}. {_example(needed)}")
        numbers("sd", self.sd)
        numbers("step", self.step)

    def build(self, system: "System") -> "Policy | PrivatePolicy":
        """The policy for a system."""
        from veil import policies
        from veil.beliefs import KalmanTracker, ParticleTracker

        self.check()
        sd = numbers("sd", self.sd, system)
        floor = sd or (FLOOR,) * len(system.shared_fields)
        tracker = ParticleTracker(self.particles) if self.particles else KalmanTracker()
        plain = policies.GaussianNoise(system, _array(sd)) if sd else policies.Truth(system)
        makers = {
            "truth": lambda: plain,
            "noise": lambda: plain,
            "quantised": lambda: policies.Quantised(system, _array(numbers("step", self.step, system))),
            "subsampled": lambda: policies.Subsampled(plain, self.every),
            "blind": lambda: policies.Blind(system, _array(floor)),
            "transport": lambda: policies.Transport(system, _array(floor), tracker),
            "counterfactual": lambda: policies.Counterfactual(system, _array(sd) if sd else None),
        }
        return makers[self.policy]()


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


def nearest(name: str, names: dict[str, tuple[str, ...]] | dict[str, str]) -> str:
    """A guess at what was meant, and what there is."""
    close = difflib.get_close_matches(name, names, 1, 0.4)
    guess = f"Did you mean {close[0]}? " if close else ""
    return f"{guess}Choose {', '.join(names)}."


def _example(flag: str) -> str:
    examples = {"sd": "--sd 0.25 0.43", "step": "--step 0.5 1.0", "every": "--every 5"}
    return f"For a platoon try {examples[flag]}."


def _array(values: tuple[float, ...]):
    """In the precision that JAX is set to, so that a float64 system meets a float64 policy."""
    import jax.numpy as jnp

    return jnp.asarray(values, float)

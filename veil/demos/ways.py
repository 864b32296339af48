"""The plain ways of sharing that the demo compares."""

from dataclasses import dataclass

import jax.numpy as jnp

from veil.beliefs import Guided, Scheme
from veil.demos.adversaries import Adversary, KalmanBank, Observer, Swarm
from veil.demos.cells import Cells
from veil.policies import GaussianNoise, Policy, Quantised, Truth
from veil.systems.base import System

NOISE = ((0.02, 0.034), (0.1, 0.17), (0.5, 0.85), (2.0, 3.4))
GRIDS = ((0.1, 0.2), (0.5, 1.0), (2.0, 4.0))


@dataclass(frozen=True)
class Way:
    """A way of sharing, the adversary that measures it, and a second one to compare with."""

    name: str
    family: str
    policy: Policy
    adversary: Adversary
    second: Adversary | None = None


def ways(system: System) -> tuple[Way, ...]:
    """The truth, four noises and three grids, for a system that shares speed (m/s) and spacing (m)."""
    guided = Swarm(scheme=Scheme(proposal=Guided()), method="guided particles")
    cells = Swarm(scheme=Scheme(proposal=Cells()))
    noisy = (
        Way(f"noise {sd}", "noise", GaussianNoise(system, jnp.asarray(sd)), KalmanBank(), guided)
        for sd in NOISE
    )
    rounded = (Way(f"grid {step}", "grid", Quantised(system, jnp.asarray(step)), cells) for step in GRIDS)
    return (Way("truth", "truth", Truth(system), Observer()), *noisy, *rounded)

"""The columns of the tables: who shares, and where its policy comes from. Imports nothing heavy."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paper.reproduction.printed import Who
from veil.registry import LEARNERS
from veil.settings import ObjectiveWeights, PolicyDesign, Preset

if TYPE_CHECKING:
    from veil.learners.run import Settings
    from veil.policies.base import Policy
    from veil.systems.base import System


SHORT = 32  # episodes per evaluation of a training that is cut short

TRUE, NOISE = "true", "noise"


@dataclass(frozen=True)
class Column:
    """One way of sharing.

    Attributes:
        name: for files and commands.
        title: for tables.
        preset: how a policy is learned.
        make: of one that is known at once.
        like: of noise: the column whose distortion it has.
        printed: the column of the paper that it stands beside.
    """

    name: str
    title: str
    preset: Preset | None = None
    make: "Callable[[System], Policy] | None" = None
    like: str = ""
    printed: Who | None = None


def _truth(system: "System") -> "Policy":
    from veil.policies.plain import Truth

    return Truth(system)


def _transport(system: "System") -> "Policy":
    import jax.numpy as jnp

    from veil.policies.transport import Transport

    return Transport(system, jnp.asarray((0.06, 0.1), float))


def _counterfactual(system: "System") -> "Policy":
    from veil.policies.counterfactual import Counterfactual

    return Counterfactual(system)


COLUMNS = (
    Column(TRUE, "True Data", make=_truth, printed="true"),
    Column("discrete", "Discrete Policy (A2C)", LEARNERS["a2c"](), printed="discrete"),
    Column("ddpg_printed", "DDPG as printed", LEARNERS["ddpg_printed"]()),
    Column("ddpg", "DDPG, repaired", LEARNERS["ddpg"](), printed="continuous"),
    Column(NOISE, "Gaussian noise", like="ddpg"),
    Column(
        "pathwise_plain",
        "pathwise, from noise",
        replace(LEARNERS["pathwise"](), design=PolicyDesign(start="plain")),
    ),
    Column("pathwise", "pathwise, on transport", LEARNERS["pathwise"]()),
    Column("transport", "transport", make=_transport),
    Column("counterfactual", "counterfactual", make=_counterfactual),
)
"""In the order of all tables."""

NAMES = tuple(column.name for column in COLUMNS)

BY_NAME = {column.name: column for column in COLUMNS}


def selected(only: Iterable[str]) -> tuple[Column, ...]:
    """These columns and what they are compared with, in the order of all tables; all if none is named."""
    wanted = set(only) or set(NAMES)
    wanted |= {BY_NAME[name].like for name in wanted} | {TRUE}
    return tuple(column for column in COLUMNS if column.name in wanted)


def settings(preset: Preset, steps: int, fraction: float, seed: int) -> "Settings":
    """All that a training depends on; a fraction below one cuts it short and evaluates it at its end only."""
    from veil.learners.run import Settings

    training = replace(preset.training, seed=seed)
    if fraction < 1.0:
        updates = max(1, math.ceil(fraction * training.updates))
        training = replace(training, updates=updates, evaluate_every=updates, evaluation_episodes=SHORT)
    return Settings("platoon", steps, preset.design, ObjectiveWeights(), training, preset.leakage)

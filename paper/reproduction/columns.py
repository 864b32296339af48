"""The columns of the tables: who shares, and where its policy comes from. Imports nothing heavy."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from paper.reproduction.printed import Who
from veil.registry import LEARNERS
from veil.settings import ObjectiveWeights, PolicyDesign, Preset

if TYPE_CHECKING:
    from veil.learners.run import Settings
    from veil.policies.base import Policy
    from veil.systems.base import System


SHORT = 32  # episodes per evaluation of a training that is cut short

TRUE, NOISE, PRINTED_LEARNER = "true", "noise", "ddpg_printed"

SEEDS = 5  # of the printed learner in the full run


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
        which: iterate of its training: the best of its looks, the last, or the first, before any update.
        run: the column whose training it shares, if not its own.
        seed: added to that of the reproduction.
        weights: of the objective.
        part: "default" columns are always measured, an "extra" one only where it is named; those of the
            full run are trained in it, and told by the looks of their training.
        settles: whether its training ends as `paper.reproduction.ending` says; else it makes all updates.
    """

    name: str
    title: str
    preset: Preset | None = None
    make: "Callable[[System], Policy] | None" = None
    like: str = ""
    printed: Who | None = None
    which: Literal["best", "last", "first"] = "best"
    run: str = ""
    seed: int = 0
    weights: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    part: Literal["default", "full", "extra"] = "default"
    settles: bool = False


def _truth(system: "System") -> "Policy":
    from veil.policies.plain import Truth

    return Truth(system)


def _constant(system: "System") -> "Policy":
    from paper.reproduction.blind import constant

    return constant(system)


def _uniform(system: "System") -> "Policy":
    from paper.reproduction.blind import uniform

    return uniform(system)


def _transport(system: "System") -> "Policy":
    import jax.numpy as jnp

    from veil.policies.transport import Transport

    return Transport(system, jnp.asarray((0.06, 0.1), float))


def _counterfactual(system: "System") -> "Policy":
    from veil.policies.counterfactual import Counterfactual

    return Counterfactual(system)


def _shortened(preset: Preset, updates: int, every: int) -> Preset:
    """The preset with so many updates and updates between looks: what fits an hour."""
    return replace(preset, training=replace(preset.training, updates=updates, evaluate_every=every))


def _on_the_grid(preset: Preset, updates: int, every: int) -> Preset:
    """Likewise, with releases within 2.5 m/s and 5 m, which a blind draw uses up D̂ with."""
    design = replace(preset.design, reach=(2.5, 5.0))
    return replace(_shortened(preset, updates, every), design=design)


MOST = 3000  # updates of the printed learner at most; it ends before where it settles or diverges

CONTROL = 1000  # updates of the control with ρ = 0, settled or not

LONG = 640  # updates of the long discrete training, of 32 episodes each

_PRINTED, _A2C = _shortened(LEARNERS[PRINTED_LEARNER](), MOST, 200), LEARNERS["a2c_printed"]()


def _printed(name: str, title: str, **given: Any) -> Column:
    """A column of the printed learner; all trainings of one seed are the same."""
    return Column(name, f"DDPG as printed, {title}", _PRINTED, settles=True, **given)


COLUMNS = (
    Column(TRUE, "True Data", make=_truth, printed="true"),
    Column("constant", "blind: always (15, 20)", make=_constant),
    Column("uniform", "blind: uniform on the grid", make=_uniform),
    Column(
        "discrete_printed",
        "Discrete Policy (A2C, plain credit, 1e-3)",
        _on_the_grid(_A2C, 30, 15),
        printed="discrete",
        which="last",
    ),
    Column("discrete", "Discrete Policy (A2C, our credit)", _on_the_grid(LEARNERS["a2c"](), 40, 20)),
    _printed("ddpg_untrained", "untrained", which="first", run=PRINTED_LEARNER),
    _printed(PRINTED_LEARNER, "last iterate", printed="continuous", which="last"),
    _printed("ddpg_printed_best", "best of looks", run=PRINTED_LEARNER),
    Column("ddpg", "DDPG, repaired, with limits", _shortened(LEARNERS["ddpg"](), 30, 15)),
    Column(NOISE, "Gaussian noise", like="ddpg"),
    Column(
        "pathwise_plain",
        "pathwise, from noise",
        replace(LEARNERS["pathwise"](), design=PolicyDesign(start="plain")),
        part="extra",
    ),
    Column("pathwise", "pathwise, on transport", _shortened(LEARNERS["pathwise"](), 100, 50)),
    Column("transport", "transport", make=_transport),
    Column("counterfactual", "counterfactual", make=_counterfactual),
    *(
        _printed(f"{PRINTED_LEARNER}_{seed}", f"seed {seed}", which="last", seed=seed, part="full")
        for seed in range(1, SEEDS)
    ),
    Column(
        "ddpg_printed_no_privacy",
        "DDPG as printed, ρ = 0",
        _shortened(_PRINTED, CONTROL, 200),
        which="last",
        weights=ObjectiveWeights(privacy_weight=0.0),
        part="full",
    ),
    Column(
        "discrete_long",
        "Discrete Policy (A2C, plain credit, 1e-3, long)",
        _on_the_grid(_A2C, LONG, 80),
        which="last",
        part="full",
    ),
)
"""In the order of all tables."""

NAMES = tuple(column.name for column in COLUMNS)

BY_NAME = {column.name: column for column in COLUMNS}


MORE = tuple(column for column in COLUMNS if column.part == "full")
"""The trainings that only the full run has."""


def selected(only: Iterable[str]) -> tuple[Column, ...]:
    """These columns and what they are compared with, in the order of all tables; by default the usual."""
    wanted = set(only) or {column.name for column in COLUMNS if column.part == "default"}
    wanted |= {BY_NAME[name].like for name in wanted} | {TRUE}
    return tuple(column for column in COLUMNS if column.name in wanted)


def settings(column: Column, steps: int, fraction: float, seed: int) -> "Settings":
    """All that a training depends on; a fraction below one cuts it short and evaluates it at its end only.

    Args:
        column: one that is learned.
        steps: releases per episode.
        fraction: of its usual updates.
        seed: of the reproduction.
    """
    from veil.learners.run import Settings

    preset = column.preset
    assert preset is not None
    training = replace(preset.training, seed=seed + column.seed)
    if fraction < 1.0:
        updates = max(1, math.ceil(fraction * training.updates))
        training = replace(training, updates=updates, evaluate_every=updates, evaluation_episodes=SHORT)
    return Settings("platoon", steps, preset.design, column.weights, training, preset.leakage)

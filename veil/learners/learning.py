"""Learning in one call: a system goes in, the best policy comes out with what was seen of it."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.random as jr

from veil.auditing.worlds import faithful
from veil.leakage.stage import Measure
from veil.learners.choice import chosen
from veil.learners.design import designed
from veil.learners.families import robust
from veil.learners.loggers import Logger
from veil.learners.loop import Report, Trained, train
from veil.learners.options import Design, Training
from veil.precision import single
from veil.problem import Objective, Problem
from veil.systems.base import System

_DESIGN = 0xDE51  # keeps the keys of the first weights apart from those of training and of audits


def learn(
    system: System,
    steps: int = 50,
    objective: Objective | None = None,
    *,
    training: Training | None = None,
    design: Design | None = None,
    measure: Measure | None = None,
    report: Report = lambda metrics: None,
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
) -> Trained:
    """Learn what to share in this system, as `veil train` does for the systems that it knows.

    Args:
        system: any that `veil.check_system` finds fit for pathwise learning.
        steps: T, releases per episode.
        objective: what leakage and distortion are worth.
        training: how long and how fast.
        design: what the policy looks like before; by default a network on top of transport.
        measure: how the leakage of a step is measured while learning.
        report: told the metrics of every update.
        folder: where the course is kept, so that an interrupted training goes on.
        loggers: told the same as `report`, from start to close.
    """
    training, design = training or Training(), design or Design()
    with jax.enable_x64(False):
        system = single(system)
        policy = designed(design, system, steps, key=jr.fold_in(jr.key(training.seed), _DESIGN))
        counts = single(objective or Objective()), measure or Measure()
        family = (Problem(faithful(system), steps, *counts),)
        if training.robust:
            family = robust(system, steps, *counts)
        told = {"report": report, "folder": folder, "loggers": loggers}
        return train(family, chosen(training), policy, training, **told)

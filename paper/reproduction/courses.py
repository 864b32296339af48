"""How the trainings went: their looks, the critic's mean value, and whether that had settled."""

from dataclasses import dataclass

import numpy as np

from paper.reproduction import ending
from paper.reproduction.columns import BY_NAME
from paper.reproduction.engine import Work
from veil.learners import run as runs

BLOCK = 20  # updates that are averaged for the file and the picture


@dataclass(frozen=True)
class Look:
    """An evaluation on the way; the leakage in nats, the distortion per step."""

    update: int
    lower: float
    upper: float
    distortion: float


@dataclass(frozen=True)
class Course:
    """One training.

    Attributes:
        title: of its column.
        learner: its name.
        seed: of the training.
        updates: that were made.
        episodes: that were played in all.
        best: update after which the best of the looks was kept.
        reason: why it ended.
        seconds: of updates and looks.
        looks: in turn, the first before any update.
        value: mean Q over blocks of updates, in units of the privacy weight; empty for learners without one.
        change: of the mean Q from the last but one hundred updates to the last hundred, relative; None where
            there are not so many.
        paid: what the played runs were charged, by the same blocks and in the same unit: leakage as the
            learner measures it, cost and priced distortion.
        far: mean distortion per step of the played runs, by the same blocks.
    """

    title: str
    learner: str
    seed: int
    updates: int
    episodes: int
    best: int
    reason: str
    seconds: float
    looks: tuple[Look, ...]
    value: tuple[float, ...]
    change: float | None
    paid: tuple[float, ...]
    far: tuple[float, ...]


def courses(work: Work) -> dict[str, Course]:
    """Of all trainings behind the columns, by the name of the column that each belongs to."""
    found = {}
    for column in (*work.learned, *work.more):
        if column.run and column.run in found:
            continue
        study = work.study(column.name)
        _ = study.as_trained
        lines, run = study.history, runs.Run.load(study.run)
        assert run.result is not None and isinstance(run.settings, runs.Settings)
        training, result = run.settings.training, run.result
        values = ending.mean_values(lines) if training.learner == "ddpg_printed" else np.zeros(0)
        owner = BY_NAME[column.run or column.name]
        found[owner.name] = Course(
            *(owner.title, training.learner, training.seed, result.updates),
            *(result.updates * training.episodes, result.best, result.reason, result.seconds),
            tuple(look(line) for line in lines if "upper" in line),
            blocks(values),
            ending.change(values),
            blocks(paid(lines, run.settings)),
            blocks(ending.series(lines, "distortion")),
        )
    return found


def look(line: dict[str, float]) -> Look:
    """An evaluation as it was logged."""
    return Look(int(line["update"]), line["lower"], line["upper"], line["fresh_distortion"])


def blocks(values: np.ndarray) -> tuple[float, ...]:
    """Means over `BLOCK` updates each; a rest that is shorter is left out."""
    return tuple(map(float, ending.blocks(values, BLOCK)))


def paid(lines: list[dict[str, float]], settings: runs.Settings) -> np.ndarray:
    """Charges of the played runs, per update, over the privacy weight where there is one."""
    leakage, cost, far = (ending.series(lines, name) for name in ("leakage", "cost", "distortion"))
    weights, steps = settings.objective, settings.steps
    rho = weights.price_of_a_nat(steps)
    return (rho * leakage + cost + weights.distortion_price * steps * far) / (rho or 1.0)

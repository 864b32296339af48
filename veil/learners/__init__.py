"""Training: one training loop, the learners that it runs, and the policies that it starts from."""

from veil.learners.a2c import A2c
from veil.learners.base import Family, Learner, Metrics, Progress
from veil.learners.design import initial_policy, typical_scaling
from veil.learners.loggers import JsonLines, Logger
from veil.learners.pathwise import Pathwise
from veil.learners.selection import SelectionScore, evaluate_family
from veil.learners.training import Trained, train, train_policy

__all__ = [
    "A2c",
    "Family",
    "JsonLines",
    "Learner",
    "Logger",
    "Metrics",
    "Pathwise",
    "Progress",
    "SelectionScore",
    "Trained",
    "evaluate_family",
    "initial_policy",
    "train",
    "train_policy",
    "typical_scaling",
]

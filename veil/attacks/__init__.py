"""Attacks: each maps a public transcript to evidence about the secret."""

from veil.attacks.base import Attack, Evidence, PriorAttack
from veil.attacks.learned import AttackTraining, LearnedAttack, train_attack
from veil.attacks.least_squares import LeastSquares

__all__ = [
    "Attack",
    "AttackTraining",
    "Evidence",
    "LearnedAttack",
    "LeastSquares",
    "PriorAttack",
    "train_attack",
]

"""Adversaries: each reads a public transcript and says what it tells about the secret."""

from veil.attacks.base import Attack, Evidence
from veil.attacks.learned import LearnedAttack
from veil.attacks.least_squares import LeastSquares
from veil.attacks.prior import PriorAttack
from veil.attacks.training import Training, train_attack

__all__ = ["Attack", "Evidence", "LearnedAttack", "LeastSquares", "PriorAttack", "Training", "train_attack"]

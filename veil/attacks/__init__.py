"""Adversaries: each reads a public transcript and says what it tells about the secret."""

from veil.attacks.base import Attack, Evidence
from veil.attacks.prior import PriorAttack

__all__ = ["Attack", "Evidence", "PriorAttack"]

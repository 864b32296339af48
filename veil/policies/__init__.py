"""Sharing policies."""

from veil.policies.base import Policy
from veil.policies.plain import GaussianNoise, Quantised, Truth

__all__ = ["GaussianNoise", "Policy", "Quantised", "Truth"]

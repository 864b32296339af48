"""Sharing policies."""

from veil.policies.base import PlainPolicy, Policy
from veil.policies.plain import GaussianNoise, Quantised, Truth
from veil.policies.private import PrivatePolicy

__all__ = ["GaussianNoise", "PlainPolicy", "Policy", "PrivatePolicy", "Quantised", "Truth"]

"""Sharing policies."""

from veil.policies.base import PlainPolicy, Policy
from veil.policies.blind import Blind
from veil.policies.counterfactual import Counterfactual
from veil.policies.plain import GaussianNoise, Quantised, Truth
from veil.policies.private import PrivatePolicy
from veil.policies.subsampled import Subsampled
from veil.policies.transport import Transport, zero_leakage_distortion

__all__ = [
    "Blind",
    "Counterfactual",
    "GaussianNoise",
    "PlainPolicy",
    "Policy",
    "PrivatePolicy",
    "Quantised",
    "Subsampled",
    "Transport",
    "Truth",
    "zero_leakage_distortion",
]

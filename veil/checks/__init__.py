"""Checks of what users add: systems, policies, attacks, leakage methods and learners."""

from veil.checks.attack import check_attack
from veil.checks.findings import ContractReport, SystemReport
from veil.checks.learner import check_learner
from veil.checks.measure import check_measure
from veil.checks.policy import check_policy
from veil.checks.system import check_system

__all__ = [
    "ContractReport",
    "SystemReport",
    "check_attack",
    "check_learner",
    "check_measure",
    "check_policy",
    "check_system",
]

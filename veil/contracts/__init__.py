"""Contracts: what a policy, a leakage method, an attack or a learner must keep, as examinations to run.

Each examination never raises, plays on a small loop whose answers are known, and returns a report that says
which rules are kept and what to do about the others. `veil.systems.check_system` is that of a system.
"""

from veil.contracts.attack import check_attack
from veil.contracts.learner import check_learner
from veil.contracts.measure import check_measure
from veil.contracts.policy import check_policy
from veil.contracts.report import ContractReport

__all__ = ["ContractReport", "check_attack", "check_learner", "check_measure", "check_policy"]

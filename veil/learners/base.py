"""The contract of a learner: begin with a policy, improve it step by step, hand it out."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int

from veil.policies.learned import LearnedPolicy
from veil.problem import Problem
from veil.types import Key, Scalar

Metrics = dict[str, Scalar]
Family = tuple[Problem, ...]
"""The problems that one policy must do well on: one, or one per plant that it may meet."""


class Progress(eqx.Module):
    """Where a learner stands. Every array in it is saved, so that training goes on with the same bits.

    Attributes:
        policy: as learnt so far.
        price: λ, of distortion.
        updates: how many were made.
        memory: whatever else the learner needs: optimiser, critic, replay.
    """

    policy: LearnedPolicy
    price: Float[Array, ""]
    updates: Int[Array, ""]
    memory: object


class Learner(eqx.Module):
    """A way to improve a policy on a family of problems."""

    @abc.abstractmethod
    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """Before the first update."""

    @abc.abstractmethod
    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """One improvement; `key` belongs to this update alone."""

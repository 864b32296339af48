"""What is known of a run: how its policy was made, and what came out."""

from dataclasses import dataclass

from veil.learners.options import Design, Leakage, Training, Weights
from veil.policies.named import Named


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides the version of the library.

    Attributes:
        system: its name.
        steps: T, releases per episode.
        design: of the policy.
        objective: the weights.
        training: how long and how fast.
        leakage: how that of a step is measured while learning.
    """

    system: str
    steps: int
    design: Design
    objective: Weights
    training: Training
    leakage: Leakage


@dataclass(frozen=True)
class Ready:
    """A policy that needs no training.

    Attributes:
        system: its name.
        named: the policy by its name and numbers.
    """

    system: str
    named: Named


@dataclass(frozen=True)
class Result:
    """What training gave, measured on the episodes that policies are chosen by.

    Attributes:
        lower: mean lower side of the leakage, nats.
        upper: mean upper side of the leakage, nats.
        standard_error: the larger one of the two sides, nats.
        entropy: H(q), the most that can leak, nats.
        distortion: per step.
        cost: per episode.
        updates: how many were made.
        best: after how many of them the policy was kept.
        reason: why training ended.
        seconds: that updates and looks took, in all sittings; what an interruption lost is not counted.
    """

    lower: float
    upper: float
    standard_error: float
    entropy: float
    distortion: float
    cost: float
    updates: int
    best: int
    reason: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """How, and what came out; a training without a result is not finished."""

    settings: Settings | Ready
    result: Result | None = None

    @property
    def finished(self) -> bool:
        """Whether there is a policy."""
        return self.result is not None or isinstance(self.settings, Ready)

"""Which points a frontier has. Imports nothing heavy: the command line reads it at once."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["noise", "quantised", "displacement", "transport", "plain"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LEARNED: tuple[Kind, ...] = ("transport", "plain")
# Of families that are not learned: noise and steps in terms of the usual spread of the output, displacement
# as the share of the way to the barycentre.
STRENGTHS: dict[Kind, tuple[float, ...]] = {
    "noise": (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "quantised": (0.5, 1.0, 2.0, 4.0, 8.0),
    "displacement": (0.0, 0.4, 0.7, 0.85, 0.92, 0.96, 0.98, 1.0),
}
WORDS: dict[Kind, str] = {
    "noise": "Gaussian noise",
    "quantised": "quantised",
    "displacement": "displacement interpolation",
    "transport": "learned on transport",
    "plain": "learned from noise",
}


@dataclass(frozen=True)
class Goal:
    """One point to be measured.

    Attributes:
        kind: the family.
        value: its strength: a factor of the spread, a share of the way, or the privacy weight.
        before: privacy weights whose policies led to this one, each starting from the last.
    """

    kind: Kind
    value: float
    before: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.kind}-{self.value:.12g}"

    @property
    def previous(self) -> "Goal | None":
        """The point whose policy this one starts from."""
        return Goal(self.kind, self.before[-1], self.before[:-1]) if self.before else None


@dataclass(frozen=True)
class Extent:
    """How many points, and how well each is learnt and measured."""

    weights: tuple[float, ...] = (2.0, 5.0, 12.0, 30.0, 80.0)
    """Privacy weights of the learned families, in cost units per nat"""
    kinds: tuple[Kind, ...] = KINDS
    """Families to measure"""
    updates: int = 150
    """Gradient steps per learned point at most"""
    episodes: int = 512
    """Episodes that each point is measured on"""
    steps: int = 50
    """Releases per episode"""
    price: float = 0.2
    """Price of distortion in training, in cost units per unit of distortion and step"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same frontier"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.weights or not self.kinds:
            raise ValueError("Give at least one of --weights and one of --kinds.")
        if len(set(self.weights)) < len(self.weights) or len(set(self.kinds)) < len(self.kinds):
            raise ValueError("Give each of --weights and of --kinds once.")
        if not all(0.0 < number < math.inf for number in (*self.weights, self.price)):
            raise ValueError("--weights and --price are positive numbers, e.g. --weights 5 80 --price 0.2.")
        if min(self.updates, self.steps) < 1 or self.episodes < 2:
            raise ValueError("Give at least --updates 1, --steps 1 and --episodes 2.")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError("--seed must be between 0 and 4294967295.")

    @property
    def goals(self) -> list[Goal]:
        """All points in the order in which they are measured.

        Learned policies start from their neighbour's: on transport from perfect privacy downwards, from noise
        upwards.
        """
        goals = []
        for kind in KINDS:
            if kind not in self.kinds:
                continue
            goals += [Goal(kind, value) for value in STRENGTHS.get(kind, ())]
            if kind not in LEARNED:
                continue
            chain = sorted(self.weights, reverse=kind == "transport")
            goals += [Goal(kind, weight, tuple(chain[:place])) for place, weight in enumerate(chain)]
        return goals

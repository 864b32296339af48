"""How a policy is designed and trained. Imports nothing heavy: the command line reads it at once.

`flag` in the metadata of a field is its name on the command line; one that is empty has no flag of its own.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

Start = Literal["transport", "plain", "grid"]
Name = Literal["pathwise", "ddpg", "ddpg_printed", "a2c"]
Leakage = Literal["estimate", "live", "closed_form", "regime_adaptive", "kl_chernoff"]


@dataclass(frozen=True)
class Design:
    """What the policy looks like before it is trained."""

    start: Start = "transport"
    """transport: a network on top of perfect privacy; plain: one that begins with noise; grid: releases and
    states on grids"""
    encoder: Literal["moments", "mgf"] = "moments"
    """How a plain network sees the belief: moments or mgf"""
    parts: int = 1
    """Gaussians per release law of a plain network"""
    particles: int = 0
    """Particles per secret in its belief; 0 for Kalman filters"""
    proposal: Literal["guided", "bootstrap"] = "guided"
    """How particles move: guided, or bootstrap"""
    floor: float = 0.05
    """Least noise, in usual spreads of the output"""
    width: int = 64
    """Neurons per hidden layer"""
    points: int = 5
    """Points per axis of --start grid"""

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.parts < 1 or self.particles < 0 or self.width < 1 or self.points < 2:
            raise ValueError("parts and width are at least 1, points at least 2, particles at least 0.")
        if not 0.0 < self.floor < 1.0:
            raise ValueError("floor is a share of the output's spread between 0 and 1, e.g. 0.05.")
        if self.start == "transport" and (self.parts > 1 or self.encoder != "moments"):
            raise ValueError("parts and encoder are for --start plain; on transport there is one Gaussian.")
        blind = self.particles and self.proposal == "bootstrap"
        if self.start == "grid" and (self.parts > 1 or self.encoder != "mgf" or not blind):
            raise ValueError("start grid needs --encoder mgf --proposal bootstrap and --particles, e.g. 81.")


@dataclass(frozen=True)
class Weights:
    """What counts, and how much."""

    privacy_weight: float = 80.0
    """Price of leakage, in cost units per nat"""
    distortion_price: float = 0.2
    """Least price of distortion, cost units per unit and step"""
    distortion_limit: float = field(default=4.0, metadata={"flag": "distortion_budget"})
    """Largest mean distortion per step, in the system's unit"""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not 0.0 <= self.privacy_weight < math.inf:
            raise ValueError("privacy_weight is a number of cost units per nat, e.g. 80; 0 asks for none.")
        if not (0.0 < self.distortion_price < math.inf and 0.0 < self.distortion_limit < math.inf):
            raise ValueError("The price and the budget of distortion are positive, e.g. 0.2 and 4.")


@dataclass(frozen=True)
class Training:
    """How long and how fast to learn."""

    updates: int = 250
    """Updates at most, each on new episodes"""
    episodes: int = 32
    """Episodes per update, shared evenly by the secrets"""
    learning_rate: float = 4e-3
    """Step size of Adam at the start (no unit)"""
    look: int = 50
    """Updates between two looks at fresh episodes"""
    looked: int = 128
    """Fresh episodes per look, the same ones every time"""
    patience: int = 3
    """Looks without progress before the end; 0 for all updates"""
    robust: bool = False
    """Train for other plants as well (several times as long)"""
    seed: int = 0
    """Seed of all randomness (no unit)"""
    learner: Name = field(default="pathwise", metadata={"flag": ""})
    """pathwise: gradients through the whole loop; ddpg: the paper's, repaired; ddpg_printed: as printed;
    a2c: the discrete benchmark"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        if min(self.updates, self.episodes, self.look, self.looked) < 1 or self.patience < 0:
            raise ValueError("updates, episodes, look and looked are counts of at least 1.")
        if not self.learning_rate > 0.0:
            raise ValueError("The learning rate must be positive, e.g. 0.004.")
        if self.robust and self.learner != "pathwise":
            raise ValueError("robust training needs the learner pathwise; the others learn on one plant.")


@dataclass(frozen=True)
class Preset:
    """What is usual for a learner.

    Attributes:
        design: of the policy.
        training: how long and how fast.
        leakage: how that of a step is measured while learning.
    """

    design: Design = field(default_factory=Design)
    training: Training = field(default_factory=Training)
    leakage: Leakage = "estimate"


_FIXED = Design(start="plain", particles=81, width=128)
_PRINTED = Design(start="plain", encoder="mgf", particles=81, proposal="bootstrap", width=128)
_GRID = Design(start="grid", encoder="mgf", particles=81, proposal="bootstrap")
PRESETS: dict[Name, Preset] = {
    "pathwise": Preset(),
    "ddpg": Preset(_FIXED, Training(80, 8, 3e-3, 20, learner="ddpg")),
    "ddpg_printed": Preset(_PRINTED, Training(80, 8, 1e-3, 20, learner="ddpg_printed"), "regime_adaptive"),
    "a2c": Preset(_GRID, Training(150, 8, 4e-3, 50, learner="a2c")),
}

"""What an audit is asked to do. Imports nothing heavy, so that the command line can read it at once."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The extent of an audit."""

    steps: int = 50
    """Releases per episode"""
    episodes: int = 1024
    """Episodes of the two-sided measurement"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same audit"""
    interval: float = 0.0
    """Stop once the interval of the leakage is this narrow, in nats; 0 plays all episodes"""
    seconds: float = math.inf
    """Add no more episodes after this time, in seconds"""
    learned: bool = False
    """Train a model-free attacker as well (a minute or two more)"""
    worlds: bool = False
    """Audit in worlds that are not the model as well (several minutes)"""
    assisted: bool = True
    """Include adversaries who know more than the threat model grants"""
    budget: float = 0.0
    """Distortion budget per step, in units of the system's distortion; 0 for none"""
    training: int = 8192
    """Transcripts to train a learned attacker on"""

    def __post_init__(self) -> None:
        """Refuse what cannot be audited."""
        if self.steps < 1 or self.episodes < 2 or self.training < 64:
            raise ValueError("Give at least 1 step, 2 episodes and 64 training transcripts.")

"""What an audit found. Numbers only; words, files and pictures are made from this."""

from dataclasses import dataclass, field

import numpy as np

from veil.auditing.statistics import Mean, Rate

ERRORS = 3.0  # standard errors in every interval that people are told


@dataclass(frozen=True)
class Leakage:
    """Mutual information between the secret and a transcript, from both sides, in nats.

    Attributes:
        lower: at most the leakage, in expectation.
        upper: at least the leakage, in expectation; the entropy where nothing better is known.
        entropy: H(q), the most that can leak.
    """

    lower: Mean
    upper: Mean
    entropy: float

    @property
    def width(self) -> float:
        """Mean upper minus mean lower: the error of the filter."""
        return self.upper.value - self.lower.value

    @property
    def low(self) -> float:
        """Lower end of the interval, errors over episodes included."""
        return float(np.clip(np.nan_to_num(self.lower.low(ERRORS), neginf=0.0), 0.0, self.entropy))

    @property
    def high(self) -> float:
        """Upper end of the interval, errors over episodes included."""
        return float(np.clip(np.nan_to_num(self.upper.high(ERRORS), nan=np.inf), 0.0, self.entropy))


@dataclass(frozen=True)
class AttackResult:
    """What one adversary got out of the transcripts.

    Attributes:
        name: a short name.
        role: "attack", "assisted" (knows more than the threat model grants) or "mismatched".
        accuracy: how often its first guess is right.
        lower: mean score of its repaired forecast, nats.
        raw: mean score of its forecast as it is.
        calibration: mean score minus what the forecast claims; negative if it is too sure.
        episodes: transcripts read.
        seconds: time taken, compiling and training included.
        note: anything the reader should know.
    """

    name: str
    role: str
    accuracy: Rate
    lower: Mean
    raw: Mean
    calibration: Mean
    episodes: int
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class AtStep:
    """The leakage of the first `step` releases."""

    step: int
    leakage: Leakage


@dataclass(frozen=True)
class Part:
    """The leakage about one secret, or about one component of the secret."""

    name: str
    leakage: Leakage


@dataclass(frozen=True)
class Curves:
    """Over the run, by one Kalman filter per secret: a preview, not a bound from above.

    Attributes:
        score: (T,) mean score in nats after each release.
        posterior: (K, T) mean mass on the true secret, for each true secret.
        spread: (K, T) its standard deviation over episodes.
    """

    score: np.ndarray
    posterior: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True)
class Quantity:
    """One line of the table of use: what sharing this way costs the owner and gives the receiver."""

    name: str
    unit: str
    value: Mean
    true_data: Mean | None = None
    change: Mean | None = None  # per cent against true data, paired


@dataclass(frozen=True)
class WorldResult:
    """The policy in a world that is not its model."""

    name: str
    distortion: Mean
    attacks: tuple[AttackResult, ...]
    entropy: float
    chance: float


@dataclass(frozen=True)
class Verdict:
    """The gate's answer, why, and every number that it looked at."""

    name: str
    reasons: tuple[str, ...]
    inputs: dict[str, float | str | bool]

    @property
    def certified(self) -> bool:
        """Whether the upper bound may be believed."""
        return self.name == "certifiable"


@dataclass(frozen=True)
class Audit:
    """All that one audit found.

    Attributes:
        system: name of the system.
        policy: name of the policy.
        horizon: releases per episode.
        episodes: episodes of the two-sided measurement.
        particles: per secret, 0 where none were needed.
        method: how the two sides were found.
        verdict: the gate's.
        leakage: of the whole run.
        chance: accuracy of the best guess without reading.
        times: the leakage at a few times along the run.
        secrets: per true secret: what its transcripts tell about it.
        components: per component of the secret; empty where this says nothing.
        curves: over time, by Kalman filters; None where they do not apply.
        attacks: all adversaries.
        realised: (E,) log(posterior/prior) of the true secret per episode.
        posteriors: (E, K) final posterior of the auditor.
        index: (E,) true secrets.
        utility: what the sharing costs and gives.
        worlds: the policy where the world is not the model.
        seeds: what reproduces this audit.
        seconds: by stage.
    """

    system: str
    policy: str
    horizon: int
    episodes: int
    particles: int
    method: str
    verdict: Verdict
    leakage: Leakage
    chance: float
    times: tuple[AtStep, ...]
    secrets: tuple[Part, ...]
    components: tuple[Part, ...]
    curves: Curves | None
    attacks: tuple[AttackResult, ...]
    realised: np.ndarray
    posteriors: np.ndarray
    index: np.ndarray
    utility: tuple[Quantity, ...]
    worlds: tuple[WorldResult, ...] = ()
    seeds: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def lowest(self) -> float:
        """The best lower end over all attackers who know no more than the threat model grants."""
        return self.verdict.inputs.get("lower_best", self.leakage.low)  # pyright: ignore[reportReturnType]

"""The settings of every command and verb, as frozen dataclasses: flags, TOML files and Python read these.

Nothing heavy is imported here, so that `--help` answers at once. A field whose metadata say `hidden` has no
flag of its own.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from veil.registry import LEARNERS

ScenarioChoice = Literal["brief", "full", "none"]


@dataclass(frozen=True)
class AuditSettings:
    """How many episodes an audit plays, and what it adds."""

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
    scenarios: ScenarioChoice = field(default="brief", metadata={"alone": "full", "off": "none"})
    """Audit where the plant is not the model: brief (a few such scenarios), full (all, minutes) or none"""
    assisted: bool = True
    """Include adversaries who know more than the threat model grants"""
    distortion_limit: float = 0.0
    """Largest mean distortion per step, in the system's unit; 0 for none"""
    training: int = 8192
    """Transcripts to train a learned attacker on"""

    def __post_init__(self) -> None:
        """Refuse what cannot be audited."""
        if self.steps < 1 or self.episodes < 2 or self.training < 64:
            raise ValueError("Give at least 1 step, 2 episodes and 64 training transcripts.")
        if self.scenarios not in get_args(ScenarioChoice):
            raise ValueError(f"scenarios is one of {', '.join(get_args(ScenarioChoice))}.")


@dataclass(frozen=True)
class SimulateSettings:
    """How many episodes to simulate."""

    episodes: int = 128
    """Episodes to play; the secrets of the prior take turns"""
    steps: int = 50
    """Releases per episode"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same episodes"""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if self.episodes < 1 or self.steps < 1:
            raise ValueError("--episodes and --steps are counts; give positive numbers.")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError("--seed must be between 0 and 4294967295.")


@dataclass(frozen=True)
class MeasureSettings:
    """How a recording is measured."""

    filter_particles: int = 324
    """Particles per secret of each filter, where the way of sharing needs filters"""
    draws: int = 8
    """How often the noise of the sharing is drawn; the numbers are means over the draws"""
    secret: int = -1
    """Index in the prior that the owner takes its secret for; -1 for the one that fits the log best"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same numbers"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.filter_particles < 2 or self.draws < 1 or self.secret < -1 or not 0 <= self.seed < 1 << 32:
            raise ValueError(
                "Give at least 2 particles and 1 draw, a secret from 0 on, and a seed from 0 to 4294967295."
            )


@dataclass(frozen=True)
class FitSettings:
    """How a model is fitted to recordings."""

    held_out: float = 0.3
    """Fraction of the steps, the last ones, that the fit does not see and is examined on"""
    horizon: int = 50
    """Steps of a run, for what privacy by self-modelling may lose in it"""
    candidates: int = 16
    """Secrets of the prior that several individuals give; powers of two are best"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same fit"""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        if not 0.1 <= self.held_out <= 0.9 or self.horizon < 1 or self.candidates < 2:
            raise ValueError(
                "Hold out 0.1 to 0.9 of the steps, and give a horizon of 1 step and 2 candidates at least."
            )
        if not 0 <= self.seed < 1 << 32:
            raise ValueError("--seed must be between 0 and 4294967295.")


@dataclass(frozen=True)
class ReadSettings:
    """How the times and numbers of a recording are written."""

    time: str = ""
    """Column of the times, or none; by default t, time, timestamp, date, or the one that holds ISO times"""
    time_unit: str = ""
    """Unit of times that are numbers, where their header does not say it: ms, s, min, h or d"""
    time_zone: str = ""
    """Zone of times without one, such as Europe/Berlin or UTC"""
    time_format: str = ""
    """How times are written that are not ISO, such as %d.%m.%Y %H:%M"""
    time_tolerance: float = 0.02
    """Largest deviation of a step from the usual one, a fraction of the step; others begin a new stretch"""
    decimal: str = ""
    """Decimal mark, . or , where the numbers do not tell"""
    missing: tuple[str, ...] = ()
    """Words or numbers that mark a missing value, beside nan, na, null, - and the like"""
    sort: bool = False
    """Put the rows in the order of their times first"""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.time_unit not in ("", "ms", "s", "min", "h", "d"):
            raise ValueError(f"--time-unit takes ms, s, min, h or d; got '{self.time_unit}'.")
        if self.decimal not in ("", ",", "."):
            raise ValueError(f"--decimal takes , or .; got '{self.decimal}'.")
        if not 0.0 < self.time_tolerance < 0.5:
            raise ValueError("--time-tolerance is a fraction of a step between 0 and 0.5.")


StartName = Literal["transport", "plain", "grid", "printed", "twin"]


@dataclass(frozen=True)
class PolicyDesign:
    """The kind and the size of a policy before it is trained."""

    start: StartName = "transport"
    """transport, plain (noise), grid, printed or twin"""
    encoder: Literal["moments", "mgf"] = "moments"
    """How the network sees the belief: moments or mgf"""
    parts: int = 1
    """Gaussians per release law of a plain network"""
    particles: int = 0
    """Particles per secret in its belief; 0 for Kalman filters"""
    proposal: Literal["guided", "bootstrap", "pooled"] = "guided"
    """How particles move: guided, bootstrap or pooled"""
    floor: float = 0.05
    """Least noise, in usual spreads of the output"""
    width: int = 64
    """Neurons per hidden layer"""
    points: int = 5
    """Points per axis of --start grid"""
    reach: tuple[float, ...] = ()
    """Half-width of that grid per shared axis, in its unit (12 spreads)"""

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if self.parts < 1 or self.particles < 0 or self.width < 1 or self.points < 2:
            raise ValueError("parts and width are at least 1, points at least 2, particles at least 0.")
        if not 0.0 < self.floor < 1.0:
            raise ValueError("floor is a share of the output's spread between 0 and 1, e.g. 0.05.")
        if not all(0.0 < number < math.inf for number in self.reach):
            raise ValueError("reach is a positive number per shared axis, in its unit, e.g. --reach 2.5 5.")
        if self.start == "transport" and (self.parts > 1 or self.encoder != "moments"):
            raise ValueError("parts and encoder are for --start plain; on transport there is one Gaussian.")
        if self.start == "twin" and (self.parts > 1 or self.encoder != "moments" or self.particles):
            raise ValueError("parts, encoder and particles are for other starts; a twin keeps no belief.")
        if self.start == "printed" and self.parts > 1:
            raise ValueError("parts is for --start plain; the printed actor has one Gaussian.")
        if self.proposal == "pooled" and not self.particles:
            raise ValueError("proposal pooled needs --particles, e.g. 81.")
        blind = self.particles and self.proposal == "bootstrap"
        if self.start == "grid" and (self.parts > 1 or self.encoder != "mgf" or not blind):
            raise ValueError("start grid needs --encoder mgf --proposal bootstrap and --particles, e.g. 81.")


@dataclass(frozen=True)
class ObjectiveWeights:
    """The weights of leakage and distortion in the objective."""

    privacy_weight: float = 80.0
    """Price of leakage, in cost units of a run per nat"""
    privacy_per_step: float = 0.0
    """Instead: cost units of one step per nat; 0: not used"""
    distortion_price: float = 0.2
    """Least price of distortion, cost units per unit and step"""
    distortion_limit: float = 4.0
    """Largest mean distortion per step, in the system's unit"""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not 0.0 <= self.privacy_weight < math.inf:
            raise ValueError("privacy_weight is a number of cost units per nat, e.g. 80; 0 asks for none.")
        if not 0.0 <= self.privacy_per_step < math.inf:
            raise ValueError("privacy_per_step is a number of cost units per step and nat, e.g. 1.6.")
        if not (0.0 < self.distortion_price < math.inf and 0.0 < self.distortion_limit < math.inf):
            raise ValueError("The price and the limit of distortion are positive, e.g. 0.2 and 4.")

    def price_of_a_nat(self, steps: int) -> float:
        """ρ, in cost units per nat, for runs of so many steps."""
        return self.privacy_per_step * steps or self.privacy_weight


@dataclass(frozen=True)
class TrainSettings:
    """How long and how fast to train."""

    updates: int = 250
    """Updates at most, each on new episodes"""
    episodes: int = 32
    """Episodes per update, shared evenly by the secrets"""
    learning_rate: float = 4e-3
    """Step size of Adam at the start (no unit)"""
    evaluate_every: int = 50
    """Updates between two evaluations on fresh episodes"""
    evaluation_episodes: int = 128
    """Fresh episodes per evaluation, the same ones every time"""
    patience: int = 3
    """Evaluations without progress before the end; 0: no end"""
    robust: bool = False
    """Train for other plants as well (several times as long)"""
    seed: int = 0
    """Seed of all randomness (no unit)"""
    learner: str = field(default="pathwise", metadata={"hidden": True})
    """Name of the learner: pathwise, ddpg, ddpg_printed, a2c or a2c_printed"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        counts = self.updates, self.episodes, self.evaluate_every, self.evaluation_episodes
        if min(counts) < 1 or self.patience < 0:
            raise ValueError("updates, episodes, evaluate_every and evaluation_episodes are at least 1.")
        if not self.learning_rate > 0.0:
            raise ValueError("The learning rate must be positive, e.g. 0.004.")
        LEARNERS.check(self.learner)
        if self.robust and not LEARNERS.header(self.learner).several_plants:
            able = " or ".join(LEARNERS.able("several_plants"))
            raise ValueError(f"robust training needs the learner {able}; the others learn on one plant.")


@dataclass(frozen=True)
class SweepSettings:
    """Several trainings instead of one, each in a folder of its own."""

    seeds: int = 1
    """Trainings per privacy weight, with seeds from --seed on"""
    privacy_weights: tuple[float, ...] = ()
    """Several privacy weights instead of one, in cost units of a run per nat"""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        if self.seeds < 1 or not all(0.0 <= weight < math.inf for weight in self.privacy_weights):
            raise ValueError("--seeds is at least 1, and --privacy-weights are numbers from 0 on.")
        if len(set(self.privacy_weights)) < len(self.privacy_weights):
            raise ValueError("Give each of --privacy-weights once.")

    @property
    def several(self) -> bool:
        """Whether there is more than one training."""
        return self.seeds > 1 or bool(self.privacy_weights)


@dataclass(frozen=True)
class Preset:
    """What is usual for a learner: every learner registers one in `veil.registry.LEARNERS`.

    A registered preset also has `build(training) -> Learner`.

    Attributes:
        starts: designs of the policy that it can train.
        several_plants: whether one policy can be trained for several plants at once.
        design: of the policy.
        training: how long and how fast.
        leakage: how that of a step is measured while learning.
    """

    starts: ClassVar[tuple[StartName, ...]] = ("transport", "plain")
    several_plants: ClassVar[bool] = False

    design: PolicyDesign = field(default_factory=PolicyDesign)
    training: TrainSettings = field(default_factory=TrainSettings)
    leakage: str = "estimate"


FamilyName = Literal["noise", "quantised", "displacement", "transport", "plain"]

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)

LEARNED: tuple[FamilyName, ...] = ("transport", "plain")

# Of families that are not learned: noise and steps in terms of the usual spread of the output, displacement
# as the share of the way to the barycentre.
STRENGTHS: dict[FamilyName, tuple[float, ...]] = {
    "noise": (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "quantised": (0.5, 1.0, 2.0, 4.0, 8.0),
    "displacement": (0.0, 0.4, 0.7, 0.85, 0.92, 0.96, 0.98, 1.0),
}

FAMILY_WORDS: dict[FamilyName, str] = {
    "noise": "Gaussian noise",
    "quantised": "quantised",
    "displacement": "displacement interpolation",
    "transport": "learned on transport",
    "plain": "learned from noise",
}


@dataclass(frozen=True)
class FrontierGoal:
    """One point to be measured.

    Attributes:
        kind: the family.
        value: its strength: a factor of the spread, a share of the way, or the privacy weight.
        before: privacy weights whose policies led to this one, each starting from the last.
    """

    kind: FamilyName
    value: float
    before: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.value:.12g}"

    @property
    def previous(self) -> "FrontierGoal | None":
        """The point whose policy this one starts from."""
        return FrontierGoal(self.kind, self.before[-1], self.before[:-1]) if self.before else None


@dataclass(frozen=True)
class FrontierSettings:
    """Which points of the frontier to measure, and how precisely."""

    weights: tuple[float, ...] = (2.0, 5.0, 12.0, 30.0, 80.0)
    """Privacy weights of the learned families, in cost units per nat"""
    kinds: tuple[FamilyName, ...] = FAMILIES
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
    def goals(self) -> list[FrontierGoal]:
        """All points in the order in which they are measured.

        Learned policies start from their neighbour's: on transport from perfect privacy downwards, from noise
        upwards.
        """
        goals = []
        for kind in FAMILIES:
            if kind not in self.kinds:
                continue
            goals += [FrontierGoal(kind, value) for value in STRENGTHS.get(kind, ())]
            if kind not in LEARNED:
                continue
            chain = sorted(self.weights, reverse=kind == "transport")
            goals += [FrontierGoal(kind, weight, tuple(chain[:place])) for place, weight in enumerate(chain)]
        return goals

"""The decision problem as a Gymnasium environment, for learners of other libraries (`pip install veil[gym]`).

`gymnasium.make("veil.environment:veil/Platoon-v0")` imports this module, which registers the names, and makes
the environment. An action is a kernel, as offset and noise per secret. An observation is what is public, and
a summary of the belief. The secret and the state are not observed: a kernel is decided before the owner reads
its sensors.
"""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float

from veil import systems
from veil.beliefs.base import Belief, FilterSpec
from veil.beliefs.kalman import KalmanSpec
from veil.laws import Gaussian, Kernel
from veil.leakage.per_step import Measure
from veil.learners.design import typical_scaling
from veil.policies.base import Policy, Time
from veil.policies.geometry import nearest
from veil.policies.scaling import Limits, Scaling
from veil.problem import EpisodeState, Objective, Outcome, Problem
from veil.systems.base import System
from veil.systems.scenarios import nominal
from veil.types import External, Features, Key, Secret, State, Vector, as_float32

SYSTEMS = ("Platoon", "Gain")


for _name in SYSTEMS:
    gymnasium.register(f"veil/{_name}-v0", entry_point="veil.environment:Sharing", kwargs={"system": _name})


class ActionPolicy(Policy):
    """Gaussian around the output plus an offset per secret, with a noise per secret and axis.

    Attributes:
        system: the owner's model.
        scaling: units.
        limits: what an action of ±1 means.
        action: per secret, first the offsets, then the noises, each in [−1, 1]: the ends are the limits of
            the offset, and the least and the largest noise on a logarithmic scale.
        tracker: the belief that the policy keeps.
    """

    system: System
    scaling: Scaling
    limits: Limits
    action: Float[Array, " A"]
    tracker: FilterSpec = KalmanSpec()

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """None: whoever gives the action has looked already."""
        del external, time
        return jnp.zeros(0, belief.log_masses.dtype)

    def kernel(self, features: Features, external: External, time: Time) -> "ActionKernel":
        """As the action says."""
        del features, external, time
        count, size = self.system.prior.log_masses.shape[0], len(self.system.shared_fields)
        offsets, noises = jnp.split(jnp.clip(self.action, -1.0, 1.0).reshape(count, 2 * size), 2, axis=1)
        unit, limits = self.scaling.output.spread[None, :], self.limits
        share = 0.5 * (noises + 1.0)
        sds = limits.low * jnp.exp(share * jnp.log(limits.high / limits.low))
        return ActionKernel(self.system, unit * limits.offset * offsets, unit * sds)


class ActionKernel(Kernel):
    """Offsets and noises per secret, whatever the state."""

    system: System
    offsets: Float[Array, "K Y"]
    sds: Float[Array, "K Y"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        return Gaussian(self.system.output(state) + self.offsets[index], jnp.diag(self.sds[index]))


_UNITS = 0x6E4  # keeps the key of the units apart from those of episodes

_FAR = np.float32(50.0)  # observations are of size one; none is ever beyond this


class Sharing(gymnasium.Env[np.ndarray, np.ndarray]):
    """Share a system's state for some steps; the reward is what the objective charges, negated.

    An action has K·2m numbers in [−1, 1]: per secret the m offsets of the release, then the m noises on a
    logarithmic scale between the limits. An observation has the mass of each secret, mean and sd of the
    state given each (in usual units), the external input and t/T. `info` keeps leakage (nats), cost and
    distortion apart.
    """

    def __init__(
        self,
        system: str | System = "Platoon",
        steps: int = 50,
        privacy_weight: float = 80.0,
        distortion_price: float = 0.2,
        distortion_limit: float = 4.0,
        leakage: str = "estimate",
    ):
        """Make the environment and compile its two programs at the first use.

        Args:
            system: by name, or one of your own.
            steps: T, releases per episode.
            privacy_weight: ρ, cost units per nat.
            distortion_price: λ, cost units per unit of distortion and step.
            distortion_limit: D̂ per step, a constant in the reward.
            leakage: how that of a step is measured.
        """
        if isinstance(system, str) and system not in SYSTEMS:
            raise ValueError(f"system must be one of {', '.join(SYSTEMS)} or a System; got {system!r}.")
        with jax.enable_x64(False):
            made = as_float32(getattr(systems, system)() if isinstance(system, str) else system)
            objective = Objective(privacy_weight, distortion_price, distortion_limit)
            problem = Problem(nominal(made), steps, objective, Measure(leakage))
            count, size = problem.secrets, len(made.shared_fields)
            policy = ActionPolicy(
                made,
                typical_scaling(made, steps, key=jr.key(_UNITS)),
                Limits(),
                jnp.zeros(2 * count * size),
                KalmanSpec(),
            )
        self.problem, self.policy, self.steps = problem, policy, steps
        self.action_space = spaces.Box(-1.0, 1.0, (2 * count * size,), np.float32)
        numbers = count * (1 + 2 * len(made.state_fields)) + len(made.input_fields) + 1
        self.observation_space = spaces.Box(-_FAR, _FAR, (numbers,), np.float32)
        self._play: EpisodeState | None = None
        self._seed = self._key = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode with a secret from the prior; the same seed gives the same episodes."""
        super().reset(seed=seed)
        masses = np.exp(np.asarray(self.problem.scenario.plant.prior.log_masses, float))
        index = int(self.np_random.choice(masses.size, p=masses / masses.sum()))
        turn = int(self.np_random.integers(1 << 20)) * masses.size + index  # secrets take turns by it
        with jax.enable_x64(False):
            self._seed, self._key = (
                jnp.asarray(turn, jnp.int32),
                jr.key(int(self.np_random.integers(1 << 31))),
            )
            self._play, seen = _begin(self.problem, self.policy, self._seed, self._key)
        return _observation(seen), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Share once by this kernel."""
        if self._play is None or self._seed is None or self._key is None:
            raise RuntimeError("Call reset() before step(), and again after the end of an episode.")
        with jax.enable_x64(False):
            given = jnp.asarray(np.asarray(action, np.float32))
            play, seen, outcome = _step(self.problem, self.policy, self._play, given, self._seed, self._key)
        charged = {name: float(getattr(outcome, name)) for name in ("leakage", "cost", "distortion")}
        reward, ended = -float(self.problem.objective.total(outcome)), int(play.situation.time) > self.steps
        self._play = None if ended else play
        return _observation(seen), reward, ended, False, charged


@eqx.filter_jit
def _begin(problem: Problem, policy: ActionPolicy, number: Array, key: Key) -> tuple[EpisodeState, Vector]:
    play = problem.reset(policy, number, key=jr.fold_in(key, 0))
    return play, _observed(policy, play.belief, play.situation.external, play.situation.time)


@eqx.filter_jit
def _step(
    problem: Problem, policy: ActionPolicy, play: EpisodeState, action: Array, number: Array, key: Key
) -> tuple[EpisodeState, Vector, Outcome]:
    policy = eqx.tree_at(lambda one: one.action, policy, action)
    play, _, outcome = problem.step(policy, play, seed=number, key=jr.fold_in(key, play.situation.time))
    return play, _observed(policy, play.belief, play.situation.external, play.situation.time), outcome


def _observed(policy: ActionPolicy, belief: Belief, external: External, time: Array) -> Vector:
    """Masses, means and sds in usual units, external input, and the share of the horizon that is over."""
    laws, unit = belief.moments(), policy.scaling.state
    means = jax.vmap(unit)(laws.mean)
    sds = jnp.sqrt(jnp.sum(laws.scale**2, axis=2)) / unit.spread[None, :]
    public = policy.scaling.public(external, time - 1)
    return jnp.concatenate([jnp.exp(belief.log_masses), means.reshape(-1), sds.reshape(-1), public])


def _observation(seen: Array) -> np.ndarray:
    return np.clip(np.asarray(seen, np.float32), -_FAR, _FAR)

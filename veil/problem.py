"""The particle-belief MDP.

Its state is the belief, the external input and the time. Its action is a kernel, which the policy chooses. A
step charges leakage, cost and distortion; the objective weighs them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.attacks.kalman import MisspecifiedPolicy
from veil.beliefs.base import Belief, FilterSpec
from veil.leakage.per_step import Measure
from veil.policies.base import Policy, sensed
from veil.policies.twin import twin_of
from veil.step import StepOutput, WorldState, begin, first_belief, proceed, share
from veil.systems.base import Scenario, System, require_rows
from veil.systems.scenarios import nominal
from veil.types import Key, Scalar


class Outcome(eqx.Module):
    """What releases charged: of one step, or of many (batched).

    Attributes:
        leakage: I(Θ; Y_t | h_t) under the judging belief, nats.
        cost: r(θ, x, x', y, w, t), its parts weighted and added up.
        distortion: d(x, y), in units of the system.
        log_choice: log-probability of what was discrete in the draw, for score-function gradients.
    """

    leakage: Float[Array, "*shape"]
    cost: Float[Array, "*shape"]
    distortion: Float[Array, "*shape"]
    log_choice: Float[Array, "*shape"]


class Objective(eqx.Module):
    """ρ·leakage + cost + λ·(d − D̂), added up over an episode.

    Attributes:
        privacy_weight: ρ, cost units per nat: what a whole run may cost more to leak one nat less. To keep
            its share of the cost per step in runs of another length, make it grow with their steps.
        distortion_price: floor of λ, cost units per unit of distortion and step; never below it, because a
            price of zero would waste distortion wherever the limit is not felt.
        distortion_limit: D̂, per step.
    """

    privacy_weight: Scalar = eqx.field(default=80.0, converter=jnp.asarray)
    distortion_price: Scalar = eqx.field(default=0.2, converter=jnp.asarray)
    distortion_limit: Scalar = eqx.field(default=4.0, converter=jnp.asarray)

    def total(self, outcome: Outcome, price: Scalar | None = None) -> Float[Array, "*shape"]:
        """Stage totals at this price of distortion, the floor if none is given."""
        price = self.distortion_price if price is None else price
        paid = price * (outcome.distortion - self.distortion_limit)
        return self.privacy_weight * outcome.leakage + outcome.cost + paid


class EpisodeState(eqx.Module):
    """The state of an episode before its next release."""

    belief: Belief  # the policy's
    leakage_belief: Belief | None  # another one that leakage is measured under; None for the policy's own
    situation: WorldState


class Problem(eqx.Module):
    """A scenario to share in, for how long, and what counts.

    Attributes:
        scenario: the plant, and what the owner takes its secret for.
        steps: T, releases per episode.
        objective: the weights.
        measure: how the leakage of a step is measured.
        leakage_belief: the belief that it is measured under, about the plant itself. Without one it is the
            policy's own, which is right where that is accurate and about this very plant.
    """

    scenario: Scenario
    steps: int = eqx.field(default=50, static=True)
    objective: Objective = eqx.field(default_factory=Objective)
    measure: Measure = eqx.field(default_factory=Measure)
    leakage_belief: FilterSpec | None = None

    def __check_init__(self):
        """Refuse episodes that are longer than the series of the plant."""
        require_rows(self.scenario.plant, self.steps)

    @property
    def secrets(self) -> int:
        """The number of secrets, which the episodes use in turn."""
        return self.scenario.believed.shape[0]

    def reset(self, policy: Policy, number: Int[Array, ""], *, key: Key) -> EpisodeState:
        """The start of an episode.

        Args:
            policy: the policy in force.
            number: of the episode: it selects the secret, and is the public seed.
            key: private randomness.
        """
        policy = sensed(policy)
        belief_key, error_key, start_key = jr.split(key, 3)
        index = number % self.secrets
        believed = self.scenario.taken_for(index, key=error_key)
        secret = self.scenario.plant.prior.secrets[index]
        situation = begin(self.scenario.plant, policy, secret, key=start_key, believed=believed)
        spec, plant = self.leakage_belief, self.scenario.plant
        leakage_belief = None if spec is None else spec.start(plant, key=belief_key)
        return EpisodeState(first_belief(policy, number), leakage_belief, situation)

    def step(
        self, policy: Policy, play: EpisodeState, *, seed: Int[Array, ""], key: Key
    ) -> tuple[EpisodeState, StepOutput, Outcome]:
        """One step: share, and move the system.

        Args:
            policy: the policy in force.
            play: the state of the episode.
            seed: the public seed of the episode.
            key: private randomness.
        """
        policy = sensed(policy)
        draw_key, world_key, measure_key, belief_key = jr.split(key, 4)
        plant, now = self.scenario.plant, play.situation
        belief, stage = share(policy, play.belief, now, seed=seed, key=draw_key)
        following = proceed(plant, policy, now, stage, key=world_key)
        leakage_belief, leakage = self._measured(policy, play, stage, measure_key, belief_key)
        outcome = Outcome(
            leakage,
            plant.total_cost(now.secret, now.state, following.state, stage.shared, now.external),
            plant.distortion(now.state, stage.shared),
            stage.log_choice,
        )
        return EpisodeState(belief, leakage_belief, following), stage, outcome

    def _measured(
        self, policy: Policy, play: EpisodeState, stage: StepOutput, measure_key: Key, belief_key: Key
    ) -> tuple[Belief | None, Scalar]:
        """What the release tells, and the belief after it.

        A twin is charged nothing: what it tells is at most the excess log-loss of its self-models, whatever
        function of the noise it releases.
        """
        if twin_of(policy) is not None:
            return play.leakage_belief, jnp.zeros((), stage.shared.dtype)
        if play.leakage_belief is None:
            return None, self.measure(stage.belief, stage.decision, key=measure_key)
        now, plant = play.situation, self.scenario.plant
        seen = MisspecifiedPolicy(policy, plant, self.scenario.believed)
        kernel = seen.kernel(stage.features, now.external, now.time)
        leakage = self.measure(play.leakage_belief, kernel, key=measure_key)
        leakage_belief, _ = play.leakage_belief.update(
            plant, kernel, now.external, stage.shared, key=belief_key
        )
        return leakage_belief, leakage

    def episode(self, policy: Policy, number: Int[Array, ""], *, key: Key) -> Outcome:
        """Play one episode; the outcome is batched [T].

        Args:
            policy: the policy in force.
            number: of the episode, see `reset`.
            key: private randomness.
        """
        start_key, run_key = jr.split(key)

        def step(play: EpisodeState, step_key: Key) -> tuple[EpisodeState, Outcome]:
            play, _, outcome = self.step(policy, play, seed=number, key=step_key)
            return play, outcome

        first = self.reset(policy, number, key=start_key)
        return jax.lax.scan(step, first, jr.split(run_key, self.steps))[1]

    def episodes(self, policy: Policy, numbers: Int[Array, " B"], *, key: Key) -> Outcome:
        """Play several episodes; the outcome is batched [B, T].

        Consecutive episodes, one per secret, use the same noise.

        Args:
            policy: the policy in force.
            numbers: of the episodes, see `reset`.
            key: private randomness.
        """

        def one(number: Int[Array, ""]) -> Outcome:
            return self.episode(policy, number, key=jr.fold_in(key, number // self.secrets))

        return jax.vmap(one)(numbers)


def problem(system: System, steps: int = 50, objective: Objective | None = None) -> Problem:
    """The problem of sharing in the world as modelled; the policy's own belief gives the leakage.

    Args:
        system: the model.
        steps: T, releases per episode.
        objective: the weights of leakage and distortion.
    """
    return Problem(nominal(system), steps, Objective() if objective is None else objective)

"""Advantage actor-critic with a Dirichlet actor: the discretised benchmark that the paper compares with.

The action of a step is a whole kernel on a grid, drawn row by row from Dirichlet laws whose means are the
rows of the policy; the critic sees what the policy sees. Nothing is differentiated through the episode.

Let F(K) = charge(K) + γ Σ_y p(y | K) V(next | y), where a kernel K is charged what the belief expects of it.
There are two ways to credit the rows of the kernel that was drawn.

- "plain": their scores count with δ = charge(K) + γ V(next) − V(now), next being what the release led to.
- "taylor": let m be the mean kernel and G the slope of F there. E⟨G, K⟩ = ⟨G, m⟩, whose derivative in the
  actor is known without drawing. What is left of the advantage over the mean kernel,
  F(K) − F(m) − ⟨G, K − m⟩, counts by the scores, less its mean over the other episodes. None of F(m), G and
  that mean depends on the coins of the step, so this estimates the same gradient with far less noise.

Rows of cells that hold no particle, nor the true state, influence nothing: their scores have mean zero and
are independent of all that is charged, so they are left out.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int

from veil.learners.base import Family, Learner, Metrics, Progress
from veil.learners.lookahead import Critic, Table, Transition, charged, followed, occupied, staged
from veil.learners.pathwise import CLIP, summary
from veil.policies.base import LearnedPolicy
from veil.policies.grid import Exploring, GridPolicy, TableKernel, dirichlet_log_density
from veil.problem import EpisodeState, Outcome, Problem
from veil.registry import LEARNERS
from veil.settings import PolicyDesign, Preset, TrainSettings
from veil.types import Key, Scalar

Credit = Literal["taylor", "plain"]

Part = TypeVar("Part", bound=eqx.Module)


class Memory(eqx.Module):
    """What is remembered beside the policy: the critic, and the optimisers of both."""

    critic: Critic
    actor_steps: optax.OptState
    critic_steps: optax.OptState


class ScoredStep(NamedTuple):
    """What a step gives to learn from; batched [B, T].

    Attributes:
        transition: before the release.
        log_rows: of the kernel that acted.
        used: the rows that something depends on.
        slope: G.
        charge: of the kernel that acted.
        following: Σ_y p(y | K) V(next | y) for the kernel that acted; not computed for plain credit, and
            nor are `slope` and `surplus`.
        surplus: F(K) − F(m) − ⟨G, K − m⟩.
        value: V(now).
        outcome: what the draw was charged, for the log.
    """

    transition: Transition
    log_rows: Table
    used: Bool[Array, "K C"]
    slope: Table
    charge: Scalar
    following: Scalar
    surplus: Scalar
    value: Scalar
    outcome: Outcome


class A2c(Learner):
    """Advantage actor-critic: Adam on the actor, the critic and their common encoder.

    Attributes:
        episodes: per update, divided evenly among the secrets.
        updates: number over which the step sizes fall, by `fade`.
        learning_rate: of the actor and the encoder at the start.
        critic_rate: of the critic at the start.
        concentration: of the Dirichlet rows: the larger, the nearer to the mean kernel.
        discount: γ, the discount factor.
        trace: of the critic's targets: 0 uses its own value after one step, 1 the whole episode.
        credit: how the return is attributed to the rows of a kernel.
        width: of the critic's two hidden layers.
        fade: share of the step sizes that is left at the end; 1 keeps them as they are.
    """

    episodes: int = eqx.field(default=8, static=True)
    updates: int = eqx.field(default=250, static=True)
    learning_rate: float = eqx.field(default=4e-3, static=True)
    critic_rate: float = eqx.field(default=4e-3, static=True)
    concentration: Scalar = eqx.field(default=5000.0, converter=jnp.asarray)
    discount: Scalar = eqx.field(default=1.0, converter=jnp.asarray)
    trace: Scalar = eqx.field(default=0.9, converter=jnp.asarray)
    credit: Credit = eqx.field(default="taylor", static=True)
    width: int = eqx.field(default=64, static=True)
    fade: float = eqx.field(default=0.02, static=True)

    def __check_init__(self):
        if self.credit not in get_args(Credit):
            raise ValueError(f"credit must be one of {', '.join(get_args(Credit))}; got {self.credit!r}.")

    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """The policy as given, a random critic, and the price at its floor, where it stays."""
        if not (isinstance(policy, GridPolicy) and policy.cells is not None):
            raise ValueError("A2C learns kernels between grids. Begin with a discrete_policy.")
        if len(family) != 1 or family[0].leakage_belief is not None:
            raise ValueError("A2C learns on one problem, scored by the policy's own belief.")
        inputs = policy.network.encoder.size + len(policy.system.input_fields) + 1
        dtype = policy.scaling.steps.dtype
        network = eqx.nn.MLP(inputs, 1, self.width, 2, jax.nn.silu, dtype=dtype, key=key)
        critic = Critic(network, family[0].steps)
        memory = Memory(
            critic,
            self._optimiser(self.learning_rate).init(eqx.filter(policy.network, eqx.is_inexact_array)),
            self._optimiser(self.critic_rate).init(eqx.filter(critic, eqx.is_inexact_array)),
        )
        return Progress(policy, family[0].objective.distortion_price, jnp.asarray(0, jnp.int32), memory)

    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """Play episodes, compute the advantage of every step, and make one step of each optimiser."""
        policy, memory = progress.policy, progress.memory
        assert isinstance(policy, GridPolicy) and isinstance(memory, Memory)
        scored, weights = self.play(family[0], policy, memory.critic, progress.updates, key=key)
        parts = policy.network, memory.critic
        slopes, errors = eqx.filter_grad(self.loss, has_aux=True)(parts, policy, scored, weights)
        network, actor_steps = self._step(self.learning_rate, parts[0], slopes[0], memory.actor_steps)
        critic, critic_steps = self._step(self.critic_rate, parts[1], slopes[1], memory.critic_steps)
        metrics = summary(family, [scored.outcome]) | {
            "gradient": optax.tree.norm(slopes[0]),
            "critic_error": jnp.sqrt(jnp.mean(weights @ errors**2)),
            "price": progress.price,
        }
        policy = eqx.tree_at(lambda one: one.network, policy, network)
        memory = Memory(critic, actor_steps, critic_steps)
        return Progress(policy, progress.price, progress.updates + 1, memory), metrics

    def play(
        self, problem: Problem, policy: GridPolicy, critic: Critic, updates: Int[Array, ""], *, key: Key
    ) -> tuple[ScoredStep, Float[Array, " B"]]:
        """Play episodes [B, T] with drawn kernels; returns them and their weights, which sum to one.

        Args:
            problem: the problem to play.
            policy: the actor.
            critic: values of the states.
            updates: number of updates made, from which the numbers of the episodes follow.
            key: randomness of the episodes.
        """
        rounds = -(-self.episodes // problem.secrets)
        rows = rounds * problem.secrets

        def episode(number: Int[Array, ""]) -> ScoredStep:
            coins, start_key, run_key = jr.split(jr.fold_in(key, number), 3)
            actor = Exploring(policy, self.concentration, coins)

            def step(play: EpisodeState, step_key: Key) -> tuple[EpisodeState, ScoredStep]:
                own_key, noise_key = jr.split(step_key)
                following, stage, outcome = problem.step(actor, play, seed=number, key=own_key)
                kernel = stage.decision.kernel
                assert isinstance(kernel, TableKernel)
                transition = staged(policy, problem.objective, play, kernel, seed=number, key=noise_key)
                home = number % problem.secrets, kernel.cell(play.situation.state)
                used = occupied(transition, kernel.cells.shape[0]).at[home].set(True)
                scored = self._score(problem, policy, critic, transition, kernel.log_rows)
                return following, ScoredStep(transition, kernel.log_rows, used, *scored, outcome)

            first = problem.reset(actor, number, key=start_key)
            return jax.lax.scan(step, first, jr.split(run_key, problem.steps))[1]

        masses = jnp.exp(problem.scenario.plant.prior.log_masses)
        numbers = updates * rows + jnp.arange(rows, dtype=jnp.int32)
        return jax.vmap(episode)(numbers), jnp.tile(masses, rounds) / rounds

    def _score(
        self, problem: Problem, policy: GridPolicy, critic: Critic, transition: Transition, log_rows: Table
    ) -> tuple[Table, Scalar, Scalar, Scalar, Scalar]:
        """Slope, charge, following, surplus and value."""

        def whole(table: Table) -> tuple[Scalar, tuple[Scalar, Scalar]]:
            charge = charged(problem.objective, transition, table)
            following = followed(policy, critic, transition, table)
            return charge + self.discount * following, (charge, following)

        features = policy.features(transition.belief, transition.external, transition.time)
        drawn = jnp.exp(log_rows)
        value = critic(features, transition.external, transition.time, policy.scaling)
        if self.credit == "plain":  # asks for nothing else, and the values of all releases are dear
            nothing, charge = jnp.zeros_like(value), charged(problem.objective, transition, drawn)
            return jnp.zeros_like(drawn), charge, nothing, nothing, value
        middle = policy.table(features, transition.external, transition.time)
        mean = jnp.exp(middle.log_rows)
        (usual, _), slope = jax.value_and_grad(whole, has_aux=True)(mean)
        made, (charge, following) = whole(drawn)
        surplus = made - usual - jnp.sum(slope * (drawn - mean))
        return slope, charge, following, surplus, value

    def loss(
        self,
        parts: tuple[eqx.Module, Critic],
        policy: GridPolicy,
        scored: ScoredStep,
        weights: Float[Array, " B"],
    ) -> tuple[Scalar, Float[Array, "B T"]]:
        """A number whose derivatives train the actor and the critic.

        Its derivative in the actor estimates that of Σ_t F without bias. In the critic it is that of the
        squared error.

        Args:
            parts: the actor's network and the critic.
            policy: the policy that the network belongs to.
            scored: the steps played.
            weights: of the episodes.
        """
        network, critic = parts
        policy = eqx.tree_at(lambda one: one.network, policy, network)
        advantages = _above_others(scored.surplus) if self.credit == "taylor" else self._temporal(scored)

        def one(step: ScoredStep, advantage: Scalar, target: Scalar) -> tuple[Scalar, Scalar]:
            transition = step.transition
            features = policy.features(transition.belief, transition.external, transition.time)
            mean = jnp.exp(policy.table(features, transition.external, transition.time).log_rows)
            scores = dirichlet_log_density(step.log_rows, self.concentration * mean)
            actor = advantage * jnp.sum(jnp.where(step.used, scores, 0.0))
            if self.credit == "taylor":
                actor = actor + jnp.sum(step.slope * mean)
            return actor, target - critic(features, transition.external, transition.time, policy.scaling)

        actor, errors = jax.vmap(jax.vmap(one))(scored, advantages, self._targets(scored))
        return jnp.sum(weights @ (actor + errors**2)), errors

    def _temporal(self, scored: ScoredStep) -> Float[Array, "B T"]:
        """δ, with the values of the states that were reached."""
        return scored.charge + self.discount * _reached(scored) - scored.value

    def _targets(self, scored: ScoredStep) -> Float[Array, "B T"]:
        """What the critic should have said."""

        def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            charge, following = step
            target = charge + self.discount * ((1.0 - self.trace) * following + self.trace * later)
            return target, target

        following = scored.following if self.credit == "taylor" else _reached(scored)
        steps = scored.charge.T, following.T
        last = jnp.zeros_like(scored.charge[:, 0])
        return jax.lax.scan(back, last, steps, reverse=True)[1].T

    def _optimiser(self, rate: float) -> optax.GradientTransformation:
        """Clipped Adam with cosine decay; a step that is not a number is left out."""
        schedule = optax.cosine_decay_schedule(rate, self.updates, self.fade)
        steps = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(schedule))
        return optax.apply_if_finite(steps, max_consecutive_errors=self.updates)

    def _step(
        self, rate: float, part: Part, slopes: Part, state: optax.OptState
    ) -> tuple[Part, optax.OptState]:
        trained = eqx.filter(part, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # optax takes powers of floats with integer exponents
            steps, state = self._optimiser(rate).update(slopes, state, trained)  # pyright: ignore[reportArgumentType]
        return eqx.apply_updates(part, steps), state


def _reached(scored: ScoredStep) -> Float[Array, "B T"]:
    """Values of the states that were reached; nothing follows the last."""
    return jnp.pad(scored.value[:, 1:], ((0, 0), (0, 1)))


def _above_others(values: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """Less the mean over the other episodes at the same step: they share no coin, so nothing is biased."""
    count = values.shape[0]
    return (values - jnp.mean(values, axis=0, keepdims=True)) * (count / max(count - 1, 1))


@LEARNERS.register("a2c")
@dataclass(frozen=True)
class A2cPreset(Preset):
    """The paper's discrete benchmark, on grids."""

    starts = ("grid",)

    design: PolicyDesign = field(
        default_factory=lambda: PolicyDesign("grid", "mgf", particles=81, proposal="bootstrap")
    )
    training: TrainSettings = field(default_factory=lambda: TrainSettings(150, 8, 4e-3, 50, learner="a2c"))

    def build(self, training: TrainSettings) -> A2c:
        """The learner with these settings."""
        return A2c(training.episodes, training.updates, training.learning_rate)


@LEARNERS.register("a2c_printed")
@dataclass(frozen=True)
class PrintedA2cPreset(Preset):
    """The paper's discrete benchmark with its predecessor's credit and the printed step sizes."""

    starts = ("grid",)

    design: PolicyDesign = field(
        default_factory=lambda: PolicyDesign("grid", "mgf", particles=81, proposal="bootstrap")
    )
    training: TrainSettings = field(
        default_factory=lambda: TrainSettings(100, 32, 1e-3, 25, 64, 0, learner="a2c_printed")
    )

    def build(self, training: TrainSettings) -> A2c:
        """The learner with these settings; the critic looks one step ahead, and no step size falls."""
        pace = training.episodes, training.updates, training.learning_rate, training.learning_rate
        return A2c(*pace, concentration=100.0, trace=0.0, credit="plain", fade=1.0)

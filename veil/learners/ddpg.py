"""The paper's learner: deep deterministic policy gradient, with a replay of beliefs.

The actor is the policy, the critic sees the features of the belief, what the owner sees, and the release
law at the true secret and state. The belief is kept in the replay, so that its encoder learns by the critic's
loss. As printed, the critic stands for all charges. But the leakage of a release depends on the kernel at
every secret and state, which the printed critic cannot see: the gradient of the largest term is not there.
`direct` repairs that: leakage and distortion of the present release are differentiated as they are, and the
critic stands for what comes later.

Two learners are registered. `ddpg_printed` is the paper's: its actor has no limits, its particles are
resampled all together, its step sizes do not fall. `ddpg` is repaired, and its actor keeps within limits.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.learners.base import Family, Learner, Metrics, Progress, dual_ascent
from veil.learners.critic import Critic, Observation, described
from veil.learners.design import scaling_of
from veil.learners.experience import Replay, Step, explored
from veil.learners.pathwise import summary
from veil.policies.base import LearnedPolicy, sensed
from veil.policies.networks import Encoder
from veil.problem import Problem
from veil.registry import LEARNERS
from veil.settings import PolicyDesign, Preset, TrainSettings
from veil.types import Key, Scalar, Vector


class Charges(eqx.Module):
    """What releases charge, in units of the privacy weight, so that all numbers are of size one."""

    problem: Problem
    policy: LearnedPolicy
    price: Scalar
    discount: float = eqx.field(static=True)
    direct: bool = eqx.field(static=True)
    printed: bool = eqx.field(default=False, static=True)

    @property
    def unit(self) -> Scalar:
        """Cost units per nat, or one where leakage has no price."""
        weight = self.problem.objective.privacy_weight
        return jnp.where(weight > 0.0, weight, 1.0)

    def value(
        self, critic: Critic, encoder: Encoder, now: Step, action: Float[Array, "B A"]
    ) -> Float[Array, " B"]:
        """What the critic says, batched."""
        scaling = scaling_of(self.policy)

        def one(belief: Belief, observation: Observation, action: Vector) -> Scalar:
            return critic(encoder(belief, scaling), observation, action, scaling)

        return jax.vmap(one)(now.belief, now.observation, action)

    def present(self, network: Any, now: Step, *, key: Key) -> tuple[Float[Array, " B"], Float[Array, "B A"]]:
        """What the present release charges and is differentiated, under this network, and its law."""
        policy = eqx.tree_at(lambda one: one.network, self.policy, network)
        system, scaling, objective = policy.system, scaling_of(policy), self.problem.objective

        def one(belief: Belief, observation: Observation, key: Key) -> tuple[Scalar, Vector]:
            features = policy.features(belief, observation.external, observation.time)
            kernel = sensed(policy).kernel(features, observation.external, observation.time)
            law, output = kernel(observation.secret, observation.state), system.output(observation.state)
            action = described(law, output, scaling, self.printed)
            if not self.direct:
                return jnp.zeros_like(self.price), action
            measure_key, draw_key = jr.split(key)
            leakage = self.problem.measure(belief, kernel, key=measure_key)
            shared = law.sample(jr.normal(draw_key, (law.noise_size,), output.dtype))
            paid = self.price * system.distortion(observation.state, shared)
            return (objective.privacy_weight * leakage + paid) / self.unit, action

        return jax.vmap(one)(now.belief, now.observation, jr.split(key, now.weight.shape[0]))

    def target(self, slow: tuple[Any, Critic], now: Step, after: Step, *, key: Key) -> Float[Array, " B"]:
        """What the critic should have said: what was charged, and what is to come by the slow networks."""
        objective, outcome, (network, critic) = self.problem.objective, now.outcome, slow
        charged = outcome.cost
        if not self.direct:
            charged += objective.privacy_weight * outcome.leakage + self.price * outcome.distortion
        present, action = self.present(network, after, key=key)
        later = present + self.value(critic, network.encoder, after, action)
        return charged / self.unit + self.discount * (1.0 - now.last) * later


class Memory(eqx.Module):
    """All that the learner needs beside the policy."""

    replay: Replay[Step]
    critic: Critic
    slow_network: Any  # target of the policy's network, encoder included
    slow_critic: Critic
    actor_steps: Any  # of the optimiser
    critic_steps: Any


class Ddpg(Learner):
    """Deterministic policy gradient on Gaussian kernels.

    Attributes:
        episodes: played per update, shared evenly by the secrets.
        updates: over which exploration falls to a tenth, and the step sizes by `fade`.
        learning_rate: step size of actor and critic at the start.
        direct: differentiate the charges of the present release, and let the critic stand for the future.
        gradients: gradient steps per update.
        batch: transitions per gradient step.
        discount: of the future, per step.
        follow: share of the way that target networks go per gradient step.
        capacity: episodes in the replay.
        explore: perturbation of the mean, in usual spreads of the output.
        width: neurons per hidden layer of the critic.
        warmup: episodes played before the first gradient step.
        printed: whether the critic sees (θ, s, x, μ, Σ) as they are and no more, see `veil.learners.critic`.
        fade: share of the step size that is left at the end; 1 keeps it as it is.
        clip: largest norm of a gradient.
        dual_rate: of the price of distortion, see `dual_ascent`; 0 keeps it fixed as printed.
    """

    episodes: int = eqx.field(default=8, static=True)
    updates: int = eqx.field(default=80, static=True)
    learning_rate: float = eqx.field(default=3e-3, static=True)
    direct: bool = eqx.field(default=True, static=True)
    gradients: int = eqx.field(default=50, static=True)
    batch: int = eqx.field(default=32, static=True)
    discount: float = eqx.field(default=0.99, static=True)
    follow: float = eqx.field(default=5e-3, static=True)
    capacity: int = eqx.field(default=256, static=True)
    explore: float = eqx.field(default=0.1, static=True)
    width: int = eqx.field(default=128, static=True)
    warmup: int = eqx.field(default=0, static=True)
    printed: bool = eqx.field(default=False, static=True)
    fade: float = eqx.field(default=0.1, static=True)
    clip: float = eqx.field(default=1.0, static=True)
    dual_rate: Scalar = eqx.field(default=0.1, converter=jnp.asarray)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Clipped Adam; a step that is not a number is left out."""
        every = self.updates * self.gradients
        schedule = optax.cosine_decay_schedule(self.learning_rate, every, self.fade)
        steps = optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(schedule))
        return optax.apply_if_finite(steps, max_consecutive_errors=every)

    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """The policy as it is, a random critic, an empty replay."""
        (problem,) = one(family)
        network, scaling = policy.network, scaling_of(policy)
        critic_key, play_key = jr.split(key)
        critic = Critic.start(network.encoder.size, scaling, self.width, self.printed, key=critic_key)
        shapes = eqx.filter_eval_shape(self.play, problem, policy, jnp.asarray(0, jnp.int32), key=play_key)
        like = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape[1:]), leaf.dtype), shapes)
        actor, encoder = parted(network)
        memory = Memory(
            replay=self._warm(Replay.empty(like, self.capacity), problem, policy, key=play_key),
            critic=critic,
            slow_network=network,
            slow_critic=critic,
            actor_steps=self.optimiser.init(eqx.filter(actor, eqx.is_inexact_array)),
            critic_steps=self.optimiser.init(eqx.filter((critic, encoder), eqx.is_inexact_array)),
        )
        return Progress(policy, problem.objective.distortion_price, jnp.asarray(0, jnp.int32), memory)

    def _warm(
        self, replay: Replay[Step], problem: Problem, policy: LearnedPolicy, *, key: Key
    ) -> Replay[Step]:
        """The replay after the first episodes, from which nothing is learned yet."""
        play, none = eqx.filter_jit(self.play), jnp.asarray(0, jnp.int32)
        for number in range(-(-self.warmup // self.episodes)):
            replay = replay.add(play(problem, policy, none, key=jr.fold_in(key, number)))
        return replay

    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """Play with perturbed kernels, remember, make gradient steps, move the price."""
        (problem,) = one(family)
        play_key, learn_key = jr.split(key)
        steps = self.play(problem, progress.policy, progress.updates, key=play_key)
        before = progress.memory
        assert isinstance(before, Memory)  # given by `begin`
        memory = eqx.tree_at(lambda one: one.replay, before, before.replay.add(steps))
        network, memory, losses = self.learn(problem, progress, memory, key=learn_key)
        policy = eqx.tree_at(lambda one: one.network, progress.policy, network)
        metrics = summary(family, [steps.outcome]) | losses | {"price": progress.price}
        price = dual_ascent(progress.price, metrics["distortion"], problem.objective, self.dual_rate)
        return Progress(policy, price, progress.updates + 1, memory), metrics

    def play(self, problem: Problem, policy: LearnedPolicy, updates: Array, *, key: Key) -> Step:
        """Episodes under perturbed kernels, batched [B, T]."""
        rows = -(-self.episodes // problem.secrets) * problem.secrets
        left = 1.0 - 0.9 * updates.astype(problem.objective.privacy_weight.dtype) / self.updates
        numbers = updates * rows + jnp.arange(rows, dtype=jnp.int32)

        def episode(number: Array) -> Step:
            size, own = self.explore * left, jr.fold_in(key, number)
            return explored(problem, policy, number, size, self.printed, key=own)

        return jax.vmap(episode)(numbers)

    def learn(
        self, problem: Problem, progress: Progress, memory: Memory, *, key: Key
    ) -> tuple[Any, Memory, Metrics]:
        """The gradient steps of one update: critic and encoder, then actor, then the targets."""
        arrays, fixed = eqx.partition((progress.policy.network, memory), eqx.is_array)
        priced = problem, progress.policy, progress.price
        charges = Charges(*priced, self.discount, self.direct, self.printed)

        def step(carried: Any, step_key: Key) -> tuple[Any, tuple[Scalar, Scalar]]:
            network, memory = eqx.combine(carried, fixed)
            draw_key, critic_key, actor_key = jr.split(step_key, 3)
            now, after = memory.replay.draw(self.batch, key=draw_key)
            network, memory, missed = self._critic_step(charges, network, memory, now, after, critic_key)
            network, memory, paid = self._actor_step(charges, network, memory, now, actor_key)
            slow = moved((memory.slow_network, memory.slow_critic), (network, memory.critic), self.follow)
            memory = eqx.tree_at(lambda one: (one.slow_network, one.slow_critic), memory, slow)
            return eqx.filter((network, memory), eqx.is_array), (missed, paid)

        carried, (missed, paid) = jax.lax.scan(step, arrays, jr.split(key, self.gradients))
        network, memory = eqx.combine(carried, fixed)
        return network, memory, {"critic_loss": jnp.mean(missed), "actor_loss": jnp.mean(paid)}

    def _critic_step(
        self, charges: Charges, network: Any, memory: Memory, now: Step, after: Step, key: Key
    ) -> tuple[Any, Memory, Scalar]:
        target = jax.lax.stop_gradient(
            charges.target((memory.slow_network, memory.slow_critic), now, after, key=key)
        )

        def loss(trained: tuple[Critic, Any]) -> Scalar:
            critic, encoder = trained
            found = charges.value(critic, encoder, now, now.action)
            return jnp.mean(now.weight * (found - target) ** 2)

        actor, encoder = parted(network)
        (critic, encoder), steps, value = self._descend(loss, (memory.critic, encoder), memory.critic_steps)
        memory = eqx.tree_at(lambda one: (one.critic, one.critic_steps), memory, (critic, steps))
        return joined(actor, encoder), memory, value

    def _actor_step(
        self, charges: Charges, network: Any, memory: Memory, now: Step, key: Key
    ) -> tuple[Any, Memory, Scalar]:
        actor, encoder = parted(network)

        def loss(actor: Any) -> Scalar:
            present, action = charges.present(joined(actor, encoder), now, key=key)
            later = charges.value(memory.critic, encoder, now, action)
            return jnp.mean(now.weight * (present + later))

        actor, steps, value = self._descend(loss, actor, memory.actor_steps)
        return joined(actor, encoder), eqx.tree_at(lambda one: one.actor_steps, memory, steps), value

    def _descend(self, loss: Any, trained: Any, state: Any) -> tuple[Any, Any, Scalar]:
        value, gradient = eqx.filter_value_and_grad(loss)(trained)
        with jax.numpy_dtype_promotion("standard"):  # optax takes powers of floats with integer exponents
            steps, state = self.optimiser.update(gradient, state, eqx.filter(trained, eqx.is_inexact_array))
        return eqx.apply_updates(trained, steps), state, value


def one(family: Family) -> Family:
    """The family, if it is a single problem."""
    if len(family) != 1:
        raise ValueError("This learner learns on one plant; robust training needs the learner 'pathwise'.")
    return family


def parted(network: Any) -> tuple[Any, Any]:
    """The network without its encoder, and the encoder."""
    return eqx.tree_at(lambda one: one.encoder, network, None), network.encoder


def joined(actor: Any, encoder: Any) -> Any:
    """The network of these two."""
    return eqx.tree_at(lambda one: one.encoder, actor, encoder, is_leaf=lambda leaf: leaf is None)


def moved(slow: Any, fast: Any, share: float) -> Any:
    """Targets, a share of the way nearer to what they follow."""
    return jax.tree.map(
        lambda old, new: old + share * (new - old) if eqx.is_inexact_array(old) else old, slow, fast
    )


@LEARNERS.register("ddpg")
@dataclass(frozen=True)
class DdpgPreset(Preset):
    """The paper's learner, repaired; its actor keeps within limits."""

    design: PolicyDesign = field(default_factory=lambda: PolicyDesign("plain", particles=81, width=128))
    training: TrainSettings = field(default_factory=lambda: TrainSettings(80, 8, 3e-3, 20, learner="ddpg"))

    def build(self, training: TrainSettings) -> Ddpg:
        """The learner with these settings."""
        return Ddpg(training.episodes, training.updates, training.learning_rate)


@LEARNERS.register("ddpg_printed")
@dataclass(frozen=True)
class PrintedDdpgPreset(Preset):
    """The paper's learner as it is printed, with an actor that has no limits."""

    starts = ("printed", "plain")

    design: PolicyDesign = field(
        default_factory=lambda: PolicyDesign("printed", "mgf", particles=81, proposal="pooled", width=128)
    )
    training: TrainSettings = field(
        default_factory=lambda: TrainSettings(400, 4, 1e-3, 100, 64, 0, learner="ddpg_printed")
    )
    leakage: str = "regime_adaptive"

    def build(self, training: TrainSettings) -> Ddpg:
        """The learner with these settings; gradients are neither clipped nor do their steps fall."""
        pace = training.episodes, training.updates, training.learning_rate
        plain = {"printed": True, "fade": 1.0, "clip": math.inf, "dual_rate": 0.0}
        return Ddpg(*pace, direct=False, explore=0.3, warmup=64, **plain)

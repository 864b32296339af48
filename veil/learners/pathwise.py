"""Training by derivatives through the kernel, the belief and the closed loop.

The release is a differentiable function of noise, and so are the belief, the state and the objective: the
derivative of the objective is that of one long program. Discrete parts of a draw (the component of a mixture,
the atom of a grid) enter by their score, with the mean over other episodes as baseline. Ancestors in
resampling are constants. The leakage is the sum over the releases of their leakage given the history. It is
not the filter's own log-posterior of the true secret: a policy could make that as small as it likes by
breaking the filter.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil.learners.base import EMPHASIS, Family, Learner, Metrics, Progress, dual_ascent
from veil.policies.base import LearnedPolicy
from veil.problem import Outcome, Problem
from veil.registry import LEARNERS
from veil.settings import Preset, TrainSettings
from veil.types import Key, Scalar

CLIP = 1.0  # largest norm of a gradient

Charges = Float[Array, "B T"]


class Pathwise(Learner):
    """Adam on pathwise gradients of the objective.

    Attributes:
        episodes: per update and problem, divided evenly among the secrets.
        updates: number over which the step size falls to nearly zero.
        learning_rate: step size at the start.
        dual_rate: step size of the price of distortion, see `dual_ascent`.
        emphasis: how much the worst problem of a family counts, per unit of the objective: 0 for the mean,
            large for the maximum.
    """

    episodes: int = eqx.field(default=32, static=True)
    updates: int = eqx.field(default=250, static=True)
    learning_rate: float = eqx.field(default=4e-3, static=True)
    dual_rate: Scalar = eqx.field(default=0.1, converter=jnp.asarray)
    emphasis: Scalar = eqx.field(default=0.0, converter=jnp.asarray)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Clipped Adam with cosine decay; a step that is not a number is left out."""
        schedule = optax.cosine_decay_schedule(self.learning_rate, self.updates, 0.02)
        steps = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(schedule))
        return optax.apply_if_finite(steps, max_consecutive_errors=self.updates)

    def begin(self, family: Family, policy: LearnedPolicy, *, key: Key) -> Progress:
        """The policy as given, and the price at its floor."""
        del key
        memory = self.optimiser.init(eqx.filter(policy.network, eqx.is_inexact_array))
        return Progress(policy, family[0].objective.distortion_price, jnp.asarray(0, jnp.int32), memory)

    def update(self, family: Family, progress: Progress, *, key: Key) -> tuple[Progress, Metrics]:
        """One gradient step of the network, and one step of the price."""

        def loss(network: eqx.Module) -> tuple[Scalar, list[Outcome]]:
            policy = eqx.tree_at(lambda one: one.network, progress.policy, network)
            played = [self._play(problem, policy, progress.updates, key) for problem in family]
            losses = [surrogate(p, o, progress.price) for p, o in zip(family, played, strict=True)]
            return emphasised(jnp.stack(losses), self.emphasis), played

        network = progress.policy.network
        (_, played), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(network)
        trained = eqx.filter(network, eqx.is_inexact_array)
        with jax.numpy_dtype_promotion("standard"):  # optax takes powers of floats with integer exponents
            steps, memory = self.optimiser.update(gradient, progress.memory, trained)  # pyright: ignore[reportArgumentType]
        policy = eqx.tree_at(lambda one: one.network, progress.policy, eqx.apply_updates(network, steps))
        metrics = summary(family, played) | {"gradient": optax.tree.norm(gradient), "price": progress.price}
        price = dual_ascent(progress.price, metrics["distortion"], family[0].objective, self.dual_rate)
        return Progress(policy, price, progress.updates + 1, memory), metrics

    def _play(self, problem: Problem, policy: LearnedPolicy, updates: Array, key: Key) -> Outcome:
        # Whole rounds, each from the first secret on: `_weights` counts on it.
        rows = -(-self.episodes // problem.secrets) * problem.secrets
        return problem.episodes(policy, updates * rows + jnp.arange(rows, dtype=jnp.int32), key=key)


def surrogate(problem: Problem, outcome: Outcome, price: Scalar) -> Scalar:
    """A number whose derivative estimates that of the mean objective, without bias; its value is the mean.

    Choices before step t bear on what is charged at t; the leakage of a release does not depend on its own
    draw, its distortion and what follows do.
    """
    weights, objective = _weights(problem, outcome), problem.objective
    leakage = objective.privacy_weight * outcome.leakage
    paid = objective.total(outcome, price) - leakage
    until = jnp.cumsum(outcome.log_choice, axis=1)
    secrets = problem.secrets
    early, late = (
        _scored(leakage, until - outcome.log_choice, weights, secrets),
        _scored(paid, until, weights, secrets),
    )
    total = early + late
    return jnp.sum(weights @ total)


def _scored(values: Charges, log_choice: Charges, weights: Float[Array, " B"], secrets: int) -> Charges:
    """The values, with the derivative of what their distribution owes to discrete choices."""
    constant = jax.lax.stop_gradient(values)
    above = constant - _others(constant, weights, secrets)
    return values + above * (log_choice - jax.lax.stop_gradient(log_choice))


def _others(values: Charges, weights: Float[Array, " B"], secrets: int) -> Charges:
    """The base: the mean over the other rounds. Episodes of the own one share its noise and would bias it."""
    rounds = values.shape[0] // secrets
    parts = jnp.sum((weights[:, None] * values).reshape(rounds, secrets, -1), axis=1)
    others = (jnp.sum(parts, axis=0)[None, :] - parts) * (rounds / max(rounds - 1, 1))
    return jnp.repeat(others, secrets, axis=0)


def _weights(problem: Problem, outcome: Outcome) -> Float[Array, " B"]:
    """Prior masses of the episodes' secrets, which take turns; they sum to one."""
    masses = jnp.exp(problem.scenario.plant.prior.log_masses)
    rounds = outcome.leakage.shape[0] // problem.secrets
    return jnp.tile(masses, rounds) / rounds


def emphasised(losses: Float[Array, " W"], emphasis: Scalar) -> Scalar:
    """Between the mean (0) and the maximum (∞) of the losses: log-mean-exp."""
    if losses.shape[0] == 1:
        return losses[0]
    safe = jnp.where(emphasis > 0.0, emphasis, 1.0)
    soft = (logsumexp(safe * losses) - jnp.log(float(losses.shape[0]))) / safe
    return jnp.where(emphasis > 0.0, soft, jnp.mean(losses))


def summary(family: Family, played: list[Outcome]) -> Metrics:
    """Per episode: leakage in nats, cost summed; distortion per step. Of a family, the worst leakage."""
    found = [_means(problem, outcome) for problem, outcome in zip(family, played, strict=True)]
    leakage, cost, distortion = (jnp.stack(column) for column in zip(*found, strict=True))
    return {"leakage": jnp.max(leakage), "cost": jnp.mean(cost), "distortion": jnp.max(distortion)}


def _means(problem: Problem, outcome: Outcome) -> tuple[Scalar, Scalar, Scalar]:
    weights = _weights(problem, outcome)
    leakage, cost = jnp.sum(weights @ outcome.leakage), jnp.sum(weights @ outcome.cost)
    return leakage, cost, jnp.mean(weights @ outcome.distortion)


@LEARNERS.register("pathwise")
@dataclass(frozen=True)
class PathwisePreset(Preset):
    """Gradients through the whole loop."""

    starts = ("transport", "plain", "grid", "twin")
    several_plants = True

    def build(self, training: TrainSettings) -> Pathwise:
        """The learner with these settings."""
        pace = training.episodes, training.updates, training.learning_rate
        return Pathwise(*pace, emphasis=EMPHASIS)

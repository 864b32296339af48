"""How a learned attack is trained: on fresh episodes, with other fresh episodes to choose by."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Float32, Int

from veil.attacks.learned import LearnedAttack
from veil.attacks.network import Network, Scaling, fit_scaling, start_network
from veil.rollout import Transcript
from veil.systems.prior import Prior
from veil.types import Key, Scalar

CHUNK = 50  # updates between two looks at the validation episodes
PATIENCE = 6  # looks without a better validation score before training ends
PEAK_RATE, DECAY = 3e-3, 0.3  # learning rate after the warm-up, weight decay
MEMORY = 0.98  # share of the running mean of the weights that an update keeps

Play = Callable[[Int[Array, " B"]], tuple[Int[Array, " B"], Transcript]]


@dataclass(frozen=True)
class Training:
    """How a training went. Scores are means of log(forecast / prior) of the true secret, in nats.

    On the validation episodes that mean is a lower bound on the leakage, but for the choice among `update`;
    the training score is of the batches as trained on, with dropout. The first row is before any update.
    """

    update: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    chosen: int
    seconds: float

    @property
    def best(self) -> float:
        """The validation score of the chosen update."""
        return float(np.max(self.validation))


class _Task(eqx.Module):
    """Standardised transcripts and the secrets behind them."""

    scaling: Scaling
    log_prior: Float32[Array, " K"]
    inputs: Float32[Array, "B T C"]
    index: Int[Array, " B"]

    def pick(self, chosen: Int[Array, " S"] | slice) -> "_Task":
        """Some of the episodes."""
        return _Task(self.scaling, self.log_prior, self.inputs[chosen], self.index[chosen])

    def scores(self, network: Network, key: Key | None = None) -> Float[Array, " B"]:
        """Log of forecast over prior at the true secret, per episode; with a key, as in training."""
        keys = None if key is None else jr.split(key, len(self.index))
        logits = jax.vmap(network, (0, None, None if keys is None else 0))(self.inputs, self.scaling, keys)
        log_forecast = jax.nn.log_softmax(logits + self.log_prior[None, :], axis=1)
        return jnp.take_along_axis(log_forecast - self.log_prior[None, :], self.index[:, None], axis=1)[:, 0]


class _Learner(eqx.Module):
    """What training carries: the weights, their running mean, which is what is used, and the optimiser."""

    network: Network
    mean: Network
    optimiser: optax.OptState


def train_attack(
    play: Play,
    prior: Prior,
    *,
    episodes: int = 8192,
    validation: int = 1024,
    updates: int = 800,
    batch: int = 256,
    key: Key,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[LearnedAttack, Training]:
    """Train a classifier of transcripts; the weights with the best validation score are kept.

    The prior itself, before the first update, is among the choices: where nothing is learned, nothing is
    claimed. Test on numbers from `episodes + validation` on, since the others have been used.

    Args:
        play: plays the episodes with these numbers, each its own randomness; returns the indices of their
            secrets, drawn from the prior, and their transcripts, batched.
        prior: of the secrets.
        episodes: to train on, numbers 0 to episodes − 1.
        validation: episodes to choose by, the numbers after.
        updates: at most; fewer where the validation score no longer rises.
        batch: episodes per update.
        key: of the first weights, the batches and the dropout.
        progress: told how many updates are done, out of how many.
    """
    began = time.perf_counter()
    start_key, run_key = jr.split(key)
    index, transcripts = play(jnp.arange(episodes + validation, dtype=jnp.int32))
    scaling = fit_scaling(jax.tree.map(lambda leaf: leaf[:episodes], transcripts))
    inputs = eqx.filter_jit(eqx.filter_vmap(scaling))(transcripts)
    task = _Task(scaling, prior.log_masses.astype(jnp.float32), inputs, index)
    old, new = task.pick(slice(episodes)), task.pick(slice(episodes, None))
    network = start_network(len(scaling.offset), len(prior.log_masses), key=start_key)
    rounds = -(-updates // CHUNK)
    optimiser = _optimiser(rounds * CHUNK)
    learner = _Learner(network, network, optimiser.init(cast(Any, network)))
    best, rows = network, [(0, 0.0, 0.0)]
    for number in range(rounds):
        chunk_key = jr.fold_in(run_key, number)
        learner, scores = _improve(learner, optimiser, (old, new), batch, key=chunk_key)
        rows.append(((number + 1) * CHUNK, float(scores[0]), float(scores[1])))
        if rows[-1][2] > max(row[2] for row in rows[:-1]):
            best = learner.mean
        if progress is not None:
            progress(rows[-1][0], rounds * CHUNK)
        if number + 1 - int(np.argmax([row[2] for row in rows])) >= PATIENCE:
            break
    update, train, scored = (np.asarray(column) for column in zip(*rows, strict=True))
    chosen = int(update[np.argmax(scored)])
    return LearnedAttack(scaling, best), Training(update, train, scored, chosen, time.perf_counter() - began)


@cache  # the same functions each time, so that a second training need not be compiled again
def _optimiser(updates: int) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(0.0, PEAK_RATE, min(CHUNK, updates // 2), updates, 1e-5)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=DECAY))


@eqx.filter_jit
def _improve(
    learner: _Learner,
    optimiser: optax.GradientTransformation,
    tasks: tuple[_Task, _Task],
    batch: int,
    *,
    key: Key,
) -> tuple[_Learner, tuple[Scalar, Scalar]]:
    """A chunk of updates on the first task, then a look at the second; returns the mean scores of both."""
    old, new = tasks

    def step(learner: _Learner, step_key: Key) -> tuple[_Learner, Scalar]:
        pick_key, drop_key = jr.split(step_key)
        picked = old.pick(jr.randint(pick_key, (batch,), 0, len(old.index), jnp.int32))

        def loss(network: Network) -> Scalar:
            return -jnp.mean(picked.scores(network, drop_key))

        value, slope = jax.value_and_grad(loss)(learner.network)
        with jax.numpy_dtype_promotion("standard"):  # optax takes powers of floats with integer exponents
            change, state = optimiser.update(cast(Any, slope), learner.optimiser, cast(Any, learner.network))
        network = eqx.apply_updates(learner.network, change)
        mean = jax.tree.map(lambda kept, now: MEMORY * kept + (1.0 - MEMORY) * now, learner.mean, network)
        return _Learner(network, mean, state), -value

    learner, trained = jax.lax.scan(step, learner, jr.split(key, CHUNK))
    return learner, (jnp.mean(trained), jnp.mean(new.scores(learner.mean)))

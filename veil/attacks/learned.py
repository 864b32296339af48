"""An attack without a model: a network that is trained on transcripts with known secrets."""

import math
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

from veil.attacks.base import Attack, Evidence
from veil.step import Transcript
from veil.systems.base import Prior
from veil.types import Key, Scalar

WINDOW = 12  # steps that a filter sees

SQUARES, SHAPES, HIDDEN = 16, 32, 64  # filters that are squared, filters that are bent, width of the head

DILATION = (0, 3, 6)  # steps back that the second layer sees

DROPOUT = 0.3

ROWS = 2e7  # numbers from which the whitening is estimated, at most

FLOOR = 1e-5  # of the largest variance of a window: smaller ones are not blown up further

Columns = Float32[Array, "T C"]


class Scaling(eqx.Module):
    """Statistics of the training transcripts: columns are standardised, windows of them are whitened.

    Whitening turns the small combinations of columns, such as the residual of a one-step prediction, into
    inputs as large as any other. Without it the platoon yields 0.02 to 0.05 nats less.
    """

    centre: Float[Array, " C"]
    spread: Float[Array, " C"]
    offset: Float32[Array, " D"]
    whitening: Float32[Array, "D D"]
    lagged: int = eqx.field(static=True)  # columns that are seen over the whole window

    def __call__(self, transcript: Transcript) -> Columns:
        """Standardised columns, with long tails drawn in, in single precision."""
        raw = columns(transcript)
        centre, spread = self.centre.astype(raw.dtype), self.spread.astype(raw.dtype)
        standard = (raw - centre[None, :]) / spread[None, :]
        return squash(jnp.nan_to_num(standard, posinf=1e30, neginf=-1e30)).astype(jnp.float32)


class Layer(eqx.Module):
    """An affine map of the last axis."""

    weight: Float32[Array, "I O"]
    bias: Float32[Array, " O"]

    def __call__(self, inputs: Float32[Array, "*batch I"]) -> Float32[Array, "*batch O"]:
        """Along the last axis."""
        outputs = inputs @ self.weight
        return outputs + jnp.broadcast_to(self.bias, outputs.shape)


class AttackNetwork(eqx.Module):
    """Filters over whitened windows, pooled over time, then a head that starts at zero.

    One group of filters is squared and averaged: for a linear Gaussian loop the log-likelihoods are sums of
    such squares. The other is bent, filtered again, and pooled by mean, by maximum and by the last step.
    """

    filters: Layer
    second: Layer
    hidden: Layer
    direct: Layer
    bent: Layer

    def __call__(self, inputs: Columns, scaling: Scaling, key: Key | None = None) -> Float32[Array, " K"]:
        """One number per secret: log-likelihoods up to a constant. With a key, some pools are dropped."""
        # The whitening is applied to the weights, which are fewer than the windows.
        weight = scaling.whitening @ self.filters.weight
        first = Layer(weight, self.filters.bias - scaling.offset @ weight)
        seen = squash(first(windows(inputs, scaling.lagged)))
        lines, shapes = seen[:, :SQUARES], jax.nn.gelu(seen[:, SQUARES:])
        deeper = jax.nn.gelu(self.second(jnp.concatenate([_back(shapes, lag) for lag in DILATION], axis=1)))
        pools = [jnp.mean(lines, axis=0), jnp.mean(lines**2, axis=0) - 1.0]
        for part in (shapes, deeper):
            pools += [jnp.mean(part, axis=0), jnp.max(part, axis=0), part[-1]]
        pooled = jnp.concatenate(pools)
        if key is not None:
            kept = jr.bernoulli(key, 1.0 - DROPOUT, pooled.shape)
            pooled = jnp.where(kept, pooled / (1.0 - DROPOUT), 0.0)
        return self.direct(pooled) + self.bent(jax.nn.gelu(self.hidden(pooled)))


def columns(transcript: Transcript) -> Float[Array, "T C"]:
    """What a step shows, release, external input and features, and how each changed since the last step."""
    shown = jnp.concatenate([transcript.shared, transcript.external, transcript.features], axis=1)
    return jnp.concatenate([shown, jnp.diff(shown, axis=0, prepend=shown[:1])], axis=1)


def squash(values: Array) -> Array:
    """The identity up to ±4, logarithmic beyond: outliers of thousands stay apart and do no harm."""
    size = jnp.abs(values)
    return jnp.sign(values) * (jnp.minimum(size, 4.0) + jnp.log1p(jnp.maximum(size - 4.0, 0.0)))


def windows(inputs: Columns, lagged: int) -> Float32[Array, "T D"]:
    """Per step: all levels and changes, and the changes of the first `lagged` columns back over the window.

    Levels further back are sums of these. A matrix product over such rows is the convolution.
    """
    start = inputs.shape[1] // 2
    changes = inputs[:, start : start + lagged]
    return jnp.concatenate([inputs, *[_back(changes, lag) for lag in range(1, WINDOW)]], axis=1)


def _back(values: Columns, lag: int) -> Columns:
    """The values `lag` steps before, zero before the first."""
    return jnp.pad(values, ((lag, 0), (0, 0)))[: len(values)]


def fit_scaling(transcripts: Transcript) -> Scaling:
    """Statistics of a batch of transcripts. Median and quartiles, so that a few outliers do not set them."""
    raw = np.asarray(jax.jit(jax.vmap(columns))(transcripts))
    flat = raw.reshape(-1, raw.shape[-1])
    low, centre, high = np.quantile(flat, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349
    spread = np.where(spread > 0.0, spread, np.std(flat, axis=0))  # mostly constant, as on a grid
    spread = np.maximum(spread, 8.0 * np.finfo(raw.dtype).eps * np.max(np.abs(flat), axis=0))
    spread = np.where(spread > 0.0, spread, 1.0)
    lagged = transcripts.shared.shape[-1] + transcripts.external.shape[-1]
    size = raw.shape[-1] + (WINDOW - 1) * lagged
    own = jnp.asarray(centre, raw.dtype), jnp.asarray(spread, raw.dtype)
    draft = Scaling(*own, jnp.zeros(size, jnp.float32), jnp.eye(size, dtype=jnp.float32), lagged)
    count = math.ceil(min(len(raw), ROWS / (size * raw.shape[1])))
    some = jax.tree.map(lambda leaf: leaf[:count], transcripts)
    rows = jax.jit(jax.vmap(lambda one: windows(draft(one), lagged)))(some)
    return Scaling(*own, *_whiten(np.asarray(rows, float).reshape(-1, size)), lagged)


def _whiten(rows: np.ndarray) -> tuple[Float32[Array, " D"], Float32[Array, "D D"]]:
    """Mean and whitening matrix, by eigenvalues that are not let below a floor."""
    offset = np.mean(rows, axis=0)
    values, vectors = np.linalg.eigh((rows - offset).T @ (rows - offset) / len(rows))
    scales = np.sqrt(np.maximum(values, max(FLOOR * values[-1], np.finfo(np.float32).tiny)))
    if values[-1] <= 0.0:  # nothing varies
        scales = np.ones_like(scales)
    return jnp.asarray(offset, jnp.float32), jnp.asarray(vectors / scales, jnp.float32)


def start_network(inputs: int, secrets: int, *, key: Key) -> AttackNetwork:
    """A network for windows of this size, with random filters; it forecasts the prior until it is trained."""
    keys = jr.split(key, 3)
    pooled = 2 * SQUARES + 6 * SHAPES
    return AttackNetwork(
        filters=_random_layer(inputs, SQUARES + SHAPES, keys[0]),
        second=_random_layer(len(DILATION) * SHAPES, SHAPES, keys[1]),
        hidden=_random_layer(pooled, HIDDEN, keys[2]),
        direct=_zero_layer(pooled, secrets),
        bent=_zero_layer(HIDDEN, secrets),
    )


def _random_layer(inputs: int, outputs: int, key: Key) -> Layer:
    weight = jr.normal(key, (inputs, outputs), jnp.float32) / math.sqrt(inputs)
    return Layer(weight, jnp.zeros(outputs, jnp.float32))


def _zero_layer(inputs: int, outputs: int) -> Layer:
    return Layer(jnp.zeros((inputs, outputs), jnp.float32), jnp.zeros(outputs, jnp.float32))


class LearnedAttack(Attack):
    """A classifier of transcripts, made by `train_attack`.

    It finds leaks that filters miss, as in kernels that fold the state, and its score on fresh transcripts
    is a lower bound on the leakage whatever it learned. It knows nothing of system and policy.
    """

    scaling: Scaling
    network: AttackNetwork

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """The forecast of the network, less the prior it was trained under. Nothing is random."""
        del key
        logits = self.network(self.scaling(transcript), self.scaling)
        whole = jnp.all(jnp.isfinite(transcript.shared)) & jnp.all(jnp.isfinite(transcript.external))
        whole = whole & jnp.all(jnp.isfinite(transcript.features)) & jnp.all(jnp.isfinite(logits))
        evidence = jnp.where(whole, logits, 0.0).astype(transcript.shared.dtype)
        return Evidence(evidence, jnp.ones_like(evidence[0]), ~whole)


CHUNK = 50  # updates between two looks at the validation episodes

PATIENCE = 6  # looks without a better validation score before training ends

PEAK_RATE, DECAY = 3e-3, 0.3  # learning rate after the warm-up, weight decay

MEMORY = 0.98  # share of the running mean of the weights that an update keeps

PlayEpisodes = Callable[[Int[Array, " B"]], tuple[Int[Array, " B"], Transcript]]


@dataclass(frozen=True)
class AttackTraining:
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

    def scores(self, network: AttackNetwork, key: Key | None = None) -> Float[Array, " B"]:
        """Log of forecast over prior at the true secret, per episode; with a key, as in training."""
        keys = None if key is None else jr.split(key, len(self.index))
        logits = jax.vmap(network, (0, None, None if keys is None else 0))(self.inputs, self.scaling, keys)
        log_forecast = jax.nn.log_softmax(logits + self.log_prior[None, :], axis=1)
        return jnp.take_along_axis(log_forecast - self.log_prior[None, :], self.index[:, None], axis=1)[:, 0]


class _Learner(eqx.Module):
    """What training carries: the weights, their running mean, which is what is used, and the optimiser."""

    network: AttackNetwork
    mean: AttackNetwork
    optimiser: optax.OptState


def train_attack(
    play: PlayEpisodes,
    prior: Prior,
    *,
    episodes: int = 8192,
    validation: int = 1024,
    updates: int = 800,
    batch: int = 256,
    key: Key,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[LearnedAttack, AttackTraining]:
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
        progress: called with how many updates are done, and of how many.
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
    return LearnedAttack(scaling, best), AttackTraining(
        update, train, scored, chosen, time.perf_counter() - began
    )


def train_on(
    index: Int[Array, " B"],
    transcripts: Transcript,
    prior: Prior,
    episodes: int,
    validation: int,
    key: Key,
) -> tuple[LearnedAttack, AttackTraining]:
    """The same on transcripts that were played already.

    Args:
        index: of their secrets.
        transcripts: batched: those to train on, then those to choose by.
        prior: of the secrets.
        episodes: how many to train on.
        validation: how many to choose by.
        key: of the first weights, the batches and the dropout.
    """
    return train_attack(
        lambda _: (index, transcripts), prior, episodes=episodes, validation=validation, key=key
    )


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

        def loss(network: AttackNetwork) -> Scalar:
            return -jnp.mean(picked.scores(network, drop_key))

        value, slope = jax.value_and_grad(loss)(learner.network)
        with jax.numpy_dtype_promotion("standard"):  # optax takes powers of floats with integer exponents
            change, state = optimiser.update(cast(Any, slope), learner.optimiser, cast(Any, learner.network))
        network = eqx.apply_updates(learner.network, change)
        mean = jax.tree.map(lambda kept, now: MEMORY * kept + (1.0 - MEMORY) * now, learner.mean, network)
        return _Learner(network, mean, state), -value

    learner, trained = jax.lax.scan(step, learner, jr.split(key, CHUNK))
    return learner, (jnp.mean(trained), jnp.mean(new.scores(learner.mean)))

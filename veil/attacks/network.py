"""The network of the learned attack: a small convolution net that looks for first and second moments."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Float32

from veil.rollout import Transcript
from veil.types import Key

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
    """An affine map."""

    weight: Float32[Array, "I O"]
    bias: Float32[Array, " O"]

    def __call__(self, inputs: Float32[Array, "*batch I"]) -> Float32[Array, "*batch O"]:
        """Along the last axis."""
        outputs = inputs @ self.weight
        return outputs + jnp.broadcast_to(self.bias, outputs.shape)


class Network(eqx.Module):
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


def start_network(inputs: int, secrets: int, *, key: Key) -> Network:
    """A network for windows of this size, with random filters; it forecasts the prior until it is trained."""
    keys = jr.split(key, 3)
    pooled = 2 * SQUARES + 6 * SHAPES
    return Network(
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

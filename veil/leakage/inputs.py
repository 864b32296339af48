"""A labelled mixture as people have it: numpy arrays, checked, then padded to one of a few sizes."""

import math
from typing import NamedTuple

import jax
import numpy as np

from veil.laws import Components, Gaussian
from veil.types import LOG_ZERO


class Nats(float):
    """A float in nats. What does not apply is None.

    Attributes:
        standard_error: standard error of an estimate.
        samples: random points used.
        delta: probability that an upper confidence bound is below the truth.
        error: numerical error: an estimate for a quadrature, a bound for a bound in mixed precision, which is
            that much higher so that it remains one.
    """

    standard_error: float | None
    samples: int | None
    delta: float | None
    error: float | None

    def __new__(cls, value, *, standard_error=None, samples=None, delta=None, error=None):
        """A float with the fields of a result."""
        nats = super().__new__(cls, value)
        nats.standard_error, nats.samples, nats.delta, nats.error = standard_error, samples, delta, error
        return nats

    @property
    def bits(self) -> float:
        """The same in bits, for people."""
        return float(self) / math.log(2.0)


TOLERANCE = 1e-6  # on the sum of the weights

NARROWEST = 1e-10  # least over largest variance, after making the average component round

SIZES = (64, 512, 1024, 2048, 4096, 6144)  # components; multiples of the last-but-one beyond

DIMENSIONS = (2, 4, 8)

GROUPS = (8, 16, 32, 64)

LARGE = 512  # components above which methods choose the layout that is fastest, at the price of more programs


class Labelled(NamedTuple):
    """A checked mixture: labels 0..K−1, positive weights of sum one, mean zero, average covariance one."""

    secret: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def by_secret(self) -> "Labelled":
        """The same mixture, sorted by label."""
        order = np.argsort(self.secret, kind="stable")
        return Labelled(*(values[order] for values in self))

    @property
    def masses(self) -> np.ndarray:
        """Probability q_k of each secret."""
        return np.bincount(self.secret, self.weight)

    @property
    def entropy(self) -> float:
        """Entropy H(q) in nats."""
        return float(-np.sum(self.masses * np.log(self.masses)))


def checked(secret, weight, mean, covariance) -> Labelled:
    """Turn array-likes into a `Labelled`, or say which argument is wrong and how to correct it."""
    secret, weight = np.asarray(secret), np.asarray(weight, float)
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    _check_shapes(secret, weight, mean, covariance)
    for name, values in (("weight", weight), ("mean", mean), ("covariance", covariance)):
        if not np.all(np.isfinite(values)):
            where = _first(~np.isfinite(values))
            raise ValueError(f"{name} holds NaN or infinity at {where}; remove that component.")
    labels = _check_weights(secret, weight)
    _check_covariances(covariance)
    used = np.flatnonzero(weight)
    labels, weight, mean, covariance = labels[used], weight[used] / weight.sum(), mean[used], covariance[used]
    # Information does not depend on origin and units: take those in which the average component is round.
    change = np.linalg.inv(np.linalg.cholesky(np.einsum("n,nij->ij", weight, covariance)))
    # Both products by the change at once, as one matrix product: products of many tiny matrices are slow.
    both = np.kron(change, change).T
    even = 0.5 * (covariance + covariance.swapaxes(1, 2))
    covariance = (even.reshape(-1, both.shape[0]) @ both).reshape(covariance.shape)
    _check_narrowness(used, covariance)
    return Labelled(labels, weight, (mean - weight @ mean) @ change.T, covariance)


def _first(bad: np.ndarray) -> str:
    return str(tuple(int(i) for i in np.argwhere(bad)[0]))


def _check_shapes(secret, weight, mean, covariance) -> None:
    if mean.ndim != 2 or mean.shape[0] == 0:
        raise ValueError(f"mean must have shape (N, d) with N >= 1, got {mean.shape}; add an axis for d = 1.")
    count, size = mean.shape
    if not 1 <= size <= DIMENSIONS[-1]:
        raise ValueError(f"mean has d = {size}; dimensions 1 to {DIMENSIONS[-1]} are supported.")
    for name, array, shape in (
        ("secret", secret, (count,)),
        ("weight", weight, (count,)),
        ("covariance", covariance, (count, size, size)),
    ):
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape} (mean has {mean.shape}), got {array.shape}.")
    if not np.issubdtype(secret.dtype, np.integer):
        raise ValueError(f"secret must hold integer labels, got {secret.dtype}; use secret.astype(int).")


def _check_weights(secret, weight) -> np.ndarray:
    """The labels as 0..K−1, if the weights are those of a mixture."""
    if np.any(weight < 0):
        raise ValueError(f"weight is negative at {_first(weight < 0)}; weights are probabilities.")
    if abs(weight.sum() - 1.0) > TOLERANCE:
        raise ValueError(
            f"weight sums to {weight.sum():.9g}, not to one (tolerance {TOLERANCE}); divide it by its sum."
        )
    labels, index = np.unique(secret, return_inverse=True)
    index = index.reshape(-1)
    empty = np.bincount(index, weight) <= 0
    if np.any(empty):
        raise ValueError(f"secret {labels[empty][0]} has no weight; drop its components.")
    return index


def _check_covariances(covariance) -> None:
    size = np.abs(covariance.reshape(len(covariance), -1).T).max(axis=0)
    uneven = np.abs(covariance - covariance.swapaxes(1, 2)) > 1e-8 * size[:, None, None]
    if np.any(uneven):
        n = np.argwhere(uneven)[0][0]
        raise ValueError(f"covariance of component {n} is not symmetric; average it with its transpose.")
    least = extremes(covariance)[0]
    bad = least <= 1e-14 * size
    if np.any(bad):
        n = int(np.argmax(bad))
        raise ValueError(
            f"covariance of component {n} is not positive definite (least eigenvalue {least[n]:.3g}); "
            "add a noise floor to its diagonal."
        )


def _check_narrowness(used, covariance) -> None:
    """The covariances of the components in use, in coordinates where the average component is round."""
    narrow, wide = extremes(covariance)
    if narrow.min() <= NARROWEST * wide.max():
        n = used[int(np.argmin(narrow))]
        raise ValueError(
            f"covariance of component {n} is too narrow for the others (variances differ by more than "
            f"{1 / NARROWEST:.0e}) for a trustworthy result; add a noise floor to its diagonal."
        )


def extremes(covariance) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest eigenvalue of each matrix; in closed form up to two dimensions, which is faster."""
    if covariance.shape[1] > 2:
        values = np.linalg.eigvalsh(covariance)
        return values[:, 0], values[:, -1]
    first, last = covariance[:, 0, 0], covariance[:, -1, -1]
    middle, product = 0.5 * (first + last), covariance[:, 0, -1] ** 2
    reach = np.sqrt(0.25 * (first - last) ** 2 + (product if covariance.shape[1] == 2 else 0.0))
    return middle - reach, middle + reach


def padded(mixture: Labelled, *, tight: bool = False) -> tuple[Components, int]:
    """Components of one of a few sizes, and how many coordinates were added. Call under float64.

    Added components carry no weight; added coordinates are standard normal for every component, which
    changes no difference of entropies and no posterior. So few programs serve all inputs.

    Args:
        mixture: the components.
        tight: add at most a sixteenth of them, at the price of more programs.
    """
    count = len(mixture.weight)
    unit = 1 << max(count.bit_length() - 5, 0)
    wide = -(-count // unit) * unit if tight else _round_up(count, SIZES)
    secrets = _round_up(int(mixture.secret.max()) + 1, GROUPS)
    return _placed(mixture, slice(count), wide, secrets, None)


def laid_out(mixture: Labelled) -> tuple[Components, int]:
    """The same in equal blocks, one per secret, if the mixture is large and the blocks are well filled.

    Sums within a secret then visit the pairs within the secret only. The size of a block is rounded up by at
    most an eighth, so that not every mixture asks for a program of its own.
    """
    sizes = np.bincount(mixture.secret)
    unit = max(16, 1 << max(int(sizes.max()).bit_length() - 4, 0))
    stride = -(-int(sizes.max()) // unit) * unit
    # All pairs of the blocks, against all pairs once for every secret.
    crowded = (len(sizes) * stride) ** 2 <= len(sizes) * len(mixture.weight) ** 2
    if len(mixture.weight) <= LARGE or not crowded:
        return padded(mixture)
    given = mixture.by_secret
    within = np.arange(len(given.weight)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return _placed(given, given.secret * stride + within, len(sizes) * stride, len(sizes), stride)


def _placed(mixture: Labelled, places, wide: int, secrets: int, stride: int | None) -> tuple[Components, int]:
    """Components at given places among weightless ones, and how many coordinates were added."""
    size = mixture.mean.shape[1]
    deep = next(d for d in DIMENSIONS if d >= size)
    mean = np.zeros((wide, deep))
    mean[places, :size] = mixture.mean
    scale = np.broadcast_to(np.eye(deep), (wide, deep, deep)).copy()
    scale[places, :size, :size] = _cholesky(mixture.covariance)
    log_weights = np.full(wide, LOG_ZERO)
    log_weights[places] = np.log(mixture.weight)
    labels = np.full(wide, mixture.secret[-1], np.int32)  # a sorted mixture stays sorted
    labels[places] = mixture.secret
    if stride is not None:
        labels = np.repeat(np.arange(secrets, dtype=np.int32), stride)
    arrays = jax.device_put((labels, log_weights, mean, scale))
    return Components(arrays[0], arrays[1], Gaussian(arrays[2], arrays[3]), secrets, stride), deep - size


def _cholesky(covariance) -> np.ndarray:
    """Lower factors, entry by entry over all components: faster than one call of LAPACK for each."""
    size = covariance.shape[1]
    lower = [[np.zeros(len(covariance))] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = covariance[:, i, j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = np.sqrt(rest) if i == j else rest / lower[j][j]
    return np.stack([np.stack(row, axis=1) for row in lower], axis=1)


def _round_up(value: int, sizes: tuple[int, ...]) -> int:
    larger = [size for size in sizes if size >= value]
    return larger[0] if larger else -(-value // sizes[-2]) * sizes[-2]

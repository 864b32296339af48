"""The slow truth for one and two dimensions: I(Θ; Y) on a grid, with an error estimate. NumPy only."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from veil.leakage.inputs import Labelled, Nats
from veil.registry import LEAKAGE

REACH = 9.0  # standard deviations; the mass outside is below 1e-18

LARGEST = 48_000_000  # densities on the grid: 400 MB


class Quadrature(NamedTuple):
    """Value and estimated error, in nats."""

    value: float
    error: float


def quadrature(
    secret: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    *,
    step: float | None = None,
) -> Quadrature:
    """I(Θ; Y) of a labelled Gaussian mixture in d ≤ 2 dimensions by the trapezoid rule.

    The rule converges geometrically for Gaussian mixtures; the error stated is that of the grid with every
    second line left out, which is far larger than that of the grid itself.

    Args:
        secret: (N,) labels 0..K−1.
        weight: (N,) weights that sum to one.
        mean: (N, d) means.
        covariance: (N, d, d) covariances.
        step: grid step in units of the smallest standard deviation, at most 1; by default 0.25 in one
            dimension and 0.5 in two.
    """
    step = (0.25 if mean.shape[1] == 1 else 0.5) if step is None else step
    if not 0.0 < step <= 1.0:
        raise ValueError(f"step must lie in (0, 1], got {step}; it is in units of the smallest sd.")
    used = weight > 0
    secret, weight, mean, covariance = secret[used], weight[used], mean[used], covariance[used]
    if mean.shape[1] > 2:
        raise ValueError("quadrature works for d <= 2; use method='estimate' or 'confidence_bound' instead.")
    mean, covariance = _align(weight, mean, covariance)
    spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    narrow = np.sqrt(1.0 / np.linalg.inv(covariance).diagonal(axis1=1, axis2=2).max(axis=0))
    low, high = (mean - REACH * spread).min(axis=0), (mean + REACH * spread).max(axis=0)
    counts = np.ceil((high - low) / (step * narrow)) + 1.0
    if np.prod(counts) * (secret.max() + 1.0) > LARGEST:
        raise ValueError(
            f"quadrature would need {np.prod(counts):.2g} grid points: the components are too narrow for "
            "their spread. Use method='estimate', or a larger step."
        )
    axes = [
        start + step * each * np.arange(int(n)) for start, each, n in zip(low, narrow, counts, strict=True)
    ]
    density = _densities(secret, weight, mean, covariance, axes, spread)
    cell = float(np.prod([axis[1] - axis[0] for axis in axes]))
    fine = _information(density, cell)
    thin = density[(slice(None),) + (slice(None, None, 2),) * len(axes)]
    coarse = _information(thin, cell * 2 ** len(axes))
    return Quadrature(fine, max(abs(fine - coarse), 1e-12))


def _align(weight, mean, covariance):
    """Coordinates in which the average covariance is the identity: narrow directions follow the axes."""
    inverse = np.linalg.inv(np.linalg.cholesky(np.einsum("n,nij->ij", weight, covariance)))
    return mean @ inverse.T, inverse @ covariance @ inverse.T


def _densities(secret, weight, mean, covariance, axes, spread) -> np.ndarray:
    """q_k p_k on the grid, each component evaluated only where it is not negligible."""
    density = np.zeros((int(secret.max()) + 1, *(len(axis) for axis in axes)))
    precision = np.linalg.inv(covariance)
    scale = weight * np.sqrt(np.linalg.det(precision)) / (2.0 * np.pi) ** (len(axes) / 2)
    for n in range(len(weight)):
        window = tuple(
            slice(*np.searchsorted(axis, mean[n, i] + REACH * spread[n, i] * np.array([-1.0, 1.0])))
            for i, axis in enumerate(axes)
        )
        apart = [axis[part] - mean[n, i] for i, (axis, part) in enumerate(zip(axes, window, strict=True))]
        if len(axes) == 1:
            exponent = precision[n, 0, 0] * apart[0] ** 2
        else:
            first, second = apart[0][:, None], apart[1][None, :]
            exponent = (
                precision[n, 0, 0] * first**2 + 2.0 * precision[n, 0, 1] * first * second
            ) + precision[n, 1, 1] * second**2
        density[(secret[n], *window)] += scale[n] * np.exp(-0.5 * exponent)
    return density


def _information(joint: np.ndarray, cell: float) -> float:
    """Σ_k ∫ q_k p_k log(p_k / p) from the joint density on the grid."""
    masses = joint.reshape(len(joint), -1).sum(axis=1) * cell
    total = joint.sum(axis=0)
    value = 0.0
    for k, mass in enumerate(masses):
        inside = joint[k] > np.finfo(float).tiny
        part = joint[k][inside]
        if mass > 0:
            value += float(np.sum(part * (np.log(part) - np.log(mass) - np.log(total[inside])))) * cell
    return value


@LEAKAGE.register("quadrature")
@dataclass(frozen=True)
class ByQuadrature:
    """An integral on a grid, for one and two dimensions."""

    step: float | None = None
    """Grid step in units of the smallest standard deviation, at most 1; 0.25 or 0.5 by default"""

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The integral and its numerical error."""
        result = quadrature(*mixture, step=self.step)
        return Nats(result.value, error=result.error)

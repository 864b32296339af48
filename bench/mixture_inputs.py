"""The mixture that all contestants get, and its entropy bound in float64."""

from dataclasses import dataclass

import numpy as np

LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Inputs:
    """A mixture in float32, with what peers get for nothing."""

    weight: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray
    log_det: np.ndarray


def inputs(count: int, size: int = 2, seed: int = 0) -> Inputs:
    """Means of spread 2, standard deviations from 0.3 to about 1, correlated, Dirichlet weights."""
    generator = np.random.default_rng(seed)
    mean = 2.0 * generator.standard_normal((count, size))
    root = 0.3 * generator.standard_normal((count, size, size))
    covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)
    weight = generator.dirichlet(np.ones(count))
    arrays = (weight, mean, covariance, np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1])
    return Inputs(*(np.asarray(array, np.float32) for array in arrays))


def truth(given: Inputs) -> float:
    """The value in float64, row by row."""
    weight, mean = given.weight.astype(float), given.mean.astype(float)
    covariance = given.covariance.astype(float)
    precision, log_det = np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]
    total, size = 0.0, mean.shape[1]
    for i in range(len(weight)):
        apart = mean[i] - mean
        square = np.einsum("jk,jkl,jl->j", apart, precision, apart)
        trace = np.einsum("kl,jkl->j", covariance[i], precision)
        divergence = 0.5 * (square + trace - size + log_det - log_det[i])
        overlap = np.log(weight @ np.exp(-divergence))
        total += weight[i] * (0.5 * (log_det[i] + size * (1.0 + LOG_TWO_PI)) - overlap)
    return total

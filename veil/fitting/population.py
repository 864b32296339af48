"""The law of the parameters of many individuals, from estimates with errors (empirical Bayes)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import norm, qmc

from veil.results.fit import Population
from veil.systems.base import Field

ROUNDS = 200  # of expectation and maximisation


def population(
    values: Float[np.ndarray, "I P"],
    covariances: Float[np.ndarray, "I P P"],
    fields: Sequence[Field],
    candidates: int,
    seed: int = 0,
) -> Population:
    """A normal law N(m, S) of the parameters, given estimates v_i ~ N(θ_i, C_i) with θ_i ~ N(m, S).

    The maximum of the likelihood is found by expectation and maximisation in standard units. A tenth of a
    pseudo-observation keeps S positive where few individuals are alike.

    Args:
        values: estimates, a row per individual.
        covariances: of the estimates.
        fields: of the parameters; the prior stays within their ranges.
        candidates: number of secrets of the finite prior.
        seed: of its quasi-random points.
    """
    middle = np.median(values, axis=0)
    spread = np.maximum(
        1.4826 * np.median(np.abs(values - middle), axis=0), 1e-6 * np.maximum(np.abs(middle), 1)
    )
    rows = np.clip((values - middle) / spread, -20.0, 20.0)
    errors = covariances / np.outer(spread, spread)
    size = rows.shape[1]
    errors = np.array([_limited(one) for one in errors])
    mean, between = rows.mean(0), np.cov(rows.T).reshape(size, size) + 1e-3 * np.eye(size)
    shrunk = rows
    for _ in range(ROUNDS):
        gains = [between @ np.linalg.inv(between + error) for error in errors]
        shrunk = np.array([mean + gain @ (row - mean) for gain, row in zip(gains, rows, strict=True)])
        left = np.array([between - gain @ between for gain in gains])
        mean = shrunk.mean(0)
        away = shrunk - mean
        between = (away.T @ away + left.sum(0) + 0.1 * 1e-2 * np.eye(size)) / (len(rows) + 0.1)
    points = qmc.Sobol(size, scramble=True, rng=seed).random_base2(max(candidates - 1, 0).bit_length())
    normal = norm.ppf(np.clip(points[:candidates], 1e-6, 1 - 1e-6))
    secrets = middle + spread * (mean + normal @ np.linalg.cholesky(between).T)
    low = np.array([max(one.low, -1e300) for one in fields])
    high = np.array([min(one.high, 1e300) for one in fields])
    limited = np.clip(secrets, low + 1e-3 * spread, high - 1e-3 * spread)
    return Population(
        middle + spread * mean, between * np.outer(spread, spread), middle + spread * shrunk, limited
    )


def _limited(error: np.ndarray) -> np.ndarray:
    """Errors of at most 1,000 spreads, so that an individual without information does not count."""
    values, vectors = np.linalg.eigh(0.5 * (error + error.T))
    return (vectors * np.clip(values, 1e-8, 1e6)) @ vectors.T

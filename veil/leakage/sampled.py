"""Methods of the door that draw releases: the unbiased estimate and the confidence bound. Float64."""

import jax
import numpy as np

from veil.leakage.confidence import bounded_mean
from veil.leakage.curve import curve_order
from veil.leakage.estimate import posterior_and_ratio
from veil.leakage.inputs import Labelled, padded
from veil.leakage.nats import Nats
from veil.types import LOG_ZERO

SCRAMBLES = 32  # independent copies of the point set, whose spread gives the standard error
BATCH = 4096  # points per call of the posterior program

_posterior = jax.jit(posterior_and_ratio)


def by_estimate(mixture: Labelled, samples: int = 16384, seed: int = 0) -> Nats:
    """Randomised quasi-Monte Carlo mean of the posterior's divergence from the prior.

    Half of the points are drawn as the release is; the others visit every secret and every component
    alike and are weighted down, or a rare secret would be missed and the error with it.
    """
    from scipy.special import ndtri  # slow to import, and not needed live
    from scipy.stats import qmc

    each = 1 << max(0, -(-_count(samples) // SCRAMBLES) - 1).bit_length()
    even = mixture.weight / mixture.masses[mixture.secret] / len(mixture.masses)
    present = mixture.weight > 0
    proposal = 0.5 * mixture.weight + 0.25 * even + 0.25 * present / present.sum()
    order = curve_order(mixture.mean, np.zeros_like(mixture.secret), np)
    edges = np.cumsum(proposal[order])
    draws = []
    for stream in np.random.default_rng(seed).spawn(SCRAMBLES):
        uniforms = qmc.Sobol(mixture.mean.shape[1] + 1, scramble=True, rng=stream).random(each)
        place = np.searchsorted(edges, uniforms[:, 0] * edges[-1], side="right")
        noise = ndtri(np.clip(uniforms[:, 1:], 1e-15, 1.0 - 1e-15))
        draws.append((order[np.minimum(place, len(order) - 1)], noise))
    index, noise = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    shares, ratio = _posteriors(mixture, index, noise, proposal)
    values = (ratio * _divergence_from_prior(mixture, shares)).reshape(SCRAMBLES, each).mean(axis=1)
    error = values.std(ddof=1) / np.sqrt(SCRAMBLES)
    return Nats(values.mean(), standard_error=float(error), samples=SCRAMBLES * each)


def by_confidence_bound(
    mixture: Labelled, delta: float = 1e-6, width: float = 0.01, samples: int = 2**17, seed: int = 0
) -> Nats:
    """Betting on the divergence of the posterior from the prior.

    That divergence ranges up to log 1/min q. Where a secret is so rare that this is much more than log K,
    the bet is on the posterior's entropy instead.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}.")
    generator, count = np.random.default_rng(seed), len(mixture.masses)
    if count == 1:
        return Nats(0.0, delta=delta, samples=0)
    rare, top = float(-np.log(mixture.masses.min())), float(np.log(count))
    by_entropy = rare > 1.5 * top
    scale, shift = (top, mixture.entropy - top) if by_entropy else (rare, 0.0)

    def draw(size: int) -> np.ndarray:
        index = generator.choice(len(mixture.weight), size, p=mixture.weight)
        noise = generator.standard_normal((size, mixture.mean.shape[1]))
        shares, _ = _posteriors(mixture, index, noise, mixture.weight)
        known = top + _negative_entropies(shares) if by_entropy else _divergence_from_prior(mixture, shares)
        return np.clip(known / scale, 0.0, 1.0)

    result = bounded_mean(draw, delta=delta, width=width / scale, most=max(_count(samples), 2))
    upper = max(min(result.upper * scale + shift, mixture.entropy), 0.0)
    return Nats(upper, standard_error=result.standard_error * scale, samples=result.samples, delta=delta)


def _count(samples: int) -> int:
    if not isinstance(samples, (int, np.integer)) or samples < 1:
        raise ValueError(f"samples must be a positive whole number, got {samples!r}.")
    return int(samples)


def _posteriors(mixture: Labelled, index, noise, proposal) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the secret at draws given by component and noise, and mixture over proposal density."""
    components, spare = padded(mixture)
    scale = np.linalg.cholesky(mixture.covariance)
    points = mixture.mean[index] + np.einsum("nij,nj->ni", scale[index], noise)
    points = np.pad(points, ((0, -len(points) % BATCH), (0, spare)))
    log_proposal = np.full(len(components.labels), LOG_ZERO)
    log_proposal[: len(proposal)][proposal > 0] = np.log(proposal[proposal > 0])
    batches = points.reshape(-1, BATCH, points.shape[1])
    parts = [_posterior(components, log_proposal, batch) for batch in batches]
    shares, ratio = (np.concatenate([np.asarray(part) for part in kind]) for kind in zip(*parts, strict=True))
    return shares[: len(index), : len(mixture.masses)], ratio[: len(index)]


def _divergence_from_prior(mixture: Labelled, shares: np.ndarray) -> np.ndarray:
    """g: Kullback-Leibler divergence of posteriors from the prior."""
    return _negative_entropies(shares) - shares @ np.log(mixture.masses)


def _negative_entropies(shares: np.ndarray) -> np.ndarray:
    """Σ p log p of each row."""
    return (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)

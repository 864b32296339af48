"""I(Θ; Y) of a labelled mixture given as numpy arrays, by any method of the library. Float64."""

import difflib
import inspect
import math
from collections.abc import Callable

import jax
import numpy as np

from veil.leakage.closed_forms import coupled, matched, reference
from veil.leakage.confidence import bounded_mean
from veil.leakage.estimate import curve_order, posterior_and_ratio
from veil.leakage.inputs import Labelled, Nats, checked, padded
from veil.leakage.paper import paper_bounds
from veil.leakage.quadrature import quadrature
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


# Each program is compiled once per padded size, for all methods that share it.
_pairs = jax.jit(lambda components, alpha: (paper_bounds(components, alpha), coupled(components)))

_reference = jax.jit(reference)

_matched = jax.jit(matched)


def mutual_information(secret, weight, mean, covariance, method: str = "estimate", **options) -> Nats:
    """Information in nats that one release Y carries about the secret Θ, if Y is a Gaussian mixture.

    Component i belongs to secret `secret[i]` and has weight `weight[i]`; P(Θ = k) is the weight of secret k.

    Args:
        secret: (N,) integer labels; groups may have any sizes.
        weight: (N,) weights, not negative, sum one (tolerance 1e-6).
        mean: (N, d) means, d = 1..8.
        covariance: (N, d, d) symmetric positive definite covariances.
        method: "estimate" (unbiased; options samples, seed), "confidence_bound" (upper bound that holds
            with probability 1 − delta; options delta, width, samples, seed), "quadrature" (d ≤ 2; option
            step), or a rigorous upper bound without sampling: "closed_form" (the least of the following),
            "trivial", "kl_chernoff" and "regime_adaptive" (option alpha), "reference", "matched", "coupled".
        **options: options of the method.

    Returns:
        A float that also carries `standard_error`, `samples`, `delta` and `error` where they exist.
    """
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        raise ValueError(f"method '{method}' is unknown{hint} Choose one of {', '.join(METHODS)}.")
    known = list(inspect.signature(METHODS[method]).parameters)[1:]
    for name in options:
        if name not in known:
            takes = ", ".join(known) or "no options"
            raise ValueError(f"option '{name}' is unknown to method '{method}', which takes {takes}.")
    mixture = checked(secret, weight, mean, covariance)
    with jax.enable_x64(True):
        return METHODS[method](mixture, **options)


def mixture_kernel_components(secret, weight, share, mean, covariance):
    """Components of Gaussian-mixture kernels, ready for `mutual_information`: N·J of them.

    Particle i releases Σ_j share[i, j] N(mean[i, j], covariance[i, j]).

    Args:
        secret: (N,) labels of the particles.
        weight: (N,) weights of the particles.
        share: (N, J) mixture weights of each kernel, rows sum to one.
        mean: (N, J, d) means.
        covariance: (N, J, d, d) covariances.

    Returns:
        Labels (N·J,), weights (N·J,), means (N·J, d) and covariances (N·J, d, d).
    """
    share, mean, covariance = np.asarray(share, float), np.asarray(mean, float), np.asarray(covariance, float)
    if share.ndim != 2 or np.any(np.abs(share.sum(axis=1) - 1.0) > 1e-6):
        raise ValueError("share must have shape (N, J) and rows that sum to one; divide each row by its sum.")
    size = mean.shape[-1]
    joint = (np.asarray(weight, float)[:, None] * share).reshape(-1)
    labels = np.repeat(np.asarray(secret), share.shape[1])
    return labels, joint, mean.reshape(-1, size), covariance.reshape(-1, size, size)


def _by_trivial(mixture: Labelled) -> Nats:
    return Nats(mixture.entropy)


def _by_kl_chernoff(mixture: Labelled, alpha: float = 0.5) -> Nats:
    return Nats(_paper(mixture, alpha)[0].kl_chernoff)


def _by_regime_adaptive(mixture: Labelled, alpha: float = 0.5) -> Nats:
    return Nats(_paper(mixture, alpha)[0].regime_adaptive)


def _by_coupled(mixture: Labelled) -> Nats:
    return Nats(_paper(mixture, 0.5)[1])


def _by_reference(mixture: Labelled) -> Nats:
    components, spare = padded(mixture)
    return Nats(_reference(components, np.float64(spare)))


def _by_matched(mixture: Labelled) -> Nats:
    return Nats(_matched(padded(mixture)[0]))


def _by_closed_form(mixture: Labelled) -> Nats:
    rungs = [method(mixture) for method in (_by_regime_adaptive, _by_coupled, _by_reference, _by_matched)]
    return Nats(max(0.0, min(mixture.entropy, *(rung for rung in rungs if math.isfinite(rung)))))


def _by_quadrature(mixture: Labelled, step: float | None = None) -> Nats:
    result = quadrature(*mixture, step=step)
    return Nats(result.value, error=result.error)


METHODS: dict[str, Callable[..., Nats]] = {
    "estimate": by_estimate,
    "confidence_bound": by_confidence_bound,
    "quadrature": _by_quadrature,
    "closed_form": _by_closed_form,
    "trivial": _by_trivial,
    "kl_chernoff": _by_kl_chernoff,
    "regime_adaptive": _by_regime_adaptive,
    "reference": _by_reference,
    "matched": _by_matched,
    "coupled": _by_coupled,
}


def _paper(mixture: Labelled, alpha: float):
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha}.")
    return _pairs(padded(mixture)[0], np.float64(alpha))

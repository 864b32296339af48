"""The public door: I(Θ; Y) of any labelled Gaussian mixture, numpy in, nats out."""

import difflib
import inspect
from collections.abc import Callable

import jax
import numpy as np
from scipy.special import ndtri, xlogy
from scipy.stats import qmc

from veil.leakage.confidence import bounded_mean
from veil.leakage.coupling import coupled
from veil.leakage.curve import curve_order
from veil.leakage.estimate import posterior_and_ratio
from veil.leakage.inputs import Labelled, checked, padded
from veil.leakage.ladder import reference
from veil.leakage.matching import matched
from veil.leakage.nats import Nats
from veil.leakage.paper import paper_bounds
from veil.leakage.quadrature import quadrature
from veil.types import LOG_ZERO

BATCH = 4096  # points per call of the posterior program

# One program per row: each is compiled once per padded size, for all methods that share it.
_pairs = jax.jit(lambda components, alpha: (paper_bounds(components, alpha), coupled(components)))
_reference = jax.jit(reference)
_matched = jax.jit(matched)
_posterior = jax.jit(posterior_and_ratio)


def mutual_information(secret, weight, mean, covariance, method: str = "estimate", **options) -> Nats:
    """Information in nats that one release Y carries about the secret Θ, if Y is a Gaussian mixture.

    Component i belongs to secret `secret[i]` and has weight `weight[i]`: P(Θ = k) = Σ weight[secret == k].

    Args:
        secret: (N,) integer labels; groups may have any sizes.
        weight: (N,) weights, not negative, sum one (tolerance 1e-6).
        mean: (N, d) means, d = 1..8.
        covariance: (N, d, d) symmetric positive definite covariances.
        method: "estimate" (unbiased; options samples, seed), "confidence_bound" (upper bound that holds with
            probability 1 − delta; options delta, width, samples, seed), "quadrature" (d ≤ 2; option step), or a
            rigorous upper bound without sampling: "closed_form" (the least of the following), "trivial",
            "kl_chernoff" and "regime_adaptive" (option alpha), "reference", "matched", "coupled".
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
            raise ValueError(f"option '{name}' is unknown to method '{method}'; it takes {known or 'no options'}.")
    mixture = checked(secret, weight, mean, covariance)
    with jax.enable_x64(True):
        return METHODS[method](mixture, **options)


def mixture_kernel_components(secret, weight, share, mean, covariance):
    """Components of Gaussian-mixture kernels: particle i releases Σ_j share[i, j] N(mean[i, j], covariance[i, j]).

    Args:
        secret: (N,) labels of the particles.
        weight: (N,) weights of the particles.
        share: (N, J) mixture weights of each kernel, rows sum to one.
        mean: (N, J, d) means.
        covariance: (N, J, d, d) covariances.

    Returns:
        The four arrays `mutual_information` takes, with N·J components.
    """
    share, mean, covariance = np.asarray(share, float), np.asarray(mean, float), np.asarray(covariance, float)
    if share.ndim != 2 or np.any(np.abs(share.sum(axis=1) - 1.0) > 1e-6):
        raise ValueError("share must have shape (N, J) and rows that sum to one; divide each row by its sum.")
    size = mean.shape[-1]
    joint = (np.asarray(weight, float)[:, None] * share).reshape(-1)
    labels = np.repeat(np.asarray(secret), share.shape[1])
    return labels, joint, mean.reshape(-1, size), covariance.reshape(-1, size, size)


# ---- methods ----


def _by_trivial(mixture: Labelled) -> Nats:
    return Nats(mixture.entropy)


def _by_kl_chernoff(mixture: Labelled, alpha: float = 0.5) -> Nats:
    return Nats(_pairs(padded(mixture)[0], _between_zero_and_one(alpha))[0].kl_chernoff)


def _by_regime_adaptive(mixture: Labelled, alpha: float = 0.5) -> Nats:
    return Nats(_pairs(padded(mixture)[0], _between_zero_and_one(alpha))[0].regime_adaptive)


def _by_reference(mixture: Labelled) -> Nats:
    return Nats(_reference(padded(mixture)[0], np.float64(padded(mixture)[1])))


def _by_matched(mixture: Labelled) -> Nats:
    return Nats(_matched(padded(mixture)[0]))


def _by_coupled(mixture: Labelled) -> Nats:
    return Nats(_pairs(padded(mixture)[0], np.float64(0.5))[1])


def _by_closed_form(mixture: Labelled) -> Nats:
    components, spare = padded(mixture)
    paper, coupling = _pairs(components, np.float64(0.5))
    rungs = (
        mixture.entropy,
        float(paper.regime_adaptive),
        float(coupling),
        float(_reference(components, np.float64(spare))),
        float(_matched(components)),
    )
    return Nats(max(min(rungs), 0.0))


def _by_quadrature(mixture: Labelled, step: float = 0.5) -> Nats:
    result = quadrature(*mixture, step=step)
    return Nats(result.value, error=result.error)


def _by_estimate(mixture: Labelled, samples: int = 16384, seed: int = 0) -> Nats:
    """Randomised quasi-Monte Carlo: 32 independent scrambles, whose spread gives the standard error.

    Half of the points are drawn as the release is; the others visit every secret and every component
    alike and are weighted down, or a rare secret would be missed and the error with it.
    """
    scrambles, size = 32, mixture.mean.shape[1]
    each = 1 << max(0, -(-samples // scrambles) - 1).bit_length()
    even = mixture.weight / mixture.masses[mixture.secret] / len(mixture.masses)
    proposal = 0.5 * mixture.weight + 0.25 * even + 0.25 * (mixture.weight > 0) / np.sum(mixture.weight > 0)
    order = curve_order(mixture.mean, np.zeros_like(mixture.secret), np)
    edges = np.cumsum(proposal[order])
    draws = []
    for stream in np.random.default_rng(seed).spawn(scrambles):
        uniforms = qmc.Sobol(size + 1, scramble=True, rng=stream).random(each)
        place = np.minimum(np.searchsorted(edges, uniforms[:, 0] * edges[-1], side="right"), len(order) - 1)
        draws.append((order[place], ndtri(np.clip(uniforms[:, 1:], 1e-15, 1.0 - 1e-15))))
    index, noise = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    shares, ratio = _posteriors(mixture, index, noise, proposal)
    values = (ratio * _divergence_from_prior(mixture, shares)).reshape(scrambles, each).mean(axis=1)
    error = values.std(ddof=1) / np.sqrt(scrambles)
    return Nats(values.mean(), standard_error=float(error), samples=scrambles * each)


def _by_confidence_bound(
    mixture: Labelled, delta: float = 1e-6, width: float = 0.01, samples: int = 2**17, seed: int = 0
) -> Nats:
    """Betting on the divergence of the posterior, or on its entropy if some secret is so rare that it bounds better."""
    _between_zero_and_one(delta)
    generator = np.random.default_rng(seed)
    count = len(mixture.masses)
    rare, top = float(-np.log(mixture.masses.min())), float(np.log(count))
    by_entropy = rare > 1.5 * top
    scale = top if by_entropy else rare
    if count == 1:
        return Nats(0.0, delta=delta, samples=0)

    def draw(size: int) -> np.ndarray:
        index = generator.choice(len(mixture.weight), size, p=mixture.weight)
        shares, _ = _posteriors(mixture, index, generator.standard_normal((size, mixture.mean.shape[1])), mixture.weight)
        values = top + xlogy(shares, shares).sum(axis=1) if by_entropy else _divergence_from_prior(mixture, shares)
        return np.clip(values / scale, 0.0, 1.0)

    result = bounded_mean(draw, delta=delta, width=width / scale, most=samples)
    shift = mixture.entropy - top if by_entropy else 0.0
    upper = min(result.upper * scale + shift, mixture.entropy)
    return Nats(max(upper, 0.0), standard_error=result.standard_error * scale, samples=result.samples, delta=delta)


METHODS: dict[str, Callable[..., Nats]] = {
    "estimate": _by_estimate,
    "confidence_bound": _by_confidence_bound,
    "quadrature": _by_quadrature,
    "closed_form": _by_closed_form,
    "trivial": _by_trivial,
    "kl_chernoff": _by_kl_chernoff,
    "regime_adaptive": _by_regime_adaptive,
    "reference": _by_reference,
    "matched": _by_matched,
    "coupled": _by_coupled,
}


def _between_zero_and_one(value: float) -> np.float64:
    if not 0.0 < value < 1.0:
        raise ValueError(f"alpha and delta must lie strictly between 0 and 1, got {value}.")
    return np.float64(value)


def _posteriors(mixture: Labelled, index, noise, proposal) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the secret at draws given by component and noise, and the density ratio to the proposal."""
    components, spare = padded(mixture)
    scale = np.linalg.cholesky(mixture.covariance)
    points = mixture.mean[index] - mixture.weight @ mixture.mean + np.einsum("nij,nj->ni", scale[index], noise)
    points = np.pad(points, ((0, -len(points) % BATCH), (0, spare)))
    log_proposal = np.full(len(components.labels), LOG_ZERO)
    log_proposal[: len(proposal)][proposal > 0] = np.log(proposal[proposal > 0])
    batches = points.reshape(-1, BATCH, points.shape[1])
    parts = [_posterior(components, log_proposal, batch) for batch in batches]
    shares, ratio = (np.concatenate([np.asarray(part) for part in kind]) for kind in zip(*parts, strict=True))
    return shares[: len(index), : len(mixture.masses)], ratio[: len(index)]


def _divergence_from_prior(mixture: Labelled, shares: np.ndarray) -> np.ndarray:
    """g: Kullback-Leibler divergence of posteriors from the prior."""
    return (xlogy(shares, shares) - shares * np.log(mixture.masses)).sum(axis=1)


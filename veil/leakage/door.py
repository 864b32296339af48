"""The public door: I(Θ; Y) of any labelled Gaussian mixture, numpy in, nats out."""

import difflib
import inspect
import math
from collections.abc import Callable

import jax
import numpy as np

from veil.leakage.coupling import coupled
from veil.leakage.inputs import Labelled, checked, padded
from veil.leakage.ladder import reference
from veil.leakage.matching import matched
from veil.leakage.nats import Nats
from veil.leakage.paper import paper_bounds
from veil.leakage.quadrature import quadrature
from veil.leakage.sampled import by_confidence_bound, by_estimate

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

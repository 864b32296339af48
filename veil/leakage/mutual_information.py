"""I(Θ; Y) of a labelled mixture given as numpy arrays, by any method of the library.

Float64, but for two methods on large mixtures: docs/leakage.md.
"""

from dataclasses import fields

import jax
import numpy as np

from veil.leakage.inputs import Nats, checked
from veil.registry import LEAKAGE, guess


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
    able = LEAKAGE.able("of_mixture")
    if method not in able:
        hint = guess(str(method), able)
        raise ValueError(f"method '{method}' is unknown.{hint} Choose one of {', '.join(able)}.")
    kind = LEAKAGE[method]
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            takes = ", ".join(known) or "no options"
            raise ValueError(f"option '{name}' is unknown to method '{method}', which takes {takes}.")
    mixture = checked(secret, weight, mean, covariance)
    with jax.enable_x64(True):
        return kind(**options).of_mixture(mixture)


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

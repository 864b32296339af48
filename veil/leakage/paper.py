"""The bounds of the paper, and how tight they are."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from veil.laws import LOG_TWO_PI, Components, bhattacharyya, kl
from veil.leakage.entropy import (
    ROUNDING,
    chernoff_row,
    kl_entropy,
    moment_entropy,
    prepare,
    standardised,
    within,
)
from veil.leakage.inputs import LARGE, Labelled, Nats, extremes, padded
from veil.leakage.pair_sums import WIDE, chernoff_sums, kl_sums, rounding_error
from veil.registry import LEAKAGE
from veil.types import Key, Scalar


class PaperBounds(eqx.Module):
    """Both bounds of the paper and the entropies they are made of, in nats."""

    kl_chernoff: Scalar
    regime_adaptive: Scalar
    kl_entropy: Scalar
    moment_entropy: Scalar
    chernoff_entropy: Scalar


def paper_bounds(components: Components, alpha: Scalar | float = 0.5) -> PaperBounds:
    """KL/Chernoff mixture bound and regime-adaptive bound on I(Θ; Y)."""
    components, volume = standardised(components)
    pairwise = kl_entropy(components.log_weights, components.parts)
    moments = moment_entropy(components.log_weights, components.parts)
    conditional = jnp.exp(components.log_weights) @ within(chernoff_row(alpha), components)
    bounds = (pairwise - conditional, jnp.minimum(pairwise, moments) - conditional)
    return PaperBounds(*bounds, pairwise + volume, moments + volume, conditional + volume)


def kl_chernoff(components: Components, alpha: Scalar | float = 0.5) -> Scalar:
    """H_KL(Y) − Σ q_k H_Cα(Y|k): the KL/Chernoff mixture bound."""
    return paper_bounds(components, alpha).kl_chernoff


def regime_adaptive(components: Components, alpha: Scalar | float = 0.5) -> Scalar:
    """min(H_KL, H_G)(Y) − Σ q_k H_Cα(Y|k): the regime-adaptive bound."""
    return paper_bounds(components, alpha).regime_adaptive


class Tightness(eqx.Module):
    """A bound on how far `kl_chernoff` is above the truth, and what it is made of."""

    gap: float
    within: float
    """κ: largest KL between components of one global cluster"""
    between: float
    """γ: least Bhattacharyya distance between global clusters (∞ for one cluster)"""


def tightness(
    components: Components,
    clusters: Int[np.ndarray, " N"],
    clusters_within: Int[np.ndarray, " N"],
    alpha: float = 0.5,
) -> Tightness:
    """Gap bound of the tightness corollary for a given clustering.

    Args:
        components: the labelled mixture.
        clusters: a cluster index per component, for the whole mixture.
        clusters_within: a cluster index per component, read within each secret.
        alpha: the Chernoff parameter of the bound.
    """
    divergences, distances = (
        np.asarray(jax.vmap(lambda a, f=f: jax.vmap(lambda b: f(a, b))(components.parts))(components.parts))
        for f in (kl, bhattacharyya)
    )
    weights, labels = np.exp(np.asarray(components.log_weights)), np.asarray(components.labels)
    used = weights > 0
    gap, near, far = _cluster_gap(divergences, distances, np.asarray(clusters), used, alpha)
    total = gap
    for secret in np.unique(labels[used]):
        own = used & (labels == secret)
        inside = _cluster_gap(divergences, distances, np.asarray(clusters_within), own, alpha)[0]
        total += weights[own].sum() * inside
    return Tightness(float(total), near, far)


def _cluster_gap(divergences, distances, clusters, used, alpha) -> tuple[float, float, float]:
    """κ + (|G| − 1) exp(−(1 − |1 − 2α|) γ) over the components in use, with κ and γ."""
    same = clusters[:, None] == clusters[None, :]
    pairs = used[:, None] & used[None, :]
    near = float(divergences[pairs & same].max())
    far = float(distances[pairs & ~same].min(initial=np.inf))
    count = len(np.unique(clusters[used]))
    rest = (count - 1) * np.exp(-(1.0 - abs(1.0 - 2.0 * alpha)) * far) if count > 1 else 0.0
    return near + float(rest), near, far


def information_modulus(total_variation: float, secrets: int) -> float:
    """Largest change of I(Θ; Y), in nats, when every law of the release moves by at most this much.

    If sup over (secret, state) of the total variation distance between two kernels is ε ≤ 1 − 1/K, then
    |I − I'| ≤ ε log(K − 1) + h₂(ε), and log K beyond (Alhejji and Smith's continuity of equivocation). No
    continuity of entropies is needed, since the secret is finite.

    Args:
        total_variation: ε, half the L1 distance of the densities, between 0 and 1.
        secrets: K, at least two.
    """
    if not 0.0 <= total_variation <= 1.0:
        raise ValueError(f"total_variation must lie in [0, 1], got {total_variation}: half the L1 distance.")
    if secrets < 2:
        raise ValueError(f"secrets must be at least 2, got {secrets}: one secret cannot leak.")
    if total_variation >= 1.0 - 1.0 / secrets:
        return math.log(secrets)
    return total_variation * math.log(secrets - 1) + _binary_entropy(total_variation)


def _binary_entropy(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    return -share * math.log(share) - (1.0 - share) * math.log1p(-share)


def _sorted_bounds(
    components: Components, count: Int[Array, ""], alpha: Scalar
) -> tuple[PaperBounds, Scalar]:
    """The bounds of a large mixture sorted by secret, raised by their rounding error, and that error."""
    prepared, weights = prepare(components.parts), jnp.exp(components.log_weights)
    entropies = 0.5 * (prepared.log_det + prepared.mean.shape[1] * (1.0 + LOG_TWO_PI))
    inside = (components.log_conditional, components.labels, components.secrets)
    sums = (
        kl_sums(prepared, components.log_weights, count),
        chernoff_sums(prepared, *inside, count, alpha),
    )
    logs = [jnp.log(jnp.maximum(each, jnp.finfo(each.dtype).tiny)) for each in sums]
    error = rounding_error(weights, *logs)
    pairwise, below = (weights @ (entropies - each) for each in logs)
    moments = moment_entropy(components.log_weights, components.parts)
    bounds = (pairwise - below + error, jnp.minimum(pairwise, moments) - below + error)
    return PaperBounds(*bounds, pairwise, moments, below), error


# Compiled once per padded size, for both methods.
_bounds, _bounds_large = jax.jit(paper_bounds), jax.jit(_sorted_bounds, compiler_options=WIDE)


def _paper(mixture: Labelled, alpha: float) -> tuple[PaperBounds, float | None]:
    """The bounds and, for a large mixture, the rounding error that is in them."""
    count = len(mixture.weight)
    if count <= LARGE or not _even(mixture):
        return _bounds(padded(mixture)[0], np.float64(alpha)), None
    bounds, error = _bounds_large(
        padded(mixture.by_secret, tight=True)[0], np.int32(count), np.float64(alpha)
    )
    return bounds, float(error)


def _even(mixture: Labelled) -> bool:
    """Whether products of moments and precisions keep enough digits; differences are formed otherwise."""
    narrow, wide = extremes(mixture.covariance)
    reach, size = np.max(np.sum(mixture.mean**2, axis=1)), mixture.mean.shape[1]
    cancelled = (1.0 + reach + np.max(wide)) * size / np.min(narrow)
    return bool(cancelled * np.finfo(float).eps < ROUNDING["float64"])


def sound(bound: Scalar, components: Components) -> Scalar:
    """The bound where it is a number that a bound can be, else all that could leak.

    Information is not negative. A bound clearly below zero, or not a number, tells that covariances are too
    uneven for single precision; a learner must not be paid for making them so.
    """
    broken = ~(bound > -_ROUGH)
    return jnp.where(broken, components.entropy, jnp.maximum(jnp.where(broken, 0.0, bound), 0.0))


_ROUGH = 0.01  # nats that single precision may be off by where nothing leaks


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha}.")


@LEAKAGE.register("kl_chernoff")
@dataclass(frozen=True)
class KlChernoff:
    """The paper's KL/Chernoff mixture bound; stays positive where nothing leaks."""

    alpha: float = 0.5
    """Parameter of the Chernoff divergence, between 0 and 1 (no unit)"""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The bound for a release in training."""
        del points, key
        return sound(kl_chernoff(components, self.alpha), components)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        _check_alpha(self.alpha)
        bounds, error = _paper(mixture, self.alpha)
        return Nats(bounds.kl_chernoff, error=error)


@LEAKAGE.register("regime_adaptive")
@dataclass(frozen=True)
class RegimeAdaptive:
    """The paper's regime-adaptive bound; stays positive where nothing leaks."""

    alpha: float = 0.5
    """Parameter of the Chernoff divergence, between 0 and 1 (no unit)"""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The bound for a release in training."""
        del points, key
        return sound(regime_adaptive(components, self.alpha), components)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        _check_alpha(self.alpha)
        bounds, error = _paper(mixture, self.alpha)
        return Nats(bounds.regime_adaptive, error=error)

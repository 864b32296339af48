"""The bounds of the paper, and how tight they are."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from veil.laws import Components, bhattacharyya, kl
from veil.leakage.entropy import chernoff_row, kl_entropy, moment_entropy, standardised, within
from veil.leakage.inputs import Labelled, Nats, padded
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


_bounds = jax.jit(paper_bounds)  # compiled once per padded size, for both methods


def _paper(mixture: Labelled, alpha: float) -> PaperBounds:
    return _bounds(padded(mixture)[0], np.float64(alpha))


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
        return kl_chernoff(components, self.alpha)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        _check_alpha(self.alpha)
        return Nats(_paper(mixture, self.alpha).kl_chernoff)


@LEAKAGE.register("regime_adaptive")
@dataclass(frozen=True)
class RegimeAdaptive:
    """The paper's regime-adaptive bound; stays positive where nothing leaks."""

    alpha: float = 0.5
    """Parameter of the Chernoff divergence, between 0 and 1 (no unit)"""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The bound for a release in training."""
        del points, key
        return regime_adaptive(components, self.alpha)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        _check_alpha(self.alpha)
        return Nats(_paper(mixture, self.alpha).regime_adaptive)

"""Bounds that match components with components: they vanish when the conditional mixtures coincide.

Direct Hershey-Olsen bound. Write p_k = Σ φ_ij N_i with row sums w̄_i, and p = Σ ψ_ij N_j with column sums w_j.
The log-sum inequality gives KL(p_k ‖ p) ≤ Σ φ_ij [log(φ_ij/ψ_ij) + KL(N_i ‖ N_j)]; minimised over φ it is
−Σ_i w̄_i log Σ_j (ψ_ij/w̄_i) exp(−KL_ij), a bound for *every* ψ with the right column sums.

Alternating minimisation only ever multiplies ψ by exp(−KL_ij), by a row factor and by a column factor. So
after n rounds ψ_ij = w_j softmax_i(log w̄_i + a_i − n KL_ij) within each secret, and all it needs to remember
is the vector a, which grows like n. Since any n and a give a bound, n is multiplied by 3/2 from round to
round and a is stretched with it. Two dozen rounds then lie between thirty and three hundred plain ones where
components overlap, and within a few thousandths of the limit where they do not.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from veil.laws import Components, Gaussian, kl, match_moments
from veil.leakage.entropy import (
    blocks,
    chernoff_row,
    kl_entropy,
    kl_to,
    moment_entropy,
    per_secret,
    prepare,
    standardised,
    tilt_row,
    within,
)
from veil.leakage.estimate import curve_order
from veil.leakage.inputs import LARGE, Labelled, Nats, laid_out, padded
from veil.leakage.pair_sums import WIDE
from veil.leakage.paper import RegimeAdaptive, paper_bounds
from veil.leakage.reference import reference_entropy
from veil.registry import LEAKAGE
from veil.types import LOG_ZERO, Key, Scalar

ROUNDS = (0.0, *(1.5**power for power in range(23)))

Pairs = Float[Array, "N N"]

Rows = Float[Array, " N"]


def matched(components: Components) -> Scalar:
    """Direct Hershey-Olsen bound on I(Θ; Y), in nats. The matching is held fixed in gradients."""
    components, _ = standardised(components)
    pairs = _divergences(components)
    known, fixed = lax.stop_gradient(pairs), jax.tree.map(lax.stop_gradient, components)
    factors, sharpness = _best_matching(known, fixed)
    log_match = _log_match(known, fixed, factors, sharpness)
    return _value(components, _log_rows(pairs, components, log_match))


def _best_matching(pairs: Pairs, components: Components) -> tuple[Rows, Scalar]:
    """Row factors and sharpness of the round whose bound is the least."""
    sharpness = jnp.asarray(np.array((*ROUNDS, ROUNDS[-1])), pairs.dtype)

    def improve(stretched, step):
        sharp, following = step
        log_rows = _log_rows(pairs, components, _log_match(pairs, components, stretched, sharp))
        balanced = stretched + components.log_conditional - log_rows
        longer = jnp.maximum(following / (sharp + 1.0), 1.0)
        return balanced * longer, (_value(components, log_rows), stretched)

    start = jnp.zeros_like(components.log_weights)
    _, (values, factors) = lax.scan(improve, start, (sharpness[:-1], sharpness[1:]))
    best = jnp.argmin(values)
    return factors[best], sharpness[best]


def _matched_large(components: Components) -> Scalar:
    """The bound in float64 at the best matching of a search in float32: every matching gives a bound."""
    components, _ = standardised(components)
    single = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, components
    )
    factors, sharpness = _best_matching(_divergences(single), single)
    pairs = _divergences(components)
    doubled = factors.astype(pairs.dtype), sharpness.astype(pairs.dtype)
    return _value(components, _log_rows(pairs, components, _log_match(pairs, components, *doubled)))


def _divergences(components: Components) -> Pairs:
    """KL(N_i ‖ N_j) for all pairs."""
    prepared = prepare(components.parts)
    return blocks(lambda row: kl_to(row, prepared), prepared, components.labels.shape[0])


def _log_match(pairs: Pairs, components: Components, row_factors: Rows, sharp: Scalar) -> Pairs:
    """log(ψ_ij / w_j): for every column a distribution over the rows of each secret."""
    scores = (components.log_conditional + row_factors)[:, None] - sharp * pairs

    if components.stride is not None:
        split = scores.reshape(components.secrets, components.stride, -1)
        return (split - logsumexp(split, axis=1, keepdims=True)).reshape(scores.shape)

    def normaliser(own):
        return logsumexp(jnp.where(own[:, None], scores, LOG_ZERO), axis=0)

    normalisers = lax.map(normaliser, components.membership)
    return scores - normalisers[components.labels]


def _log_rows(pairs: Pairs, components: Components, log_match: Pairs) -> Rows:
    """Log Σ_j ψ_ij exp(−KL_ij)."""
    return logsumexp(components.log_weights[None, :] + log_match - pairs, axis=1)


def _value(components: Components, log_rows: Rows) -> Scalar:
    """The bound: −Σ_i w_i log Σ_j (ψ_ij/w̄_i) exp(−KL_ij)."""
    weights = jnp.exp(components.log_weights)
    terms = jnp.where(weights > 0, log_rows - components.log_conditional, 0.0)
    return -jnp.sum(weights * terms)


def coupled(components: Components, *, by_index: bool = False) -> Scalar:
    """Coupled maximum-entropy bound on I(Θ; Y), in nats.

    Args:
        components: the labelled mixture.
        by_index: pair the components in the order they are listed (common random numbers) instead of along
            a Hilbert curve through the centred components of each secret.
    """
    components, _ = standardised(components)
    masses, members = _quantile_coupling(components, by_index)
    log_masses, entropy = components.log_masses, components.entropy

    def atom(member):
        parts = jax.tree.map(lambda leaf: leaf[member], components.parts)
        value = separate_information(log_masses, parts)
        return jnp.where(value < entropy, value, entropy)  # also where it is not a number

    return masses @ blocks(atom, members.T, components.secrets**2)


def paired(components: Components) -> Scalar:
    """The coupling of components that stand at the same place of equal blocks, in nats; no sorting.

    Each place gets the least of its weights over the secrets. What is left over is coupled by nothing, and
    counted as if it revealed the secret: little where the weights are alike, as after resampling.

    Args:
        components: in coordinates where they are about round, as `standardised` gives them.
    """
    log_masses, entropy = components.log_masses, components.entropy
    shape = (components.secrets, components.stride or 1)
    parts = jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), components.parts)
    masses = jnp.min(jnp.exp(components.log_conditional).reshape(shape), axis=0)
    values = jax.vmap(separate_information, in_axes=(None, 1))(log_masses, parts)
    capped = jnp.where(values < entropy, values, entropy)  # also where it is not a number
    return masses @ capped + (1.0 - jnp.sum(masses)) * entropy


def separate_information(log_masses: Float[Array, " K"], parts: Gaussian) -> Scalar:
    """Upper bound on the information about the label in one mixture of K Gaussians."""
    masses = jnp.exp(log_masses)
    by_moments = match_moments(log_masses, parts).entropy() - masses @ jax.vmap(Gaussian.entropy)(parts)
    divergences = jax.vmap(lambda first: jax.vmap(lambda second: kl(first, second))(parts))(parts)
    by_pairs = -masses @ logsumexp(log_masses[None, :] - divergences, axis=1)
    return jnp.minimum(by_moments, by_pairs)


def _quantile_coupling(
    components: Components, by_index: bool
) -> tuple[Float[Array, " N"], Int[Array, "K N"]]:
    """Masses of N atoms, and for each secret the component that stands at each atom."""
    labels, count = components.labels, components.labels.shape[0]
    weights = jnp.exp(components.log_conditional)
    if by_index:
        order = jnp.argsort(labels, stable=True)
    else:
        centres = jnp.where(components.membership, weights[None, :], 0.0) @ components.parts.mean
        apart = components.parts.mean - centres[labels]
        apart = jnp.where((weights > 0)[:, None], apart, 0.0)
        order = curve_order(lax.stop_gradient(apart), labels, jnp)
    sorted_labels, sorted_weights = labels[order], weights[order]

    def quantiles(secret):
        own = sorted_labels == secret
        inside = jnp.cumsum(jnp.where(own, sorted_weights, 0.0))
        inside = inside / jnp.where(inside[-1] > 0, inside[-1], 1.0)
        return jnp.where(sorted_labels < secret, -1.0, jnp.where(own, inside, 2.0))

    secrets = jnp.arange(components.secrets, dtype=labels.dtype)
    edges = jax.vmap(quantiles)(secrets)
    own_edge = edges[sorted_labels, jnp.arange(count)]
    cuts = jnp.sort(jnp.clip(own_edge, 0.0, 1.0))
    starts = jnp.concatenate([jnp.zeros_like(cuts[:1]), cuts[:-1]])
    middles = 0.5 * (starts + cuts)
    found = jax.vmap(lambda edge: jnp.searchsorted(edge, middles, side="right"))(edges)
    last = jnp.sum(labels[None, :] <= secrets[:, None], axis=1, dtype=found.dtype) - 1
    found = jnp.clip(jnp.minimum(found, last[:, None]), 0, count - 1)
    return cuts - starts, order[found]


def reference(components: Components, spare: Scalar | float = 0.0) -> Scalar:
    """Reference-mixture entropy above, TILT or Chernoff below (the better one for each secret).

    Args:
        components: the labelled mixture.
        spare: padded coordinates, see `tilt_row`.
    """
    components, _ = standardised(components)
    whole = (components.log_weights, components.parts)
    above = jnp.minimum(jnp.minimum(kl_entropy(*whole), moment_entropy(*whole)), reference_entropy(*whole))
    rows = [within(bound, components) for bound in (tilt_row(spare), chernoff_row(0.5))]
    below = jnp.maximum(*(per_secret(row, components) for row in rows))
    return above - jnp.exp(components.log_masses) @ below


class ClosedFormBounds(eqx.Module):
    """All sampling-free upper bounds on I(Θ; Y), in nats; the least of them is `closed_form`."""

    trivial: Scalar
    regime_adaptive: Scalar
    reference: Scalar
    matched: Scalar
    coupled: Scalar

    @property
    def closed_form(self) -> Scalar:
        """The least of the finite bounds, not below zero."""
        bounds = jnp.stack([self.regime_adaptive, self.reference, self.matched, self.coupled])
        bounds = jnp.where(jnp.isfinite(bounds), bounds, self.trivial)
        return jnp.maximum(jnp.minimum(jnp.min(bounds), self.trivial), 0.0)


def closed_form_bounds(components: Components, *, by_index: bool = False) -> ClosedFormBounds:
    """All sampling-free upper bounds on I(Θ; Y).

    `by_index` couples components in the order in which they are listed, as common random numbers do.
    """
    return ClosedFormBounds(
        trivial=components.entropy,
        regime_adaptive=paper_bounds(components).regime_adaptive,
        reference=reference(components),
        matched=matched(components),
        coupled=coupled(components, by_index=by_index),
    )


def closed_form(components: Components, *, by_index: bool = False) -> Scalar:
    """The least of the rigorous sampling-free bounds on I(Θ; Y), in nats."""
    return closed_form_bounds(components, by_index=by_index).closed_form


# Each program is compiled once per padded size.
_coupled, _matched = jax.jit(coupled), jax.jit(matched)
_reference = jax.jit(reference, compiler_options=WIDE)
_large = jax.jit(_matched_large, compiler_options=WIDE)


@LEAKAGE.register("closed_form")
@dataclass(frozen=True)
class ClosedForm:
    """The least of all bounds without sampling."""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The bound for a release in training, whose particles share their noise."""
        del points, key
        return closed_form(components, by_index=True)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture, at most H(q)."""
        bounds = [method().of_mixture(mixture) for method in (RegimeAdaptive, Coupled, Reference, Matched)]
        return Nats(max(0.0, min(mixture.entropy, *(bound for bound in bounds if math.isfinite(bound)))))


@LEAKAGE.register("trivial")
@dataclass(frozen=True)
class Trivial:
    """H(q): nothing can leak more."""

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The entropy of the secret."""
        return Nats(mixture.entropy)


@LEAKAGE.register("reference")
@dataclass(frozen=True)
class Reference:
    """Entropies against entropies, by a reference mixture."""

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        components, spare = laid_out(mixture)
        return Nats(_reference(components, np.float64(spare)))


@LEAKAGE.register("matched")
@dataclass(frozen=True)
class Matched:
    """Components matched with components, by relative entropies."""

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        program = _matched if len(mixture.weight) <= LARGE else _large
        return Nats(program(laid_out(mixture)[0]))


@LEAKAGE.register("coupled")
@dataclass(frozen=True)
class Coupled:
    """Components coupled along a curve, by moments."""

    def of_mixture(self, mixture: Labelled) -> Nats:
        """The bound for a mixture."""
        return Nats(_coupled(padded(mixture)[0]))

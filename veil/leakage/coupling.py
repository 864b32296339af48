"""Coupled maximum entropy: give the adversary a label Z that says nothing about the secret.

Couple the conditional mixtures, so that one draw of Z = (i_1, …, i_K) picks a component for every secret with
the same mass whatever the secret is. Then I(Θ; Y) ≤ I(Θ; Y, Z) = I(Θ; Y | Z), and given Z each secret has a
single Gaussian: its entropy is exact, and the mixture of K Gaussians has at most the entropy of its moments.
Couplings are quantile couplings along a curve; particles driven by common noise pair up with themselves.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from veil.components import Components
from veil.laws import Gaussian, kl, match_moments
from veil.leakage.curve import curve_order
from veil.leakage.rows import blocks, standardised
from veil.types import Scalar


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
    counted as if it told the secret: little where the weights are alike, as after resampling.

    Args:
        components: in coordinates where they are about round, as `standardised` gives them.
    """
    log_masses, entropy = components.log_masses, components.entropy
    shape = (components.secrets, components.stride or 1)
    parts = jax.tree.map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), components.parts)
    masses = jnp.min(jnp.exp(components.log_conditional).reshape(shape), axis=0)
    values = jax.vmap(separate_information, in_axes=(None, 1))(log_masses, parts)
    told = jnp.where(values < entropy, values, entropy)  # also where it is not a number
    return masses @ told + (1.0 - jnp.sum(masses)) * entropy


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

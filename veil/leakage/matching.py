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

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil.components import Components
from veil.leakage.overlap import kl_to
from veil.leakage.rows import blocks, prepare, standardised
from veil.types import LOG_ZERO, Scalar

ROUNDS = (0.0, *(1.5**power for power in range(23)))

Pairs = Float[Array, "N N"]
Rows = Float[Array, " N"]


def matched(components: Components) -> Scalar:
    """Direct Hershey-Olsen bound on I(Θ; Y), in nats. The matching is held fixed in gradients."""
    components, _ = standardised(components)
    pairs = _divergences(components)
    known, fixed = lax.stop_gradient(pairs), jax.tree.map(lax.stop_gradient, components)
    sharpness = jnp.asarray(np.array((*ROUNDS, ROUNDS[-1])), pairs.dtype)

    def improve(stretched, step):
        sharp, following = step
        log_rows = _log_rows(known, fixed, _log_match(known, fixed, stretched, sharp))
        balanced = stretched + fixed.log_conditional - log_rows
        longer = jnp.maximum(following / (sharp + 1.0), 1.0)
        return balanced * longer, (_value(fixed, log_rows), stretched)

    start = jnp.zeros_like(fixed.log_weights)
    _, (values, factors) = lax.scan(improve, start, (sharpness[:-1], sharpness[1:]))
    best = jnp.argmin(values)
    log_match = _log_match(known, fixed, factors[best], sharpness[best])
    return _value(components, _log_rows(pairs, components, log_match))


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

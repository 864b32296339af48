"""Exact leakage of a release that takes finitely many values."""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from veil.beliefs.particles import ParticleBelief
from veil.laws import Kernel
from veil.types import LOG_ZERO, Scalar, Secret, State

_UNSEEN = -80.0  # log-mass below which a secret cannot move the information by 1e-32 nats


def finite_information(log_masses: Float[Array, " K"], log_probs: Float[Array, "K J"]) -> Scalar:
    """I(Θ; Y) in nats for p(y_j | θ_k) = exp(log_probs[k, j]) and normalised masses of the secrets.

    Summed as Σ q_k p̄_j (r log r − r + 1) with r = p(y_j | θ_k)/p̄_j, the second half of which adds up to zero:
    no term is negative, so little is lost to rounding where little leaks. Zero masses and impossible values
    are allowed, as log 0 or `LOG_ZERO`.
    """
    log_masses, log_probs = jnp.maximum(log_masses, LOG_ZERO), jnp.maximum(log_probs, LOG_ZERO)
    log_marginal = logsumexp(log_masses[:, None] + log_probs, axis=0)
    # A secret that is present has log r ≤ −log q, so that nothing overflows.
    present = log_masses > _UNSEEN
    log_ratio = jnp.where(present[:, None], log_probs - log_marginal[None, :], 0.0)
    terms = jnp.exp(log_ratio) * log_ratio - jnp.expm1(log_ratio)
    return jnp.exp(log_masses) @ (terms @ jnp.exp(log_marginal))


def finite_release(belief: ParticleBelief, kernel: Kernel) -> Float[Array, "K J"]:
    """Log p(y_j | θ_k, h_t): the kernel's masses averaged over the particles of each secret.

    The atoms must be the same for every secret and state; a kernel that moves them is refused.
    """

    def law(secret: Secret, state: State) -> tuple[Array, Array]:
        atoms, log_masses = kernel(secret, state).masses()
        return log_masses, atoms

    # An output without axis is one that does not depend on what is mapped over: JAX checks it.
    over = jax.vmap(jax.vmap(law, (None, 0), (0, None)), (0, 0), (0, None))
    try:
        log_masses, _ = over(belief.secrets, belief.states)
    except ValueError as error:
        raise ValueError(
            "The atoms of this kernel depend on the secret or the state, so they have no masses in common. "
            "Use a kernel on a fixed grid, such as that of a GridPolicy."
        ) from error
    return logsumexp(belief.log_weights[:, :, None] + jnp.maximum(log_masses, LOG_ZERO), axis=1)

"""Template of a leakage method: copy, rename, replace the formula. `python measure.py` checks it."""

import jax
import jax.numpy as jnp

from veil.checks.measure import check_measure
from veil.laws import Components, kl


def pairwise(components: Components, *, key=None):
    """I(secret; Y) <= I(component; Y) <= sum_ij w_i w_j KL(i || j), by convexity; at most the entropy.

    `components` is the mixture that the next release follows: log-weights (N,), Gaussians (N,), and the label
    of the secret that each belongs to. A bound without randomness ignores the key.
    """
    weights = jnp.exp(components.log_weights)
    every = jax.vmap(jax.vmap(kl, (None, 0)), (0, None))(components.parts, components.parts)
    return jnp.minimum(weights @ (every @ weights), components.entropy)


example = pairwise

if __name__ == "__main__":
    print(check_measure(example))  # side="estimate" for one that is unbiased

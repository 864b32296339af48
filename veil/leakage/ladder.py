"""The ladder of rigorous, sampling-free upper bounds on I(Θ; Y), and its minimum."""

import equinox as eqx
import jax.numpy as jnp

from veil.components import Components
from veil.leakage.coupling import coupled
from veil.leakage.entropy import chernoff_row, kl_entropy, moment_entropy
from veil.leakage.matching import matched
from veil.leakage.paper import paper_bounds
from veil.leakage.reference import reference_entropy
from veil.leakage.rows import per_secret, standardised, within
from veil.leakage.tilt import tilt_row
from veil.types import Scalar


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


class Ladder(eqx.Module):
    """Every rung, in nats. Each is an upper bound; the least is `closed_form`."""

    trivial: Scalar
    regime_adaptive: Scalar
    reference: Scalar
    matched: Scalar
    coupled: Scalar

    @property
    def closed_form(self) -> Scalar:
        """The least rung that is a number, not below zero."""
        rungs = jnp.stack([self.regime_adaptive, self.reference, self.matched, self.coupled])
        rungs = jnp.where(jnp.isfinite(rungs), rungs, self.trivial)
        return jnp.maximum(jnp.minimum(jnp.min(rungs), self.trivial), 0.0)


def ladder(components: Components, *, by_index: bool = False) -> Ladder:
    """All rungs. `by_index` couples components in the order they are listed (common random numbers)."""
    return Ladder(
        trivial=components.entropy,
        regime_adaptive=paper_bounds(components).regime_adaptive,
        reference=reference(components),
        matched=matched(components),
        coupled=coupled(components, by_index=by_index),
    )


def closed_form(components: Components, *, by_index: bool = False) -> Scalar:
    """The least of the rigorous sampling-free bounds on I(Θ; Y), in nats."""
    return ladder(components, by_index=by_index).closed_form

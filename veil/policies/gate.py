"""A kernel with a gate: open, it is another kernel; shut, what comes out is a value that the public knows."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from veil.kernel import Kernel
from veil.laws import Held
from veil.types import Scalar, Secret, Shared, State


class Gate(Kernel):
    """`inner` where open; otherwise all mass on `value`, whatever the secret and the state.

    Attributes:
        open: whether the inner kernel acts.
        withheld: whether nothing at all is released, so that the environment goes without. A reader may
            take `value` for what it did not get.
        value: a function of the public history.
        charge: nats that this release is charged.
        inner: the other kernel.
    """

    open: Bool[Array, ""]
    withheld: Bool[Array, ""]
    value: Shared
    charge: Scalar
    inner: Kernel

    def __call__(self, secret: Secret, state: State) -> Held:
        """The inner law, or the public value."""
        return Held(self.open, self.value, self.inner(secret, state))

    def shut_if(self, missing: Bool[Array, ""]) -> "Gate":
        """The same, but nothing is released and charged where there is nothing to release."""
        return eqx.tree_at(
            lambda gate: (gate.open, gate.withheld, gate.charge),
            self,
            (self.open & ~missing, self.withheld | missing, jnp.where(missing, 0.0, self.charge)),
        )

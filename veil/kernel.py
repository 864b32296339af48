"""The kernel contract: what a sharing policy decides before it sees the state."""

import abc

import equinox as eqx

from veil.laws import Law
from veil.types import Secret, State


class Kernel(eqx.Module):
    """K(· | θ, x): maps (secret, state) to the law of the release. Written for one, batched by `vmap`."""

    @abc.abstractmethod
    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the release if the secret and the state were these."""

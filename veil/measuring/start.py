"""A system that starts where a recording does."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import ArrayLike

from veil.laws import Gaussian
from veil.systems.base import System
from veil.systems.prior import Prior
from veil.systems.variants import Variant
from veil.types import External, Secret, State


class RecordedStart(Variant):
    """A system whose first state is known as far as it is recorded: the model of whoever reads a log.

    A recording begins anywhere, not where the system's own episodes begin. What is not recorded keeps the
    inner system's law, taken to be independent of the rest.

    Attributes:
        inner: the system.
        state: the first row; coordinates that are not recorded are not read.
        seen: which coordinates are recorded.
    """

    inner: System
    state: State
    seen: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, inner: System, state: ArrayLike, seen: tuple[bool, ...]):
        self.inner = inner
        self.state = jnp.asarray(state, inner.prior.secrets.dtype)
        self.seen = seen

    @property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner system's."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """All mass on the recorded coordinates, for every secret."""
        law, seen = self.inner.initial(secret), jnp.asarray(self.seen)
        return Gaussian(
            jnp.where(seen, self.state, law.mean),
            jnp.where(seen[:, None] | seen[None, :], jnp.zeros_like(law.scale), law.scale),
        )

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner system's."""
        return self.inner.transition(secret, state, external)

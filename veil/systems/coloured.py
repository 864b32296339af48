"""Any system with noise that lasts: a part of it is white, the rest forgets itself step by step."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian
from veil.systems.base import Field, System
from veil.systems.variants import WithHidden, stacked_law
from veil.types import External, Secret, State

# pyright: reportIncompatibleVariableOverride=false
# A wrapper learns from its inner system what other systems state in their class.


class WithColouredNoise(WithHidden):
    """A system whose noise is coloured; the coloured part is a state that is not shared.

    With the inner law x' ~ N(f, L Lᵀ), the noise of a step is L (√(1 − q) e + √q ε) with white ε and
    e' = r e + √(1 − r²) ν. Its size is that of the inner noise, and its autocorrelation after k steps is
    (1 − q) r^k, per direction of L.

    Attributes:
        inner: the system with white noise.
        keep: r, per coordinate of the state.
        white: q, per coordinate of the state; positive.
    """

    inner: System
    keep: Float[Array, " N"]
    white: Float[Array, " N"]

    def __init__(self, inner: System, keep: ArrayLike, white: ArrayLike):
        kind, size = inner.prior.secrets.dtype, len(inner.state_fields)
        self.inner = inner
        self.keep = jnp.broadcast_to(jnp.asarray(keep, kind), (size,))
        self.white = jnp.broadcast_to(jnp.asarray(white, kind), (size,))

    @property
    def hidden_fields(self) -> tuple[Field, ...]:
        """An error for each coordinate of the state, in units of the noise of a step."""
        return tuple(Field(f"error of {field.name}", "", -50.0, 50.0) for field in self.inner.state_fields)

    def initial(self, secret: Secret) -> Gaussian:
        """The inner law, and errors in their stationary law."""
        law = self.inner.initial(secret)
        return stacked_law(
            law, Gaussian(jnp.zeros_like(law.mean), jnp.eye(len(law.mean), dtype=law.mean.dtype))
        )

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner mean, moved by the error; the rest of the noise is white."""
        own = self.shown(state)
        error = state[own.shape[0] :]
        law = self.inner.transition(secret, own, external)
        mean = law.mean + law.scale @ (jnp.sqrt(1.0 - self.white) * error)
        return stacked_law(
            Gaussian(mean, law.scale * jnp.sqrt(self.white)[None, :]),
            Gaussian(self.keep * error, jnp.diag(jnp.sqrt(1.0 - self.keep**2))),
        )

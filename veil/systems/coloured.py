"""Any system with noise that lasts: a part of it is white, the rest forgets itself step by step."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian
from veil.systems.base import Field, Prior, System
from veil.systems.variants import Variant
from veil.types import External, Scalar, Secret, Shared, State

# pyright: reportIncompatibleVariableOverride=false
# A wrapper learns from its inner system what other systems state in their class.


class WithColouredNoise(Variant):
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
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """The inner fields, and an error for each of them in units of the noise of a step."""
        own = self.inner.state_fields
        return (*own, *(Field(f"error of {field.name}", "", -50.0, 50.0) for field in own))

    def initial(self, secret: Secret) -> Gaussian:
        """The inner law, and errors in their stationary law."""
        law = self.inner.initial(secret)
        size = law.mean.shape[0]
        scale = jnp.zeros((2 * size, 2 * size), law.scale.dtype)
        scale = scale.at[:size, :size].set(law.scale).at[size:, size:].set(jnp.eye(size, dtype=scale.dtype))
        return Gaussian(jnp.concatenate([law.mean, jnp.zeros_like(law.mean)]), scale)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner mean, moved by the error; the rest of the noise is white."""
        size = state.shape[0] // 2
        own, error = state[:size], state[size:]
        law = self.inner.transition(secret, own, external)
        mean = law.mean + law.scale @ (jnp.sqrt(1.0 - self.white) * error)
        scale = jnp.zeros((2 * size, 2 * size), law.scale.dtype)
        scale = scale.at[:size, :size].set(law.scale * jnp.sqrt(self.white)[None, :])
        scale = scale.at[size:, size:].set(jnp.diag(jnp.sqrt(1.0 - self.keep**2)))
        return Gaussian(jnp.concatenate([mean, self.keep * error]), scale)

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Scalar | Mapping[str, Scalar]:
        """The inner cost, which does not see the errors."""
        return self.inner.cost(secret, self._own(state), self._own(after), shared, external)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """The inner distortion, which does not see the errors."""
        return self.inner.distortion(self._own(state), shared)

    def output(self, state: State) -> Shared:
        """The inner output, which does not see the errors."""
        return self.inner.output(self._own(state))

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """The inner quantities, which do not see the errors."""
        return self.inner.quantities(states[:, : states.shape[1] // 2], external, shared)

    def _own(self, state: State) -> State:
        return state[: state.shape[0] // 2]

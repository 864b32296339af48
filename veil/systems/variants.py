"""Any system with one thing changed: its prior, its noise, its start. For scenarios."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian
from veil.systems.base import Field, Nouns, Prior, System
from veil.types import External, Noise, Scalar, Secret, Shared, State

# pyright: reportIncompatibleVariableOverride=false
# A wrapper learns from its inner system what other systems state in their class.


class Variant(System):
    """A system that wraps another one and forwards what it does not change."""

    inner: eqx.AbstractVar[System]

    @property
    def secret_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.secret_fields

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.state_fields

    @property
    def external_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.external_fields

    @property
    def shared_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.shared_fields

    @property
    def reaction_noise_size(self) -> int:
        """As in the inner system."""
        return self.inner.reaction_noise_size

    @property
    def quantity_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.quantity_fields

    @property
    def nouns(self) -> Nouns:
        """As in the inner system."""
        return self.inner.nouns

    def initial_external(self) -> External:
        """As in the inner system."""
        return self.inner.initial_external()

    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """As in the inner system."""
        return self.inner.react(external, shared, noise)

    def cost(self, secret: Secret, state: State, after: State, shared: Shared) -> Scalar:
        """As in the inner system."""
        return self.inner.cost(secret, state, after, shared)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """As in the inner system."""
        return self.inner.distortion(state, shared)

    def output(self, state: State) -> Shared:
        """As in the inner system."""
        return self.inner.output(state)

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """As in the inner system."""
        return self.inner.quantities(states, external, shared)


class WithPrior(Variant):
    """A system with another prior: other secrets, or other masses."""

    inner: System
    prior: Prior

    def __init__(self, inner: System, prior: Prior):
        size, given = len(inner.secret_fields), prior.secrets.shape[1]
        if given != size:
            raise ValueError(f"A secret of this system has {size} numbers; those of the prior have {given}.")
        self.inner = inner
        self.prior = prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)


class WithNoise(Variant):
    """A system whose transition has `factor` times the noise, in every direction."""

    inner: System
    factor: Scalar

    def __init__(self, inner: System, factor: ArrayLike):
        self.inner = inner
        self.factor = jnp.asarray(factor, inner.prior.secrets.dtype)

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner system's mean, a multiple of its scale."""
        law = self.inner.transition(secret, state, external)
        return Gaussian(law.mean, self.factor * law.scale)


class WithInitial(Variant):
    """A system with another first state, of mean: inner mean + shift + slope @ (θ − mean of the prior).

    With a slope, the first state reveals something about the secret. With a shift or a spread alone, the
    model is wrong about the start in the same way for all secrets.

    Attributes:
        inner: the system.
        shift: displacement of the mean for every secret, in the units of the state.
        slope: displacement of the mean per unit of the secret.
        spread: factor of the scale.
    """

    inner: System
    shift: Float[Array, " N"]
    slope: Float[Array, "N P"]
    spread: Scalar

    def __init__(
        self,
        inner: System,
        *,
        shift: ArrayLike | Sequence = 0.0,
        slope: ArrayLike | Sequence = 0.0,
        spread: ArrayLike = 1.0,
    ):
        dtype, size = inner.prior.secrets.dtype, len(inner.state_fields)
        self.inner = inner
        self.shift = jnp.broadcast_to(jnp.asarray(shift, dtype), (size,))
        self.slope = jnp.broadcast_to(jnp.asarray(slope, dtype), (size, len(inner.secret_fields)))
        self.spread = jnp.asarray(spread, dtype)

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """The inner system's law, moved and stretched."""
        law = self.inner.initial(secret)
        middle = jnp.exp(self.prior.log_masses) @ self.prior.secrets
        return Gaussian(law.mean + self.shift + self.slope @ (secret - middle), self.spread * law.scale)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)


class KnownStart(Variant):
    """A system whose first state is known, as for an adversary who saw x_1."""

    inner: System
    state: State

    def __init__(self, inner: System, state: ArrayLike | Sequence):
        size, given = len(inner.state_fields), jnp.asarray(state, inner.prior.secrets.dtype)
        if given.shape != (size,):
            raise ValueError(f"A state of this system has {size} numbers; got the shape {given.shape}.")
        self.inner = inner
        self.state = given

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """All mass on the known state, for every secret."""
        del secret
        return Gaussian(self.state, jnp.zeros((self.state.shape[0],) * 2, self.state.dtype))

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)

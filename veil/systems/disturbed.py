"""Any system with heavy-tailed noise, or with a secret that drifts: by hidden coordinates of the state."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian
from veil.systems.base import Field, System
from veil.systems.variants import WithHidden, stacked_law
from veil.types import External, Scalar, Secret, State, as_number

# pyright: reportIncompatibleVariableOverride=false
# A wrapper learns from its inner system what other systems state in their class.

_REACH, _POINTS = 8.0, 513  # of the table of factors, in standard normal units


class WithHeavyTails(WithHidden):
    """A system whose noise has heavy tails: Student's t, scaled to the covariance of the inner noise.

    The noise of a step is s L ε with s² = (ν − 2) / χ², where χ² has the chi-squared law with ν degrees of
    freedom, and is drawn anew for each step. A hidden coordinate of the state is the standard normal number
    that χ² is computed from by its quantile function, so that every step is Gaussian given the state.

    Attributes:
        inner: the system with Gaussian noise.
        log_factors: log s at equally spaced values of the hidden number.
    """

    inner: System
    log_factors: Float[Array, " G"]

    def __init__(self, inner: System, degrees: float = 5.0):
        from scipy import stats

        if not degrees > 2.0:
            raise ValueError("Student's t has a variance for more than 2 degrees of freedom only.")
        points = np.linspace(-_REACH, _REACH, _POINTS)
        squares = np.where(
            points < 0.0,
            stats.chi2.ppf(stats.norm.cdf(points), degrees),
            stats.chi2.isf(stats.norm.sf(points), degrees),
        )
        self.inner = inner
        self.log_factors = jnp.asarray(0.5 * np.log((degrees - 2.0) / squares), inner.prior.secrets.dtype)

    @property
    def hidden_fields(self) -> tuple[Field, ...]:
        """The number that the size of the next noise is computed from."""
        return (Field("size of noise", "", -_REACH, _REACH),)

    def initial(self, secret: Secret) -> Gaussian:
        """The inner law, and a fresh size."""
        law = self.inner.initial(secret)
        return stacked_law(law, _standard(law.mean))

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner mean, the inner scale times the size of this step, and a fresh size."""
        law = self.inner.transition(secret, self.shown(state), external)
        place = (state[-1] + _REACH) * ((_POINTS - 1) / (2.0 * _REACH))
        log_factor = jnp.interp(place, jnp.arange(_POINTS, dtype=place.dtype), self.log_factors)
        return stacked_law(Gaussian(law.mean, jnp.exp(log_factor) * law.scale), _standard(law.mean))


class WithDrift(WithHidden):
    """A system whose secret drifts: at step t it is θ (1 + rate · (t − 1)), kept in the ranges of its fields.

    Attributes:
        inner: the system.
        rate: relative change per step.
    """

    inner: System
    rate: Scalar

    def __init__(self, inner: System, rate: ArrayLike):
        self.inner, self.rate = inner, as_number(rate)

    @property
    def hidden_fields(self) -> tuple[Field, ...]:
        """How many steps the secret has drifted."""
        return (Field("steps of drift", "", 0.0),)

    def drifted(self, secret: Secret, steps: Scalar) -> Secret:
        """The secret after so many steps."""
        fields = self.secret_fields
        low, high = (
            jnp.asarray([getattr(one, end) for one in fields], secret.dtype) for end in ("low", "high")
        )
        return jnp.clip(secret * (1.0 + self.rate.astype(secret.dtype) * steps), low, high)

    def initial(self, secret: Secret) -> Gaussian:
        """The inner law at the first secret."""
        law = self.inner.initial(secret)
        return stacked_law(law, Gaussian(jnp.zeros_like(law.mean[:1]), jnp.zeros_like(law.scale[:1, :1])))

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner law at the secret as it is by now."""
        law = self.inner.transition(self.drifted(secret, state[-1]), self.shown(state), external)
        return stacked_law(law, Gaussian(state[-1:] + 1.0, jnp.zeros_like(law.scale[:1, :1])))


def _standard(like: State) -> Gaussian:
    """The standard normal law of one number."""
    return Gaussian(jnp.zeros_like(like[:1]), jnp.ones_like(like[:1, None]))

"""Units for networks: what is usual for a system, so that every input and output is of size one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.types import External, Scalar, Secret, State, Vector

_LEAN = 3.0  # largest ratio of an entry to the diagonal in a row of the factor: two axes correlate up to 0.95


class Unit(eqx.Module):
    """A typical value and a typical deviation per coordinate; the deviation is never zero.

    In an infinite deviation every value is zero: a network does not see it.
    """

    centre: Float[Array, " d"] = eqx.field(converter=jnp.asarray)
    spread: Float[Array, " d"] = eqx.field(converter=jnp.asarray)

    def __call__(self, value: Vector) -> Vector:
        """The value in this unit."""
        return (value - self.centre) / self.spread


class Scaling(eqx.Module):
    """Units of everything that a policy looks at, and the horizon that it was made for.

    They are constants of the policy and are not trained. `veil.learners.usual` measures them by sharing true
    data.
    """

    secret: Unit
    state: Unit
    external: Unit
    output: Unit
    steps: Scalar

    def point(self, secret: Secret, state: State) -> Vector:
        """Secret and state in one row, each in its unit: what the paper calls a particle."""
        return jnp.concatenate([self.secret(secret), self.state(state)])

    def public(self, external: External, time: Array) -> Vector:
        """External input and progress t/T in one row; beyond the horizon, time stands still."""
        progress = jnp.minimum(time.astype(external.dtype) / self.steps, 1.0)
        return jnp.append(self.external(external), progress)


class Limits(eqx.Module):
    """What a learned kernel may do at most, so that an adversary who linearises it is nearly exact.

    All in units of the output (`Scaling.output`). With `slope` below one the mean of the release is a
    one-to-one function of the output: a policy cannot fold states onto each other to confuse a filter.

    Attributes:
        offset: largest distance of the mean from the output, per axis.
        low: least standard deviation of the noise, per axis.
        high: largest standard deviation of the noise, per axis.
        slope: Lipschitz constant of the offset as a function of the output or state.
    """

    offset: Scalar = eqx.field(default=4.0, converter=jnp.asarray)
    low: Scalar = eqx.field(default=0.05, converter=jnp.asarray)
    high: Scalar = eqx.field(default=4.0, converter=jnp.asarray)
    slope: Scalar = eqx.field(default=0.9, converter=jnp.asarray)


def bounded(value: Array, limit: Scalar) -> Array:
    """A value within ±limit, with slope one at zero and less elsewhere."""
    return limit * jnp.tanh(value / limit)


def between(value: Array, low: Scalar, high: Scalar) -> Array:
    """Positive numbers between two limits, geometrically halfway at zero."""
    return low * jnp.exp(jnp.log(high / low) * jax.nn.sigmoid(value))


def halfway(value: Array, low: Scalar, high: Scalar) -> Array:
    """The number that `between` turns into `value`; values at or beyond a limit are moved inside a little."""
    place = jnp.log(value / low) / jnp.log(high / low)
    inside = jnp.clip(place, 0.02, 0.98)
    return jnp.log(inside) - jnp.log1p(-inside)


def correlation_factor(raw: Float[Array, "J C"], size: int) -> Float[Array, "J Y Y"]:
    """Lower factors of correlation matrices: row i is (its raw numbers within limits, 1) made of length one.

    Never singular, whatever the numbers: with two axes the correlation stays within ±0.95.
    """
    slants = bounded(raw, jnp.asarray(_LEAN, raw.dtype))
    one, zero = jnp.ones((raw.shape[0], 1), raw.dtype), jnp.zeros((raw.shape[0], size), raw.dtype)
    rows: list[Array] = []
    for i in range(size):
        first = i * (i - 1) // 2
        row = jnp.concatenate([slants[:, first : first + i], one, zero[:, i + 1 :]], axis=1)
        rows.append(row / jnp.sqrt(jnp.sum(row**2, axis=1, keepdims=True)))
    return jnp.stack(rows, axis=1)

"""A platoon whose driver follows the Intelligent Driver Model: another law in the same world."""

import jax.numpy as jnp
from jaxtyping import ArrayLike

from veil.laws import Gaussian, diagonal_gaussian
from veil.systems.base import Field, Prior, System, finite_prior
from veil.systems.platoon import Platoon, accelerate
from veil.types import External, Noise, Scalar, Secret, Shared, State, as_number

IDM_DRIVERS = ((0.5, 1.0), (1.0, 1.5), (1.7, 2.0), (2.6, 3.0))
"""Four drivers from timid to brisk: (maximal acceleration a, comfortable deceleration b), both in m/s²."""

# Below this spacing, in m, the law brakes as if it were this: far beyond the limits already.
_LEAST_SPACING = 0.1


class IdmPlatoon(System):
    """The platoon with a driver of secret (a, b); all but the driver's acceleration is the inner platoon's.

    The acceleration is a (1 − (v/v0)⁴ − (s*/s)²) at speed v and spacing s, with the wanted spacing
    s* = s0 + max(0, v T + v (v − speed ahead) / (2 sqrt(a b))) and the inner platoon's top speed as v0. The
    time gap T is such that the inner platoon's equilibrium is one for every driver.

    Attributes:
        inner: the platoon; its prior speaks of another law and is not used.
        prior: secrets (a, b) in m/s², by default four, equally likely.
        standing_spacing: s0, the spacing wanted at rest, m.
    """

    inner: Platoon
    prior: Prior
    standing_spacing: Scalar

    secret_fields = (Field("acceleration", "m/s^2", 0.0), Field("deceleration", "m/s^2", 0.0))
    state_fields = Platoon.state_fields
    external_fields = Platoon.external_fields
    shared_fields = Platoon.shared_fields
    reaction_noise_size = Platoon.reaction_noise_size

    def __init__(
        self, inner: Platoon | None = None, *, prior: Prior | None = None, standing_spacing: ArrayLike = 2.0
    ):
        self.inner = Platoon() if inner is None else inner
        self.prior = finite_prior(IDM_DRIVERS) if prior is None else prior
        self.standing_spacing = as_number(standing_spacing)

    @property
    def time_gap(self) -> Scalar:
        """T in s: (s sqrt(1 − (v/v0)⁴) − s0) / v at equilibrium (v, s), where nobody accelerates."""
        speed, spacing = self.inner.equilibrium
        free = 1.0 - (speed / self.inner.top_speed) ** 4
        return (spacing * jnp.sqrt(free) - self.standing_spacing) / speed

    def push(self, secret: Secret, state: State, ahead: Scalar) -> Scalar:
        """The acceleration that the driver wants, before noise and limits.

        Args:
            secret: maximal acceleration a and comfortable deceleration b, m/s².
            state: speed in m/s and spacing in m.
            ahead: speed of the vehicle ahead, m/s.
        """
        highest, comfortable = secret
        speed, spacing = state[0], jnp.maximum(state[1], _LEAST_SPACING)
        closing = speed * (speed - ahead) / (2.0 * jnp.sqrt(highest * comfortable))
        wanted = self.standing_spacing + jnp.maximum(0.0, speed * self.time_gap + closing)
        return highest * (1.0 - (speed / self.inner.top_speed) ** 4 - (wanted / spacing) ** 2)

    def initial(self, secret: Secret) -> Gaussian:
        """The inner platoon's, the same for every secret."""
        return self.inner.initial(secret)

    def initial_external(self) -> External:
        """As in the inner platoon."""
        return self.inner.initial_external()

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the driver, with the inner platoon's limits and noise."""
        inner, (speed, spacing), ahead = self.inner, state, external[1]
        faster = accelerate(inner, speed, self.push(secret, state, ahead))
        mean = jnp.stack([faster, spacing + inner.dt * (ahead - speed)])
        return diagonal_gaussian(mean, jnp.stack([inner.dt * inner.acceleration_sd, inner.spacing_sd]))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """As in the inner platoon."""
        return self.inner.react(external, shared, noise)

    def cost(self, secret: Secret, state: State, after: State, shared: Shared) -> Scalar:
        """As in the inner platoon: fuel in mL/s."""
        return self.inner.cost(secret, state, after, shared)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """As in the inner platoon."""
        return self.inner.distortion(state, shared)

    def output(self, state: State) -> Shared:
        """The true speed and spacing."""
        return self.inner.output(state)

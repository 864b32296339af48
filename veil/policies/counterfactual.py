"""Perfect privacy by counterfactuals: the release is what all secrets would have made of the same noise.

The owner knows its secret and its states, so it can recover the noise of its own system. It runs one copy of
the system per secret of the prior with that noise and the public input, and releases their centre. Releases
and inputs are then functions of noise that is independent of the secret: nothing leaks in closed loop,
without any filter, and a true secret that is not on the prior is protected as well. What is needed: the
owner's own dynamics are right, so that what it recovers is noise; and the environment reacts to y only.

"Nothing" is meant up to rounding: the last digits of the copies do depend on the secret. A floor of noise
covers them.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.laws import Gaussian, Law, MemoryKernel, Point, diagonal_gaussian, recovered
from veil.policies.base import PlainPolicy, Time, optional, per_axis
from veil.policies.geometry import distortion_metric, geometric_median
from veil.registry import POLICIES, PerAxis
from veil.systems.base import System
from veil.types import External, Features, Secret, State

Centre = Literal["mean", "median"]

Copies = Float[Array, "K N"]


class Counterfactual(PlainPolicy):
    """Share the centre of the outputs that all secrets of the prior would have had under the same noise.

    The memory of the policy is the state of one copy of the system per secret.

    Attributes:
        system: the owner's model.
        sd: standard deviation of additional noise per axis; None for none.
        centre: "median", the point of least expected distortion to the copies, or their "mean" by the prior.
    """

    has_memory: ClassVar[bool] = True

    system: System
    sd: Float[Array, " Y"] | None = eqx.field(default=None, converter=optional)
    centre: Centre = eqx.field(default="median", static=True)

    def __check_init__(self):
        if self.centre not in get_args(Centre):
            raise ValueError(f"centre must be one of {', '.join(get_args(Centre))}; got {self.centre!r}.")

    def init_memory(self, secret: Secret, state: State) -> Copies:
        """x_1 with its noise passed to each initial law; x_1 itself where they coincide."""
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        return _transfer(self.system.initial(secret), state, laws)

    def kernel(self, features: Features, external: External, time: Time) -> "CentreKernel":
        """The same kernel at every step."""
        del features, external, time
        return CentreKernel(self.system, self.sd, self.centre)

    def update_memory(
        self, memory: Copies, secret: Secret, state: State, external: External, after: State
    ) -> Copies:
        """Every copy takes the step with the noise that the true state took it with."""
        own = self.system.transition(secret, state, external)
        step = jax.vmap(self.system.transition, (0, 0, None))
        return _transfer(own, after, step(self.system.prior.secrets, memory, external))

    def coast_memory(self, memory: Copies, external: External) -> Copies:
        """Every copy takes the step without noise."""
        step = jax.vmap(self.system.transition, (0, 0, None))
        return step(self.system.prior.secrets, memory, external).mean


class CentreKernel(MemoryKernel):
    """The centre of the copies' outputs, with noise if there is an `sd`."""

    system: System
    sd: Float[Array, " Y"] | None
    centre: Centre = eqx.field(static=True)

    def release_law(self, secret: Secret, state: State, memory: Copies) -> Law:
        """Around the centre of the copies' outputs."""
        del secret, state
        outputs = jax.vmap(self.system.output)(memory)
        weights = jnp.exp(self.system.prior.log_masses)
        if self.centre == "mean":
            centre = weights @ outputs
        else:
            centre = geometric_median(weights, outputs, distortion_metric(self.system))
        return Point(centre) if self.sd is None else diagonal_gaussian(centre, self.sd)


def _transfer(own: Gaussian, value: State, laws: Gaussian) -> Copies:
    """What each of the laws makes of the noise that `own` made the value of.

    Written as the value plus the differences between the laws: nothing is rounded where they coincide, and
    what the owner's law does not explain is passed on as noise.
    """
    noise = recovered(own, value, jnp.zeros_like(value))
    return value[None, :] + (laws.mean - own.mean[None, :]) + (laws.scale - own.scale[None]) @ noise


@POLICIES.register("counterfactual")
@dataclass(frozen=True)
class CounterfactualSettings:
    """Share what all secrets would have made of the same noise."""

    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; none by default"""

    def build(self, system: System) -> Counterfactual:
        """The policy for a system."""
        return Counterfactual(system, per_axis(self.sd, system) if self.sd else None)

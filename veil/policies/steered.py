"""A policy that is told its kernel at every step: how learners of other libraries act."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.beliefs.trackers import KalmanTracker, Tracker
from veil.kernel import Kernel
from veil.laws import Gaussian
from veil.policies.affine import nearest
from veil.policies.base import Policy, Time
from veil.policies.scaling import Limits, Scaling
from veil.systems.base import System
from veil.types import External, Features, Key, Secret, State


class Steered(Policy):
    """Gaussian around the output plus an offset per secret, with a noise per secret and axis.

    Attributes:
        system: the owner's model.
        scaling: units.
        limits: what an action of ±1 means.
        action: per secret, first the offsets, then the noises, each in [−1, 1]: the ends are the limits of
            the offset, and the least and the largest noise on a logarithmic scale.
        tracker: the belief that the policy keeps.
    """

    system: System
    scaling: Scaling
    limits: Limits
    action: Float[Array, " A"]
    tracker: Tracker = KalmanTracker()

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """None: whoever gives the action has looked already."""
        del external, time
        return jnp.zeros(0, belief.log_masses.dtype)

    def kernel(self, features: Features, external: External, time: Time) -> "SteeredKernel":
        """As the action says."""
        del features, external, time
        count, size = self.system.prior.log_masses.shape[0], len(self.system.shared_fields)
        offsets, noises = jnp.split(jnp.clip(self.action, -1.0, 1.0).reshape(count, 2 * size), 2, axis=1)
        unit, limits = self.scaling.output.spread[None, :], self.limits
        share = 0.5 * (noises + 1.0)
        sds = limits.low * jnp.exp(share * jnp.log(limits.high / limits.low))
        return SteeredKernel(self.system, unit * limits.offset * offsets, unit * sds)


class SteeredKernel(Kernel):
    """Offsets and noises per secret, whatever the state."""

    system: System
    offsets: Float[Array, "K Y"]
    sds: Float[Array, "K Y"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        return Gaussian(self.system.output(state) + self.offsets[index], jnp.diag(self.sds[index]))

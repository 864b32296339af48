"""The smallest policy with something to learn: two numbers, cheap to compile, with much to gain."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.beliefs.kalman import KalmanBelief
from veil.kernel import Kernel
from veil.laws import Gaussian, diagonal_gaussian
from veil.policies.base import Time
from veil.policies.learned import LearnedPolicy
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, Shared, State


class Knobs(eqx.Module):
    """What is learnt: how far the release goes from the truth to what the public expects, and its noise."""

    share: Scalar = eqx.field(default=-2.0, converter=jnp.asarray)  # a logit
    log_sd: Scalar = eqx.field(default=-2.0, converter=jnp.asarray)


class Dial(LearnedPolicy):
    """Between true data and what the public expects anyway; the network is two knobs."""

    system: System
    network: Knobs = eqx.field(default_factory=Knobs)

    def start(self, *, key: Key) -> Belief:
        """One Kalman filter per secret."""
        del key
        return KalmanBelief.start(self.system)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The output that the public expects."""
        del external, time
        return self.system.output(jnp.exp(belief.log_masses) @ belief.moments().mean)

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of the knobs as they stand."""
        del external, time
        return DialKernel(self.system, features, self.network)


class DialKernel(Kernel):
    """Gaussian around a point between the output and what is expected of it."""

    system: System
    expected: Shared
    knobs: Knobs

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The same for every secret."""
        del secret
        output = self.system.output(state)
        centre = output + jax.nn.sigmoid(self.knobs.share) * (self.expected - output)
        sd: Float[Array, " Y"] = jnp.broadcast_to(jnp.exp(self.knobs.log_sd), output.shape)
        return diagonal_gaussian(centre, sd)

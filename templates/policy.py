"""Template of a policy: copy, rename, replace the kernel. `python policy.py` checks it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs import Belief, KalmanSpec
from veil.checks.policy import check_policy
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.policies import Policy
from veil.systems import Gain, System


class Shrunk(Policy):
    """y = m + fraction (x - m) + noise, where m is the mean of x given everything public."""

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)
    fraction: Float[Array, ""] = eqx.field(default=0.5, converter=jnp.asarray)
    tracker: KalmanSpec = KalmanSpec()

    def start(self, *, key) -> Belief:
        """The belief at t = 1. Everybody can compute it, because it depends on public data only."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief, external, time):
        """What the kernel needs from the belief, as one row of numbers. They are published."""
        return jnp.exp(belief.log_masses) @ belief.moments().mean

    def kernel(self, features, external, time) -> Kernel:
        """The kernel of this step, from public data only."""
        return ShrunkKernel(self.system, features, self.fraction, self.sd)


class ShrunkKernel(Kernel):
    """K(. | secret, state), written for one secret and one state."""

    system: System
    expected: Float[Array, " N"]
    fraction: Float[Array, ""]
    sd: Float[Array, " Y"]

    def __call__(self, secret, state) -> Gaussian:
        """The distribution of the release."""
        return diagonal_gaussian(
            self.system.output(self.expected + self.fraction * (state - self.expected)), self.sd
        )


example = Shrunk(Gain(), jnp.array([0.2]))

if __name__ == "__main__":
    print(check_policy(example))

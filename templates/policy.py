"""Template of a policy: copy, rename, replace the kernel. `python policy.py` examines it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.beliefs import Belief, KalmanSpec
from veil.checks.policy import check_policy
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.policies import Policy
from veil.systems import Gain, System


class Shrunk(Policy):
    """Share a part of the surprise: y = m + share (x - m) + noise, with m what the public expects of x."""

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)
    share: Float[Array, ""] = eqx.field(default=0.5, converter=jnp.asarray)
    tracker: KalmanSpec = KalmanSpec()

    def start(self, *, key) -> Belief:
        """The belief that the policy looks at; anybody can compute it from what is public."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief, external, time):
        """All that the kernel may know of the belief, as one row of numbers. They are published."""
        return jnp.exp(belief.log_masses) @ belief.moments().mean

    def kernel(self, features, external, time) -> Kernel:
        """The kernel of this step, from what is public alone."""
        return ShrunkKernel(self.system, features, self.share, self.sd)


class ShrunkKernel(Kernel):
    """K(. | secret, state), written for one secret and one state."""

    system: System
    expected: Float[Array, " N"]
    share: Float[Array, ""]
    sd: Float[Array, " Y"]

    def __call__(self, secret, state) -> Gaussian:
        """The law of the release."""
        return diagonal_gaussian(
            self.system.output(self.expected + self.share * (state - self.expected)), self.sd
        )


example = Shrunk(Gain(), jnp.array([0.2]))

if __name__ == "__main__":
    print(check_policy(example))

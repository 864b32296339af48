"""A smooth stand-in for a kernel, only to aim particles with: it never enters a weight."""

import jax
import jax.numpy as jnp

from veil.beliefs.proposals import as_gaussian
from veil.kernel import Kernel
from veil.laws import Finite, Gaussian, diagonal_gaussian, match_moments
from veil.policies.plain import GridKernel
from veil.types import Secret, State

# Variance of a number that is uniform in a cell of length one.
UNIFORM_VARIANCE = 1.0 / 12.0


class Smoothed(Kernel):
    """The Gaussian nearest to each release law, by its moments.

    A quantiser is taken as its input plus noise of the variance of a cell: its own derivative is zero
    almost everywhere and would aim at nothing. A law on few atoms gets their mean and covariance, with a
    floor that keeps it from being a point.
    """

    inner: Kernel

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """A Gaussian law with a density."""
        if isinstance(self.inner, GridKernel):
            return diagonal_gaussian(self.inner.system.output(state), UNIFORM_VARIANCE**0.5 * self.inner.step)
        law = self.inner(secret, state)
        return _spread(law) if isinstance(law, Finite) else as_gaussian(law)


def _spread(law: Finite) -> Gaussian:
    """Mean and covariance of the atoms, each blurred by a tenth of their range."""
    size = law.atoms.shape[-1]
    range_ = jnp.max(law.atoms, axis=0) - jnp.min(law.atoms, axis=0)
    floor = jnp.where(range_ > 0, 0.1 * range_, 1.0)
    scale = jnp.broadcast_to(jnp.diag(floor), (*law.atoms.shape, size))
    return match_moments(jax.nn.log_softmax(law.log_masses), Gaussian(law.atoms, scale))

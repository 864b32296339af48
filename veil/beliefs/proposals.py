"""Two ways to update a particle by a release: weigh it where it is (bootstrap), or draw it again (guided)."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import Gaussian, Kernel
from veil.types import Noise, Scalar, Secret, Shared, State


class Particle(eqx.Module):
    """A state and the law that it was drawn from (None where the proposal does not ask for it)."""

    state: Float[Array, "*batch N"]
    origin: Gaussian | None


class Proposal(eqx.Module):
    """A way to choose the state of a particle after a release, with its importance weight."""

    @property
    @abc.abstractmethod
    def needs_origin(self) -> bool:
        """Whether the belief must keep the law that each state was drawn from."""

    @abc.abstractmethod
    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """The state to go on with and its log-weight, whose exponential has mean p(y | origin)."""


class Bootstrap(Proposal):
    """Keep the state of the particle; weigh by the density of the release."""

    @property
    def needs_origin(self) -> bool:
        """False: the state stays where it is."""
        return False

    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """The same state, and log K(y | θ, x)."""
        del noise
        return particle.state, kernel(secret, particle.state).log_prob(shared)


class Guided(Proposal):
    """Draw the state again from its origin given the release, with the kernel linearised there.

    The draw is made in the noise z of x = m + L z, so that degenerate origins need no special case: the
    linearised posterior of z is Gaussian with precision I + AᵀR⁻¹A, A = J L, which is never worse conditioned
    than the prior.
    """

    @property
    def needs_origin(self) -> bool:
        """True: the state is drawn again from its origin."""
        return True

    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """A fresh state, and log K(y | θ, x) + log N(z; 0, I) − log q(z)."""
        origin = particle.origin
        assert origin is not None  # kept by the belief because of `needs_origin`
        centre, root = condition(release_line(kernel, secret, origin), shared)
        move = centre + jnp.swapaxes(linalg.invert_lower(root), -1, -2) @ noise
        state = origin.sample(move)
        correction = 0.5 * (noise @ noise - move @ move - linalg.log_determinant(root))
        return state, kernel(secret, state).log_prob(shared) + correction


class Line(eqx.Module):
    """y ≈ mean + slope z + scale ε: a release as a linear function of the noise z of the state."""

    mean: Float[Array, " Y"]
    slope: Float[Array, "Y N"]
    scale: Float[Array, "Y Y"]


def release_line(kernel: Kernel, secret: Secret, origin: Gaussian) -> Line:
    """The release linearised at the mean of the state's law, the kernel's covariance taken there."""
    law = kernel(secret, origin.mean).as_gaussian()
    jacobian = jax.jacfwd(lambda state: kernel(secret, state).as_gaussian().mean)(origin.mean)
    return Line(law.mean, jacobian @ origin.scale, law.scale)


def condition(line: Line, shared: Shared) -> tuple[Noise, Float[Array, "N N"]]:
    """Posterior of z ~ N(0, I) given the release: its mean, and the Cholesky factor of its precision."""
    whitener = linalg.invert_lower(line.scale)
    slope = whitener @ line.slope
    pull = slope.T @ (whitener @ (shared - line.mean))
    root = linalg.cholesky(jnp.eye(slope.shape[1], dtype=slope.dtype) + slope.T @ slope)
    return linalg.invert_lower(root).T @ linalg.solve_lower(root, pull), root

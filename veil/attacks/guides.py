"""How particles are aimed: not at all, at the next release, or at all releases to come."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from veil import linalg
from veil.beliefs.kalman import move, update
from veil.laws import Gaussian, Kernel
from veil.policies.base import Policy, sensed
from veil.systems.base import System
from veil.types import Noise, Scalar, Secret, State


class GaussianisedKernel(Kernel):
    """The Gaussian nearest to each release law, by its moments.

    A quantiser is taken as its input plus noise of the variance of a cell: its own derivative is zero
    almost everywhere and would aim at nothing. A law on few atoms gets their mean and covariance, with a
    floor that keeps it from being a point.
    """

    inner: Kernel

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """A Gaussian law with a density."""
        return self.inner.before_rounding()(secret, state).smoothed()


WIDEN = 1.05  # the aimed law is a little wider than the potential asks for

DEFENCE = 0.02  # share of particles drawn from their origin, so that a weight is at most K(y|x)/DEFENCE


class Aimed(eqx.Module):
    """The law that a particle is drawn from: that of z under its origin and a potential ψ.

    Attributes:
        log_mass: log ∫ N(z; 0, I) ψ dz, as far as it is known; it decides which particles are kept.
    """

    log_mass: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def draw(self, noise: Noise, uniform: Scalar) -> Noise:
        """Z from a mixture of the aimed law and N(0, I), the second one with probability DEFENCE.

        Args:
            noise: standard normal numbers.
            uniform: on (0, 1), decides between the two.
        """

    @abc.abstractmethod
    def log_correction(self, z: Noise) -> Scalar:
        """Log N(z; 0, I) − log of the density that `draw` has at z."""


class Potential(eqx.Module):
    """Ψ, where a particle should go, as a function of its state; up to a factor."""

    @abc.abstractmethod
    def aim(self, origin: Gaussian) -> Aimed:
        """Combine where a particle comes from with where it should go."""


class Quadratic(Potential):
    """log ψ(x) = −½ δᵀ Λ δ + ηᵀ δ up to a constant, δ = x − centre."""

    centre: Float[Array, " N"]
    precision: Float[Array, "N N"]
    pull: Float[Array, " N"]

    def aim(self, origin: Gaussian) -> "GaussianAimed":
        """By completing the square."""
        offset = origin.mean - self.centre
        pushed = linalg.apply(self.precision, offset)
        gradient = linalg.apply_transposed(origin.scale, self.pull - pushed)
        inner = linalg.symmetric(linalg.sandwich(origin.scale, self.precision))
        root = linalg.cholesky(jnp.eye(offset.shape[0], dtype=offset.dtype) + inner)
        half = linalg.solve_lower(root, gradient)
        mean = linalg.apply_transposed(linalg.invert_lower(root), half)
        at_mean = linalg.dot(self.pull, offset) - 0.5 * linalg.dot(offset, pushed)
        return GaussianAimed(
            mean, root, at_mean + 0.5 * (linalg.dot(half, half) - linalg.log_determinant(root))
        )


def flat(centre: State) -> Quadratic:
    """ψ = 1: aims at nothing."""
    size = centre.shape[0]
    return Quadratic(centre, jnp.zeros((size, size), centre.dtype), jnp.zeros_like(centre))


class GaussianAimed(Aimed):
    """N(mean, (root rootᵀ)⁻¹), drawn WIDEN times as wide."""

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]  # Cholesky factor of the precision
    log_mass: Scalar

    def draw(self, noise: Noise, uniform: Scalar) -> Noise:
        """Moved and stretched."""
        moved = self.mean + math.sqrt(WIDEN) * linalg.apply_transposed(linalg.invert_lower(self.root), noise)
        return jnp.where(uniform < DEFENCE, noise, moved)

    def log_correction(self, z: Noise) -> Scalar:
        """From the two densities."""
        apart = linalg.apply_transposed(self.root, z - self.mean)
        log_volume = 0.5 * linalg.log_determinant(self.root) - 0.5 * z.shape[0] * math.log(WIDEN)
        return defended(log_volume - 0.5 * linalg.dot(apart, apart) / WIDEN + 0.5 * linalg.dot(z, z))


def defended(log_ratio: Scalar) -> Scalar:
    """`log_correction`, from log(density of the aimed law / density of N(0, I)) at a draw."""
    return -jnp.logaddexp(math.log1p(-DEFENCE) + log_ratio, jnp.full_like(log_ratio, math.log(DEFENCE)))


class Public(eqx.Module):
    """One step of a transcript, or all of them (batched [T]); where not `active`, y is not to be used."""

    time: Int[Array, "*T"]
    external: Float[Array, "*T E"]
    shared: Float[Array, "*T Y"]
    features: Float[Array, "*T F"]
    active: Bool[Array, "*T"]

    def kernel(self, policy: Policy) -> Kernel:
        """The kernel that this step's release was drawn from."""
        return sensed(policy).kernel(self.features, self.external, self.time)


class Guide(eqx.Module):
    """Gives each particle the potential that it is drawn with."""

    @abc.abstractmethod
    def plan(self, system: System, policy: Policy, secret: Secret, public: Public) -> Potential | None:
        """What can be computed before the particles start, batched [T]."""

    @abc.abstractmethod
    def potential(
        self, plan: Potential | None, kernel: Kernel, secret: Secret, origin: Gaussian, step: Public
    ) -> Potential:
        """The potential of one particle at one step; `plan` is that of this step."""


class Unguided(Guide):
    """The bootstrap filter: particles move by the transition alone."""

    def plan(self, system: System, policy: Policy, secret: Secret, public: Public) -> None:
        """There is nothing to compute beforehand."""

    def potential(
        self, plan: Potential | None, kernel: Kernel, secret: Secret, origin: Gaussian, step: Public
    ) -> Potential:
        """A flat potential, which changes nothing."""
        del plan, kernel, secret, step
        return flat(origin.mean)


class Local(Guide):
    """Each particle is aimed at the next release, with the kernel linearised where the particle is."""

    def plan(self, system: System, policy: Policy, secret: Secret, public: Public) -> None:
        """There is nothing to compute beforehand."""

    def potential(
        self, plan: Potential | None, kernel: Kernel, secret: Secret, origin: Gaussian, step: Public
    ) -> Potential:
        """The potential of this step's release alone."""
        del plan
        return release_potential(kernel, secret, origin.mean, step)


class Planned(Guide):
    """Particles are aimed at releases to come, by a backward pass along a reference path.

    The path is first the one of a Gaussian filter; each refinement replaces it by the smoothed path that the
    potentials of the last pass give.
    """

    refinements: int = eqx.field(default=1, static=True)

    @abc.abstractmethod
    def filtered(self, system: System, policy: Policy, secret: Secret, public: Public) -> Float[Array, "T N"]:
        """Means of a Gaussian filter after each release."""

    @abc.abstractmethod
    def drawn_from(self, policy: Policy, secret: Secret, origin: Gaussian, public: Public) -> Gaussian:
        """The law that a state is drawn from, aimed by the potential of its step.

        Args:
            policy: the policy in force.
            secret: θ.
            origin: the law of the state before the release.
            public: the step.
        """

    @abc.abstractmethod
    def backward(
        self, system: System, policy: Policy, secret: Secret, public: Public, path: Float[Array, "T N"]
    ) -> Quadratic:
        """The potentials of all steps, everything linearised along `path`."""

    def smoothed(
        self, system: System, policy: Policy, secret: Secret, public: Public, plan: Quadratic
    ) -> Float[Array, "T N"]:
        """The path through the means of the aimed laws."""

        def step(origin: Gaussian, now: tuple[Quadratic, Public]) -> tuple[Gaussian, State]:
            potential, public = now
            law = self.drawn_from(policy, secret, origin, public)
            state = law.sample(potential.aim(law).mean)
            return system.transition(secret, state, public.external), state

        return jax.lax.scan(step, system.initial(secret), (plan, public))[1]

    def plan(self, system: System, policy: Policy, secret: Secret, public: Public) -> Quadratic:
        """One potential per step."""
        plan = self.backward(system, policy, secret, public, self.filtered(system, policy, secret, public))
        for _ in range(self.refinements):
            path = self.smoothed(system, policy, secret, public, plan)
            plan = self.backward(system, policy, secret, public, path)
        return plan

    def potential(
        self, plan: Potential | None, kernel: Kernel, secret: Secret, origin: Gaussian, step: Public
    ) -> Potential:
        """That of the plan, the same for all particles."""
        del kernel, secret, origin, step
        assert plan is not None
        return plan


class Twisted(Planned):
    """Particles are aimed at this release and all later ones: ψ_t(x) ≈ p(y_t..y_T | x_t = x, θ)."""

    def filtered(self, system: System, policy: Policy, secret: Secret, public: Public) -> Float[Array, "T N"]:
        """By an extended Kalman filter."""
        return filtered_path(system, policy, secret, public)

    def drawn_from(self, policy: Policy, secret: Secret, origin: Gaussian, public: Public) -> Gaussian:
        """The law before the release."""
        del policy, secret, public
        return origin

    def backward(
        self, system: System, policy: Policy, secret: Secret, public: Public, path: Float[Array, "T N"]
    ) -> Quadratic:
        """The kernel of each release, linearised, and the transition to the later ones."""

        def step(later: Quadratic, now: tuple[Public, State]) -> tuple[Quadratic, Quadratic]:
            public, state = now
            before = _through_transition(system, secret, state, public, later)
            own = release_potential(public.kernel(policy), secret, state, public)
            potential = Quadratic(state, own.precision + before.precision, own.pull + before.pull)
            return potential, potential

        return jax.lax.scan(step, flat(path[-1]), (public, path), reverse=True)[1]


def release_potential(kernel: Kernel, secret: Secret, state: State, step: Public) -> Quadratic:
    """The likelihood of y_t around a state, the kernel linearised there; flat where there is no release."""
    smooth = GaussianisedKernel(kernel)
    law = smooth(secret, state)
    jacobian = jax.jacfwd(lambda at: smooth(secret, at).mean)(state)
    whitener = linalg.invert_lower(law.scale)
    slope = jnp.where(step.active, whitener @ jacobian, 0.0)
    miss = jnp.where(step.active, whitener @ (step.shared - law.mean), 0.0)
    return Quadratic(state, slope.T @ slope, slope.T @ miss)


def filtered_path(system: System, policy: Policy, secret: Secret, public: Public) -> Float[Array, "T N"]:
    """Means of an extended Kalman filter after each release."""

    def step(law: Gaussian, now: Public) -> tuple[Gaussian, State]:
        after, _ = update(GaussianisedKernel(now.kernel(policy)), secret, law, now.shared)
        kept = jax.tree.map(lambda new, old: jnp.where(now.active, new, old), after, law)
        return move(system, secret, kept, now.external), kept.mean

    return jax.lax.scan(step, system.initial(secret), public)[1]


def _through_transition(
    system: System, secret: Secret, state: State, public: Public, later: Quadratic
) -> Quadratic:
    """∫ p(x' | x) ψ'(x') dx' as a function of x near `state`."""
    law = system.transition(secret, state, public.external)
    slope = jax.jacfwd(lambda at: system.transition(secret, at, public.external).mean)(state)
    return pulled_back(law, slope, state, later)


def pulled_back(law: Gaussian, slope: Float[Array, "N N"], state: State, later: Quadratic) -> Quadratic:
    """∫ p(x' | x) ψ'(x') dx' as a function of x near `state`, where p is Gaussian.

    With P = I + LᵀΛ'L, (I + Λ'LLᵀ)⁻¹ v = v − Λ'L P⁻¹ Lᵀ v: no inverse of Λ', which may be zero.

    Args:
        law: p(x' | x = state).
        slope: derivative of its mean by x.
        state: where x is linearised.
        later: ψ'.
    """
    spread = later.precision @ law.scale
    inner = law.scale.T @ spread
    root = linalg.cholesky(jnp.eye(inner.shape[0], dtype=inner.dtype) + 0.5 * (inner + inner.T))
    whitened = linalg.invert_lower(root) @ law.scale.T  # P^{−1/2} Lᵀ
    shed = spread @ linalg.invert_lower(root).T  # Λ' L P^{−T/2}
    precision = later.precision - shed @ shed.T
    pull = later.pull - later.precision @ (law.mean - later.centre)
    pull = pull - shed @ (whitened @ pull)
    precision = slope.T @ precision @ slope
    return Quadratic(state, 0.5 * (precision + precision.T), slope.T @ pull)

"""Systems whose leakage is known exactly, each with an independent formula for p(y_1..y_T | θ)."""

from dataclasses import dataclass, field

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

from veil.laws import Finite, Gaussian, Kernel, diagonal_gaussian
from veil.policies import PlainPolicy
from veil.systems import Field, Prior, System, finite_prior


class Line(System):
    """x' = a x + c + w + s ε with the secret (a, c, s); w' = reply · y + 0.1 ε."""

    prior: Prior
    initial_mean: Array
    initial_sd: Array
    reply: Array

    secret_fields = (Field("a"), Field("c"), Field("s"))
    state_fields = (Field("x"),)
    external_fields = (Field("w"),)
    shared_fields = (Field("y"),)
    reaction_noise_size = 1

    def initial(self, secret) -> Gaussian:
        return diagonal_gaussian(self.initial_mean[None], self.initial_sd[None])

    def initial_external(self):
        return jnp.zeros(1, self.initial_mean.dtype)

    def transition(self, secret, state, external) -> Gaussian:
        return diagonal_gaussian(secret[0] * state + secret[1] + external, secret[2:])

    def react(self, external, shared, noise):
        assert shared is not None
        return self.reply * shared + 0.1 * noise

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state - shared)[0]

    def output(self, state):
        return state


class Offset(PlainPolicy):
    """y = x + offset_θ + sd_θ ε: the kernel itself may give the secret away."""

    system: System
    offset: Float[Array, " K"]
    sd: Float[Array, " K"]

    def kernel(self, features, external, time) -> Kernel:
        return OffsetKernel(self.system, self.offset, self.sd)


class OffsetKernel(Kernel):
    system: System
    offset: Float[Array, " K"]
    sd: Float[Array, " K"]

    def __call__(self, secret, state) -> Gaussian:
        index = jnp.argmin(jnp.sum((self.system.prior.secrets - secret[None, :]) ** 2, axis=1))
        return diagonal_gaussian(state + self.offset[index], self.sd[index][None])


@dataclass(frozen=True)
class Case:
    """One line of the family, in plain numbers."""

    secrets: tuple = ((0.3, 0.0, 0.3), (0.6, 0.0, 0.3), (0.9, 0.0, 0.3))
    masses: tuple | None = None
    offset: tuple = (0.0, 0.0, 0.0)
    sd: tuple = (0.2, 0.2, 0.2)
    mean: float = 0.0
    spread: float = 1.0
    reply: float = -0.2
    note: dict = field(default_factory=dict)

    def build(self):
        system = Line(
            finite_prior(self.secrets, self.masses),
            jnp.asarray(self.mean),
            jnp.asarray(self.spread),
            jnp.asarray(self.reply),
        )
        return system, Offset(system, jnp.asarray(self.offset), jnp.asarray(self.sd))


def kalman(case: Case, external: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """log p(y_1..y_T | θ) per episode and secret, by the textbook filter."""
    found = []
    for k, (a, c, s) in enumerate(case.secrets):
        mean, variance = np.full(len(shared), case.mean), np.full(len(shared), case.spread**2)
        total = np.zeros(len(shared))
        for t in range(shared.shape[1]):
            spread = variance + case.sd[k] ** 2
            miss = shared[:, t, 0] - mean - case.offset[k]
            total += -0.5 * (miss**2 / spread + np.log(2 * np.pi * spread))
            gain = variance / spread
            mean, variance = mean + gain * miss, (1 - gain) * variance
            mean, variance = a * mean + c + external[:, t, 0], a**2 * variance + s**2
        found.append(total)
    return np.stack(found, axis=1)


class Folded(PlainPolicy):
    """y = |x| + sd ε: the sign of the state is lost, and no filter that linearises knows."""

    system: System
    sd: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def kernel(self, features, external, time) -> Kernel:
        return FoldedKernel(self.sd)


class FoldedKernel(Kernel):
    sd: Float[Array, ""]

    def __call__(self, secret, state) -> Gaussian:
        return diagonal_gaussian(jnp.abs(state), self.sd[None])


class Wave(PlainPolicy):
    """y = sin(4 x) + sd ε: many states give one release."""

    system: System
    sd: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def kernel(self, features, external, time) -> Kernel:
        return WaveKernel(self.sd)


class WaveKernel(Kernel):
    sd: Float[Array, ""]

    def __call__(self, secret, state) -> Gaussian:
        return diagonal_gaussian(jnp.sin(4.0 * state), self.sd[None])


def folded_on_a_grid(
    case: Case, sd: float, external: np.ndarray, shared: np.ndarray, points: int = 321, fold=np.abs
) -> np.ndarray:
    """The same by quadrature: the law of x on a grid, moved by the transition density; y = fold(x) + sd ε."""
    grid = np.linspace(-6.0, 6.0, points)
    step = grid[1] - grid[0]
    found = np.zeros((len(shared), len(case.secrets)))
    for k, (a, c, s) in enumerate(case.secrets):
        for e in range(len(shared)):
            law = _normal(grid, case.mean, case.spread)
            for t in range(shared.shape[1]):
                law = law * _normal(shared[e, t, 0], fold(grid), sd)
                mass = law.sum() * step
                found[e, k] += np.log(mass)
                moves = _normal(grid[:, None], (a * grid + c + external[e, t, 0])[None, :], s)
                law = moves @ (law / mass) * step
    return found


def _normal(value, mean, sd):
    return np.exp(-0.5 * ((value - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


FLIP = 0.2  # chance that a symbol is wrong


class Signs(System):
    """x' ~ N(θ sign(x), 1): only the sign matters, and it is a Markov chain."""

    prior: Prior

    secret_fields = (Field("pull"),)
    state_fields = (Field("x"),)
    external_fields = (Field("w"),)
    shared_fields = (Field("y"),)
    reaction_noise_size = 1

    def initial(self, secret) -> Gaussian:
        return diagonal_gaussian(jnp.zeros(1), jnp.ones(1))

    def initial_external(self):
        return jnp.zeros(1)

    def transition(self, secret, state, external) -> Gaussian:
        return diagonal_gaussian(secret * jnp.where(state > 0, 1.0, -1.0), jnp.ones_like(state))

    def react(self, external, shared, noise):
        return external

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state - shared)[0]

    def output(self, state):
        return state


class Symbols(PlainPolicy):
    """Releases 1 for a positive state and 0 for a negative one, wrong now and then."""

    system: System

    def kernel(self, features, external, time) -> Kernel:
        return SymbolKernel()


class SymbolKernel(Kernel):
    def __call__(self, secret, state) -> Finite:
        one = jnp.where(state[0] > 0, 1.0 - FLIP, FLIP)
        return Finite(jnp.asarray([[0.0], [1.0]]), jnp.log(jnp.stack([1.0 - one, one])))


def forward(secrets: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """log p(y | θ) of the chain by the forward recursion over two states."""
    found = np.zeros((len(shared), len(secrets)))
    for k, theta in enumerate(secrets):
        stay = norm.cdf(theta)
        law = np.full((len(shared), 2), 0.5)
        for t in range(shared.shape[1]):
            right = np.stack([shared[:, t, 0] == 0.0, shared[:, t, 0] == 1.0], axis=1)
            law = law * np.where(right, 1.0 - FLIP, FLIP)
            found[:, k] += np.log(law.sum(axis=1))
            law = law / law.sum(axis=1, keepdims=True)
            law = law @ np.array([[stay, 1 - stay], [1 - stay, stay]])
    return found

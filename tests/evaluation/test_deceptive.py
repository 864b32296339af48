"""Twelve ways to leak that are built to deceive an audit: none is certified below what it tells.

All truths are computed beside the tool: by quadrature, by enumeration, or from samples of exact likelihoods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Line
from jaxtyping import Array
from scipy.stats import norm

from veil.evaluation.evaluate import evaluate
from veil.laws import Gaussian, Kernel, MemoryKernel, Point, diagonal_gaussian
from veil.policies import PlainPolicy, Truth
from veil.settings import AuditSettings
from veil.systems import Field, System, finite_prior

SECRETS, STEPS, EPISODES = 3, 3, 192
EVERYTHING = float(np.log(SECRETS))
GAINS = (0.3, 0.6, 0.9)


def line(cls=Line, gains=(0.5, 0.5, 0.5)) -> System:
    """x' = a x + 0.3 ε from N(0, 1), without a reaction; with one gain for all, states tell nothing."""
    secrets = [(gain, 0.0, 0.3) for gain in gains]
    # Names for the secrets that do not change the dynamics to the precision of any method.
    secrets = [(a, c, s + 1e-12 * k) for k, (a, c, s) in enumerate(secrets)]
    return cls(finite_prior(secrets), jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))


def place(system: System, secret: Array) -> Array:
    return jnp.argmin(jnp.sum((system.prior.secrets - secret[None, :]) ** 2, axis=1)).astype(float)


# Policies with a private memory, which an audit couples. The memory is the index of the secret and the time;
# what is released would be noise and nothing else, but for the detail that tells.

RARE = float(norm.sf(2.4))  # per step


def last_bits(noise, index, time):
    for step in range(1, SECRETS):
        noise = jnp.where(index >= step, jnp.nextafter(noise, jnp.full_like(noise, jnp.inf)), noise)
    return noise


DETAILS = {  # of the noise, the index of the secret and t
    "in the ninth digit": lambda y, k, t: y + 1e-9 * k,
    "in the last bits": last_bits,
    "in the fourteenth digit, of one secret": lambda y, k, t: jnp.where(k > 1, y + 1e-14, y),
    "when a number is large": lambda y, k, t: jnp.where(y > 2.4, y + k, y),
    "at the last step": lambda y, k, t: jnp.where(t == STEPS, y + k, y),
    "in the time of a gap": lambda y, k, t: jnp.where(t > k, 0.0, y),
}


class Hiding(PlainPolicy):
    """Releases the noise of the state with one of the details; which, is a number: one program for all."""

    has_memory = True

    system: System
    detail: Array

    def init_memory(self, secret, state, *, key):
        return jnp.stack([state[0], place(self.system, secret), jnp.ones_like(state[0])])

    def update_memory(self, memory, secret, state, external, after, *, key):
        noise = (after[0] - secret[0] * state[0]) / 0.3
        return jnp.stack([jnp.round(noise, 6), memory[1], memory[2] + 1.0])

    def kernel(self, features, external, time) -> Kernel:
        return HidingKernel(self.detail)


class HidingKernel(MemoryKernel):
    detail: Array

    def release_law(self, secret, state, memory):
        return Point(jax.lax.switch(self.detail, list(DETAILS.values()), *memory)[None])


# Policies without memory.


class Folding(Line):
    def output(self, state):
        return jnp.abs(state)


class Saturating(Line):
    def output(self, state):
        return jnp.clip(state, -1.0, 1.0)


class Failing(Line):
    def output(self, state):
        return jnp.where(jnp.abs(state) > 2.5, 0.0, state)


class Claiming(PlainPolicy):
    """Says that it shares the truth, to six decimals, and adds the index of the secret in the tenth."""

    shares_truth = True

    system: System

    def kernel(self, features, external, time) -> Kernel:
        return ClaimingKernel(self.system)


class ClaimingKernel(Kernel):
    system: System

    def __call__(self, secret, state):
        return Point(jnp.round(state, 6) + 1e-10 * place(self.system, secret))


class TwoAxes(Line):
    shared_fields = (Field("y"), Field("z"))

    def output(self, state):
        return jnp.concatenate([state, jnp.zeros_like(state)])

    def react(self, external, shared, noise):
        return 0.0 * external


SLIPS = {  # of the index of the secret, the state and t: an offset, and a factor of the sd, per axis
    "in the noise of one axis": lambda k, x, t: (jnp.zeros(2), jnp.stack([jnp.ones_like(k), 1.0 + 0.5 * k])),
    "in the mean of the last release": lambda k, x, t: (
        jnp.stack([jnp.where(t == STEPS, 0.5 * (k - 1.0), 0.0), 0.0 * k]),
        jnp.ones(2),
    ),
    "in rare states": lambda k, x, t: (
        jnp.stack([jnp.where(x > 2.2, 1.5 * (k - 1.0), 0.0), 0.0 * k]),
        jnp.ones(2),
    ),
}


class Noisy(PlainPolicy):
    """Gaussian releases of sd 0.2 around the output, with one of the slips."""

    system: System
    slip: Array

    def kernel(self, features, external, time) -> Kernel:
        return NoisyKernel(self.system, self.slip, time.astype(float))


class NoisyKernel(Kernel):
    system: System
    slip: Array
    time: Array

    def __call__(self, secret, state) -> Gaussian:
        given = place(self.system, secret), state[0], self.time
        offset, factor = jax.lax.switch(self.slip, list(SLIPS.values()), *given)
        return diagonal_gaussian(self.system.output(state) + offset, 0.2 * factor)


# Truths, in nats.


def information(laws: np.ndarray, weight: np.ndarray | float) -> float:
    """Of densities (K, points) of the releases under equally likely secrets, by the trapezoid rule."""
    laws = laws.reshape(len(laws), -1)
    mixed = laws.mean(axis=0)
    terms = np.where(laws > 0, laws * np.log(np.maximum(laws, 1e-300) / np.maximum(mixed, 1e-300)), 0.0)
    return float(np.sum(terms * weight, axis=1).mean())


def folded() -> float:
    """(|x_1|, |x_2|) on a grid of the quadrant; the third release only adds to it."""
    grid = np.arange(0.005, 6.0, 0.01)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    laws = [
        2.0 * norm.pdf(first) * (norm.pdf(second, a * first, 0.3) + norm.pdf(-second, a * first, 0.3))
        for a in GAINS
    ]
    return information(np.stack(laws), 0.01**2)


def saturated() -> float:
    """Whether x_2 is above 1 given x_1 between −1 and 1: a part of what is released."""
    grid = np.arange(-0.995, 1.0, 0.01)
    above = np.stack([norm.pdf(grid) * norm.sf(1.0, a * grid, 0.3) for a in GAINS])
    return information(np.concatenate([above, norm.pdf(grid) - above], axis=1), 0.01)


def failing() -> float:
    """x_2 where it is between −2.5 and 2.5, given x_1 there: a part of what is released."""
    grid = np.arange(-2.495, 2.5, 0.01)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    laws = np.stack([norm.pdf(first) * norm.pdf(second, a * first, 0.3) for a in GAINS])
    return information(laws, 0.01**2)


def scales() -> float:
    """STEPS samples of N(0, (0.2 (1 + k/2))²), from a million of them."""
    rng, sds = np.random.default_rng(0), 0.2 * (1.0 + 0.5 * np.arange(SECRETS))
    scores = []
    for k in range(SECRETS):
        values = rng.normal(0.0, sds[k], (300_000, STEPS))
        logs = norm.logpdf(values[:, :, None], 0.0, sds).sum(axis=1)
        scores.append(logs[:, k] - np.logaddexp.reduce(logs, axis=1) + np.log(SECRETS))
    return float(np.mean(scores) - 4 * np.std(scores) / np.sqrt(900_000))


def shifted() -> float:
    """The last release given those before: N(forecast + offset, spread), by the Kalman recursion."""
    variance = 1.0
    for _ in range(STEPS - 1):
        variance = 0.25 * variance * 0.04 / (variance + 0.04) + 0.09
    grid, sd = np.arange(-6.0, 6.0, 0.005), np.sqrt(variance + 0.04)
    return information(np.stack([norm.pdf(grid, 0.5 * (k - 1.0), sd) for k in range(SECRETS)]), 0.005)


def jumping() -> float:
    """The first release alone: x + 1.5 (k − 1) 1[x > 2.2] + 0.2 ε on a grid."""
    states, grid = np.arange(-6.0, 6.0, 0.01), np.arange(-8.0, 9.0, 0.02)
    laws = []
    for k in range(SECRETS):
        means = states + np.where(states > 2.2, 1.5 * (k - 1.0), 0.0)
        laws.append(norm.pdf(grid[:, None], means[None, :], 0.2) @ norm.pdf(states) * 0.01)
    return information(np.stack(laws), 0.02)


@dataclass(frozen=True)
class Deception:
    """A way to leak, what it tells, and whether the audit has a bound for it at all."""

    build: Callable[[], tuple[System, Any]]
    truth: Callable[[], float] | float
    bounded: bool


def hidden(name: str, truth: float = EVERYTHING) -> Deception:
    detail = jnp.asarray(list(DETAILS).index(name), jnp.int32)
    return Deception(lambda: (line(), Hiding(line(), detail)), truth, True)


def sensed(cls, truth) -> Deception:
    return Deception(lambda: (line(cls, GAINS), Truth(line(cls, GAINS))), truth, False)


def noisy(name: str, truth: Callable[[], float]) -> Deception:
    slip = jnp.asarray(list(SLIPS).index(name), jnp.int32)
    return Deception(lambda: (line(TwoAxes), Noisy(line(TwoAxes), slip)), truth, True)


ONE_OF_THREE = np.log(3.0) - 2.0 / 3.0 * np.log(2.0)  # whether it is the third secret

CASES = {name: hidden(name) for name in DETAILS} | {
    "in the fourteenth digit, of one secret": hidden("in the fourteenth digit, of one secret", ONE_OF_THREE),
    "when a number is large": hidden("when a number is large", (1.0 - (1.0 - RARE) ** STEPS) * EVERYTHING),
    "folded sensor": sensed(Folding, folded),
    "saturated sensor": sensed(Saturating, saturated),
    "sensor that fails far out": sensed(Failing, failing),
    "claims to be the truth": Deception(lambda: (line(), Claiming(line())), EVERYTHING, False),
    "in the noise of one axis": noisy("in the noise of one axis", scales),
    "in the mean of the last release": noisy("in the mean of the last release", shifted),
    "in rare states": noisy("in rare states", jumping),
}


@pytest.mark.parametrize("name", CASES)
def test_what_deceives_is_not_certified_below_what_it_tells(name, float64):
    case = CASES[name]
    system, policy = case.build()
    truth = case.truth() if callable(case.truth) else case.truth
    assert truth > 1e-3, "a case that tells something"
    found = evaluate(
        system, policy, settings=AuditSettings(steps=STEPS, episodes=EPISODES, seed=7), candidates=1
    )
    assert (found.bounder is not None) == case.bounded
    verdict = found.verdict()
    assert verdict.refused or found.leakage.high >= truth, (truth, found.leakage)
    if not case.bounded or truth == EVERYTHING:
        assert verdict.refused or found.leakage.high == pytest.approx(EVERYTHING)

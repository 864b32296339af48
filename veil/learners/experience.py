"""Episodes under perturbed kernels, step by step, as an off-policy learner keeps them."""

from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.beliefs.base import Belief
from veil.laws import Gaussian, Kernel
from veil.learners.critic import Observation, described
from veil.learners.design import scaling_of
from veil.policies.base import LearnedPolicy, Policy, Time, Wrapping
from veil.policies.geometry import nearest
from veil.problem import EpisodeState, Outcome, Problem
from veil.step import seen
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, State, Vector

MEMORY = 0.85  # correlation of the perturbations of two steps that follow each other


class Shifted(Wrapping):
    """Another policy, with the mean of its release moved, and its noise stretched, by numbers per secret.

    Attributes:
        inner: the other one, with Gaussian releases.
        shifts: added to the mean, in the unit of the release.
        stretches: natural logarithm of the factor of the noise.
    """

    inner: Policy
    shifts: Float[Array, "K Y"]
    stretches: Float[Array, " K"]

    def __init__(self, inner: Policy, shifts: Float[Array, "K Y"], stretches: Float[Array, " K"]):
        self.inner, self.shifts, self.stretches = inner, shifts, stretches

    def kernel(self, features: Features, external: External, time: Time) -> "ShiftedKernel":
        """The other policy's, perturbed."""
        kernel = self.inner.kernel(features, external, time)
        return ShiftedKernel(self.system, kernel, self.shifts, self.stretches)


class ShiftedKernel(Kernel):
    """Another kernel with Gaussian releases, perturbed per secret."""

    system: System
    kernel: Kernel
    shifts: Float[Array, "K Y"]
    stretches: Float[Array, " K"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        law, index = self.kernel(secret, state), nearest(self.system.prior, secret)
        if not isinstance(law, Gaussian):
            raise TypeError(
                f"Only Gaussian releases can be shifted; this kernel gives a {type(law).__name__}."
            )
        return Gaussian(law.mean + self.shifts[index], law.scale * jnp.exp(self.stretches[index]))


def wander(steps: int, shape: tuple[int, ...], size: Scalar, *, key: Key) -> Float[Array, "T ..."]:
    """A stationary Ornstein-Uhlenbeck process: mean 0, this standard deviation, remembering by `MEMORY`."""
    noise = jr.normal(key, (steps, *shape), size.dtype)
    fresh = jnp.sqrt(1.0 - MEMORY**2).astype(size.dtype)

    def step(now: Array, number: Array) -> tuple[Array, Array]:
        return MEMORY * now + fresh * number, now

    _, path = jax.lax.scan(step, noise[0], jnp.roll(noise, -1, axis=0))
    return size * path


_STRETCH = 0.5  # perturbation of the logarithm of the noise, per unit of that of the mean


class Step(eqx.Module):
    """One step as it is kept: what was known, what was done, what it charged."""

    belief: Belief
    observation: Observation
    action: Vector
    outcome: Outcome
    weight: Scalar  # prior mass of the secret, times the number of secrets
    last: Scalar  # 1 at the end of an episode, else 0


def explored(
    problem: Problem, policy: LearnedPolicy, number: Array, size: Scalar, printed: bool = False, *, key: Key
) -> Step:
    """One episode under kernels that wander around the policy's, batched [T].

    Args:
        problem: where to play.
        policy: with Gaussian releases.
        number: of the episode.
        size: of the perturbation of the mean, in usual spreads of the output.
        printed: how the law of a release is described, see `described`.
        key: randomness of the episode.
    """
    start_key, run_key, shift_key, stretch_key = jr.split(key, 4)
    spread, secrets = scaling_of(policy).output.spread, problem.secrets
    shifts = wander(problem.steps, (secrets, spread.shape[0]), size, key=shift_key) * spread[None, None, :]
    stretches = wander(problem.steps, (secrets,), _STRETCH * size, key=stretch_key)
    mass = jnp.exp(problem.scenario.plant.prior.log_masses[number % secrets]) * float(secrets)

    def step(play: EpisodeState, given: tuple[Array, Array, Key]) -> tuple[EpisodeState, Step]:
        shift, stretch, step_key = given
        acting, now = Shifted(policy, shift, stretch), play.situation
        after, stage, outcome = problem.step(acting, play, seed=number, key=step_key)
        state = seen(policy, now.state)
        law, output = stage.decision(now.believed, state), policy.system.output(state)
        action = described(law, output, scaling_of(policy), printed)
        observation = Observation(now.believed, state, now.external, now.time)
        last = (now.time >= problem.steps).astype(mass.dtype)
        return after, Step(play.belief, observation, action, outcome, mass, last)

    first = problem.reset(policy, number, key=start_key)
    return jax.lax.scan(step, first, (shifts, stretches, jr.split(run_key, problem.steps)))[1]


Record = TypeVar("Record")


class Replay(eqx.Module, Generic[Record]):
    """Records of steps, batched [C, T], of the last C episodes.

    Attributes:
        records: any arrays, batched [C, T].
        added: episodes that were ever added.
    """

    records: Record
    added: Int[Array, ""]

    @classmethod
    def empty(cls, like: Record, capacity: int) -> "Replay[Record]":
        """Room for so many episodes; `like` is a batch of them [B, T], of which only the shapes count."""
        records = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), like)
        return cls(records, jnp.asarray(0, jnp.int32))

    @property
    def capacity(self) -> int:
        """How many episodes there is room for."""
        return jax.tree.leaves(self.records)[0].shape[0]

    def add(self, episodes: Record) -> "Replay[Record]":
        """With these episodes [B, T] in the place of the oldest ones."""
        count = jax.tree.leaves(episodes)[0].shape[0]
        rows = (self.added + jnp.arange(count, dtype=jnp.int32)) % self.capacity
        records = jax.tree.map(lambda kept, new: kept.at[rows].set(new), self.records, episodes)
        return Replay(records, self.added + count)

    def draw(self, count: int, *, key: Key) -> tuple[Record, Record]:
        """Steps drawn with the same probability each, and the steps that followed them, batched [count].

        The last step of an episode is followed by itself: nothing follows it.
        """
        steps = jax.tree.leaves(self.records)[0].shape[1]
        row_key, step_key = jr.split(key)
        row = jr.randint(row_key, (count,), 0, jnp.minimum(self.added, self.capacity))
        step = jr.randint(step_key, (count,), 0, steps)
        after = jnp.minimum(step + 1, steps - 1)

        def taken(at: Int[Array, " B"]) -> Record:
            return jax.tree.map(lambda leaf: leaf[row, at], self.records)

        return taken(step), taken(after)

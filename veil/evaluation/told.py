"""An upper side that is always there: that of a reader who is told more than the releases.

Let D be coordinates of the state that hold all that the law of a release depends on, beside what is public.
In particular this law does not depend on the secret. By data processing I(Θ; Y, W) ≤ I(Θ; X_D, W). Filters
that fail for Y may be exact for X_D: the whole state has its transition densities, and where D leaves linear
coordinates open there are Kalman filters. The same holds for every transcript y, in the mean over what it
leaves open,

    E[log π(θ* | y)/q(θ*) | y]  ≤  E[log π(θ* | x_D)/q(θ*) | y],

so that single episodes may be charged by the right side, if they are chosen by their transcript.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int

from veil.attacks.ahead import ahead_by_quadrature
from veil.attacks.kalman import NoiselessBank
from veil.attacks.noiseless_filter import NoiselessFilter
from veil.evaluation.bounds import (
    BY_QUADRATURE,
    ExactBounder,
    LeakageBounder,
    LinearBounder,
    ParticleBounder,
    exact_bound,
)
from veil.evaluation.scoring import Method, TwoSidedBound
from veil.policies.base import Policy
from veil.policies.plain import Truth
from veil.step import Record, Transcript, coordinates_read, copied_coordinates, sees_state, shares_linearly
from veil.systems.base import Field, System
from veil.systems.variants import SamePlant
from veil.types import Answer, External, Key, Noise, Shared, State

# pyright: reportIncompatibleVariableOverride=false
# What is told takes the place of the shared fields of the inner system.

OTHERWISE = 104_729  # folded into the key: what chooses the episodes must not read them

MOST_HIDDEN = 4  # coordinates, of which all subsets are tried; of more, all are told at once


class Telling(SamePlant):
    """A system that shares some coordinates of its state, as real numbers.

    It is there to be read: the environment does not react to what is told.
    """

    inner: System
    told: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, inner: System, told: tuple[int, ...]):
        self.inner, self.told = inner, told

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """Those of the inner system, without a sensor."""
        return tuple(replace(field, resolution=0.0) for field in self.inner.state_fields)

    @property
    def shared_fields(self) -> tuple[Field, ...]:
        """The fields of the coordinates told."""
        return tuple(self.state_fields[place] for place in self.told)

    def output(self, state: State) -> Shared:
        """The coordinates told."""
        return state[jnp.asarray(self.told)]

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """As the inner system reacts to nothing."""
        del shared
        return self.inner.react(external, None, noise)


class ToldBounder(LeakageBounder):
    """What true data of some coordinates tell, whatever was released.

    Attributes:
        system: shares these coordinates.
        reads: bounds the leakage of true data of them.
        more: what the reader is told beyond the releases, as in "a reader who is told ...".
    """

    system: Telling
    reads: LeakageBounder
    more: str = eqx.field(static=True)

    @property
    def method(self) -> Method:
        """That of the inner bound."""
        return self.reads.method

    @property
    def name(self) -> str:
        """What the reader is told."""
        return f"a reader who is told {self.more} ({self.reads.name})"

    @property
    def particles(self) -> int:
        """Those of the inner bound."""
        return self.reads.particles

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """The bounds of true data of the coordinates told."""
        public = record.public
        told = record.states[:-1][:, jnp.asarray(self.system.told)]
        silent = jnp.zeros((told.shape[0], 0), told.dtype)  # true data have no features
        seen = Transcript(public.external, told, silent, public.public_seed)
        given = Record(record.index, record.secret, record.states, seen)
        own = jr.fold_in(key, OTHERWISE)
        return self.reads.bound(given, length, play_key=play_key, key=own, apart=apart)


class Unfiltered(LeakageBounder):
    """No filter reads the releases: nothing is known of an episode, from below or from above."""

    method: ClassVar[Method] = "filter"

    system: System

    @property
    def name(self) -> str:
        """Says that there is none."""
        return "no filter of the releases"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Zero from below, unknown from above."""
        del length, play_key, key
        zeros = jnp.zeros_like(self.system.prior.log_masses)
        return exact_bound(zeros, jnp.full_like(zeros[0], jnp.nan), record, apart)


def told_bounders(system: System, policy: Policy) -> tuple[ToldBounder, ...]:
    """Readers who are told more than the releases, and whose gain can be bounded; none where none is valid.

    Each is told what the releases are computed from, and some of the hidden coordinates: as few as leave the
    rest linear, or leave one to a filter that is aimed by quadrature, or all.

    Args:
        system: the plant.
        policy: the one in force, without a memory.
    """
    read = None if policy.has_memory else coordinates_read(system, policy)
    return () if read is None else tuple(_bounders(system, policy, read))


def _bounders(system: System, policy: Policy, read: tuple[int, ...]) -> Iterator[ToldBounder]:
    names = [field.name for field in system.state_fields]
    same = set(read) <= set(copied_coordinates(system, policy))  # to be told these is to be told nothing
    hidden = tuple(place for place in range(len(names)) if place not in read)
    counts = range(len(hidden) + 1) if len(hidden) <= MOST_HIDDEN else (len(hidden),)
    sure = list[set[int]]()  # what is enough to be told, so that more would only leak more
    for more in (set(some) for count in counts for some in itertools.combinations(hidden, count)):
        if any(less <= more for less in sure) or (same and not more):
            continue
        told = Telling(system, tuple(sorted({*read, *more})))
        reads = _reader(told)
        if reads is None:
            continue
        if reads.particles == 0:
            sure.append(more)
        words = _words([names[place].replace("_", " ") for place in sorted(more)])
        yield ToldBounder(
            told, reads, f"{words} as well" if more else "the state before it is rounded or blurred"
        )


def _reader(told: Telling) -> LeakageBounder | None:
    truth = Truth(told)
    if sees_state(told, truth):
        return ExactBounder(told, truth)
    if shares_linearly(told, truth):
        return LinearBounder(NoiselessBank(told, truth))
    guide = ahead_by_quadrature(told, truth)
    if guide is None:
        return None
    words, few = BY_QUADRATURE
    return ParticleBounder(words, NoiselessFilter(told, truth, guide, few))


def _words(names: list[str]) -> str:
    """Names as a part of a sentence."""
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + "".join(names[-1:])

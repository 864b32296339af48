"""The leakage of whole runs from both sides.

With p̂_k an unbiased estimate of p(y|θ_k) and p̂* the estimate of a run that keeps the true path,

    E log p̂(θ*) − log Σ q p̂  (repaired)  ≤  I  ≤  E[ log p̂* − log Σ_k q_k p̂_k ],

in expectation and whatever the filter's quality: log is concave, E p̂_k = p(y|θ_k) and E[1/p̂*] = 1/p(y|θ*).
Each term is bounded by itself, so the runs may share random numbers, and do. An episode that two pilot runs
do not agree on is charged the most that any episode can tell, log 1/q(θ*); the pilots look at the public
transcript only, so that given it the true path stays a fair draw.

Where filters fail, a reader who is told more bounds the leakage. Let D be coordinates of the state that hold
all that the law of a release depends on, beside what is public. In particular this law does not depend on the
secret. By data processing I(Θ; Y, W) ≤ I(Θ; X_D, W). Filters that fail for Y may be exact for X_D: the whole
state has its transition densities, and where D leaves linear coordinates open there are Kalman filters. The
same holds for every transcript y, in the mean over what it leaves open,

    E[log π(θ* | y)/q(θ*) | y]  ≤  E[log π(θ* | x_D)/q(θ*) | y],

so that single episodes may be charged by the right side, if they are chosen by their transcript.
"""

import abc
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from veil.attacks.ahead import Ahead, ahead_by_quadrature
from veil.attacks.guides import Guide, Local, Twisted, Unguided
from veil.attacks.kalman import KalmanBank, NoiselessBank, Observer
from veil.attacks.noiseless_filter import NoiselessFilter
from veil.attacks.particle_filter import ParticleFilter, ReferencePath, plans, public_steps
from veil.attacks.twin_reader import TwinReader
from veil.beliefs.innovations import ROUND_OFF
from veil.beliefs.readings import CellFilter
from veil.evaluation.scoring import APART, DISAGREE, MAIN, PILOT_A, PILOT_B, Method, TwoSidedBound
from veil.laws import to_grid
from veil.policies.base import Policy
from veil.policies.counterfactual import recovers_noise
from veil.policies.plain import Truth
from veil.policies.twin import twin_of
from veil.resampling import scaled_weights
from veil.rollout import rollout
from veil.step import (
    Record,
    Transcript,
    coordinates_read,
    copied_coordinates,
    moves_linearly,
    release_kind,
    sees_state,
    shares_affinely,
    shares_by_gaussians,
    shares_linearly,
)
from veil.systems.base import Field, System, state_grid
from veil.systems.variants import SamePlant
from veil.traced import moved_numbers
from veil.types import Answer, External, Key, Noise, Scalar, Shared, State

TOGETHER = 4  # episodes that are taken on at once, at most

IN_CACHE = 4096  # particles at once, at most: then the arrays of a step fit a processor's own cache of 1 MB


def two_sided_bound(
    swarm: ParticleFilter, record: Record, length: Int[Array, ""], *, key: Key, apart: bool = False
) -> TwoSidedBound:
    """Run the filters of all secrets and the conditional one on one episode of the model itself.

    Args:
        swarm: the filter; its system must be the one that was played.
        record: the episode, its true path included.
        length: releases to use.
        key: the auditor's randomness.
        apart: whether to add the run that components of the secret need.
    """
    public = public_steps(record.public, length)
    plan = plans(swarm, public)
    secrets = jnp.concatenate([swarm.system.prior.secrets, record.secret[None]])
    # The plan of the true secret once more, for the pinned run.
    plan = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[record.index][None]]), plan)
    states = record.states[:-1]
    pinned = jnp.arange(secrets.shape[0], dtype=jnp.int32) == secrets.shape[0] - 1

    def one(run_key: Key, secret: Array, own, pin: Bool[Array, ""]):
        path = ReferencePath(states, jnp.broadcast_to(pin, states.shape[:1]))
        return swarm(secret, public, own, path, key=run_key)

    together = jax.vmap(jax.vmap(one, (None, 0, 0, 0)), (0, None, None, None))
    found = together(jr.split(key, APART + apart), secrets, plan, pinned)
    true = jax.tree.map(lambda leaf: leaf[MAIN, record.index], found.particles)
    weights = scaled_weights(true.log_weights)
    # A coordinate that a release tells is where it is for all particles, up to round-off: it has no rank.
    apart_by = states[-1][None, :] - true.states
    round_off = ROUND_OFF * jnp.finfo(states.dtype).eps * jnp.maximum(jnp.abs(true.states), 1.0)
    share = jnp.where(jnp.abs(apart_by) <= round_off, 0.5, (apart_by > 0).astype(states.dtype))
    below = jnp.sum(share * weights[:, None], axis=0)
    return TwoSidedBound(
        found.log_likelihood[:, :-1],
        found.log_likelihood[MAIN, -1],
        jnp.min(found.effective[MAIN, :-1]),
        below / jnp.sum(weights),
    )


def same_emitted(first: Array, second: Array) -> Bool[Array, "*batch"]:
    """Whether two releases are the same to the last digit; what is not a number never is.

    Releases in a transcript are as they are emitted (`veil.policies.base.emitted`): where there is a public
    grid, they are on it, and digits that nobody reads are not compared.

    Args:
        first: releases, axes last.
        second: others, of a shape that goes with it.
    """
    return jnp.all(first == second, axis=-1)


class LeakageBounder(eqx.Module):
    """One way to bound the leakage of an episode from both sides.

    Attributes:
        method: "exact" if the likelihoods of all secrets are; "coupling" if episodes only agree or do not;
            "excess" for a divergence; "attack" if only the lower side holds; else "filter".
    """

    method: ClassVar[Method] = "filter"

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it does, in a few words."""

    @property
    def particles(self) -> int:
        """Per secret; 0, unless it runs particle filters."""
        return 0

    @property
    def together(self) -> int:
        """Episodes that are taken on at once."""
        return TOGETHER

    @abc.abstractmethod
    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Bound the leakage of the first `length` releases from both sides.

        Args:
            record: the episode.
            length: how many releases count.
            play_key: the private randomness that the episode was played with.
            key: the auditor's randomness.
            apart: whether components of the secret will be asked for.
        """


class ParticleBounder(LeakageBounder):
    """One particle filter per secret, and one that keeps the true path."""

    label: str = eqx.field(static=True)
    filter: ParticleFilter

    @property
    def name(self) -> str:
        """The kind of guide."""
        return self.label

    @property
    def particles(self) -> int:
        """Number of particles per secret."""
        return self.filter.particles

    @property
    def together(self) -> int:
        """As many as fit a processor's cache with the particles of all secrets and runs."""
        apiece = APART * (len(self.filter.system.prior.secrets) + 1) * self.particles
        return max(1, min(TOGETHER, IN_CACHE // apiece))

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """The bounds of `two_sided_bound`."""
        del play_key
        return two_sided_bound(self.filter, record, length, key=key, apart=apart)


class ExactBounder(LeakageBounder):
    """Noise-free sharing of the whole state: the transition densities are the likelihood, exactly."""

    method: ClassVar[Method] = "exact"

    system: System
    policy: Policy

    @property
    def name(self) -> str:
        """Says that the bound is exact."""
        return "exact transition densities"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """The two sides are one."""
        del play_key
        trail = Observer(self.system, self.policy).trail(record.public, key=key)
        steps = trail.health.log_likelihood
        used = (jnp.arange(steps.shape[0], dtype=jnp.int32) < length)[:, None]
        exact = jnp.sum(jnp.where(used, steps, 0.0), axis=0)
        return exact_bound(exact, exact[record.index], record, apart)


class LinearBounder(LeakageBounder):
    """A linear system that shares a part of its state, or any affine function of it with Gaussian noise.

    What is shared without noise is known, and need not move linearly: the rest must. Kalman filters have the
    exact likelihood.
    """

    method: ClassVar[Method] = "exact"

    bank: NoiselessBank | KalmanBank

    @property
    def name(self) -> str:
        """Says that the bound is exact."""
        return "exact Kalman filters"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """The two sides are one."""
        del play_key, key
        steps = self.bank.log_densities(record.public)
        used = (jnp.arange(steps.shape[1], dtype=jnp.int32) < length)[None, :]
        exact = jnp.sum(jnp.where(used, steps, 0.0), axis=1)
        return exact_bound(exact, exact[record.index], record, apart)


class CoupledBounder(LeakageBounder):
    """Bounds a policy with private memory whose releases, given its noise, hardly depend on the secret.

    Each episode is played again under every secret, with the same private randomness. Whether all these
    transcripts agree, as they are emitted and to the last digit, is decided by the randomness alone, so it is
    independent of the secret. Where they agree, the transcript carries no information about the secret;
    elsewhere it carries at most the entropy H(q) of the prior. Hence the leakage is at most
    P(they disagree) · H(q).
    """

    method: ClassVar[Method] = "coupling"

    system: System
    policy: Policy

    @property
    def name(self) -> str:
        """Says that the bound holds by construction."""
        return "coupling of all secrets"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Zero where all transcripts agree, unknown elsewhere."""
        del key
        steps, secrets = record.public.shared.shape[0], self.system.prior.secrets

        def again(index: Int[Array, ""]):
            seed = record.public.public_seed
            return rollout(
                self.system, self.policy, steps, public_seed=seed, key=play_key, index=index
            ).public

        # One after the other, by the same program: under `vmap` last digits may differ. The first stands for
        # the episode itself, which may have been played by a program of another batch size.
        found = jax.lax.map(again, jnp.arange(secrets.shape[0], dtype=jnp.int32))
        same = same_emitted(found.shared, found.shared[:1])
        same = jnp.all(same & same_emitted(found.external, found.external[:1]), axis=0)
        used = jnp.arange(steps, dtype=jnp.int32) < length
        agree = jnp.all(same | ~used)
        zeros = jnp.zeros_like(self.system.prior.log_masses)
        return exact_bound(zeros, jnp.where(agree, 0.0, jnp.nan), record, apart)


REFERENCE = 2  # times as many points of a cell as the owner's own filter has


class SelfModelBounder(LeakageBounder):
    """Bounds a policy that releases a public function of recovered noise, where the sensor rounds.

    Let p be the law of the owner's readings given its past and the public inputs, and q the law by which it
    turned them into noise. If its readings came from q, the noise would be standard normal whatever the
    secret, and nothing would leak. The leakage is therefore at most the divergence of the two, the expected
    sum of log p − log q over the readings: the excess log-loss of the owner's model of itself. Here p is the
    same filter with more points per cell. The proof is in docs/resolution.md; it needs an environment that
    sees the releases only, and readings that are roundings of the modelled state.
    """

    method: ClassVar[Method] = "excess"

    system: System
    policy: Policy

    @property
    def name(self) -> str:
        """Says what the bound is."""
        return "excess log-loss of the owner's model of itself"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Zero from below, the excess of this episode from above."""
        del play_key, key
        model, grid = self.policy.system, state_grid(self.policy.system)
        readings = jax.vmap(lambda state: to_grid(state, grid))(record.states[:-1])
        own = CellFilter(model)
        reference = CellFilter(self.system, REFERENCE * own.points)
        external = record.public.external
        excess = reference.log_masses(record.secret, readings, external)
        excess = excess - own.log_masses(record.secret, readings, external)
        used = jnp.arange(excess.shape[0], dtype=jnp.int32) < length
        zeros = jnp.zeros_like(self.system.prior.log_masses)
        return exact_bound(zeros, jnp.sum(jnp.where(used, excess, 0.0)), record, apart)


class TwinBounder(LeakageBounder):
    """Bounds a twin by the exact reader, who knows every self-model, the plant, and the noise itself.

    The noise tells at least what the releases tell, so that the upper side holds for these as well. The lower
    side is that of the noise: it is what the releases tell where they determine the noise. With a floor they
    do not, see `FlooredTwinBounder`.
    """

    reader: TwinReader

    @property
    def method(self) -> Method:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Both sides where the reader's law of the plant is exact, else only the lower one."""
        return "filter" if self.reader.exact else "attack"

    @property
    def name(self) -> str:
        """Says who reads."""
        return "exact reader of the owner's noise"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """By likelihoods of the noise for every owner."""
        found = self.reader(record, length, APART + apart, play_key=play_key, key=key)
        # The pinned start stands among those of the main run.
        order = [*range(MAIN), APART + apart - 1, *range(MAIN, APART + apart - 1)]
        return TwoSidedBound(
            found.runs[jnp.asarray(order)],
            found.pinned,
            jnp.ones_like(found.pinned),
            jnp.full(record.states.shape[1:], 0.5, found.pinned.dtype),
        )


class FlooredTwinBounder(LeakageBounder):
    """Bounds a twin with a floor of noise from above, by what its noise ε would tell without the floor.

    What the releases themselves tell is less, and no reader here weighs them, so that the lower side is zero.

    Attributes:
        inner: the exact reader of the noise.
    """

    method: ClassVar[Method] = "excess"

    inner: TwinBounder

    @property
    def name(self) -> str:
        """Says that only one side is known."""
        return f"{self.inner.name}, from above only"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Zero from below; from above the charge of this episode for the noise."""
        found = self.inner.bound(record, length, play_key=play_key, key=key, apart=False)
        log_prior = self.inner.reader.plant.prior.log_masses
        charge = found.pinned - jax.nn.logsumexp(log_prior + found.plain[MAIN])
        # Pilots that disagree do not know the likelihood; then everything may be told.
        unlike = jnp.max(jnp.abs(found.plain[PILOT_A] - found.plain[PILOT_B])) > DISAGREE
        charge = jnp.where(unlike | ~jnp.isfinite(charge), -log_prior[record.index], charge)
        return exact_bound(jnp.zeros_like(log_prior), charge, record, apart)


class ExcessBounder(LeakageBounder):
    """Bounds a twin by the excess log-loss of its self-model (docs/twin.md), where readings are exact.

    The law of the readings in the plant is that of true data, and is bounded as true data are: the pinned run
    is too large on average, the plain one too small, so that the excess is not underestimated.

    Attributes:
        reader: computes the log score of the self-model.
        reference: bounds the likelihood of true data.
    """

    method: ClassVar[Method] = "excess"

    reader: TwinReader
    reference: LeakageBounder

    @property
    def name(self) -> str:
        """Says what the bound is."""
        return "excess log-loss of the self-model"

    def bound(
        self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool
    ) -> TwoSidedBound:
        """Zero from below, the excess of this episode from above."""
        plant, twin = self.reader.plant, self.reader.twin
        truth = Transcript(
            record.public.external,
            jax.vmap(plant.output)(record.states[:-1]),
            record.public.features,
            record.public.public_seed,
        )
        true = Record(record.index, record.secret, record.states, truth)
        given = {"play_key": play_key, "key": key, "apart": False}
        log_plant = self.reference.bound(true, length, **given).pinned
        if twin.start_by == "public":
            before = jnp.minimum(length, twin.preroll + 1)
            log_plant = log_plant - self.reference.bound(true, before, **given).plain[MAIN, record.index]
        excess = log_plant - self.reader.log_score(record, length)
        zeros = jnp.zeros_like(self.reader.plant.prior.log_masses)
        return exact_bound(zeros, excess, record, apart)


def _twin_bounders(reader: TwinReader) -> tuple[LeakageBounder, ...]:
    """The exact reader, and where it may not apply the excess log-loss, by filters for true data.

    Readings must be coordinates of the output. Declared-public numbers tell what they tell.
    """
    plant, twin = reader.plant, reader.twin
    if twin.sd is not None:
        return (FlooredTwinBounder(TwinBounder(reader)),) if reader.exact else ()
    rounded, declared = any(state_grid(twin.system)), bool(twin.public)
    if rounded or declared or moves_linearly(plant, twin.axes):
        return (TwinBounder(reader),)
    copied = moved_numbers(plant.output, plant.initial(plant.prior.secrets[0]).mean)
    if tuple(int(place) for place in copied) != twin.axes:
        return (TwinBounder(reader),)
    references = bounder_candidates(plant, Truth(plant))
    kept = (TwinBounder(reader),) if reader.exact else ()
    found = tuple(ExcessBounder(reader, one) for one in references if one.particles < MANY)
    return (*kept, *found) or (TwinBounder(reader),)


BY_QUADRATURE = ("conditional particles, aimed by quadrature", 64)  # which need few particles

MANY = 5184  # particles per secret of the last resort, tried where fewer came near


def bounder_candidates(
    system: System, policy: Policy, believed: Float[Array, "K P"] | None = None
) -> tuple[LeakageBounder, ...]:
    """The ways that apply to this policy, best first; none where nothing bounds it from above.

    Args:
        system: the plant.
        policy: the one in force.
        believed: what the owner of each secret takes it for; the secret itself if not given.
    """
    if twin_of(policy) is not None:
        reader = TwinReader(system, policy, system.prior.secrets if believed is None else believed)
        return _twin_bounders(reader)
    if policy.has_memory:
        if not any(state_grid(policy.system)):
            return (CoupledBounder(system, policy),)
        # The coupling does not show it: with rounding the same noise gives other readings to other secrets.
        same = state_grid(system) == state_grid(policy.system)
        return (SelfModelBounder(system, policy),) if same and recovers_noise(policy) else ()
    law = release_kind(system, policy).fresh_law()
    if law.is_point:
        if sees_state(system, policy):
            return (ExactBounder(system, policy),)
        if shares_linearly(system, policy):
            return (LinearBounder(NoiselessBank(system, policy)),)
        return _conditional(system, policy) if shares_affinely(system, policy) else ()
    if shares_by_gaussians(system, policy):
        return (LinearBounder(KalmanBank(system, policy)),)
    return _particle_ladder(system, policy)


def _particle_ladder(system: System, policy: Policy) -> tuple[LeakageBounder, ...]:
    """Particle filters for releases with noise, in the order in which to try them."""
    law = release_kind(system, policy).fresh_law()
    bootstrap = tuple(
        ParticleBounder("bootstrap particles", ParticleFilter(system, policy, Unguided(), count))
        for count in (128, 1296, MANY)
    )
    if law.is_smooth:
        return (
            ParticleBounder("twisted particles", ParticleFilter(system, policy, Twisted(), 128)),
            ParticleBounder("twisted particles", ParticleFilter(system, policy, Twisted(), 512)),
            ParticleBounder("guided particles", ParticleFilter(system, policy, Local(), 512)),
            *bootstrap[1:],  # where a kernel folds states onto one release, aiming finds one branch only
        )
    return bootstrap


def _conditional(system: System, policy: Policy) -> tuple[LeakageBounder, ...]:
    """Filters of what a release without noise leaves open of a state that is not linear."""
    exact, (words, few) = ahead_by_quadrature(system, policy), BY_QUADRATURE
    by_quadrature = [] if exact is None else [(words, exact, few)]
    ladder: list[tuple[str, Guide, int]] = [
        ("conditional particles, aimed ahead", Ahead(), 128),
        *by_quadrature,
        ("conditional particles, aimed ahead", Ahead(), 512),
        *(("conditional particles", Unguided(), count) for count in (512, 2048, MANY)),
    ]
    return tuple(
        ParticleBounder(name, NoiselessFilter(system, policy, guide, count)) for name, guide, count in ladder
    )


def exact_bound(likelihood: Array, pinned: Scalar, record: Record, apart: bool) -> TwoSidedBound:
    """Both sides of an episode from numbers that need no runs.

    Args:
        likelihood: (K,) logarithms, from below.
        pinned: that of the true secret, from above; NaN where nothing is known.
        record: the episode.
        apart: whether components of the secret will be asked for.
    """
    runs = jnp.broadcast_to(likelihood, (APART + apart, *likelihood.shape))
    return TwoSidedBound(
        runs, pinned, jnp.ones_like(pinned), jnp.full(record.states.shape[1:], 0.5, pinned.dtype)
    )


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
    def method(self) -> Method:  # pyright: ignore[reportIncompatibleVariableOverride]
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

    @property
    def together(self) -> int:
        """As many as the inner bound takes."""
        return self.reads.together

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

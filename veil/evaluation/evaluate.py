"""The evaluation of a policy: play episodes, bound their leakage from both sides, measure what they cost.

Audits, the choice of a policy in a training, the points of a frontier and the reproduction of the paper all
call `evaluate`. An audit adds attackers to it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int
from scipy.special import log_softmax

from veil.attacks.kalman import MisspecifiedPolicy
from veil.evaluation.bounds import (
    MANY,
    LeakageBounder,
    ToldBounder,
    Unfiltered,
    bounder_candidates,
    told_bounders,
)
from veil.evaluation.episodes import (
    PILOT,
    Progress,
    episode_numbers,
    evaluation_keys,
    in_batches,
    play_episodes,
    private_key,
    select_episodes,
    side_by_side,
    silent,
)
from veil.evaluation.scoring import (
    Forecast,
    Scored,
    Told,
    TwoSidedBound,
    calibration,
    failed_fraction,
    score,
    shared_components,
    unknown,
    upper_scores,
    vulnerability,
)
from veil.evaluation.utility import Use, use
from veil.evaluation.verdict import VerdictInputs, reach_verdict, width_limit
from veil.executors.base import Executor
from veil.io import Store
from veil.policies.base import Policy
from veil.results.parts import AtStep, AttackResult, Verdict
from veil.settings import AuditSettings
from veil.stats import Leakage
from veil.step import Record
from veil.systems.base import Scenario, System
from veil.systems.scenarios import nominal
from veil.types import Key, as_float64

HOPELESS = 8.0  # times the widest allowed: then four times as many particles would not help

PILOTS = 64  # episodes on which the bounder is chosen

EPISODE_BLOCK = 256  # episodes after which the stopping rule, if there is one, is asked again

Made = TypeVar("Made")


@dataclass(frozen=True)
class Choice:
    """How the leakage of an evaluation is bounded.

    Attributes:
        bounder: the filter, or what else applies; None where nothing does.
        reader: who is told more than the releases; None where nobody can be.
        always: whether the reader's gain is charged on all episodes, and not only where the filter fails.
    """

    bounder: LeakageBounder | None
    reader: ToldBounder | None = None
    always: bool = False


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        records: the episodes that were bounded, batched [E].
        bounder: how their leakage was bounded; None where no method applies.
        bound: both sides of every episode; None without a bounder.
        scored: the scores of every episode.
        times: the leakage of the first releases, at a few times along the run and at its end.
        use: what the episodes cost and gave, batched [E].
        seconds: time taken by stage.
        reader: who is told more than the releases, and whose gain is charged where the filter fails; None
            where it never fails, or nobody can be told.
    """

    records: Record
    bounder: LeakageBounder | None
    bound: TwoSidedBound | None
    scored: Scored
    times: tuple[AtStep, ...]
    use: Use
    seconds: dict[str, float]
    reader: ToldBounder | None = None

    @property
    def index(self) -> np.ndarray:
        """(E,) the true secrets."""
        return np.asarray(self.records.index)

    @property
    def forecast(self) -> Forecast:
        """The posterior of the secret by the evaluation's own filters."""
        return self.scored.forecast

    @property
    def leakage(self) -> Leakage:
        """Of the whole run, from both sides; whether it may be believed is for the verdict."""
        return self.scored.leakage

    @property
    def coupled(self) -> bool:
        """Whether the bound comes without a posterior of the secret given the releases."""
        if self.bounder is None:
            return False
        return self.bounder.method in ("coupling", "excess") or isinstance(self.bounder, Unfiltered)

    @property
    def method(self) -> str:
        """How the leakage was bounded, in words."""
        if self.bounder is None:
            return "no method applies"
        told = self._told()
        if self.reader is None or told is None or told[1] == 0.0:
            return self.bounder.name
        where = "" if told[1] == 1.0 else "where they fail, "
        return f"{self.bounder.name}; from above, {where}{self.reader.name}"

    @property
    def particles(self) -> int:
        """Per secret; 0 where none were needed."""
        return 0 if self.bounder is None else self.bounder.particles

    def _told(self) -> tuple[str, float] | None:
        """What the reader is told, and on which share of the episodes it stands for the filter."""
        told = self.scored.told
        if self.reader is None or told is None:
            return None
        return self.reader.more, 1.0 if told.always else float(self.scored.bad.mean())

    def verdict(self, attacks: tuple[AttackResult, ...] = (), mismatch: int = 0) -> Verdict:
        """Whether the leakage may be believed.

        Args:
            attacks: of adversaries who read the same episodes.
            mismatch: how many episodes could not be replayed.
        """
        found = VerdictInputs(
            leakage=self.leakage,
            bad=0.0 if self.bounder is None else float(self.scored.bad.mean()),
            calibration=calibration(self.forecast),
            vulnerability=vulnerability(self.forecast),
            ranks=None if self.bound is None or self.particles == 0 else np.asarray(self.bound.rank),
            attacks=attacks,
            mismatch=mismatch,
            failed=0.0 if self.bound is None else failed_fraction(self.bound),
            method=None if self.bounder is None else self.bounder.method,
            told=self._told(),
        )
        return reach_verdict(found, float(self.forecast.prior.max()))


def evaluate(
    system: System,
    policy: Policy,
    scenario: Scenario | None = None,
    settings: AuditSettings | None = None,
    *,
    candidates: int | None = None,
    moments: int = 1,
    first_episode: int = 0,
    records: Record | None = None,
    progress: Progress = silent,
    store: Store | None = None,
    executor: Executor | None = None,
) -> Evaluation:
    """Play episodes of a policy, bound their leakage from both sides, and measure what they cost.

    Everything runs in double precision, whatever the precision of what is given. The leakage is that against
    an adversary who knows the scenario: its plant, and what the owner takes each secret for. Where the
    owner's error is random, nothing bounds it from above.

    Args:
        system: the model.
        policy: any policy.
        scenario: where to play; the model itself if not given.
        settings: steps, episodes, seed, and when to stop early.
        candidates: how many ways of bounding the leakage to try, best first. All by default; with one, no
            pilot episodes are played; with 0, nothing is bounded.
        moments: at how many times along the run to bound the leakage, its end included.
        first_episode: number of the first episode. What is reported must not be what was chosen by.
        records: episodes to evaluate instead of fresh ones, batched [E]. A policy with a memory is bounded
            only on episodes that were played with this seed.
        progress: called with the stage, how many episodes are done, and of how many.
        store: keeps finished batches, so that an interrupted evaluation can go on.
        executor: who computes the batches; this process if not given.
    """
    with jax.enable_x64(True):
        settings, began = settings or AuditSettings(), time.monotonic()
        system, policy, scenario = as_float64((system, policy, scenario))
        where = nominal(system) if scenario is None else scenario
        plant, keys, seconds = where.plant, evaluation_keys(settings.seed), dict[str, float]()
        log_prior, apart = log_prior_of(plant), shared_components(plant)
        # The policy as somebody sees it who knows the scenario.
        seen = policy
        if scenario is not None and not policy.has_memory:
            seen = MisspecifiedPolicy(policy, plant, scenario.believed)

        def timed(stage: str, make: Callable[[], Made]) -> Made:
            start = time.monotonic()
            made = make()
            seconds[stage] = seconds.get(stage, 0.0) + time.monotonic() - start
            return made

        def played(numbers: np.ndarray, stage: str) -> Record:
            given = {"key": keys.episodes, "stage": stage, "progress": progress, "executor": executor}
            return timed("playing", lambda: play_episodes(where, policy, settings.steps, numbers, **given))

        def bounded(
            bounder: LeakageBounder, played: Record, numbers: np.ndarray, length: int, stage: str
        ) -> TwoSidedBound:
            at, rows = jnp.asarray(length, jnp.int32), np.arange(len(numbers))

            def own(rows: np.ndarray) -> tuple:
                some, named = select_episodes(played, rows), episode_numbers(numbers[rows])
                return (some, named, at, keys.episodes, keys.filters)

            given = {"executor": executor, "store": store, "kept": TwoSidedBound}
            shared = (bounder, apart)
            return timed(
                "two sides",
                lambda: in_batches(stage, bound_batch, shared, own, rows, progress, **given).value,
            )

        pilot_numbers, limit = PILOT + np.arange(PILOTS), width_limit(float(-np.exp(log_prior) @ log_prior))
        pilots = cache(lambda: played(pilot_numbers, "playing pilots"))

        def on_pilots(bounder: LeakageBounder) -> TwoSidedBound:
            stage = f"pilot: {bounder.name}, {bounder.particles}"
            return bounded(bounder, pilots(), pilot_numbers, settings.steps, stage)

        def choose(bounders: tuple[LeakageBounder, ...], readers: tuple[ToldBounder, ...]) -> Choice:
            """The first that is narrow enough on pilot episodes, else the narrowest; and a reader."""
            first = next(iter(bounders), None)
            if first is None:
                return cheapest(Unfiltered(plant), None, readers) if readers else Choice(None)
            if len(bounders) == 1:
                return Choice(first, readers[0] if readers else None)
            best: tuple[float, LeakageBounder, TwoSidedBound | None] = (np.inf, first, None)
            width = np.inf
            for bounder in bounders:
                if bounder.particles >= MANY and width > HOPELESS * limit:
                    continue
                found = on_pilots(bounder)
                scored = score(found, np.asarray(pilots().index), log_prior, method=bounder.method)
                width = float(np.nan_to_num(scored.leakage.width, nan=np.inf) + scored.bad.mean())
                best = min(best, (width, bounder, found), key=lambda one: one[0])
                if width < 0.5 * limit:
                    break
            width, bounder, found = best
            if width < 0.5 * limit:  # then it hardly matters who is told what
                return Choice(bounder, readers[0] if readers else None)
            return cheapest(bounder, found, readers) if readers else Choice(bounder)

        def cheapest(
            bounder: LeakageBounder, found: TwoSidedBound | None, readers: tuple[ToldBounder, ...]
        ) -> Choice:
            """The reader who gains least on pilot episodes: where the filter fails, or everywhere."""
            ways = [Choice(bounder, reader, True) for reader in readers]
            if found is not None:
                ways = [*(replace(way, always=False) for way in ways), *ways]
            if len(ways) < 2:
                return ways[0]
            index, read = np.asarray(pilots().index), {reader.more: on_pilots(reader) for reader in readers}

            def charge(way: Choice) -> float:
                assert way.reader is not None
                told = Told(read[way.reader.more], way.always)
                sides = read[way.reader.more] if found is None else found
                return float(np.mean(upper_scores(sides, index, log_prior, told).upper))

            return min(ways, key=charge)

        def episodes(_: Progress) -> tuple[Record, np.ndarray]:
            """The episodes, and their numbers."""
            if records is not None:
                return as_float64(records), first_episode + np.arange(len(records.index))
            numbers = first_episode + np.arange(episode_count(settings.episodes, len(log_prior)))
            return played(numbers, "playing"), numbers

        def ways(_: Progress) -> tuple[tuple[LeakageBounder, ...], tuple[ToldBounder, ...]]:
            """How the leakage may be bounded, and who may be told more."""
            unbounded = candidates == 0 or float(where.error) > 0
            found = tuple([] if unbounded else bounder_candidates(plant, seen, where.believed))[:candidates]
            # Exact methods never fail, and where one way is asked for there are no pilots to choose by.
            told = not unbounded and candidates != 1 and all(one.method == "filter" for one in found)
            return found, told_bounders(plant, seen) if told else ()

        # Elsewhere, what others compute is waited for by another thread.
        at_once = None if executor is not None and executor.remote else 1
        both: list[Callable[[Progress], Any]] = [episodes, ways]
        (every, numbers), (bounders, readers) = side_by_side(both, progress, executor, at_once=at_once)
        index = np.asarray(every.index)
        looks, jobs = _looks(len(index), settings), list[Callable[[Progress], Any]]()
        jobs.append(lambda _: choose(bounders, readers))
        if len(bounders) > 1 and executor is not None and executor.remote and executor.workers > 1:
            # The other workers would wait for the pilot: they begin with the way that is mostly chosen.
            some, stage = select_episodes(every, np.arange(looks[0])), f"{bounders[0].name}, {looks[0]}"
            first = (bounders[0], some, numbers[: looks[0]], settings.steps, f"{stage} of {len(index)}")
            jobs.append(lambda _: bounded(*first))
        choice, *ahead = side_by_side(jobs, progress, executor, at_once=len(jobs))
        bounder, reader = choice.bounder, choice.reader
        ahead = ahead if bounder is next(iter(bounders), None) else []

        def read(
            some: Record, numbers: np.ndarray, length: int, stage: str, found: TwoSidedBound | None = None
        ) -> tuple[TwoSidedBound, TwoSidedBound]:
            """Both sides of these episodes, and of the reader; twice the same where no reader is asked."""
            assert bounder is not None
            found = found or bounded(bounder, some, numbers, length, stage)
            failed = upper_scores(found, np.asarray(some.index), log_prior).bad
            if reader is None or not (choice.always or failed.any()):
                return found, found
            return found, bounded(reader, some, numbers, length, f"{stage}, told more")

        def scored_by(sides: tuple[TwoSidedBound, TwoSidedBound], index: np.ndarray, planned: int) -> Scored:
            assert bounder is not None
            told = None if reader is None else Told(sides[1], choice.always)
            return score(sides[0], index, log_prior, method=bounder.method, planned=planned, told=told)

        def read_blocks(_: Progress) -> tuple[Scored, TwoSidedBound]:
            """All episodes, or the first ones, until that is enough."""
            assert bounder is not None
            blocks, ready = list[tuple[TwoSidedBound, TwoSidedBound]](), iter(ahead)
            for rows in (np.arange(*ends) for ends in pairwise((0, *looks))):
                stage = f"{bounder.name}, {rows[-1] + 1} of {len(index)}"
                some = select_episodes(every, rows)
                blocks.append(read(some, numbers[rows], settings.steps, stage, next(ready, None)))
                sides = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
                scored = scored_by(sides, index[: rows[-1] + 1], len(index))
                narrow = scored.leakage.high - scored.leakage.low <= settings.interval
                if narrow or time.monotonic() - began > settings.seconds or rows[-1] + 1 == len(index):
                    return scored, sides[0]
            raise AssertionError("the last block has the last episode")

        first_rows = np.arange(looks[0])[:EPISODE_BLOCK]

        def read_first(length: int) -> AtStep:
            """The first releases of the first episodes."""
            some, stage = select_episodes(every, first_rows), f"first {length} releases"
            sides = read(some, numbers[first_rows], length, stage)
            return AtStep(length, scored_by(sides, index[first_rows], 0).leakage)

        stages = list[Callable[[Progress], Any]]()
        stages.append(lambda _: use_of(plant, every, progress, executor))
        if bounder is not None:
            lengths = sorted({-(-settings.steps * part // moments) for part in range(1, moments)})
            early = [lambda _, it=length: read_first(it) for length in lengths if length < settings.steps]
            stages += [read_blocks, *early]
        used, *read_by = side_by_side(stages, progress, executor, at_once=at_once)
        scored, bound = read_by[0] if read_by else (unknown(index, log_prior), None)
        kept = np.arange(len(scored.forecast.index))

        return Evaluation(
            records=select_episodes(every, kept),
            bounder=bounder,
            bound=bound,
            scored=scored,
            times=(*read_by[1:], AtStep(settings.steps, scored.leakage)),
            use=jax.tree.map(lambda leaf: leaf[kept], used),
            seconds=seconds,
            reader=reader,
        )


def _looks(episodes: int, settings: AuditSettings) -> tuple[int, ...]:
    """Numbers of episodes after which it is asked whether the interval is narrow or the time over.

    Where all are wanted, one look is enough to find what no further episode could make narrower.
    """
    blocks = range(EPISODE_BLOCK, episodes, EPISODE_BLOCK)
    stops = settings.interval > 0.0 or settings.seconds < math.inf
    return (*(blocks if stops else blocks[:1]), episodes)


def log_prior_of(system: System) -> np.ndarray:
    """(K,) logarithms of the prior; masses given in single precision sum to one only up to 1e-7."""
    return log_softmax(np.asarray(system.prior.log_masses))


def episode_count(episodes: int, secrets: int) -> int:
    """At least so many episodes: equally many per secret, and at least two."""
    return secrets * max(2, -(-episodes // secrets))


def use_of(
    system: System, records: Record, progress: Progress = silent, executor: Executor | None = None
) -> Use:
    """What these episodes cost and gave, batched [E].

    Args:
        system: the plant that they were played in.
        records: the episodes.
        progress: called with the stage, how many episodes are done, and of how many.
        executor: who computes; this process if not given.
    """

    def own(rows: np.ndarray) -> tuple:
        return (select_episodes(records, rows),)

    rows = np.arange(len(records.index))
    return in_batches("measuring use", use_batch, (system,), own, rows, progress, executor=executor).value


@eqx.filter_jit
def use_batch(system: System, records: Record) -> Use:
    """What the episodes of one batch cost and gave."""
    return jax.vmap(lambda record: use(system, record))(records)


@eqx.filter_jit
def bound_batch(
    bounder: LeakageBounder,
    apart: bool,
    records: Record,
    numbers: Int[Array, " B"],
    length: Int[Array, ""],
    play_key: Key,
    key: Key,
) -> TwoSidedBound:
    """Both sides of the episodes of one batch.

    Args:
        bounder: how.
        apart: whether components of the secret will be asked for.
        records: the episodes.
        numbers: of the episodes.
        length: how many releases count.
        play_key: that the episodes were played with.
        key: of the filters.
    """

    def one(both: tuple[Record, Int[Array, ""]]) -> TwoSidedBound:
        record, number = both
        own, mine = private_key(play_key, number), jr.fold_in(key, number)
        return bounder.bound(record, length, play_key=own, key=mine, apart=apart)

    return jax.lax.map(one, (records, numbers), batch_size=bounder.together)

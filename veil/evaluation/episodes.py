"""Episodes in batches and in double precision: played, replayed, selected."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veil.executors.base import Chunk, ChunkError, Executor, InProcess, StoppedError, run_chunks
from veil.io import Store
from veil.policies.base import Policy
from veil.rollout import Given, play
from veil.settings import SimulateSettings
from veil.step import Record, Transcript, first_features
from veil.systems.base import Scenario, System
from veil.systems.scenarios import nominal
from veil.types import Key, as_float64

Tree = TypeVar("Tree")

Made = TypeVar("Made")

Progress = Callable[[str, int, int], None]

BATCH = 64  # episodes per call of a compiled program

# Every purpose has its own numbers of episodes, so that none is used twice.
PILOT, TRAINING, LONGER, SIMULATED = 1_000_000, 2_000_000, 4_000_000, 8_000_000


class Keys(NamedTuple):
    """The randomness of an evaluation: of its episodes, of its filters, and of attackers that are trained."""

    episodes: Key
    filters: Key
    training: Key


def evaluation_keys(seed: int) -> Keys:
    """The keys that belong to the seed of an evaluation."""
    return Keys(*jr.split(jr.key(seed), 3))


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""
    del stage, done, total


def episode_numbers(values: np.ndarray) -> Int[Array, " B"]:
    """Numbers of episodes, or rows of a batch, for a compiled program."""
    return jnp.asarray(values, jnp.int32)


@dataclass(frozen=True)
class Merged(Generic[Tree]):
    """The results of all batches of a stage.

    Attributes:
        value: with the batches one behind the other.
        seconds: that computing took, all batches together, also those of an earlier sitting.
    """

    value: Tree
    seconds: float


def in_batches(
    stage: str,
    program: Callable[..., Tree],
    shared: tuple,
    own: Callable[[np.ndarray], tuple],
    numbers: np.ndarray,
    progress: Progress,
    *,
    executor: Executor | None = None,
    store: Store | None = None,
    kept: type | None = None,
) -> Merged[Tree]:
    """Run a compiled program over all numbers, BATCH at a time. The last batch is filled up, its result cut.

    Batches are independent: whoever computes them, and in whatever order, their bits are the same.

    Args:
        stage: name of the work, for `progress`.
        program: a compiled function of a module; it returns arrays with leading size BATCH.
        shared: its first arguments, the same for all batches.
        own: gives its other arguments for BATCH numbers.
        numbers: of the episodes, or rows of a batch of them.
        progress: called with the stage, how many numbers are done, and of how many.
        executor: who computes; this process if not given.
        store: where batches are kept as soon as they are computed.
        kept: class of what the program returns; None if it is not worth a file.
    """
    parts = [numbers[i : i + BATCH] for i in range(0, len(numbers), BATCH)]

    def chunk(part: np.ndarray) -> Chunk:
        filled = np.resize(part, BATCH)
        return Chunk(f"{stage}, episodes {part[0]} to {part[-1]}", program, shared, lambda: own(filled))

    try:
        done = run_chunks(
            executor or InProcess(),
            [chunk(part) for part in parts],
            kept=kept,
            store=store,
            progress=lambda count: progress(stage, min(BATCH * count, len(numbers)), len(numbers)),
        )
    except ChunkError as error:
        if error.__cause__ is None:
            raise
        error.__cause__.add_note(str(error))
        raise error.__cause__ from None  # raised in this process: as if it had been called directly
    values = [one.value for one in done]
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(numbers)], *values)
    return Merged(whole, sum(one.seconds for one in done))


def side_by_side(
    jobs: Sequence[Callable[[Any], Made]],
    progress: Callable[..., None],
    executor: Executor | None = None,
    *,
    at_once: int | None = None,
) -> list[Made]:
    """The results of independent stages, a few at a time, in their order.

    One stage compiles while another computes. If one fails or is interrupted, the others end with their
    next batch.

    Args:
        jobs: each takes the progress to report to.
        progress: told about all of them, by one thread at a time.
        executor: that they hand in their batches to.
        at_once: how many at a time; by default as many as keep the executor busy.
    """
    stop, turn = threading.Event(), threading.Lock()
    executor = executor or InProcess()
    if at_once == 1:
        return [job(progress) for job in jobs]

    def told(*line: object) -> None:
        if stop.is_set():
            raise StoppedError
        with turn:
            progress(*line)

    def run(job: Callable[[Progress], Made]) -> Made:
        with jax.enable_x64(True):
            return job(told)

    pool = ThreadPoolExecutor(at_once or executor.stages)
    try:
        return [one.result() for one in [pool.submit(run, job) for job in jobs]]
    except BaseException:
        executor.stop()
        raise
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)  # Ctrl-C ends here


def play_batch(scenario: Scenario, policy: Policy, steps: int, numbers: Int[Array, " B"], key: Key) -> Record:
    """Play these episodes. One by one where a replay must find the same bits."""
    scenario = _nameless(scenario)
    if not has_features(policy):
        return _play_together(scenario, policy, steps, numbers, key)
    system = scenario.plant
    shape, dtype = (len(numbers), steps), system.prior.secrets.dtype
    external = jnp.zeros((*shape, len(system.first_external())), dtype)
    shared = jnp.zeros((*shape, len(system.shared_fields)), dtype)
    return _play_or_replay(scenario, policy, numbers, key, jnp.asarray(False), external, shared)


def _nameless(scenario: Scenario) -> Scenario:
    """The scenario without its name, so that those which differ in numbers only are one program."""
    return replace(scenario, name="")


@eqx.filter_jit
def _play_together(
    scenario: Scenario, policy: Policy, steps: int, numbers: Int[Array, " B"], key: Key
) -> Record:
    return jax.vmap(lambda number: play(scenario, policy, steps, number=number, key=key))(numbers)


@eqx.filter_jit
def _play_or_replay(
    scenario: Scenario,
    policy: Policy,
    numbers: Int[Array, " B"],
    key: Key,
    replayed: Bool[Array, ""],
    external: Float[Array, "B T E"],
    shared: Float[Array, "B T Y"],
) -> Record:
    """One program for both, because another program may round otherwise."""

    def one(episode: tuple[Array, Array, Array]) -> Record:
        number, external, shared = episode
        given = Given(replayed, external, shared)
        return play(scenario, policy, external.shape[0], number=number, key=key, given=given)

    return jax.lax.map(one, (numbers, external, shared))


def play_episodes(
    scenario: Scenario,
    policy: Policy,
    steps: int,
    numbers: np.ndarray,
    *,
    key: Key,
    stage: str = "playing",
    progress: Progress = silent,
    executor: Executor | None = None,
) -> Record:
    """Play episodes of a scenario, batched [E].

    Args:
        scenario: the plant, and what the owner believes.
        policy: the one in force.
        steps: T, releases per episode.
        numbers: (E,) of the episodes; secrets take turns by them.
        key: of all episodes; policies played with one key meet the same random numbers.
        stage: name of the work, for `progress`.
        progress: called with the stage, how many episodes are done, and of how many.
        executor: who plays; this process if not given.
    """

    def own(part: np.ndarray) -> tuple:
        return (episode_numbers(part), key)

    shared = (scenario, policy, steps)
    return in_batches(stage, play_batch, shared, own, numbers, progress, executor=executor).value


def replay_batch(scenario: Scenario, policy: Policy, public: Transcript) -> Bool[Array, " B"]:
    """Which of these transcripts have other features than a replay gives, in any bit.

    Where they differ, the policy that ran is not this one: another seed, another number of particles, another
    build. Statistics do not show such a difference reliably.

    Args:
        scenario: the one that was played. Only its program matters: what it computes is replaced by what is
            public.
        policy: the one that is said to have run.
        public: the transcripts, batched.
    """
    seeds, key = public.public_seed.astype(jnp.int32), jr.key(0)
    again = _play_or_replay(
        _nameless(scenario),
        policy,
        seeds,
        key,
        jnp.asarray(True),
        jnp.asarray(public.external),
        jnp.asarray(public.shared),
    )
    return jnp.any(again.public.features != public.features, axis=(1, 2))


def has_features(policy: Policy) -> bool:
    """Whether a policy has features to replay."""
    shape = eqx.filter_eval_shape(lambda: first_features(policy))
    return shape.shape[0] > 0


def private_key(key: Key, number: Int[Array, ""]) -> Key:
    """The private randomness of an episode, as `veil.rollout.play` gives it to the rollout."""
    return jr.split(jr.fold_in(key, number))[1]


def select_episodes(records: Record, rows: np.ndarray) -> Record:
    """These rows of a batch of episodes."""
    return jax.tree.map(lambda leaf: leaf[rows], records)


def simulate(
    system: System,
    policy: Policy,
    settings: SimulateSettings | None = None,
    *,
    progress: Progress = silent,
) -> Record:
    """Play episodes of a system under a policy, batched [E], in double precision.

    The secrets of the prior take turns. No audit and no training plays the same episodes.
    `veil.evaluation.save` writes them to a file.

    Args:
        system: the model, which is also the plant.
        policy: any policy.
        settings: how many episodes, of how many releases.
        progress: called with the stage, how many episodes are done, and of how many.
    """
    settings = settings or SimulateSettings()
    with jax.enable_x64(True):
        scenario = nominal(as_float64(system))
        first = SIMULATED - SIMULATED % len(scenario.believed)  # so that the first secret begins
        numbers = np.arange(first, first + settings.episodes)
        return play_episodes(
            scenario,
            as_float64(policy),
            settings.steps,
            numbers,
            key=jr.key(settings.seed),
            progress=progress,
        )

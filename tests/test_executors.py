"""Chunks: the same results whoever computes them, nothing lost but what fails, nothing computed twice."""

import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests import shaky
from tests.shaky import CALLS, Shaky, Sums
from veil.evaluation import audit as engine
from veil.evaluation.audit import audit
from veil.evaluation.episodes import side_by_side, simulate
from veil.executors import Chunk, ChunkError, ExecutorError, InProcess, OnRay, messages, run_chunks
from veil.executors.base import TRIES, StoppedError, chunk_fingerprints
from veil.executors.on_ray import TASK_BYTES, _next_task, _Pace, compute_packed
from veil.frontier import Policies, trace_frontier
from veil.io import Store, fingerprint
from veil.learners.run import Settings
from veil.learners.training import sweep_settings, train_sweep
from veil.policies import GaussianNoise
from veil.settings import (
    AuditSettings,
    FrontierGoal,
    FrontierSettings,
    ObjectiveWeights,
    PolicyDesign,
    SimulateSettings,
    TrainSettings,
)
from veil.systems import Gain
from veil.systems.scenarios import nominal
from veil.types import as_float64

SCALE = (jnp.asarray(2.0),)


def sums(count=6, function=shaky.noisy_sum, shared=SCALE):
    def own(first):
        return lambda: (jnp.arange(first, first + 4, dtype=jnp.int32), jr.key(7))

    return [Chunk(f"numbers from {4 * k}", function, shared, own(4 * k)) for k in range(count)]


def bits(done):
    return [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(one.value)] for one in done]


EXECUTORS = {
    "in process": InProcess,
    "shuffled": lambda: Shaky(seed=1),
    "loses a third": lambda: Shaky(seed=2, loses=0.33),
}


@pytest.mark.parametrize("make", EXECUTORS.values(), ids=EXECUTORS)
def test_every_executor_gives_the_same_bits_in_the_order_of_the_chunks(make, optimised):
    truth = [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(one.compute())] for one in sums()]
    seen = []
    with make() as executor:
        assert bits(run_chunks(executor, sums(), progress=seen.append)) == truth
    assert seen == list(range(7)), "progress counts every chunk once"


@pytest.mark.parametrize("make", EXECUTORS.values(), ids=EXECUTORS)
def test_a_chunk_that_fails_is_named_and_the_others_are_computed(make):
    chunks = [Chunk(f"number {k}", shaky.fails_on_three, (np.asarray(k),)) for k in range(6)]
    seen = []
    with pytest.raises(ChunkError, match="number 3: ValueError: three is too many") as caught:
        run_chunks(make(), chunks, progress=seen.append)
    assert list(caught.value.reasons) == ["number 3"] and seen[-1] == 5
    assert isinstance(caught.value.__cause__, ValueError)


def test_where_the_first_chunks_all_fail_nobody_waits_for_the_others():
    chunks = [Chunk(f"number 3, copy {k}", shaky.fails_on_three, (np.asarray(3),)) for k in range(50)]
    with pytest.raises(ChunkError) as caught:
        run_chunks(Shaky(), chunks)
    assert len(caught.value.reasons) == 3


def test_a_chunk_that_always_loses_its_worker_is_named_after_a_few_tries():
    executor = Shaky(doomed="from 8")
    with pytest.raises(ChunkError, match=rf"numbers from 8: its worker ended \({TRIES} times\)"):
        run_chunks(executor, sums())
    assert executor.times.lost == TRIES and len(executor.times.seconds) == 5


def test_chunks_that_are_kept_are_not_computed_again(tmp_path):
    CALLS.clear()
    store, chunks = Store(tmp_path, "mine"), sums(function=shaky.counted_sum)
    with pytest.raises(ChunkError):
        run_chunks(Shaky(doomed="from 8"), chunks, kept=Sums, store=store)
    assert sorted(CALLS) == [0, 4, 12, 16, 20]
    CALLS.clear()
    again = run_chunks(InProcess(), chunks, kept=Sums, store=store)
    assert CALLS == [8] and bits(again) == bits(run_chunks(InProcess(), sums()))
    names = {path.stem for path in (tmp_path / "parts").glob("*.npz")}
    assert names == set(chunk_fingerprints(chunks))


def test_a_fingerprint_changes_with_whatever_a_chunk_computes():
    marks = set(chunk_fingerprints(sums()))
    assert len(marks) == 6
    assert not marks & set(chunk_fingerprints(sums(shared=(jnp.asarray(2.5),))))
    assert not marks & set(chunk_fingerprints(sums(function=shaky.counted_sum)))


def test_the_code_of_a_file_of_the_user_travels_and_is_part_of_the_fingerprint(tmp_path, monkeypatch):
    from veil.cli.subject import build_system

    text = "from veil.systems import Gain\n\n\nclass Mine(Gain):\n    '''{}'''\n"
    path, marks, name = tmp_path / "own_gain.py", [], "veil_own_own_gain"
    for words in ("one", "two"):
        path.write_text(text.format(words))
        monkeypatch.delitem(sys.modules, name, raising=False)
        system = build_system(f"{path}:Mine")
        content, sources = messages.pack(system)
        assert list(sources) == [name] and words.encode() in sources[name][1]
        marks += chunk_fingerprints(sums(1, shared=(system,)))
        monkeypatch.delitem(sys.modules, name)
        path.unlink()  # the worker has no such file
        with jax.enable_x64(True):
            assert type(messages.unpack(content, sources)).__doc__ == words
    assert marks[0] != marks[1]


def test_an_edited_file_of_the_user_makes_another_audit_training_and_frontier(tmp_path, monkeypatch):
    """Their folders and checkpoints are those of other settings then, also where nothing can be sent."""
    from veil.cli.frontier import Frontier
    from veil.cli.subject import build_system
    from veil.learners import training

    class Seen(Exception):
        def __init__(self, folder, mark, *rest):
            self.mark = mark
            raise self

    def checkpoint(system):
        with pytest.raises(Seen) as caught:
            training.train(system, options, steps=2)
        return caught.value.mark

    monkeypatch.setattr(training, "RunLog", Seen)
    path, goal, options = tmp_path / "own_gain.py", FrontierGoal("noise", 1.0), TrainSettings()
    marks = []
    for words in ("one", "one", "two"):
        path.write_text(f"from veil.systems import Gain\n\n\nclass Mine(Gain):\n    '''{words}'''\n")
        monkeypatch.delitem(sys.modules, "veil_own_own_gain", raising=False)
        system = build_system(f"{path}:Mine")
        marks.append(
            (
                messages.whole_fingerprint(system, 3),
                messages.whole_fingerprint(system, lambda: 0),
                checkpoint(system),
                Policies(system, FrontierSettings(), lambda goal: tmp_path).fingerprint(goal),
                Frontier(f"{path}:Mine").fingerprint(system),
            )
        )
    monkeypatch.delitem(sys.modules, "veil_own_own_gain")
    assert marks[0] == marks[1] and all(one != other for one, other in zip(*marks[1:], strict=True))
    assert messages.whole_fingerprint(Gain(), 3) == fingerprint(Gain(), 3)


def test_chunks_of_a_task_are_computed_one_by_one_and_only_the_failed_one_is_told():
    given = messages.pack([(np.asarray(2),), (np.asarray(3),), (np.asarray(4),)])
    answer = compute_packed(messages.versions(), "tests.shaky:fails_on_three", messages.pack(()), given)
    first, second, third = answer["chunks"]
    values = [int(messages.unpack(one["value"], {})) for one in (first, third)]
    assert values == [4, 8] and "three is too many" in second["reason"]


def test_a_task_has_as_many_chunks_as_take_half_a_second_and_all_workers_end_together():
    pace = _Pace()
    assert not pace.known and [pace.free(2, others, 0) for others in (0, 1, 5)] == [2, 1, 1]
    assert pace.free(2, 0, 2) == 0, "each worker that begins a stage compiles its program"
    assert [pace.together(1000, 2, free) for free in (2, 1)] == [500, 1000], "a short stage is one task"
    pace.weigh(TASK_BYTES / 10)
    assert pace.together(1000, 2, 1) == 10
    pace = _Pace()
    pace.took(3.0)  # it compiled
    assert pace.known and pace.together(1000, 2, 4) == 1
    pace.took(0.04)
    pace.took(0.05)
    assert pace.together(1000, 2, 4) == 12
    assert pace.together(48, 2, 4) == 8 and pace.together(5, 2, 4) == 6, "a quarter of a second is a task"
    pace.weigh(TASK_BYTES / 5)
    assert pace.together(1000, 2, 4) == 5 and pace.free(2, 5, 1) == 3


def test_what_a_worker_has_no_time_for_it_gives_back():
    numbers = [(np.asarray(k),) for k in range(4)]
    given = (messages.versions(), "tests.shaky:fails_on_three", messages.pack(()), messages.pack(numbers))
    assert len(compute_packed(*given, 0.0)["chunks"]) == 1, "one chunk at least"
    assert len(compute_packed(*given, 60.0)["chunks"]) == 4


def test_chunks_share_a_task_if_they_share_their_first_arguments_and_have_not_lost_a_worker():
    other = (jnp.asarray(2.0),)
    lost = replace(sums(1, shared=other)[0], alone=True)
    waiting = deque(enumerate([*sums(3), *sums(2, shared=other), lost, *sums(5, shared=other)]))
    tasks = []
    while waiting:
        tasks.append([place for place, _ in _next_task(waiting, 4)])
    assert tasks == [[0, 1, 2], [3, 4], [5], [6, 7, 8, 9], [10]]


def test_a_chunk_that_lost_its_worker_is_sent_alone():
    executor, seen = Shaky(doomed="from 8"), []
    given = executor.outcomes
    executor.outcomes = lambda chunks: given(seen.append([one.alone for one in chunks]) or chunks)
    with pytest.raises(ChunkError):
        run_chunks(executor, sums())
    assert seen == [[False] * 6, *[[True]] * (TRIES - 1)]


def test_what_has_no_name_does_not_travel():
    with pytest.raises(messages.UnsendableError, match=r"FILE\.py:NAME"):
        messages.pack(lambda: 0)


def test_other_versions_are_told_in_a_sentence():
    ours = messages.versions()
    assert not messages.disagreement(ours, dict(ours))
    said = messages.disagreement(ours, ours | {"jax": "0.0.1"})
    assert f"jax {ours['jax']} here and 0.0.1 there" in said and "numpy" not in said


def test_without_ray_the_message_says_what_to_install():
    try:
        import ray  # noqa: F401  # pyright: ignore
    except ImportError:
        with pytest.raises(ExecutorError, match=r"veil\[ray\]"):
            OnRay(workers=2)


def test_an_interrupt_in_one_stage_ends_the_others():
    executor, ended = Shaky(), []

    def endless(told):
        try:
            while True:
                run_chunks(executor, sums(2))
        except StoppedError:
            ended.append(True)
            raise

    def interrupted(told):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side([interrupted, endless], lambda *line: None, executor)
    assert ended in ([], [True])  # the second may never have begun


SMALL = AuditSettings(steps=5, episodes=150, scenarios="none")


def test_an_audit_has_the_same_bits_whoever_computes_it_and_goes_on_with_what_is_kept(tmp_path, optimised):
    system = Gain()
    policy = GaussianNoise(system, jnp.asarray([0.3]))
    here = audit(system, policy, SMALL)
    with pytest.raises(ChunkError, match="exact Kalman filters, 150 of 150, episodes 64 to 127"):
        audit(
            system,
            policy,
            SMALL,
            executor=Shaky(doomed="150 of 150, episodes 64 to"),
            store=Store(tmp_path, "it"),
        )
    kept = len(list((tmp_path / "parts").glob("*.npz")))
    assert kept >= 2, "the other two batches, and what other stages had by then"
    there = audit(system, policy, SMALL, executor=Shaky(seed=3, loses=0.2), store=Store(tmp_path, "it"))
    assert here.leakage == there.leakage and np.array_equal(here.realised, there.realised)
    assert [(one.name, one.lower) for one in here.attacks] == [(one.name, one.lower) for one in there.attacks]
    assert here.utility == there.utility


def test_workers_do_all_of_other_worlds_and_find_what_one_process_finds(monkeypatch, optimised):
    monkeypatch.setattr(engine, "BRIEF_EPISODES", 66)
    monkeypatch.setattr(engine, "BRIEF_TRANSCRIPTS", 99)
    system, settings = Gain(), AuditSettings(steps=5, scenarios="brief")
    policy, executor, seen = GaussianNoise(system, jnp.asarray([0.3])), Shaky(loses=0.2), set()
    given = executor.outcomes
    executor.outcomes = lambda chunks: given(seen.update(one.place for one in chunks) or chunks)
    here = engine.try_scenarios(system, policy, settings)
    there = engine.try_scenarios(system, policy, settings, executor=executor)
    assert [without_times(one) for one in here] == [without_times(one) for one in there] and len(here) > 1
    expected = (
        "audit:distortions",
        "rounding:fit_regressions",
        "attackers:read_batch",
        "episodes:play_batch",
    )
    assert {place.rpartition(".")[2] for place in seen} == set(expected)


def without_times(found):
    return replace(found, attacks=tuple(replace(one, seconds=0.0) for one in found.attacks))


def test_a_frontier_by_workers_is_that_of_one_process_and_a_failed_point_costs_only_itself(tmp_path):
    extent = FrontierSettings(kinds=("noise",), steps=4, episodes=12)
    here = trace_frontier(Gain(), extent, folder=tmp_path / "here")
    doomed, failed = Shaky(doomed="training"), []
    there = trace_frontier(Gain(), extent, folder=tmp_path / "there", executor=Shaky(loses=0.2))
    for one, other in zip(here.points, there.points, strict=True):
        assert (one.goal, one.leakage, one.distortion) == (other.goal, other.leakage, other.distortion)
    assert here.floor == there.floor
    more = FrontierSettings(kinds=("noise", "plain"), weights=(5.0,), steps=4, episodes=12, updates=1)
    part = trace_frontier(
        Gain(),
        more,
        folder=tmp_path / "there",
        executor=doomed,
        failed=lambda *words: failed.append(words),
    )
    assert len(part.points) == 8 and len(failed) == 1
    assert "plain 5" in failed[0][0] and "its worker ended" in failed[0][1]


@pytest.mark.parametrize("seen", [True, False], ids=["shared folder", "folder of another machine"])
def test_trainings_by_workers_are_those_of_one_process_and_go_on(tmp_path, seen, monkeypatch, optimised):
    if not seen:  # the worker finds no folder of that name
        real = Path.exists
        monkeypatch.setattr(Path, "exists", lambda path: ".seen-" not in path.name and real(path))
    training = TrainSettings(updates=2, episodes=3, evaluate_every=1, evaluation_episodes=6)
    first = Settings("gain", 3, PolicyDesign(start="plain"), ObjectiveWeights(), training, "estimate")
    wanted = sweep_settings(first, 2, (5.0,))
    assert list(wanted) == ["weight-5-seed-0", "weight-5-seed-1"]
    failed = []
    given = {"failed": lambda *words: failed.append(words)}
    part = train_sweep(wanted, Gain(), tmp_path / "there", executor=Shaky(doomed="seed-1"), **given)
    assert list(part) == ["weight-5-seed-0"] and failed[0][0] == "weight-5-seed-1"
    there = train_sweep(wanted, Gain(), tmp_path / "there", executor=Shaky())
    here = train_sweep(wanted, Gain(), tmp_path / "here")
    for name in wanted:
        policies = [
            (tmp_path / place / name / "policy.safetensors").read_bytes() for place in ("here", "there")
        ]
        assert policies[0] == policies[1]
        assert (tmp_path / "there" / name / "metrics.jsonl").exists()
        assert not list((tmp_path / "there" / name).glob(".seen-*"))
    assert here.keys() == there.keys()


def test_columns_of_the_reproduction_behind_a_failed_one_wait_and_the_others_are_measured(
    tmp_path, monkeypatch
):
    from paper.reproduction import background_worker
    from paper.reproduction.engine import Work
    from paper.reproduction.options import FAST

    seen, reports = [], []
    monkeypatch.setattr(background_worker, "measure_column", lambda name, *place: seen.append(name))
    work = Work(FAST, tmp_path, ("true", "ddpg_untrained", "noise"), lambda *line: reports.append(line))
    names = [one.name for one in work.columns]
    assert {"true", "ddpg", "noise", "ddpg_untrained"} <= set(names)
    background_worker.by_workers(work, Shaky())
    assert sorted(seen) == sorted(names) and seen.index("ddpg") < seen.index("noise")
    seen.clear()
    with pytest.raises(ChunkError) as caught:
        background_worker.by_workers(work, Shaky(doomed="column ddpg"))
    lost = {name for name in names if name.startswith("ddpg")} | {"noise"}
    assert set(seen) == set(names) - lost
    assert "column ddpg" in caught.value.reasons and "column noise" not in caught.value.reasons


def test_a_worker_trains_the_classifier_that_this_process_would():
    settings = AuditSettings(steps=5, training=64)
    with jax.enable_x64(True):
        system = as_float64(Gain())
        policy = as_float64(GaussianNoise(system, jnp.asarray([0.3])))
        records = simulate(system, policy, SimulateSettings(episodes=66, steps=5))
        here, there = (
            engine.learned_attack(
                engine._Job(system, policy, settings, lambda *line: None, Store(), executor),
                nominal(system),
                records,
            )
            for executor in (InProcess(), Shaky(loses=0.2))
        )
    assert replace(here, seconds=0.0) == replace(there, seconds=0.0) and "validation" in here.note

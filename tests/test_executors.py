"""Chunks: the same results whoever computes them, nothing lost but what fails, nothing computed twice."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests import shaky
from tests.shaky import CALLS, Shaky, Sums
from veil.evaluation.audit import audit
from veil.evaluation.episodes import side_by_side
from veil.executors import Chunk, ChunkError, ExecutorError, InProcess, OnRay, messages, run_chunks
from veil.executors.base import TRIES, StoppedError, chunk_fingerprints
from veil.frontier import trace_frontier
from veil.io import Store
from veil.learners.run import Settings
from veil.learners.training import sweep_settings, train_sweep
from veil.policies import GaussianNoise
from veil.settings import AuditSettings, FrontierSettings, ObjectiveWeights, PolicyDesign, TrainSettings
from veil.systems import Gain

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
    assert kept == 2, "the other two batches"
    there = audit(system, policy, SMALL, executor=Shaky(seed=3, loses=0.2), store=Store(tmp_path, "it"))
    assert here.leakage == there.leakage and np.array_equal(here.realised, there.realised)
    assert [(one.name, one.lower) for one in here.attacks] == [(one.name, one.lower) for one in there.attacks]
    assert here.utility == there.utility


def test_a_frontier_by_workers_is_that_of_one_process_and_a_failed_point_costs_only_itself(tmp_path):
    extent = FrontierSettings(kinds=("noise", "quantised"), steps=4, episodes=12)
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

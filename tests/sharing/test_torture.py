"""Twenty of the kills of `make torture`, and what a replay is to the process that wrote the ledger."""

import os
import shutil
import stat
from collections import Counter

import numpy as np
import pytest

from tests.sharing.aftermath import check_answers, check_beliefs
from tests.sharing.dying_share import AROUND, INSIDE, MARK, MEMORY
from tests.sharing.streams import SECRET, Plant, noise_policy, private_policy, run
from tests.torture import OUTSIDE, Story, drive, examine, schedule
from veil.sharing import Ledger, Sharer
from veil.sharing.snapshots import MemoryFile, PrivateSnapshot


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("policy", "kills", "steps"), [("noise", 16, 80), ("counterfactual", 14, 50)])
def test_nobody_can_tell_that_the_program_was_killed(tmp_path, policy, kills, steps):
    story = Story(tmp_path, steps, policy, "blind")
    deaths = schedule(steps, kills, 3, memory=policy == "counterfactual")
    drive(story, deaths, 3, attacked=3)
    examine(story, deaths)
    assert story.attacked


def test_at_least_a_third_of_the_kills_are_between_write_and_emit():
    for kills, steps, memory in ((300, 2000, False), (30, 200, True), (16, 80, False), (14, 50, True)):
        deaths = schedule(steps, kills, 3, memory=memory)
        points, when = Counter(death.point for death in deaths), [death.step for death in deaths]
        assert len(deaths) == kills and sum(points[point] for point in (*INSIDE, *MARK)) * 3 >= kills
        assert when == sorted(set(when)) and when[0] >= 1 and when[-1] < steps
        assert points.keys() == {*INSIDE, *MARK, *OUTSIDE, *(MEMORY if memory else AROUND)}


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("exhausted", ["blind", "blur"])
def test_a_replay_has_the_belief_of_the_process_that_lived_on(tmp_path, exhausted):
    """To the last bit, over faults, gaps and refusals."""
    path, plant, options = tmp_path / "ledger.jsonl", Plant(2), {"budget": 0.2, "exhausted": exhausted}
    with Sharer(noise_policy(), SECRET, ledger=path, **options, resolution=0.0) as alive:
        run(alive, plant, 25)
        alive.share([float("nan")], [0.3])
        alive.share([plant.state], [plant.external], step=30)
        run(alive, plant, 10)
        shutil.copy(path, tmp_path / "copy.jsonl")
        with Sharer(
            noise_policy(), SECRET, ledger=tmp_path / "copy.jsonl", **options, resolution=0.0
        ) as again:
            assert again.next_step == alive.next_step == 41
            assert again.accountant.total() == alive.accountant.total()
            check_beliefs(again, alive)


def test_the_checks_find_what_they_are_for():
    """A gap, a second value, and a value that was begun and then changed."""
    good = {1: {b'{"step": 1}'}, 2: {b'{"step": 2}'}}
    check_answers(good, [(2, b'{"st')], 2)
    for bad, rests in (
        ({1: good[1]}, []),
        ({**good, 2: {b'{"step": 2}', b'{"step": 2, }'}}, []),
        (good, [(2, b'{"step": 3')]),
    ):
        with pytest.raises(AssertionError):
            check_answers(bad, rests, 2)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_line_that_failed_or_was_interrupted_does_not_spoil_the_next(tmp_path, monkeypatch, call):
    """The next one is shorter: a rest of the first would stand behind it after a crash."""
    path, copy, done = tmp_path / "ledger.jsonl", tmp_path / "copy.jsonl", getattr(os, call)

    def fails(*arguments):
        done(*arguments)
        raise KeyboardInterrupt

    with Ledger(path, {}) as ledger:
        ledger.append({"step": 1})
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(KeyboardInterrupt):
                ledger.append({"step": 2, "shared": [0.123456789] * 9})
        assert 2 not in ledger
        ledger.append({"step": 2, "shared": None})
        shutil.copy(path, copy)
    with Ledger(copy, {}) as again:
        assert again.note == "" and [entry.get("shared", 0) for entry in again] == [0, None]


def test_a_memory_that_does_not_fit_the_disk_is_an_error_and_not_a_release(tmp_path, monkeypatch):
    write = os.pwrite
    file = MemoryFile(tmp_path / "memory", "a stream")
    monkeypatch.setattr(os, "pwrite", lambda opened, content, place: write(opened, content[:100], place))
    with pytest.raises(OSError, match="disk may be full"):
        file.write(PrivateSnapshot(1, np.zeros((3, 2)), np.zeros(2), np.ones(1)))
    file.close()
    assert file.read(1) is None


def test_a_memory_that_was_cut_short_leaves_that_of_the_step_before(tmp_path):
    """Two slots in turn, written in place: at no moment is the last whole memory overwritten."""
    path = tmp_path / "memory"
    file = MemoryFile(path, "a stream")
    for step in range(1, 6):
        file.write(PrivateSnapshot(step, np.full((3, 2), float(step)), np.zeros(2), np.ones(1)))
        kept = MemoryFile(path, "a stream").read(step)
        assert kept is not None and kept.step == step and np.all(kept.memory == step)
        whole, half = path.read_bytes(), path.stat().st_size // 2
        slot = slice(0, half) if step % 2 else slice(half, 2 * half)
        path.write_bytes(whole[: slot.start] + b"\1" * 60 + whole[slot.start + 60 :])
        before = MemoryFile(path, "a stream").read(step - 1)
        assert (before is None) if step == 1 else (before is not None and before.step == step - 1)
        path.write_bytes(whole)
    assert MemoryFile(path, "another").read(5) is None and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert MemoryFile(path, "a stream", b"key").read(5) is None
    file.close()


def test_a_memory_knows_how_long_the_ledger_was(tmp_path):
    """Written before the ledger is: one step ahead of it, or a gap, and never more."""
    file = MemoryFile(tmp_path / "memory", "a stream")
    for step, last in ((1, 0), (2, 1), (40, 2)):
        file.write(PrivateSnapshot(step, np.full((3, 2), float(step)), np.zeros(2), np.ones(1)), last)
    file.close()
    kept = file.read(2)  # the gap of 37 steps was never written: go on from the memory before it
    assert kept is not None and kept.step == 2
    kept = file.read(40)
    assert kept is not None and kept.step == 40
    with pytest.raises(ValueError, match="knows 2 steps of this stream, but the ledger ends at step 1"):
        file.read(1)


def lost(memory, harm, other):
    """The release after three steps and a restart, the memory being harmed in between."""
    ledger = memory.with_name(f"{harm}.jsonl")
    with Sharer(private_policy(), SECRET, ledger=ledger, memory=memory, resolution=0.0) as sharer:
        run(sharer, Plant(1), 3)
    whole = memory.read_bytes()
    memory.unlink()
    if harm == "cut":
        memory.write_bytes(whole[: len(whole) // 2])
    elif harm == "changed":
        memory.write_bytes(whole[:100] + b"\xff" * 20 + whole[120:])
    elif harm == "another stream":
        memory.write_bytes(other)
    with Sharer(private_policy(), SECRET, ledger=ledger, memory=memory, resolution=0.0) as sharer:
        return sharer.share([0.5], [0.4]).shared, whole


def test_a_damaged_memory_and_that_of_another_stream_are_as_good_as_none(tmp_path):
    """The next release then comes from what is public, and is the same in all cases."""
    memory, other = tmp_path / "memory", b""
    made = []
    for harm in ("gone", "cut", "changed", "another stream"):
        shared, other = lost(memory, harm, other)
        assert shared is not None
        made.append(shared.tolist())
    assert all(one == made[0] for one in made)

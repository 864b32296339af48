"""Workers by Ray: `make test-ray` runs these in an environment of their own."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from tests import ray_probes, shaky
from veil.evaluation.audit import audit
from veil.executors import Chunk, ChunkError, ExecutorError, OnRay, messages, run_chunks
from veil.executors.base import ONE_THREAD
from veil.policies import GaussianNoise
from veil.settings import AuditSettings
from veil.systems import Gain

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def two():
    with OnRay(workers=2) as executor:
        yield executor


def test_an_audit_by_workers_has_the_bits_of_one_process(two, optimised):
    system, settings = Gain(), AuditSettings(steps=5, episodes=150, scenarios="none")
    policy = GaussianNoise(system, jnp.asarray([0.3]))
    here, there = audit(system, policy, settings), audit(system, policy, settings, executor=two)
    assert here.leakage == there.leakage and np.array_equal(here.realised, there.realised)
    assert np.array_equal(here.posteriors, there.posteriors) and here.utility == there.utility


def test_a_failing_chunk_is_named_and_a_dying_worker_costs_its_chunk_only(two, tmp_path):
    chunks = [Chunk(f"number {k}", shaky.fails_on_three, (np.asarray(k),)) for k in range(6)]
    with pytest.raises(ChunkError, match=r"number 3: ValueError: three is too many \(shaky.py, line \d+\)"):
        run_chunks(two, chunks)
    before = two.times.lost
    chunks = [Chunk(f"number {k}", ray_probes.dies_once, (np.asarray(k), str(tmp_path))) for k in range(5)]
    assert [int(one.value) for one in run_chunks(two, chunks)] == [0, 2, 4, 6, 8]
    assert two.times.lost - before >= 5
    deadly = Chunk("the deadly one", ray_probes.always_dies, (np.asarray(0),))
    with pytest.raises(ChunkError, match="the deadly one: its worker ended"):
        run_chunks(two, [deadly, *chunks])


def test_workers_killed_at_random_lose_nothing(two):
    done = threading.Event()
    killed = []

    def kill():
        dice = random.Random(0)
        while not done.wait(0.7) and len(killed) < 6:
            ours = ray_probes.computing_children()
            if ours:
                killed.append(dice.choice(ours))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    chunks = [
        Chunk(f"number {k}", ray_probes.where_and_when, (np.asarray(k), np.asarray(0.5))) for k in range(24)
    ]
    found = run_chunks(two, chunks)
    done.set()
    killer.join()
    assert [int(one.value["number"]) for one in found] == list(range(24)) and killed


def test_a_machine_of_a_cluster_that_ends_costs_what_it_had_at_hand():
    """In a process of its own, which is not connected to other workers."""
    words = [sys.executable, "-c", "from tests import ray_probes; ray_probes.lose_a_machine()"]
    # Ray ends workers where the memory of the machine is nearly full, whoever fills it: not here.
    environment = os.environ | {"RAY_memory_monitor_refresh_ms": "0", "PYTHONPATH": str(ROOT)}
    made = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout.splitlines()[-1])
    assert (found["before"], found["after"], found["machines"]) == (2, 1, 2)
    assert found["same"] == 30 * [True] and found["lost"] >= 1


def test_workers_run_programs_of_one_thread(two):
    (found,) = run_chunks(two, [Chunk("flags", ray_probes.threads, (0,))])
    assert found.value["flags"] == os.environ.get("XLA_FLAGS", ONE_THREAD)
    assert found.value["pool"] <= 1


def test_other_versions_are_refused(two, monkeypatch):
    monkeypatch.setattr(two, "_ours", messages.versions() | {"jax": "0.0.1"})
    with pytest.raises(ExecutorError, match=r"jax 0\.0\.1 here"):
        run_chunks(two, [Chunk("flags", ray_probes.threads, (0,))])


def test_ctrl_c_ends_a_command_and_the_same_command_goes_on(two, tmp_path):
    """In processes of their own, beside the workers of this one."""
    words = [sys.executable, "-m", "veil", "audit", "gain", "--policy", "noise", "--sd", "0.3"]
    words += ["--no-scenarios", "--episodes", "2048", "--workers", "1", "--out", str(tmp_path / "there")]
    started = {"cwd": ROOT, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first = subprocess.Popen(words, **started)
    parts = tmp_path / "there" / "parts"
    for _ in range(600):
        if len(list(parts.glob("*.npz"))) >= 3:
            break
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130 and "the same command goes on" in said
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert len(kept) >= 3
    again = subprocess.run(words, **started)
    assert again.returncode == 0 and "chunks by 1 workers" in again.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    here = [*words[: words.index("--workers")], "--out", str(tmp_path / "here")]
    assert subprocess.run(here, **started).returncode == 0
    files = (
        [np.load(tmp_path / place / "audit.npz") for place in ("here", "there")]
        if (tmp_path / "here" / "audit.npz").exists()
        else []
    )
    for name in files[0].files if files else ():
        assert np.array_equal(files[0][name], files[1][name], equal_nan=True), name

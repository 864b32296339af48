"""Audits, frontiers and trainings by Ray workers: time, the same bits, losses, and a model of how it goes on.

    python -m paper.study_workers --out build/studies/workers.json  # all parts, about half an hour
    python -m paper.study_workers --out paper/workers.json --only audit frontier model --page docs/workers.md

Needs the extra `ray`. The second line measures some parts, keeps the others, and writes the figures into the
page.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from veil.evaluation.audit import Audit as AuditResult
from veil.evaluation.audit import audit
from veil.executors import Chunk, ChunkError, Executor, InProcess, OnRay, run_chunks
from veil.executors.on_ray import worker_environment
from veil.frontier import trace_frontier
from veil.io import Store, write_json
from veil.policies import GaussianNoise
from veil.settings import AuditSettings, FrontierSettings
from veil.systems import Platoon

Part = Literal[
    "audit", "ceiling", "frontier", "kills", "node", "failing", "interrupt", "training", "columns", "model"
]

PARTS: tuple[Part, ...] = get_args(Part)

EPISODES, STEPS, KILLS = 8192, 50, 20

POINT_EPISODES = 512  # of each point of the frontier

WORKERS = (1, 2, 4)

QUIET = 0.05  # of the processor time of the machine that others may use

BEGIN, END = "<!-- begin of the figures -->", "<!-- end of the figures -->"


@dataclass(frozen=True)
class Study:
    """What to measure.

    Attributes:
        out: file of the figures; parts that are not measured stay as they are in it.
        only: parts to measure.
        episodes: of the audits.
        workers: counts of workers that the audit is measured with, 0 for none; other counts stay as they are.
        page: whose figures are written anew in the end.
    """

    out: Path = Path("build/studies/workers.json")
    only: tuple[Part, ...] = PARTS
    episodes: int = EPISODES
    workers: tuple[int, ...] = (0, *WORKERS)
    page: Path | None = None


def main(study: Study) -> None:
    """Measure the parts in turn, and write after each."""
    jax.config.update("jax_enable_x64", True)
    cache = Path(tempfile.gettempdir()) / "veil-study-workers"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    study.out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(study.out.read_text(encoding="utf-8")) if study.out.exists() else {}
    for part in study.only:
        print(part, flush=True)
        made = globals()[f"measure_{part}"](study, found)
        print(json.dumps(made, indent=1, default=str)[:2000], flush=True)
        found = {**found, part: made, "cores": os.cpu_count()}
        write_json(study.out, found)
    if study.page is not None:
        text = study.page.read_text(encoding="utf-8")
        study.page.write_text(with_figures(text, read(study.out)), encoding="utf-8")


def digest(*arrays: Any) -> str:
    """Of the bits of arrays."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def audit_digest(found: AuditResult) -> str:
    """Of everything that an audit found, but for times."""
    scores = [
        (one.accuracy.value, one.lower.value, one.lower.error, one.raw.value, one.calibration.value)
        if hasattr(one.calibration, "value")
        else (one.accuracy.value, one.lower.value, one.lower.error, one.raw.value)
        for one in found.attacks
    ]
    sides = [
        number
        for at in found.times
        for mean in (at.leakage.lower, at.leakage.upper)
        for number in (mean.value, mean.error)
    ]
    use = [number for one in found.utility for number in (one.value.value, one.value.error)]
    return digest(found.realised, found.posteriors, np.concatenate([*scores, sides, use]))


@contextmanager
def workers(count: int) -> Iterator[Executor]:
    """So many workers of Ray; none is this process."""
    with OnRay(count) if count else InProcess() as executor:
        yield executor


def timed(count: int, work: Callable[[Executor], str]) -> dict[str, Any]:
    """Wall and processor time of some work, start-up included.

    Args:
        count: of workers; 0 for this process.
        work: gives a digest of its result.
    """
    before = time.monotonic()
    with workers(count) as executor:
        began, ours, all_of_us = time.monotonic(), processor_seconds(), busy_seconds()
        mark = work(executor)
        working = time.monotonic() - began
        spent = {name: now - ours.get(name, 0.0) for name, now in processor_seconds().items()}
        others = max(0.0, busy_seconds() - all_of_us - sum(spent.values()))
        times, memory = executor.times, max(worker_memory(), default=0.0)
    return {
        "workers": count,
        "digest": mark,
        "start_seconds": began - before,
        "first_result_seconds": times.first,
        "seconds": working,
        "chunks": len(times.seconds),
        "computing_seconds": sum(times.seconds),
        "worker_processor_seconds": times.processor,
        "overhead": 1.0 - sum(times.seconds) / (max(1, count) * working) if count else None,
        "lost": times.lost,
        "worker_megabytes": memory,
        "processor_seconds": spent,
        "others": others / (working * (os.cpu_count() or 1)),
    }


KINDS = (("ray::compute_packed", "workers"), ("ray::IDLE", "workers"), ("raylet/raylet ", "raylet"))


def usage(processes: Sequence[tuple[int, float, str]]) -> Iterator[tuple[int, str, float]]:
    """Id, command and seconds of processor time of those processes that are still there."""
    for pid, _, words in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        yield pid, words, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def processor_seconds() -> dict[str, float]:
    """Of this process, the driver, and of those that descend from it, by what they are."""
    found, tick = dict[str, float](), os.sysconf("SC_CLK_TCK")
    for pid, words, seconds in usage([*descendants(), (os.getpid(), 0.0, "")]):
        kind = next((name for part, name in KINDS if part in words), "rest of Ray") if words else "driver"
        found[kind] = found.get(kind, 0.0) + seconds
        if kind == "raylet":  # and of workers that it started, and that have ended
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            found["workers"] = found.get("workers", 0.0) + sum(map(int, fields[13:15])) / tick
    return found


def busy_seconds() -> float:
    """That all processors of this machine have worked, or were taken away by its host."""
    words = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()
    user, nice, system, _, _, interrupts, soft, stolen = map(int, words[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def descendants() -> list[tuple[int, float, str]]:
    """Processes that descend from this one: id, resident megabytes and command."""
    command = ["ps", "-eo", "pid,ppid,rss,args"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listing.splitlines()[1:]]
    parents = {int(row[0]): int(row[1]) for row in rows}

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    mine = [row for row in rows if int(row[0]) != os.getpid() and is_ours(int(row[0]))]
    return [(int(row[0]), int(row[2]) / 1024, row[3]) for row in mine if not row[3].startswith("ps ")]


def worker_memory() -> list[float]:
    """Resident megabytes of the workers."""
    return [
        size for _, size, words in descendants() if words.startswith(("ray::compute_packed", "ray::IDLE"))
    ]


def audited(study: Study) -> Callable[[Executor], str]:
    """The audit of the study: noise on the platoon. Like the command, it keeps its chunks in a folder."""
    system = Platoon()
    policy = GaussianNoise(system, jnp.asarray([0.25, 0.43]))
    settings = AuditSettings(steps=STEPS, episodes=study.episodes, assisted=False, scenarios="none")

    def work(executor: Executor) -> str:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder), "audit")
            return audit_digest(audit(system, policy, settings, executor=executor, store=store))

    return work


def measure_audit(study: Study, found: dict[str, Any]) -> list[dict[str, Any]]:
    """One audit without Ray, and with 1, 2 and 4 workers. A short one before compiles the programs."""
    timed(1, audited(Study(episodes=320)))
    about = {"episodes": study.episodes, "steps": STEPS}
    runs = {run["workers"]: run for run in found.get("audit", ()) if about.items() <= run.items()}
    runs |= {count: timed(count, audited(study)) | about for count in study.workers}
    return [runs[count] for count in sorted(runs)]


def alone(episodes: int) -> None:
    """Print what an audit takes in this process, on one thread and without Ray."""
    jax.config.update("jax_enable_x64", True)
    print(json.dumps(timed(0, audited(Study(episodes=episodes)))))


def copies(count: int, episodes: int) -> dict[str, Any]:
    """So many programs that know nothing of each other, started together; what the slower one took.

    Args:
        count: of the programs.
        episodes: that each of them audits.
    """
    words = [sys.executable, "-c", f"from paper import study_workers; study_workers.alone({episodes})"]
    given = {"env": os.environ | worker_environment(here=True), "stdout": subprocess.PIPE, "text": True}
    began, all_of_us, ours = time.monotonic(), busy_seconds(), os.times()
    programs = [subprocess.Popen(words, **given) for _ in range(count)]
    told = [json.loads(program.communicate()[0].splitlines()[-1]) for program in programs]
    seconds, now = time.monotonic() - began, os.times()
    own = sum(now[:4]) - sum(ours[:4])
    others = max(0.0, busy_seconds() - all_of_us - own) / (seconds * (os.cpu_count() or 1))
    return {
        "digests": [one["digest"] for one in told],
        "seconds": max(one["seconds"] for one in told),
        "processor_seconds": sum(one["processor_seconds"]["driver"] for one in told),
        "others": others,
    }


def measure_ceiling(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """One program of one thread that audits, and then two at the same time: what this machine allows.

    The first of three passes compiles.
    """
    del found
    episodes = max(256, study.episodes // 8)
    copies(1, 320)
    one, two = copies(1, episodes), copies(2, episodes)
    assert len({*one["digests"], *two["digests"]}) == 1
    return {"episodes": episodes, "one": one, "two": two}


def shorter(study: Study) -> Study:
    """The same with an eighth of the episodes."""
    return Study(episodes=max(256, study.episodes // 8))


def measure_frontier(study: Study, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A frontier of the eight points of noise, with 1 and 2 workers; the first pass compiles."""
    del found
    episodes = min(POINT_EPISODES, study.episodes)
    extent = FrontierSettings(kinds=("noise",), episodes=episodes, steps=STEPS)

    def work(executor: Executor) -> str:
        with tempfile.TemporaryDirectory() as folder:
            made = trace_frontier(Platoon(), extent, folder=Path(folder), executor=executor)
        sides = [
            (one.leakage.lower.value, one.leakage.upper.value, one.distortion.value, one.cost.value)
            for one in made.points
        ]
        return digest(np.asarray(sides), np.asarray(made.floor.value))

    short = FrontierSettings(kinds=extent.kinds, episodes=64, steps=STEPS)

    def warm(executor: Executor) -> str:
        with tempfile.TemporaryDirectory() as folder:
            trace_frontier(Platoon(), short, folder=Path(folder), executor=executor)
        return ""

    timed(1, warm)
    about = {"episodes": episodes, "steps": STEPS, "points": len(extent.goals)}
    return [timed(count, work) | about for count in (1, 2)]


def measure_kills(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """An audit of an eighth of the episodes; a worker is killed at random each time that two chunks came."""
    del found
    study = shorter(study)
    over, killed, dice = threading.Event(), list[int](), random.Random(0)

    def kill(executor: Executor) -> None:
        done = 0
        while len(killed) < KILLS and not over.wait(dice.uniform(0.1, 1.0)):
            if len(executor.times.seconds) < done:
                continue
            done = len(executor.times.seconds) + 2
            busy = [pid for pid, _, words in descendants() if words.startswith("ray::compute_packed")]
            if busy:
                killed.append(dice.choice(busy))
                os.kill(killed[-1], signal.SIGKILL)

    def work(executor: Executor) -> str:
        killer = threading.Thread(target=kill, args=(executor,))
        killer.start()
        try:
            return audited(study)(executor)
        finally:
            over.set()
            killer.join()

    made, mark = timed(2, work), audited(study)(InProcess())
    about = {"episodes": study.episodes, "killed": len(killed), "same_bits": made["digest"] == mark}
    return made | about


def measure_node(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """A cluster of two nodes on this machine, one of which ends in the middle of an audit."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    del found
    study = shorter(study)
    given = {"num_cpus": 1, "object_store_memory": 200_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**given, "include_dashboard": False})
    second = cluster.add_node(**given)
    ended = list[float]()
    try:
        with OnRay(address=cluster.address) as executor:
            began = time.monotonic()

            def end() -> None:
                while len(executor.times.seconds) < 40:
                    time.sleep(0.2)
                ended.append(time.monotonic() - began)
                cluster.remove_node(second, allow_graceful=False)

            ender = threading.Thread(target=end)
            before = executor.workers
            ender.start()
            mark = audited(study)(executor)
            ender.join()
            return {
                "workers_before": before,
                "workers_after": executor.workers,
                "ended_after_seconds": ended[0],
                "seconds": time.monotonic() - began,
                "chunks": len(executor.times.seconds),
                "lost": executor.times.lost,
                "same_bits": mark == audited(study)(InProcess()),
            }
    finally:
        cluster.shutdown()


def fails_at(number: int, which: int) -> np.ndarray:
    """A chunk of which one always fails."""
    if number == which:
        raise ValueError(f"chunk {number} cannot be computed")
    return np.asarray(number)


def measure_failing(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """One of 40 chunks always fails."""
    del study, found
    chunks = [Chunk(f"chunk {number}", fails_at, (number, 17)) for number in range(40)]
    with OnRay(2) as executor:
        try:
            run_chunks(executor, chunks)
        except ChunkError as error:
            return {"delivered": len(executor.times.seconds), "named": error.reasons}
    raise AssertionError("the chunk was computed")


@dataclass(frozen=True)
class Ran:
    """A command that ended.

    Attributes:
        code: its exit code.
        seconds: on the wall.
        processor: seconds of it and of what it started, Ray included, to half a second per process.
        said: last line that it wrote to stderr.
        ending: seconds from Ctrl-C to its end; None without one.
    """

    code: int
    seconds: float
    processor: float
    said: str
    ending: float | None = None

    @property
    def figures(self) -> dict[str, float | int | str | None]:
        """For the file."""
        return vars(self)


def run_command(words: Sequence[str], until: Callable[[], bool] = lambda: False) -> Ran:
    """Run `python -m` something, and send Ctrl-C once.

    Args:
        words: after `python -m`.
        until: whether it is time for Ctrl-C.
    """
    began, spent, ended = time.monotonic(), dict[int, float](), None
    with tempfile.TemporaryFile("w+") as said:
        program = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=said)
        while program.poll() is None:
            time.sleep(0.2)
            spent |= {pid: seconds for pid, _, seconds in usage(descendants())}
            if ended is None and until():
                program.send_signal(signal.SIGINT)
                ended = time.monotonic()
        now = time.monotonic()
        said.seek(0)
        lines = said.read().replace("\r", "\n").strip().splitlines()
    return Ran(
        program.returncode,
        now - began,
        sum(spent.values()),
        lines[-1] if lines else "",
        ended and now - ended,
    )


def same_files(here: Path, there: Path, names: Sequence[str]) -> bool:
    """Whether both folders have these files, at the same places and with the same bytes."""
    found = [
        {str(path.relative_to(folder)): path.read_bytes() for name in names for path in folder.rglob(name)}
        for folder in (here, there)
    ]
    return bool(found[0]) and found[0] == found[1]


def measure_interrupt(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """Ctrl-C in the middle of an audit on the command line, and the same command again."""
    del found
    with tempfile.TemporaryDirectory() as folder:
        words = ["veil", "audit", "platoon", "--policy", "noise", "--sd", "0.25", "0.43", "--no-assisted"]
        words += ["--episodes", str(min(1024, study.episodes)), "--steps", str(STEPS), "--no-scenarios"]
        words += ["--workers", "2", "--out", folder]
        parts = Path(folder) / "parts"
        first = run_command(words, lambda: len(list(parts.glob("*.npz"))) >= 8)
        kept = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
        again = run_command(words)
        return {
            "first": first.figures,
            "again": again.figures,
            "kept": len(kept),
            "of": len(list(parts.glob("*.npz"))),
            "not_computed_again": all(
                (parts / name).stat().st_mtime_ns == when for name, when in kept.items()
            ),
        }


SEEDS, WEIGHTS = 4, (2, 5, 12, 30, 80)

TRAININGS = ("veil", "train", "gain", "--seeds", str(SEEDS), "--privacy-weights", *map(str, WEIGHTS))

SHORT = {"--start": "plain", "--steps": 10, "--updates": 10, "--episodes": 6}
SHORT |= {"--evaluate-every": 5, "--evaluation-episodes": 24}


def measure_training(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """Twenty short trainings: in one process, and by two workers with Ctrl-C after five of them."""
    del study, found
    words = [*TRAININGS, *(str(word) for pair in SHORT.items() for word in pair)]
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name) / "here", Path(name) / "there"
        alone = run_command([*words, "--out", str(here)])
        by_workers = [*words, "--workers", "2", "--out", str(there)]
        ready = run_command(by_workers, lambda: len(list(there.rglob("policy.safetensors"))) >= 5)
        kept = {path: path.stat().st_mtime_ns for path in there.rglob("policy.safetensors")}
        again = run_command(by_workers)
        return {
            "trainings": SEEDS * len(WEIGHTS),
            "alone": alone.figures,
            "interrupted": ready.figures,
            "again": again.figures,
            "ready_when_interrupted": len(kept),
            "not_trained_again": all(path.stat().st_mtime_ns == when for path, when in kept.items()),
            "policies": len(list(there.rglob("policy.safetensors"))),
            "same_policies": same_files(here, there, ["policy.safetensors"]),
        }


COLUMNS = ("paper.reproduction", "--fast", "--only", "true", "noise")  # noise comes with ddpg


def measure_columns(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """A few columns of the reproduction, in one process and by two workers."""
    del study, found
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name) / "here", Path(name) / "there"
        alone = run_command([*COLUMNS, "--out", str(here)])
        shared = run_command([*COLUMNS, "--workers", "2", "--out", str(there)])
        sides = [
            json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in (here, there)
        ]
        return {
            "alone": alone.figures,
            "by_workers": shared.figures,
            "different": different(sides[0], sides[1]),
        }


TIMES = ("seconds", "sittings", "machine")  # what figures of two runs need not have in common


def different(one: Any, other: Any, place: str = "") -> list[str]:
    """Places where two files of figures differ, but for times.

    Args:
        one: what was read from a file.
        other: from the other.
        place: where in them this is.
    """
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        parts = [(name, one[name], other[name]) for name in one if name not in TIMES]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [(str(k), here, there) for k, (here, there) in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other or (one != one and other != other) else [place]
    return [where for name, here, there in parts for where in different(here, there, f"{place}/{name}")]


def nothing(number: np.ndarray, content: np.ndarray) -> np.ndarray:
    """A chunk that takes no time."""
    del content
    return number


SIZES = (0, 400_000)  # bytes that a chunk brings along


def measure_model(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """Rate of chunks that one driver can hand out, and what follows for more workers than we have.

    The model: a chunk takes c seconds on a worker, and the driver needs d seconds of its processor to pack,
    send, receive, keep and score it, one at a time. W workers then do min(W / (c + o), 1 / d) chunks per
    second, o being what a worker waits per chunk. d is that of the audit with one worker.
    """
    rates = dict[str, float]()
    with OnRay(2) as executor:
        run_chunks(executor, empty(20, 1))
        for size in SIZES:
            count, began, cpu = 600, time.monotonic(), time.process_time()
            run_chunks(executor, empty(count, max(1, size // 8)))
            rates[f"seconds_per_chunk_of_{size}_bytes"] = (time.monotonic() - began) / count
            rates[f"driver_seconds_per_chunk_of_{size}_bytes"] = (time.process_time() - cpu) / count
    one = next(run for run in found["audit"] if run["workers"] == 1)
    chunk = one["computing_seconds"] / one["chunks"]
    driver = one["processor_seconds"]["driver"] / one["chunks"]
    wait = max(0.0, one["seconds"] / one["chunks"] - chunk)
    table = []
    for count in (1, 2, 4, 16, 64, 128, 256, 1000):
        for seconds in (chunk, 10.0 * chunk):
            rate = min(count / (seconds + wait), 1.0 / driver)
            ideal = count / seconds
            table.append(
                {"workers": count, "chunk_seconds": seconds, "per_second": rate, "of_ideal": rate / ideal}
            )
    return {
        **rates,
        "chunk_seconds": chunk,
        "wait_seconds": wait,
        "driver_seconds": driver,
        "table": table,
        "driver_full_at_workers": (chunk + wait) / driver,
    }


def empty(count: int, numbers: int) -> list[Chunk]:
    """Chunks that take no time and bring so many numbers along."""
    shared = ()
    return [Chunk("empty", nothing, shared, lambda: (np.zeros(1), np.zeros(numbers)))] * count


def read(path: Path | None = None) -> dict[str, Any]:
    """The figures, by default the published ones."""
    path = path or Path(__file__).with_name("workers.json")
    return json.loads(path.read_text(encoding="utf-8"))


def whole(run: dict[str, Any]) -> float:
    """Seconds from the start of Ray to the end."""
    return run["start_seconds"] + run["seconds"]


def audit_table(found: dict[str, Any]) -> str:
    """The table of docs/workers.md: audits and frontiers by workers."""
    heads = ("work", "workers", "time", "as fast as one worker", "start", "first result", "overhead")
    lines = [f"| {' | '.join(heads)} | memory per worker |", "|---" * (len(heads) + 1) + "|"]
    for name in ("audit", "frontier"):
        one = next((run for run in found.get(name, ()) if run["workers"] == 1), None)
        for run in found.get(name, ()):
            assert one is not None  # it is measured with the others
            times = f"{whole(run):.0f} s | {whole(one) / whole(run):.2f}"
            if max(run["others"], one["others"]) > QUIET:
                spent, memory = sum(run["processor_seconds"].values()), f"{run['worker_megabytes']:.0f} MB"
                count = run["workers"] or "none"
                lines.append(
                    f"| {name} | {count} | loaded: {spent:.0f} s of processor time | | | | | {memory} |"
                )
                continue
            if not run["workers"]:
                lines.append(f"| {name} | none | {times} | | | | |")
                continue
            lines.append(
                f"| {name} | {run['workers']} | {times} | {run['start_seconds']:.1f} s | "
                f"{run['first_result_seconds']:.1f} s | {run['overhead']:.0%} | "
                f"{run['worker_megabytes']:.0f} MB |"
            )
    return "\n".join(lines)


def ratio_words(found: dict[str, Any]) -> str:
    """How much faster two workers are than one, and what that means."""
    sentences = []
    for name in ("audit", "frontier"):
        one, two = (next(run for run in found[name] if run["workers"] == count) for count in (1, 2))
        others = max(one["others"], two["others"])
        if others > QUIET:
            spent = [sum(run["processor_seconds"].values()) for run in (one, two)]
            sentences.append(
                f"The {name} was measured while other programs used up to {others:.0%} of the machine, so "
                f"that its time on the wall says nothing: it took {spent[0]:.0f} s of processor time with "
                f"one worker and {spent[1]:.0f} s with two."
            )
            continue
        bare = one["seconds"] / two["seconds"]
        serial = min(1.0, max(0.0, 2.0 / bare - 1.0))
        sentences.append(
            f"For the {name}, two workers are {whole(one) / whole(two):.2f} times as fast as one, "
            f"{bare:.2f} times without the start of Ray: as if {serial:.0%} of the work of one worker could "
            "not be shared (Amdahl's law)."
        )
    spent = next(run for run in found["audit"] if run["workers"] == 2)["processor_seconds"]
    each = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sorted(spent.items()))
    return f"{' '.join(sentences)} Processor time of the audit with two workers: {each}."


def others_words(found: dict[str, Any]) -> str:
    """Whether the machine was quiet."""
    shares = [run["others"] for name in ("audit", "frontier") for run in found[name]]
    quiet = max((share for share in shares if share <= QUIET), default=0.0)
    more = "; runs beside busier ones are marked as loaded" * (max(shares) > QUIET)
    return f"Other programs used at most {quiet:.0%} of the machine's processor time during these runs{more}."


def ceiling_words(found: dict[str, Any]) -> str:
    """What the machine allows, if it was measured."""
    if "ceiling" not in found:
        return ""
    one, two = found["ceiling"]["one"], found["ceiling"]["two"]
    said = (
        " What the machine allows was measured by programs of one thread that know nothing of each other, "
        f"without Ray, which audit {found['ceiling']['episodes']:,} episodes each:"
    )
    others = max(one["others"], two["others"])
    if others > QUIET:
        return (
            f"{said} one alone takes {one['processor_seconds']:.1f} s of processor time, each of two side by "
            f"side {two['processor_seconds'] / 2.0:.1f} s. Other programs used up to {others:.0%} of the "
            "machine meanwhile, so that their time on the wall says nothing."
        )
    ratio = 2.0 * one["seconds"] / two["seconds"]
    return (
        f"{said} one alone takes {one['seconds']:.1f} s, two side by side {two['seconds']:.1f} s, so that "
        f"two are {ratio:.2f} times as fast."
    )


def losses_words(found: dict[str, Any]) -> str:
    """What was lost on purpose, and what came of it, as far as it was measured."""
    lines = list[str]()
    if "episodes" in found.get("kills", {}):
        one = found["kills"]
        lines.append(
            f"In an audit of {one['episodes']:,} episodes {one['killed']} workers were killed at random: all "
            f"{one['chunks']} chunks came, {one['lost']} were computed again, and the bits were "
            f"{'the same' if one['same_bits'] else 'others'}."
        )
    if "node" in found:
        one = found["node"]
        lines.append(
            f"One of two machines of a cluster (both of them this one) was ended in the middle of an audit: "
            f"{one['workers_after']} of {one['workers_before']} workers stayed, {one['lost']} chunks were "
            f"computed again, and the bits were {'the same' if one['same_bits'] else 'others'}."
        )
    if "failing" in found:
        one = found["failing"]
        lines.append(
            f"One of 40 chunks always failed: {one['delivered']} were delivered and the failed one was named."
        )
    if "interrupt" in found and "first" in found["interrupt"]:
        one = found["interrupt"]
        whose = "were read again" if one["not_computed_again"] else "were computed again"
        lines.append(
            f"After Ctrl-C an audit ended with code {one['first']['code']}; the same command ended with code "
            f"{one['again']['code']}, and the {one['kept']} chunks of the first sitting {whose}."
        )
    if "training" in found and "again" in found["training"]:
        one = found["training"]
        lines.append(
            f"{one['trainings']} short trainings (4 seeds, 5 privacy weights, `gain`) by two workers were "
            f"stopped by Ctrl-C when {one['ready_when_interrupted']} were ready (code "
            f"{one['interrupted']['code']}), and the same command trained the others: "
            f"{one['policies']} policies, {'' if one['same_policies'] else 'not '}the same bytes as without "
            f"workers. They took {one['alone']['processor']:.0f} s of processor time in one process, and "
            f"{one['interrupted']['processor']:.0f} and {one['again']['processor']:.0f} s in the two "
            "sittings, Ray included."
        )
    if "columns" in found:
        one = found["columns"]
        which = "none" if not one["different"] else f"{len(one['different'])}"
        lines.append(
            "Three columns of the reproduction (`--fast --only true noise`) by two workers and without: of "
            f"the figures in `results.json`, {which} differ."
        )
    return " ".join(lines)


FIGURES = """
The table shows an audit of {episodes:,} episodes of the platoon ({steps} releases, noise, no assisted
attackers), and a frontier of {points} strengths of noise ({each:,} episodes each), on a machine of {cores}
cores: without Ray, on two threads, and with workers of one thread each. All runs of an audit gave the same
bits. {others} `python -m paper.study_workers` measures this, and losses, trainings and a model of larger
clusters; `paper/workers.json` has what was measured.

{audits}

Time includes the start; start is the time until Ray is there; first result, counted from the start,
includes loading the compiled programs; overhead is the share of the workers' time in which they did not
compute. Compiling comes on top the first time, in every worker. It pays where the work takes several
minutes.

{ratios}{ceiling}

{losses}

## How far it goes

One process hands out all chunks, and reads, keeps and scores what comes. Short chunks are sent several at a
time, for half a second of work. In the audit above that process needed {driver:.1f} ms of processor time
per chunk, with one worker; to hand out an empty chunk that brings 400 kB along takes {bare:.1f} ms of it. A
chunk took {chunk:.0f} ms, and its worker waited {wait:.1f} ms more. If these numbers hold for more workers,
W workers compute min(W / (chunk + wait), 1 / driver) chunks per second. The process that hands out is then
what is full first, at {full:.0f} workers for such chunks, and at about ten times as many for chunks that
take ten times as long. The table is this model, not a measurement; the percentage is of W workers that
never wait.

{model}
"""


def figures(found: dict[str, Any]) -> str:
    """What docs/workers.md says between its marks, whatever was measured."""
    run, point, model = found["audit"][0], found["frontier"][0], found["model"]
    assert len({each["digest"] for each in found["audit"]}) == 1
    chunk, wait, driver = (1e3 * model[f"{name}_seconds"] for name in ("chunk", "wait", "driver"))
    bare = 1e3 * model[f"driver_seconds_per_chunk_of_{SIZES[1]}_bytes"]
    numbers = {"episodes": run["episodes"], "steps": run["steps"], "cores": found["cores"]}
    numbers |= {"points": point["points"], "each": point["episodes"], "full": model["driver_full_at_workers"]}
    numbers |= {"driver": driver, "bare": bare, "chunk": chunk, "wait": wait, "others": others_words(found)}
    tables = {"audits": audit_table(found), "model": model_table(found)}
    text = FIGURES.strip().format(
        **numbers,
        **{name: f"{{{name}}}" for name in tables},
        ratios=ratio_words(found),
        ceiling=ceiling_words(found),
        losses=losses_words(found),
    )
    filled = [one if one[0] in "{#" else textwrap.fill(one, 118) for one in text.split("\n\n") if one]
    return "\n\n".join(filled).format(**tables)


def with_figures(page: str, found: dict[str, Any]) -> str:
    """The page with these figures between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{figures(found)}\n\n{END}{rest.partition(END)[2]}"


def model_table(found: dict[str, Any]) -> str:
    """The table of docs/workers.md: chunks per second against workers."""
    rows, model = {}, found["model"]
    for row in model["table"]:
        rows.setdefault(row["workers"], []).append(row)
    seconds = [row["chunk_seconds"] for row in next(iter(rows.values()))]
    heads = " | ".join(f"chunks of {each:.2f} s" for each in seconds)
    lines = [f"| workers | {heads} |", "|---|" + "---|" * len(seconds)]
    for count, each in rows.items():
        cells = " | ".join(f"{row['per_second']:.1f} per second, {row['of_ideal']:.0%}" for row in each)
        lines.append(f"| {count} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    import tyro

    from paper import study_workers  # by this name workers find its functions

    study_workers.main(tyro.cli(study_workers.Study))

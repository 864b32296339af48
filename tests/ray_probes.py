"""Functions of a module for chunks that end, hold up or refuse their worker."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.executors import Chunk, Executor, InProcess, OnRay, run_chunks


def computing_children() -> list[int]:
    """Workers that descend from this process and compute a chunk."""
    listing = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()[1:]]
    parents = {int(row[0]): int(row[1]) for row in rows}

    def is_ours(pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parents.get(pid, 0)
        return False

    return [int(row[0]) for row in rows if row[2].startswith("ray::compute_packed") and is_ours(int(row[0]))]


def where_and_when(number, seconds):
    time.sleep(float(seconds))
    return {"number": np.asarray(number), "pid": np.asarray(os.getpid())}


def dies_once(number, folder):
    """Ends its own worker the first time."""
    mark = Path(folder) / f"died-{int(number)}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.asarray(number) * 2


def always_dies(number):
    os.kill(os.getpid(), signal.SIGKILL)


def threads(number):
    """Flags of this worker, and threads that XLA has for one program, where the system names them."""
    jax.jit(lambda values: jnp.sin(values) @ values)(jnp.ones((300, 300))).block_until_ready()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return {"flags": os.environ["XLA_FLAGS"], "pool": names.count("tf_XLAEigen"), "number": number}


def slow_draw(number, seconds):
    """Random numbers of this chunk, and the machine of a cluster that drew them."""
    import ray  # pyright: ignore[reportMissingImports]

    time.sleep(float(seconds))
    where = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "here"
    return {"draw": jr.normal(jr.fold_in(jr.key(7), int(number)), (5,)), "where": where}


def slow_draws(executor: Executor, seconds: float):
    chunks = [Chunk(f"number {k}", slow_draw, (), lambda k=k: (k, seconds)) for k in range(30)]
    return [one.value for one in run_chunks(executor, chunks)]


def lose_a_machine() -> None:
    """Two machines of a cluster, both of them this one; the second ends when ten chunks are there."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    given = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**given, "include_dashboard": False})
    second = cluster.add_node(**given)
    with OnRay(address=cluster.address) as executor:
        before = executor.workers

        def end() -> None:
            while len(executor.times.seconds) < 10:
                time.sleep(0.1)
            cluster.remove_node(second, allow_graceful=False)

        ender = threading.Thread(target=end)
        ender.start()
        there = slow_draws(executor, 0.5)
        ender.join()
        found = {"before": before, "after": executor.workers, "lost": executor.times.lost}
    cluster.shutdown()
    same = [
        np.array_equal(*pair) for pair in zip(draws(slow_draws(InProcess(), 0)), draws(there), strict=True)
    ]
    found |= {"same": same, "machines": len({one["where"] for one in there})}
    print(json.dumps(found))


def draws(values):
    return [one["draw"] for one in values]

"""Peak extra memory of the KL mixture entropy, measured in a process of its own.

Run as `python -m bench.memory value 5184` (or `gradient`); prints one line of JSON.
"""

import contextlib
import ctypes
import gc
import json
import math
import resource
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

HOW = (
    "Fresh process, JAX started, inputs in place. Peak resident size (VmHWM) while compiling, and during the "
    "first and second call, above the resident size before; freed memory is returned in between. The verdict "
    "is on running; what the compiler takes once is shown beside it."
)
MEGABYTE = 2.0**20


class Extra(TypedDict):
    """Megabytes."""

    compiling: float
    running: float
    planned: float


def measure(kind: str, count: int) -> Extra:
    """Run this module in a fresh process."""
    command = [sys.executable, "-m", "bench.memory", kind, str(count)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main(kind: str, count: int) -> Extra:
    """Measure in this process."""
    import jax
    import jax.numpy as jnp

    from bench.mixture_entropy import entropy
    from bench.mixture_inputs import inputs

    given = inputs(count)
    arguments = tuple(map(jnp.asarray, (given.weight, given.mean, given.covariance)))
    jax.block_until_ready(jax.jit(lambda x: x + 1.0)(arguments[0]))
    function = jax.jit(entropy if kind == "value" else jax.value_and_grad(entropy, (0, 1, 2)))
    lowered = []
    compiling = _peak_above(lambda: lowered.append(function.lower(*arguments).compile()))
    program = lowered[0]
    running = [_peak_above(lambda: jax.block_until_ready(program(*arguments))) for _ in range(2)]
    plan = program.memory_analysis()
    planned = (plan.temp_size_in_bytes + plan.output_size_in_bytes) / MEGABYTE if plan else math.nan
    return {"compiling": compiling, "running": max(running), "planned": planned}


def _peak_above(job) -> float:
    """Peak resident size during a job above the resident size before it, in megabytes."""
    _return_freed()
    before = _reset_peak()
    job()
    return (_peak() - before) / MEGABYTE


def _return_freed() -> None:
    """Give freed memory back to the system, so that it cannot hide what the next job takes (glibc)."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> float:
    """Resident size now, in bytes; the peak is forgotten where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return _peak()


def _peak() -> float:
    try:
        return _status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return float(line.split()[1]) * 1024.0
    raise OSError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

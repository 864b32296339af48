"""Strict numerics for every test: shapes and types are checked, nothing is promoted silently."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import jax
import pytest
from jax._src import compiler
from jaxtyping import install_import_hook

install_import_hook("veil", "beartype.beartype")  # before anything imports the package
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Most programs of the tests run once, and compiling them takes longer. What tests start as a process of its
# own is optimised as ever, and so is what asks for the fixture `optimised`.
jax.config.update("jax_disable_most_optimizations", True)
# And loops are written by the older part of the compiler, as one module: a fifth of the time of compiling.
QUICK = [("xla_cpu_use_fusion_emitters", False), ("xla_cpu_parallel_codegen_split_count", 1)]
usual_options = compiler.get_compile_options


def quick_options(*given, **named):
    """Options for one program; what is optimised has those that users have."""
    options = usual_options(*given, **named)
    if jax.config.read("jax_disable_most_optimizations"):
        options.env_option_overrides = [*options.env_option_overrides, *QUICK]
    return options


compiler.get_compile_options = quick_options
# What one worker compiled, the others and the processes that tests start need not compile again in this run.
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the place
    os.environ["VEIL_CACHE"] = tempfile.mkdtemp(prefix="veil-tests-")
jax.config.update("jax_compilation_cache_dir", os.environ["VEIL_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
gc.set_threshold(50_000)  # traced programs are many objects, and they stay


MOST_MAPS = 30_000


def pytest_sessionfinish(session):
    """The programs of a run go with it."""
    if not hasattr(session.config, "workerinput"):  # not a worker: all of them have ended
        shutil.rmtree(os.environ["VEIL_CACHE"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """A background job of a shell ignores Ctrl-C, and so would what the tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Compiled programs take up memory maps, of which a process may have 65,530 on Linux."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def optimised():
    """What a test compiles is optimised as users have it: for claims about bits, and for what runs long."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def precision_stays():
    """Whatever a test did to the precision for good, those that come after it do not feel it."""
    yield
    if jax.config.read("jax_enable_x64"):
        jax.config.update("jax_enable_x64", False)


@pytest.fixture
def float64():
    """Truth tests run in double precision."""
    with jax.enable_x64(True):
        yield

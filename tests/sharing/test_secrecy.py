"""What is never written: the secret, the states, the noise and the private randomness. All files are searched."""

import json
import os
import signal
import stat
import struct
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from jax._src.compilation_cache import decompress_executable

from tests.sharing.dying_share import FAILURES, Death
from tests.sharing.streams import NOISE, noise_policy
from tests.torture import Life
from veil.sharing import Sharer
from veil.sharing import engines as engines_module
from veil.sharing.private import SecretError, read_secret
from veil.systems import Gain

SECRET, OTHER = 0.612345678901, 0.487654321098  # neither is on the prior
STEPS, SD = 12, 0.3  # of the stream, and of the noise in the plant
FILES = {"secret.json", "ledger.jsonl", "errors"}


class Lived(NamedTuple):
    """What a stream left: its folder, all that went out, the compiled programs before others came, its values."""

    folder: Path
    out: bytes
    programs: set[str]
    private: list[float]


def inputs(seed):
    """States and public inputs; they need not be those of a plant to be kept."""
    chance = np.random.default_rng(seed)
    return chance.normal(size=STEPS), chance.normal(size=STEPS).round(3)


def noise_of(states, externals, secret):
    """What the owner's program recovers."""
    return (states[1:] - secret * states[:-1] - externals[:-1]) / SD


def lived(folder, policy, secret, seed, death=Death("never", 0), ledger="ledger.jsonl"):
    """One process on one stream; what it put out, and how it ended."""
    (folder / "secret.json").write_text(json.dumps({"gain": secret}))
    (folder / "secret.json").chmod(0o600)
    command = ["share", "gain", "--secret-file", "secret.json", "--ledger", ledger]
    life, out = Life([*command, "--policy", policy, "--sd", str(NOISE)], folder, death), b""
    states, externals = inputs(seed)
    for step in range(1, STEPS + 1):
        life.say(step, states[step - 1], externals[step - 1])
        line = life.hear()
        if line is None:
            break
        if step == 1:
            limits = Path(f"/proc/{life.process.pid}/limits").read_text()
            assert "Max core file size         0                    0 " in limits
        out += line + b"\n"
    return out, life.end()[0]


@pytest.fixture(scope="module", params=["noise", "counterfactual"])
def left(request, tmp_path_factory):
    """A stream, another secret on the same cache of programs, and processes that failed in other ways."""
    folder = tmp_path_factory.mktemp(request.param)
    out, code = lived(folder, request.param, SECRET, 0)
    assert code == 0 and out.count(b"\n") == STEPS
    programs = {path.name for path in (folder / "cache").iterdir()}
    values = [json.loads(line)["shared"]["level"] for line in out.splitlines()]
    states, externals = inputs(0)
    private = [SECRET, *states, *noise_of(states, externals, SECRET), *(states - values)]
    for seed, death in enumerate(FAILURES, 1):
        ledger = f"{death.replace(' ', '-')}.jsonl"
        more, code = lived(folder, request.param, OTHER, seed, Death(death, STEPS - 2), ledger)
        assert code == {"bug": 1, "full disk": 1, "abort": -signal.SIGABRT}[death]
        out += more
        states, externals = inputs(seed)
        private += [OTHER, *states, *noise_of(states, externals, OTHER)]
    return Lived(folder, out, programs, private)


def traces(value):
    """How a number could be written: in digits, or as it is in memory."""
    digits = f"{abs(value):.16e}".replace(".", "")[:12]
    return [digits.encode(), struct.pack("<d", value), struct.pack(">d", value), abs(value).hex()[4:-3].encode()]


def contents(path):
    """The bytes of a file; of a compiled program, those that are packed in it."""
    return decompress_executable(path.read_bytes()) if path.name.endswith("-cache") else path.read_bytes()


def held(content, private):
    """Values that some bytes hold."""
    return [value for value in private if any(trace in content for trace in traces(value))]


def test_nothing_that_was_written_holds_anything_private(left):
    files = [path for path in left.folder.rglob("*") if path.is_file() and "secret" not in path.name]
    assert len(left.programs) > 5 and left.folder / "ledger.jsonl" in files
    found = {path.name: held(contents(path), left.private) for path in files}
    assert not {name: values for name, values in found.items() if values}
    assert not held(left.out, left.private)
    single = [struct.pack("<f", value) for value in (SECRET, OTHER)]
    assert not [path.name for path in files if any(trace in contents(path) for trace in single)]


def test_the_search_finds_what_it_is_for(left):
    """The secret in its own file, the last state in the private memory, and both in a log that a fool wrote."""
    assert held((left.folder / "secret.json").read_bytes(), left.private) == [OTHER] * len(FAILURES)
    memory = left.folder / "secret.json.memory"
    if memory.exists():
        assert set(held(memory.read_bytes(), left.private)) & set(inputs(len(FAILURES))[0])
    for value in left.private:
        assert held(f"x={value!r}".encode(), [value]) and held(np.array([0, value]).tobytes(), [value])


def test_only_the_ledger_and_the_memory_are_made_and_the_memory_is_the_owners(left):
    made = {str(path.relative_to(left.folder)) for path in left.folder.rglob("*") if path.is_file()}
    made = {name for name in made if not name.startswith("cache/")}
    own = {"secret.json.memory"} if "counterfactual" in left.folder.name else set()
    others = {f"{name.replace(' ', '-')}.jsonl" for name in FAILURES}
    assert made - {"secret.json.memory.partial"} == FILES | others | own
    for path in left.folder.glob("secret*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_compiled_programs_do_not_depend_on_the_secret(left):
    """Not even their names, which are digests of what was compiled."""
    assert {path.name for path in (left.folder / "cache").iterdir()} == left.programs

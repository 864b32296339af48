"""What is never written: the secret, the states, the noise, private randomness. Every file is searched."""

import json
import re
import resource
import signal
import stat
import struct
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from jax._src.compilation_cache import decompress_executable

from tests.sharing.dying_share import FAILURES, Death
from tests.sharing.streams import NOISE, noise_policy
from tests.torture import NEVER, Life
from veil.sharing import Sharer
from veil.sharing import step_program as engines_module
from veil.sharing.inputs import SecretError, read_secret
from veil.systems import Gain

SECRET, OTHER = 0.612345678901, 0.487654321098  # neither is on the prior
STEPS, SD = 18, 0.3  # of the stream, and of the noise in the plant
FILES = {"ledger.jsonl", "errors"}


class Lived(NamedTuple):
    """What streams left: their folder, all that went out, the programs of the first one, private values."""

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


def lived(folder, policy, secret, seed, death=NEVER, ledger="ledger.jsonl"):
    """One process on one stream; what it put out, and how it ended."""
    (folder / f"secret{seed}.json").write_text(json.dumps({"gain": secret}))
    (folder / f"secret{seed}.json").chmod(0o600)
    name = f"secret{seed}.json"  # every secret has its own file, and an account beside it
    command = ["share", "gain", "--secret-file", name, "--ledger", ledger, "--on-alarm", "warn"]
    command += ["--accept-uncharged", "--resolution", "0"]
    life, out = Life([*command, "--policy", policy, "--sd", str(NOISE)], folder, death), b""
    states, externals = inputs(seed)
    for step in range(1, STEPS + 1):
        life.say(step, states[step - 1], externals[step - 1])
        line = life.hear()
        if line is None:
            break
        if step == 1:
            assert resource.prlimit(life.process.pid or 0, resource.RLIMIT_CORE) == (0, 0)  # no dumps
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
    digits = repr(abs(float(value))).split(".")[1].lstrip("0")[:11]
    binary = float(value).hex().split(".")[1].split("p")[0]
    return [digits.encode(), binary.encode(), struct.pack("<d", value), struct.pack(">d", value)]


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
    errors = (left.folder / "errors").read_text()
    assert "RuntimeError: a bug" in errors and "File too large. The same command goes on." in errors
    assert not re.search(r"\d\.\d{5}", errors)  # no number of any length
    single = [struct.pack("<f", value) for value in (SECRET, OTHER)]
    assert not [path.name for path in files if any(trace in contents(path) for trace in single)]


def test_the_search_finds_what_it_is_for(left):
    """The secret in its own file, a state in the private memory, and all of them in a careless log."""
    assert held((left.folder / "secret1.json").read_bytes(), left.private) == [OTHER] * len(FAILURES)
    for memory in left.folder.glob("secret1.json.memory-*"):
        assert set(held(memory.read_bytes(), left.private)) & set(inputs(1)[0])
    for value in left.private:
        assert held(f"x={value!r}".encode(), [value]) and held(np.array([0, value]).tobytes(), [value])


def test_only_the_ledger_and_the_memory_are_made_and_the_memory_is_the_owners(left):
    made = {str(path.relative_to(left.folder)) for path in left.folder.rglob("*") if path.is_file()}
    made = {name for name in made if not name.startswith("cache/")}
    own = set() if "counterfactual" in left.folder.name else {"ledger.jsonl.belief"}
    others = {f"{name.replace(' ', '-')}.jsonl" for name in FAILURES}
    made = {re.sub(r"-[0-9a-f]{8}$", "", name) for name in made}
    for seed in range(1 + len(FAILURES)):
        own |= {f"secret{seed}.json", f"secret{seed}.json.account"}
        own |= {f"secret{seed}.json.memory"} if "counterfactual" in left.folder.name else set()
    assert made == FILES | others | own
    for path in left.folder.glob("secret*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_compiled_programs_do_not_depend_on_the_secret(left):
    """Not even their names, which are digests of what was compiled."""
    assert {path.name for path in (left.folder / "cache").iterdir()} == left.programs


def entries(secret, states, monkeypatch, **options):
    """Ledger and receipts of a stream with known coins, the clock apart."""
    tossed = np.random.default_rng(4).integers(1 << 31, 1 << 32, (100, 2)).astype(np.uint32)
    coins = iter(tossed)
    monkeypatch.setattr(engines_module, "_coins", lambda: next(coins))
    with Sharer(noise_policy(), secret, seed=5, on_alarm="warn", **options, resolution=0.0) as sharer:
        made = [
            sharer.share([state], [external]).receipt
            for state, external in zip(states, inputs(0)[1], strict=True)
        ]
        assert not any(str(coin) in json.dumps([*sharer.ledger]) for coin in tossed.flat)
        assert all(entry["milliseconds"] % 10.0 == 0.0 for entry in sharer.ledger)  # coarse
        clock = {"milliseconds": 0.0, "chain": "", "head": ""}  # and the digests of what it says
        about, kept = sharer.ledger.about, [{**entry, **clock} for entry in sharer.ledger]
    return about, kept, [{**vars(receipt), **clock} for receipt in made]


def test_what_is_public_depends_on_the_secret_through_the_releases_alone(monkeypatch):
    """Two secrets with the same states and coins have the same ledger, bit for bit, and the same receipts."""
    states = inputs(0)[0]
    ours, theirs = (entries([secret], states, monkeypatch) for secret in (SECRET, 0.9))
    assert ours == theirs and sum(entry["charge"] for entry in ours[1]) > 0.01


def test_where_nothing_may_leak_what_is_public_depends_on_neither_secret_nor_states(monkeypatch):
    """Without a budget all releases but the first, which no secret has a part in, are what is expected."""
    first, second = inputs(1)[0], inputs(2)[0]
    second[0] = first[0]
    options = {"budget": 0.0, "exhausted": "blind"}
    ours = entries([SECRET], first, monkeypatch, **options)
    assert ours == entries([0.3], second, monkeypatch, **options)
    assert [entry["decision"] for entry in ours[1]] == ["released", *["blind"] * (STEPS - 1)]
    assert len({entry["shared"][0] for entry in ours[1]}) == STEPS


@pytest.mark.parametrize(
    "content",
    [
        *(f"{SECRET} 1", f'{{"gain": "{SECRET}x"}}', f"[{SECRET}, {SECRET}]", f'{{"gian": {SECRET}}}'),
        *(f"[{SECRET}e999]", f'"{SECRET}?"', f"[[{SECRET}]]", "612345678901", f'{{"gain": [{SECRET}]}}'),
    ],
)
def test_a_secret_that_cannot_be_used_is_not_repeated(tmp_path, content):
    """Neither in the message nor in a traceback."""
    path = tmp_path / "secret.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(SecretError) as caught:
        read_secret(path, Gain())
    assert "612345" not in "".join(traceback.format_exception(caught.value))

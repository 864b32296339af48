"""What is read: odd numbers, far steps, odd secrets, deep files, folders with code or another prior."""

import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sharing.fuzz_lines import File, NoRanges, Source, fuzzed_lines
from tests.sharing.streams import SECRET, noise_policy, private_policy
from veil.cli import main, share
from veil.cli.console import Mistake
from veil.cli.subject import PolicyChoice, SensorChoice, subject
from veil.io import StoreError
from veil.learners import run as runs
from veil.policies import GaussianNoise
from veil.registry import POLICIES
from veil.sharing import Sharer
from veil.sharing.inputs import SecretError, read_secret
from veil.sharing.stream import NO_STEP, serve
from veil.systems import Gain, finite_prior
from veil.types import as_float64


def said(sharer, *lines):
    """The answers to these lines."""
    sink = File()
    content = b"".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
    )
    serve(sharer, File(content), sink, lambda text: None)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def line(step, level, push=0.0):
    return {"step": step, "state": {"level": level}, "external": {"push": push}}


@pytest.mark.parametrize("make", [noise_policy, private_policy])
def test_numbers_beyond_all_measure_do_not_end_the_stream(tmp_path, make):
    """1e308 was a traceback, and then one at every restart."""
    files: dict[str, Any] = {
        "ledger": tmp_path / "ledger",
        "account": tmp_path / "account",
        "on_alarm": "warn",
    }
    with Sharer(make(), SECRET, **files, resolution=0.0) as sharer:
        odd = [line(1, 0.2), line(2, 1e308), line(3, 0.1, 1e308), line(4, -1e308), line(5, 0.1, -1e9)]
        answers = said(sharer, *odd, line(6, 0.3), line(7, 0.1))
        assert [one["step"] for one in answers] == [1, 2, 3, 4, 5, 6, 7]
        assert answers[2]["shared"] is None and answers[0]["shared"] is not None
    with Sharer(make(), SECRET, **files, resolution=0.0) as sharer:
        assert sharer.next_step == 8 and said(sharer, line(8, 0.1))[0]["step"] == 8


def test_what_the_model_makes_no_number_of_is_a_fault_and_leaves_no_trace(monkeypatch):
    """The belief after it is that of a step without a state."""
    beliefs = []
    monkeypatch.setattr("veil.sharing.step_program._coins", lambda: np.array([1, 2], np.uint32))
    for harm in (True, False):
        with Sharer(noise_policy(), SECRET, seed=3, resolution=0.0) as sharer:
            sharer.share([0.1], [0.2])
            make = sharer._engine.make

            def broken(state, external, left, *, blind=False, make=make):
                made = make(state, external, left, blind=blind)
                if state is not None and state[0] == 7.0:
                    object.__setattr__(made.public, "sound", np.asarray(False))
                return made

            monkeypatch.setattr(sharer._engine, "make", broken)
            release = sharer.share([7.0], [0.4]) if harm else sharer.skip()
            assert release.shared is None
            assert release.receipt.fault == ("the numbers are too large for the model." if harm else "")
            assert sharer.ledger[2]["external"] == [0.2]
            beliefs.append(sharer._engine.snapshot())
    assert beliefs[0] == beliefs[1]


def test_every_line_has_a_line_out():
    """A client that waits for its answer blocked for ever after NaN."""
    with Sharer(noise_policy(), SECRET, resolution=0.0) as sharer:
        nan = b'{"step": 2, "state": {"level": NaN}, "external": {"push": 0.1}}\n'
        answers = said(sharer, line(1, 0.1), nan, b"nonsense\n", b"\n", line(3, 0.2))
    assert [one["step"] for one in answers] == [1, 2, None, None, 3]
    assert answers[1]["shared"] is None and answers[2] == json.loads(NO_STEP)


def test_a_step_far_ahead_costs_nothing_and_takes_none(tmp_path, monkeypatch):
    """80 bytes cost 1,000 steps, each with its own write, in version 0.1."""
    syncs, sync = [], os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (syncs.append(file), sync(file)))
    files: dict[str, Any] = {"ledger": tmp_path / "ledger", "account": tmp_path / "account"}
    with Sharer(noise_policy(), SECRET, **files, resolution=0.0) as sharer:
        said(sharer, line(1, 0.1))
        before, began = len(syncs), time.perf_counter()
        assert said(sharer, line(1002, 0.1), line(103, 0.1)) == [json.loads(NO_STEP)] * 2
        assert sharer.next_step == 2 and len(syncs) == before and time.perf_counter() - began < 0.5
        assert said(sharer, line(102, 0.1))[0]["step"] == 102
        assert len(syncs) == before + 2  # one write of 101 lines, one mark
        assert [entry["decision"] for entry in sharer.ledger][1:] == ["gap"] * 100 + ["released"]
        last = sharer._engine.snapshot()
    with Sharer(noise_policy(), SECRET, **files, resolution=0.0) as sharer:
        assert sharer._engine.snapshot() == last and sharer.next_step == 103


def test_a_gap_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """Where its write fails the stream stands where it stood."""
    with Sharer(
        private_policy(), SECRET, ledger=tmp_path / "ledger", account=tmp_path / "account", resolution=0.0
    ) as sharer:
        sharer.share([0.1], [0.2])
        before = sharer._engine.standing()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError("no disk")))
            with pytest.raises(OSError, match="no disk"):
                sharer.share([0.1], [0.2], step=20)
        assert sharer.next_step == 2 and sharer._engine.standing() == before and 2 not in sharer.ledger
        assert sharer.share([0.1], [0.2], step=20).receipt.step == 20


@pytest.mark.parametrize("system", [Gain(), NoRanges()], ids=["gain", "no ranges"])
def test_fuzzed_lines_are_all_answered(system, tmp_path):
    """600 of the 20,000 of the study."""
    with jax.enable_x64(True):
        policy = GaussianNoise(as_float64(system), jnp.full(len(system.shared_fields), 0.3))
    with Sharer(policy, 1, on_alarm="warn", ledger=tmp_path / "ledger", resolution=0.0) as sharer:
        sink, lines = File(), list(fuzzed_lines(system, 600, lambda: sharer.next_step))
        serve(sharer, Source(lines), sink, lambda text: None)
        assert len(sink.getvalue().splitlines()) == 600 and sharer.next_step > 300


def owned(path, content="1", mode=0o600):
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("true", "no text, no true or false"),
        ('"2"', "no text, no true or false"),
        ('["0.6"]', "no text, no true or false"),
        ("[true]", "no text, no true or false"),
        ("[" * 100_000, "is not JSON"),
        ("[" * 900 + "]" * 900, "no text, no true or false"),
        ("1e999", "one finite number"),
        ("null", "no text, no true or false"),
    ],
)
def test_odd_secrets_are_refused_in_one_sentence(tmp_path, content, words):
    with pytest.raises(SecretError, match=words) as error:
        read_secret(owned(tmp_path / "secret.json", content), Gain())
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_a_secret_file_must_be_the_owners_alone(tmp_path, monkeypatch):
    path = owned(tmp_path / "secret.json")
    assert read_secret(path, Gain()).tolist() == pytest.approx([0.6])
    (tmp_path / "link.json").symlink_to(path)
    with pytest.raises(SecretError, match="symbolic link"):
        read_secret(tmp_path / "link.json", Gain())
    os.link(path, tmp_path / "second.json")
    with pytest.raises(SecretError, match="hard link"):
        read_secret(path, Gain())
    (tmp_path / "second.json").unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(SecretError, match="Others may write in the folder"):
        read_secret(path, Gain())
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(SecretError, match="belongs to somebody else"):
        read_secret(path, Gain())


def test_deep_files_are_refused_in_one_sentence(tmp_path, capsys):
    deep = tmp_path / "deep.toml"
    deep.write_text("seed = " + "[" * 20_000 + "]" * 20_000)
    with pytest.raises(SystemExit) as end:
        main.parse(["share", "gain", "--secret-file", "s.json", "--config", str(deep)])
    told = capsys.readouterr().err
    assert end.value.code == 2 and told.count("\n") == 1 and "deep.toml" in told
    (tmp_path / "run.json").write_text("[" * 200_000)
    with pytest.raises(StoreError, match="not the file of a run"):
        runs.Run.load(tmp_path)


CODE = """
from pathlib import Path
from veil.systems import Gain, finite_prior

Path("executed").touch()
mine = Gain(finite_prior([0.1, 0.2]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run whose system is a Python file, as somebody else could send it."""
    monkeypatch.chdir(tmp_path)
    name = f"own_{abs(hash(tmp_path)) % 10**9}.py"
    Path(name).write_text(CODE)
    place = f"{name}:mine"
    ready = runs.Ready(place, POLICIES["noise"](sd=(0.3,)))
    runs.keep(Path("sent"), ready, Gain(finite_prior([0.1, 0.2])))
    return place


def test_a_folder_runs_no_code_unless_the_user_says_so(folder):
    for words in (["share", "sent", "--secret-file", "s.json"], ["audit", "sent"], ["simulate", "sent"]):
        with pytest.raises(SystemExit) as end:
            main.parse(words)
        assert end.value.code == 2
    with pytest.raises(Mistake, match="names Python code as its system") as told:
        subject("sent", PolicyChoice(), SensorChoice())
    assert f"{folder} --policy sent, or add --trust-code" in str(told.value)
    assert not Path("executed").exists()
    _, system, policy = subject(folder, PolicyChoice("sent"), SensorChoice())
    assert Path("executed").exists() and policy.system.prior.secrets.shape == system.prior.secrets.shape
    assert subject("sent", PolicyChoice(), SensorChoice(), trust=True)[0] == folder


def test_what_charges_is_the_system_that_was_named(tmp_path):
    """A folder whose prior, or whose noise, is another one is refused; its numbers never count."""
    mine = Gain(finite_prior([0.1, 0.2]))
    ready = runs.Ready("gain", POLICIES["noise"](sd=(0.3,)))
    runs.keep(tmp_path / "sent", ready, mine)
    with jax.enable_x64(True):
        with pytest.raises(StoreError, match=r"another (design|prior)"):
            runs.load_policy(tmp_path / "sent", as_float64(Gain()))
        for other, words in (
            (Gain(finite_prior([0.1, 0.25])), "another prior"),
            (Gain(finite_prior([0.1, 0.2], [0.3, 0.7])), "another prior"),
            (Gain(finite_prior([0.1, 0.2]), sd=0.31), "another system"),
        ):
            with pytest.raises(StoreError, match=words):
                runs.load_policy(tmp_path / "sent", as_float64(other))
        named = as_float64(mine)
        policy = runs.load_policy(tmp_path / "sent", named)
        assert np.array_equal(policy.system.prior.secrets, named.prior.secrets)


def test_a_secret_that_no_charge_speaks_of_needs_a_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    owned(Path("secret.json"), "[0.7]")
    words = ["share", "gain", "--policy", "noise", "--sd", "0.3", "--secret-file", "secret.json"]
    refused, accepted = main.parse(words), main.parse([*words, "--accept-uncharged"])
    assert isinstance(refused, share.Share) and isinstance(accepted, share.Share)
    with pytest.raises(Mistake, match="add --accept-uncharged"):
        refused.check_covered(False)
    refused.check_covered(True)
    accepted.check_covered(False)
    with pytest.raises(SystemExit) as end:
        refused.open()
    assert end.value.code == 2 and not Path("secret.json.account").exists()

"""`veil share`: what it says to mistakes, how it ends, and what it makes of an input that comes twice."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from veil.cli import main, share
from veil.sharing import Ledger, Sharer

NOISE = ["--policy", "noise", "--sd", "0.3"]
EXACT = ["--resolution", "0"]  # simulated states are not rounded
USUAL = ["share", "gain", *NOISE, *EXACT]


def line(step, level=0.5, push=0.0):
    return {"step": step, "state": {"level": level}, "external": {"push": push}}


class Pipe(io.BytesIO):
    """Bytes with all that a file has."""

    name = "pipe"

    @property
    def mode(self):
        return "rb"


def veil(*arguments, given=()):
    """Exit code, output and messages; `given` are lines of input."""
    source, out, err, code = Pipe(), Pipe(), io.StringIO(), 0
    source.write(b"".join(json.dumps(one).encode() + b"\n" for one in given))
    source.seek(0)
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(err),
        jax.enable_x64(True),
    ):
        patch.setattr(sys, "stdin", io.TextIOWrapper(source))
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
        try:
            main.main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
        return code, out.getvalue().decode(), err.getvalue()


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Nothing is set for the tests of other files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "prepare", lambda: None)
        patch.setattr(share, "keep_to_itself", lambda: None)
        yield


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder with a secret."""
    monkeypatch.chdir(tmp_path)
    Path("secret.json").write_text("1")
    Path("secret.json").chmod(0o600)


@pytest.fixture
def unbuilt(monkeypatch):
    """Fails if a stream is begun: mistakes must be found before."""
    monkeypatch.setattr(Sharer, "__init__", lambda *_, **__: pytest.fail("it was begun"))


def test_help_says_what_goes_in_and_out(monkeypatch, unbuilt):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = veil("share", "--help")
    assert code == 0 and err == ""
    for word in ('{"step": 1, "shared"', "--secret-file", "0600", "withhold, blind or blur", "--strict"):
        assert word in out
    assert "Exit code 2" in out and "130" in out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["share", "gian", *NOISE], "no system 'gian'. Did you mean gain?"),
        (["share", "runs/nowhere", *NOISE], "runs/nowhere is not the folder of a run"),
        (["share", "gain", "--policy", "nose"], "Did you mean noise?"),
        (["share", "gain", "--policy", "noise"], "needs --sd"),
        ([*USUAL, "--on-exhausted", "blurr"], "no --on-exhausted 'blurr'. Did you mean blur?"),
        ([*USUAL, "--budget", "-1"], "--budget is a number of nats, 0 or more"),
        ([*USUAL, "--budget", "nan"], "--budget is a number of nats, 0 or more"),
        ([*USUAL, "--horizon", "0"], "--horizon and --charge-particles are counts"),
        ([*USUAL, "--seed", "-3"], "--seed must be between 0 and"),
        ([*USUAL, "--mqtt", "localhost"], "go together"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_on_the_command_line_are_answered_in_one_sentence(unbuilt, arguments, hint):
    code, out, err = veil(*arguments, "--secret-file", "secret.json")
    assert code == 2 and out == ""
    assert hint in err and err.startswith("veil share: ") and err.count("\n") == 1


def open_to_all():
    Path("secret.json").chmod(0o640)


def in_words():
    Path("secret.json").write_text("one 7391")


def too_high():
    Path("secret.json").write_text("7391")


def two_numbers():
    Path("secret.json").write_text("[0.7391, 0.7391]")


def another_name():
    Path("secret.json").write_text('{"gian": 0.7391}')


@pytest.mark.parametrize(
    ("harm", "hint"),
    [
        (open_to_all, "can be read by others. Protect it with `chmod 600 secret.json`."),
        (lambda: Path("secret.json").unlink(), "secret.json cannot be read (No such file or directory)."),
        (lambda: (Path("secret.json").unlink(), Path("secret.json").mkdir(0o700)), "(Is a directory)"),
        (in_words, "secret.json is not JSON. Write the index of the secret in the prior, e.g. 2."),
        (too_high, "must be between 0 and 2."),
        (two_numbers, "one finite number for each of gain."),
        (another_name, "The secret needs gain, and nothing else."),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_repeated(unbuilt, harm, hint):
    harm()
    code, out, err = veil(*USUAL, "--secret-file", "secret.json")
    assert code == 2 and out == "" and hint in err and "739" not in err
    assert err.startswith("veil share: ") and err.count("\n") == 1 and not Path("gain-noise").exists()


def started(*more, given=()):
    return veil(*USUAL, "--secret-file", "secret.json", *more, given=given)


def test_a_place_that_cannot_be_written_is_named():
    Path("file").write_text("")
    code, out, err = started("--ledger", "file/ledger.jsonl")
    assert code == 2 and out == "" and "file" in err and "Traceback" not in err and err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_folder_that_is_read_only_is_named():
    Path("folder").mkdir(0o500)
    code, out, err = started("--ledger", "folder/share/ledger.jsonl")
    assert code == 2 and out == "" and "Permission denied" in err and "folder" in err


def test_a_stream_answers_in_order_and_repeats_from_the_ledger():
    """Steps that come twice, late or after a gap, in one process and in the next."""
    code, out, err = started(
        "--budget", 1, given=[line(1), line(2, 0.7), line(1, 9.0), line(5), line(3), line(2)]
    )
    answers = [json.loads(one) for one in out.splitlines()]
    assert code == 0 and [one["step"] for one in answers] == [1, 2, 1, 5, 3, 2]
    assert answers[2] == answers[0] and answers[5] == answers[1] and answers[4]["shared"] is None
    assert "ready at step 1; ledger gain-noise/share/ledger.jsonl" in err
    counts = r"5 steps: 3 released, 2 left out of the input; "
    assert re.search(counts + r"\S+ nats charged, \S+ left, 0 faults\.\n$", err)
    before = Path("gain-noise/share/ledger.jsonl").read_bytes()
    code, again, err = started("--budget", 1, given=[line(2), line(5, -3.0), line(3)])
    assert code == 0 and again.splitlines() == [out.splitlines()[k] for k in (1, 3, 4)]
    assert "ready at step 6" in err and Path("gain-noise/share/ledger.jsonl").read_bytes() == before


def test_no_input_is_a_stream_of_no_steps():
    code, out, err = started()
    assert code == 0 and out == "" and "0 steps: none; 0.00317 nats charged, 0 faults." in err
    assert len(Path("gain-noise/share/ledger.jsonl").read_bytes().splitlines()) == 1


def test_a_fault_is_withheld_and_told_or_stops_a_strict_stream():
    bad = {"step": 2, "state": {"level": "7391"}, "external": {"push": 0.1}}
    code, out, err = started(given=[line(1), bad, line(3)])
    assert code == 0 and "1 faults" in err
    assert [json.loads(one)["shared"] is None for one in out.splitlines()] == [False, True, False]
    assert "veil share: line 2, step 2: state.level must be a number. Withheld.\n" in err
    code, out, err = started("--strict", given=[line(4), {**bad, "step": 5}, line(6)])
    assert code == 1 and [json.loads(one)["step"] for one in out.splitlines()] == [4]
    assert "line 2: state.level must be a number. Stopped (--strict). The same command goes on." in err
    assert "7391" not in err and len(Path("gain-noise/share/ledger.jsonl").read_bytes().splitlines()) == 5


def test_a_ledger_of_another_stream_an_edited_one_and_one_in_use_are_refused():
    """And one that a crash cut short is repaired with a note."""
    usual = {"--ledger": "ledger.jsonl", "--seed": "3", "--budget": "1"}

    def again(given=(), **other):
        words = [word for pair in {**usual, **other}.items() for word in pair]
        return started(*words, given=given)

    assert again([line(1), line(2)])[0] == 0
    whole = Path("ledger.jsonl").read_bytes()
    for flag, word in (("--budget", "2"), ("--seed", "7"), ("--on-exhausted", "withhold"), ("--sd", "0.4")):
        code, out, err = again([line(1)], **{flag: word})
        assert code == 2 and out == "" and "belongs to another stream" in err and err.count("\n") == 1
    with Ledger(Path("ledger.jsonl"), json.loads(whole.splitlines()[0])["about"]):
        code, out, err = again()
    assert code == 2 and "in use by another process" in err
    Path("ledger.jsonl").write_bytes(whole.replace(b'"step":1', b'"step":7'))
    code, out, err = again()
    assert code == 2 and out == "" and "chain is broken at line 2" in err
    Path("ledger.jsonl").write_bytes(whole[:-9])
    code, out, err = again([line(1)])
    assert code == 2 and "ledger.jsonl ends at step 1, but step 2 was released" in err and out == ""
    Path("ledger.jsonl").write_bytes(whole + b'{"blur":0.0,"cha')
    code, out, err = again([line(1)])
    assert code == 0 and "Line 4 of ledger.jsonl was cut short" in err and "ready at step 3" in err


def begun():
    """The command in a process of its own, after its first answer."""
    Path("errors").touch()
    with Path("errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "veil", *USUAL, "--secret-file", "secret.json"],
            env={**os.environ, "VEIL_CACHE": str(Path("cache").absolute())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(line(1)).encode() + b"\n")
    process.stdin.flush()
    return process, json.loads(process.stdout.readline())


def test_ctrl_c_and_a_reader_who_leaves_end_it_with_a_word():
    """Both leave a ledger that goes on: the step that nobody could read is answered after all."""
    process, first = begun()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    said = Path("errors").read_text()
    assert "1 steps: 1 released; " in said and "Stopped. The same command goes on." in said
    process, again = begun()
    assert again == first and process.stdin is not None and process.stdout is not None
    process.stdout.close()
    process.stdin.write(json.dumps(line(2)).encode() + b"\n" + json.dumps(line(3)).encode() + b"\n")
    process.stdin.close()
    assert process.wait(timeout=60) == 1
    messages = Path("errors").read_text()
    assert messages.endswith("nobody reads the output any more. The same command goes on.\n")
    assert "Traceback" not in messages and "Exception" not in messages
    code, out, err = started(given=[line(2, 7.0)])
    assert code == 0 and "ready at step 3" in err and json.loads(out)["step"] == 2


def test_an_alarm_stops_or_blinds_the_command_and_the_totals_say_so():
    """A level that jumps by ten standard deviations at every step is not that of the model."""
    wild = [line(step, 3.0 * (-1) ** step) for step in range(1, 16)]
    code, out, err = started("--on-alarm", "stop", "--ledger", "stop.jsonl", given=wild)
    steps = [json.loads(one)["step"] for one in out.splitlines()]
    assert code == 4 and steps == [*range(1, len(steps) + 1)] and 2 <= len(steps) < 15
    assert f"step {len(steps)}: the plant is not the model" in err and "The stream ends here." in err
    code, out, err = started("--on-alarm", "stop", "--ledger", "stop.jsonl", given=[line(1), line(14)])
    assert code == 4 and [json.loads(one)["step"] for one in out.splitlines()] == [1]
    code, out, err = started("--ledger", "blind.jsonl", given=wild)
    assert code == 0 and len(out.splitlines()) == 15 and "15 steps" in err
    assert "charges mean nothing from step" in err.splitlines()[-1]


def test_answers_leave_at_multiples_of_the_pace():
    began = time.monotonic()
    code, out, _ = started(
        "--pace", 50, "--ledger", "paced.jsonl", given=[line(step) for step in range(1, 5)]
    )
    assert code == 0 and len(out.splitlines()) == 4 and time.monotonic() - began >= 0.2

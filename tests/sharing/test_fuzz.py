"""Malformed input, 12,000 lines of it: each is answered or reported, no value repeated, memory bounded."""

import io
import json
import os
import re
import subprocess
import sys
import traceback
import tracemalloc
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.sharing.aftermath import entries_of
from tests.sharing.malformed import DIGITS, REPORTED, VALID, WITHHELD, Sensor, filled
from tests.sharing.streams import SECRET
from veil.policies import GaussianNoise
from veil.sharing import Fault, Sharer
from veil.sharing.inputs import LONGEST
from veil.sharing.stream import NO_STEP, lines, serve
from veil.systems import Gain

COUNT = 12_000
SD = 1e-3
MEGABYTE = 1 << 20


class File(io.BytesIO):
    """Bytes with all that a file has."""

    name = "stream"

    @property
    def mode(self):
        return "rb"


class Tape(File):
    """Source and sink that know which line they are at, and keep what was said about it."""

    def __init__(self, content):
        super().__init__(content)
        self._next, self.number = 1, 0
        self.answers, self.messages, self.alarms = defaultdict(list), defaultdict(list), []

    def readline(self, size=-1, /):
        part, self.number = super().readline(size), self._next
        self._next += part.endswith(b"\n")
        return part

    def write(self, line, /):
        self.answers[self.number].append(line)
        return len(line)

    def tell_owner(self, text):
        (self.alarms if "Audit before" in text else self.messages[self.number]).append(text)


def sharing(**options):
    with jax.enable_x64(True):
        policy = GaussianNoise(Gain(), jnp.asarray([SD]))
    return Sharer(policy, SECRET, on_alarm="warn", **options, resolution=0.0)


def served(sharer, content):
    tape = Tape(content)
    return tape, serve(sharer, tape, tape, tape.tell_owner)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """What was sent, what was said about it, the number of faults, and the sharer."""
    path, sent = tmp_path_factory.mktemp("fuzz") / "ledger.jsonl", [*Sensor().send(COUNT)]
    with sharing(ledger=path) as sharer:
        tape, faults = served(sharer, b"\n".join(one.line for one in sent))
        yield sent, tape, faults, sharer


def test_every_line_is_answered_or_reported_as_it_must_be(fuzzed):
    sent, tape, faults, _ = fuzzed
    known = defaultdict(lambda: None)  # a step that was left out is answered with nothing
    for number, one in enumerate(sent, 1):
        answers, messages = tape.answers[number], tape.messages[number]
        assert len(answers) == 1, (number, one.line[:200])
        assert len(messages) == (one.fate in ("withheld", "reported")), (number, one.line[:200])
        for text in messages:
            step = f", step {one.step}" if one.fate == "withheld" else ""
            assert text.startswith(f"line {number}{step}: ") and text.endswith("Withheld." if step else ".")
        for line in answers:
            if one.fate in ("reported", "nothing"):
                assert line == NO_STEP
                continue
            answer = json.loads(line)
            assert answer["step"] == one.step and line.endswith(b"}\n") and line.count(b"\n") == 1
            if one.fate == "shared":
                assert abs(answer["shared"]["level"] - one.state) < 6 * SD
                known[one.step] = answer["shared"]
            assert answer["shared"] == known[one.step]
    assert faults == sum(one.fate in ("withheld", "reported") for one in sent)
    assert {one.fate for one in sent} == {"shared", "again", "withheld", "reported", "nothing"}
    assert tape.answers.keys() | tape.messages.keys() <= {*range(1, COUNT + 1)} and len(tape.alarms) <= 3


def test_messages_name_field_and_rule_and_repeat_no_value(fuzzed):
    _, tape, _, _ = fuzzed
    texts = [text for some in tape.messages.values() for text in some] + tape.alarms
    rules = {re.sub(r"^line \d+(, step \d+)?: ", "", text) for text in texts}
    for rule in (
        "state.level must be finite. Withheld.",
        "state.level is missing. Withheld.",
        "external.push must be a number. Withheld.",
        "state has more fields than level. Withheld.",
        "external must be an object with push. Withheld.",
        "it is not UTF-8.",
        f"it is longer than {LONGEST} bytes.",
        "a name occurs twice.",
        "step must be a whole number from 1 to 2147483647.",
        "step is more than 100 ahead of the next one, and takes none.",
        "external.push must lie between -1e+09 and 1e+09. Withheld.",
    ):
        assert rule in rules
    assert len(rules) <= 25 and not [rule for rule in rules if DIGITS[:3] in rule or len(rule) > 220]


def test_the_ledger_has_every_step_once_and_no_state(fuzzed):
    sent, _, _, sharer = fuzzed
    entries, last = entries_of(sharer.ledger.path), max(one.step for one in sent)
    assert [entry["step"] for entry in entries] == [*range(1, last + 1)]
    decisions = {entry["step"]: entry["decision"] for entry in entries}
    for one in sent:
        if one.fate in ("shared", "withheld"):
            assert decisions.pop(one.step) == ("released" if one.fate == "shared" else "fault")
    assert set(decisions.values()) == {"gap"}
    for entry in entries:
        assert DIGITS not in json.dumps({**entry, "external": None})


def test_strict_stops_at_each_kind_of_fault_and_takes_no_step(fuzzed, monkeypatch):
    *_, sharer = fuzzed
    due = sharer.next_step
    monkeypatch.setattr(sharer, "strict", True)
    for template in (*WITHHELD, *REPORTED):
        with pytest.raises(Fault, match=r"^line 2: ") as caught:
            served(sharer, b"\n" + filled(template, due) + b"\n" + filled(VALID, due, "0.5"))
        messages = [str(caught.value), "".join(traceback.format_exception(caught.value))]
        assert DIGITS[:3] not in messages[0] and DIGITS[:5] not in messages[1] and sharer.next_step == due


class Endless(File):
    """A line without an end, of so many bytes."""

    def __init__(self, size):
        super().__init__()
        self._left = size

    def readline(self, size=-1, /):
        size = min(size or 0, self._left)
        self._left -= size
        return b"7" * size


def test_a_line_without_end_takes_no_memory():
    """By tracemalloc: at most three pieces of the longest line, whatever comes in."""
    tracemalloc.start()
    try:
        (kept,) = lines(Endless(32 * MEGABYTE))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert LONGEST < len(kept) <= LONGEST + 2 and peak < 4 * LONGEST


def peak_memory(process):
    """Bytes that a process ever had in memory, as the kernel counts them."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_the_command_lives_through_it_in_the_same_memory(tmp_path):
    """500 lines and one of 64 MB; the kernel's high-water mark grows by a small part of what came in."""
    secret, sensor = tmp_path / "secret.json", Sensor(1)
    secret.write_text(str(SECRET))
    secret.chmod(0o600)
    sent = [sensor.good(), *sensor.send(500), sensor.good()]
    command = [sys.executable, "-m", "veil", "share", "gain", "--policy", "noise", "--sd", str(SD)]
    command += ["--on-alarm", "warn", "--resolution", "0"]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--secret-file", secret, "--ledger", tmp_path / "ledger.jsonl"],
            env={**os.environ, "VEIL_CACHE": str(tmp_path / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(sent[0].line + b"\n")
    process.stdin.flush()
    answers = [process.stdout.readline()]
    before = peak_memory(process)
    process.stdin.write(b"8" * (64 * MEGABYTE) + b"\n" + b"\n".join(one.line for one in sent[1:]) + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == NO_STEP  # to the line of 64 MB
    answers += [process.stdout.readline() for _ in sent[1:]]
    grown = peak_memory(process) - before
    rest, _ = process.communicate(timeout=60)
    messages = (tmp_path / "errors").read_text()
    assert process.returncode == 0 and rest == b"" and "Traceback" not in messages
    steps = [one.step or None for one in sent]
    assert [json.loads(line)["step"] for line in answers] == steps
    numbers = [int(number) for number in re.findall(r"^veil share: line (\d+)", messages, re.MULTILINE)]
    wrong = [n for n, one in enumerate(sent[1:], 3) if one.fate in ("withheld", "reported")]
    assert numbers == [2, *wrong] and f"{len(numbers)} faults" in messages
    assert DIGITS[:5] not in messages and grown < 16 * MEGABYTE

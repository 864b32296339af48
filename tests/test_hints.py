"""Every command that Veil prints can be run as it is printed, also for a system of one's own."""

import contextlib
import html
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cheap_commands import short, streamed
from tests.command_lines import quick
from tests.command_lines import veil as command
from veil.cli import main
from veil.cli.audit import Audit as AuditCommand
from veil.settings import AuditSettings


@contextlib.contextmanager
def cheap(folder):
    """Commands in a folder, which build, read and write as always, but do not compute for long."""
    with contextlib.chdir(folder), quick(), short():
        yield


FILE = """
from veil.systems import Gain, finite_prior

slow = Gain(finite_prior([0.1, 0.6]))
"""

UPDATES = ["--updates", "1", "--episodes", "4", "--evaluate-every", "1", "--evaluation-episodes", "4"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder of a user with an own system, who has done all that there is to do; and what was printed."""
    folder = tmp_path_factory.mktemp("hints")
    name = f"hints_{abs(hash(folder)) % 10**9}"
    place, printed = f"{name}.py:slow", dict[str, str]()
    rows = [{"step": t, "state": {"level": 0.5}, "external": {"push": 0.1}} for t in range(1, 7)]
    (folder / f"{name}.py").write_text(FILE)
    (folder / "sensor.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "secret.json").write_text("1")
    (folder / "secret.json").chmod(0o600)

    def say(what, *words, code=0):
        found, out, err = command(*words)
        assert found == code, (words, err)
        printed[what] = out + err

    with cheap(folder):
        say("ready", "train", place, "--policy", "noise", "--sd", "0.3")
        say("trained", "train", place, "--steps", "3", *UPDATES)
        say("refused", "train", place, "--steps", "4", *UPDATES, code=2)
        say("code", "audit", "runs/slow-pathwise", code=2)
        recorded = ["--trust-code", "--episodes", "2", "--steps", "20"]
        say("arrays", "simulate", "runs/slow-noise", *recorded)
        say("recording", "simulate", place, *recorded, "--out", "loop.csv")
        say("recording of a run", "simulate", "runs/slow-noise", *recorded, "--out", "run.csv")
        say("audited", "audit", place, "--steps", "3")
        say("audited elsewhere", "audit", place, "--policy", "runs/slow-noise", "--out", "elsewhere")
        share = ["share", "runs/slow-noise", "--trust-code", "--secret-file", "secret.json"]
        stream = [*share, "--resolution", "0", "--budget", "0.02"]
        printed["shared"] = "".join(streamed(stream, "sensor.jsonl"))
        for one in ("audit/slow-truth", "runs/slow-noise", "runs/slow-pathwise", "elsewhere"):
            say("report", "report", one, "--out", "page.html")
            printed[f"report of {one}"] = Path("page.html").read_text(encoding="utf-8")
    return folder, name, printed


def commands(text):
    """All commands in what was printed: lines of their own, in backticks, behind a colon, or in a page."""
    found = re.findall(r"^  (veil .*)$", text, re.MULTILINE)
    found += re.findall(r"`(veil [^`]*)`", text)
    found += re.findall(r"(?:other settings: |Go on with )(veil .*)$", text, re.MULTILINE)
    found += [html.unescape(one) for one in re.findall(r"<code[^>]*>(veil [^<]*)</code>", text)]
    return list(dict.fromkeys(one for one in found if len(one.split()) > 2))  # `veil report` is a name


EXPECTED = {
    "ready": ["veil audit runs/slow-noise --trust-code"],
    "trained": ["veil audit runs/slow-pathwise --trust-code"],
    "recording of a run": ["veil measure run.csv --system {}.py:slow --each episode"],
    "shared": ["veil audit runs/slow-noise --trust-code --resolution 0"],
    "report of elsewhere": ["veil report runs/slow-noise --trust-code"],
    "report of runs/slow-pathwise": [
        "veil share {}.py:slow --policy runs/slow-pathwise --resolution 0.01 --secret-file secret.json "
        "--budget 0.1 < sensor.jsonl"
    ],
}


@pytest.mark.parametrize("what", EXPECTED)
def test_hints_name_what_the_command_needs(here, what):
    _, name, printed = here
    found = commands(printed[what])
    assert all(one.format(name) in found for one in EXPECTED[what]), found


def test_every_printed_command_runs(here, tmp_path):
    folder, _, printed = here
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    found = {line: what for what, text in printed.items() for line in commands(text)}
    kinds = {line.split()[1] for line in found}
    assert kinds == {"audit", "train", "measure", "report", "share", "frontier"}, kinds
    with cheap(copy):
        for line, what in found.items():
            words, _, source = line.partition(" < ")
            _, kind, *rest = shlex.split(words)
            if source:
                for kept in copy.glob("secret.json.account*"):  # what earlier streams spent is not the matter
                    kept.unlink()
                out, err = streamed([kind, *rest], source)
                assert out.count('"shared"') == 6, (what, line, err)
            elif kind == "frontier":
                main.parse([kind, *rest])  # takes half an hour; its words are right
            else:
                again = ["--again"] if kind in ("audit", "train") and "--again" not in rest else []
                code, _, err = command(kind, *rest, *again)
                assert code in (0, 3), (what, line, err)


def test_the_hint_of_a_run_with_other_settings_makes_the_run_that_is_there(here):
    folder, _, printed = here
    (line,) = (one for one in commands(printed["refused"]) if one.startswith("veil train"))
    with cheap(folder):
        code, out, err = command(*shlex.split(line)[1:])
    assert code == 0 and "Already trained" in out, err


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["runs/slow-pathwise", "--trust-code"], 3),
        (["{}.py:slow", "--policy", "runs/slow-pathwise"], 3),
        (["runs/slow-pathwise", "--trust-code", "--steps", "7"], 7),
        (["runs/slow-noise", "--trust-code"], 50),
        (["{}.py:slow"], 50),
    ],
)
def test_an_audit_takes_as_many_steps_as_the_run_was_trained_for(here, words, steps):
    folder, name, _ = here
    with contextlib.chdir(folder):
        parsed = main.parse(["audit", *(word.format(name) for word in words)])
    assert isinstance(parsed, AuditCommand) and parsed.extent == AuditSettings(steps=steps)


def test_the_end_of_a_stream_counts_what_was_released_and_says_what_to_do(here):
    """Against the ledger: noise of 0.3 costs more than the budget after a step or two."""
    folder, _, printed = here
    entries = [
        json.loads(line) for line in (folder / "runs/slow-noise/share/ledger.jsonl").read_text().splitlines()
    ]
    decisions = [entry["decision"] for entry in entries[1:]]
    released, blind = decisions.count("released"), decisions.count("blind")
    assert released and blind and released + blind == 6
    said = printed["shared"].splitlines()[-1]
    assert f"6 steps: {released} released, {blind} blind; " in said and "0 faults." in said
    assert f"The budget of 0.02 nats did not pay for what is {blind} blind." in said
    charged = sum(entry["charge"] for entry in entries[1:])
    assert f"The {released} released cost {charged / released:.2g} nats each." in said
    assert "larger --budget with another --ledger; what was spent stays spent." in said

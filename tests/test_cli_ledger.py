"""`veil ledger` as a user meets it; the arithmetic behind it is tested elsewhere."""

import json
import math
import subprocess
import sys

import jax
import pytest

from tests.sharing.streams import NOISE, SECRET, Plant, noise_policy, private_policy, run
from veil.cli import ledger as command
from veil.cli import main
from veil.cli.subject import PolicyChoice
from veil.sharing import Sharer
from veil.sharing import recompute_charges as recharge
from veil.sharing.alarm import alarm_charge
from veil.systems import Gain

BUDGET = 0.2
HOLD = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """The folder that `veil share gain --policy noise --sd 0.3 --budget 0.2` leaves behind."""
    folder = tmp_path_factory.mktemp("streams") / "gain-noise"
    ledger = folder / "share" / "ledger.jsonl"
    with Sharer(noise_policy(), SECRET, budget=BUDGET, seed=3, ledger=ledger, resolution=0.0) as sharer:
        run(sharer, Plant(1), 30)
    return folder


@pytest.fixture
def ledger(monkeypatch, capsys):
    """The exit code and what was printed; in double precision, as the command line has it."""
    monkeypatch.setattr(main, "prepare", lambda: None)

    def call(*arguments):
        try:
            with jax.enable_x64(True):
                main.main(["ledger", *map(str, arguments)])
            code = 0
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def lines_of(folder):
    return [json.loads(line) for line in (folder / "share" / "ledger.jsonl").read_text().splitlines()][1:]


def test_the_last_steps_the_sums_and_the_picture(stream, ledger, tmp_path):
    entries, picture = lines_of(stream), stream / "share" / "ledger.png"
    code, shown, _ = ledger(stream, "--rows", 3)
    assert code == 0 and "the chain holds, 30 entries." in shown
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
    shared = [row for row in rows if row[1] in ("released", "blind")]
    for row, entry in zip(shared, entries[-3:], strict=True):
        left = max(0.0, entry["left"] - entry["charge"])
        numbers = [f"{x:.6f}" for x in (entry["charge"], entry["total"], left)]
        assert row[:5] == [str(entry["step"]), entry["decision"], *numbers]
    total = math.fsum([alarm_charge(1e-4), *(entry["charge"] for entry in entries)])
    assert f"Of it {alarm_charge(1e-4):.2g} nats for what an alarm can tell" in shown
    assert f"{total:.6g} nats ({total / math.log(2):.6g} bits) charged" in shown
    assert f"{BUDGET - total:.6g} left of a budget of 0.2 nats" in shown
    worst = max(entries, key=lambda entry: entry["charge"])
    assert f"Largest charge: {worst['charge']:.6g} nats at step {worst['step']}." in shown
    for name in {entry["decision"] for entry in entries}:
        count = sum(entry["decision"] == name for entry in entries)
        assert any(line.split()[:2] == [name, str(count)] for line in shown.splitlines())
    assert str(picture) in shown and picture.read_bytes().startswith(b"\x89PNG")
    for given, written in ((tmp_path, tmp_path / "ledger.png"), (tmp_path / "a.png", tmp_path / "a.png")):
        assert ledger(stream / "share", "--rows", 0, "--out", given)[0] == 0
        assert written.read_bytes().startswith(b"\x89PNG")
    assert ledger(stream, "--out", tmp_path / "none" / "a.png")[0] == 2


def test_a_broken_chain_ends_with_its_line_and_a_cut_one_with_a_note(stream, ledger, tmp_path):
    content = (stream / "share" / "ledger.jsonl").read_bytes()
    copy = tmp_path / "ledger.jsonl"
    copy.write_bytes(content[:-5])
    code, shown, _ = ledger(copy)
    assert code == 0 and "the chain holds, 29 entries." in shown and "Line 31 is not whole" in shown
    copy.write_bytes(content.replace(b'"step":17', b'"step":71'))
    code, shown, complaint = ledger(tmp_path)
    assert (code, shown) == (2, "") and "broken at line 18," in complaint


def test_charged_again_by_the_flags_of_the_stream(stream, ledger):
    total = math.fsum([alarm_charge(1e-4), *(entry["charge"] for entry in lines_of(stream))])
    code, shown, _ = ledger(stream, "--recompute", "--policy", "noise", "--sd", NOISE, "--rows", 30)
    assert code == 0 and "No step was charged too little." in shown
    assert f"Charged {total:.6g} nats, computed again {total:.6g} ±" in shown  # live charges are nearly exact
    assert sum("quadrature" in line for line in shown.splitlines()) == sum(
        entry["decision"] == "released" for entry in lines_of(stream)
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policy", "noise", "--sd", "0.31"], "another policy"),
        (["--policy", "noise", "--sd", "0.3", "--on-exhausted", "withhold"], "another policy"),
        (["--policy", "counterfactual"], "no charges to compute"),
        (["--policy", "noise"], "needs --sd"),
        (["--policy", "quantised", "--step", "0.3"], "fixed grid"),
        (["--on-exhausted", "blnd"], "Did you mean blind"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_another_policy_is_refused_with_what_to_do(stream, ledger, flags, words):
    code, _, complaint = ledger(stream, "--recompute", *flags)
    assert code == 2 and words in complaint


def test_other_mistakes_are_answered_with_what_to_do(stream, ledger, tmp_path):
    for arguments, words in (
        ([tmp_path], "`veil share` writes one"),
        ([tmp_path / "none"], "`veil share` writes one"),
        ([stream, "--rows", -1], "--rows"),
        ([stream, "--policy", "noise", "--sd", "0.3"], "for --recompute"),
    ):
        code, _, complaint = ledger(*arguments)
        assert code == 2 and words in complaint, arguments


def test_a_run_brings_its_own_policy(stream, ledger, tmp_path, monkeypatch):
    run_folder = tmp_path / "run"
    (run_folder / "share").mkdir(parents=True)
    (run_folder / "run.json").write_text("{}")
    (run_folder / "share" / "ledger.jsonl").write_bytes((stream / "share" / "ledger.jsonl").read_bytes())
    asked = []

    def build(self, system, name):
        asked.append((self.policy, type(system), name))
        return noise_policy()

    code, _, complaint = ledger(run_folder, "--recompute", "--policy", "blind")
    assert code == 2 and "its own policy" in complaint
    monkeypatch.setattr(PolicyChoice, "build", build)
    monkeypatch.setattr(recharge, "recompute_charges", lambda policy, account, report: [])
    assert ledger(run_folder, "--recompute")[0] == 0
    assert ledger(run_folder / "share" / "ledger.jsonl", "--recompute")[0] == 0
    assert asked == [(str(run_folder), Gain, "gain")] * 2


def test_a_step_that_was_charged_too_little_is_named_and_ends_with_1(stream, ledger, monkeypatch):
    rows = [recharge.RecomputedCharges(step, 0.01, 0.009, 0.0, "quadrature") for step in range(1, 31)]
    rows[11] = recharge.RecomputedCharges(12, 0.01, 0.013, 0.001, "quadrature")
    rows[20] = recharge.RecomputedCharges(21, 0.01, 0.0125, 0.0, "quadrature")
    rows[3] = recharge.RecomputedCharges(4, 0.01, 0.01, 0.0, "live")
    monkeypatch.setattr(recharge, "recompute_charges", lambda policy, account, report: rows)
    code, shown, _ = ledger(stream, "--recompute", "--policy", "noise", "--sd", NOISE)
    assert code == 1 and "Step 21 was charged 0.01 nats, too little: it leaked 0.0125, 0.0025 above" in shown
    assert "without a stronger method than their charge: 1;" in shown
    charges = {
        line.split()[0]: line.split()[-2] for line in shown.splitlines() if line.endswith("quadrature")
    }
    assert (charges["12"], charges["13"], charges["21"]) == ("0.013000", "0.009000", "0.012500")


def test_a_stream_with_private_memory_has_a_ledger_too(ledger, tmp_path):
    with Sharer(private_policy(), SECRET, seed=3, ledger=tmp_path / "ledger.jsonl", resolution=0.0) as sharer:
        run(sharer, Plant(1), 3)
        code, shown, _ = ledger(tmp_path)
    assert code == 0 and "0.00316979 nats (0.00457303 bits) charged; there is no budget." in shown
    assert "Largest" not in shown and "remaining" not in shown


def test_it_runs_while_another_process_holds_the_ledger(stream, ledger):
    held = [sys.executable, "-c", HOLD, str(stream / "share" / "ledger.jsonl")]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        code, shown, _ = ledger(stream)
        assert other.poll() is None
        other.communicate("")
    assert code == 0 and "30 entries" in shown


def test_on_a_terminal_the_bar_moves_and_elsewhere_a_line_tells(monkeypatch, capsys):
    with command.progress() as report:
        report(1, 2000)
        report(1000, 2000)
    assert capsys.readouterr().err == "charging again, 1000 of 2000\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with command.progress() as report:
        report(2, 2)
    assert "2/2" in capsys.readouterr().err

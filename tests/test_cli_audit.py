"""`veil audit` up to the engine and after it; the engine itself is tested elsewhere."""

import json
import math
import os
import sys

import pytest

from tests.evaluation import made_audits as made
from veil import policies
from veil.cli import audit as command
from veil.cli import main
from veil.cli.console import Mistake, grid, progress
from veil.cli.subject import PolicyChoice
from veil.registry import POLICIES
from veil.results import Audit
from veil.results.audit_tables import audit_tables
from veil.settings import AuditSettings
from veil.systems import Gain, Platoon

KINDS = made.every_kind()


@pytest.fixture
def engine(monkeypatch):
    """A stand-in for the engine; it tells what it was called with."""
    from veil import io as store
    from veil.evaluation import audit as engine

    calls = []

    def install(answer):
        def fake(system, policy, options, *, records, progress, store, executor):
            assert records is None
            calls.append((system, policy, options, store))
            progress("playing", 0, options.episodes)
            progress("playing", options.episodes, options.episodes)
            progress("playing", 0, options.episodes)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(engine, "audit", fake)
        monkeypatch.setattr(store, "Store", lambda folder, fingerprint: (folder, fingerprint))
        monkeypatch.setattr(main, "prepare", lambda: None)
        return calls

    return install


def run(*arguments):
    """The exit code of a command line."""
    try:
        main.main(["audit", *map(str, arguments)])
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plato"], "Did you mean platoon?"),
        (["--policy", "nois"], "Did you mean noise?"),
        (["--policy", "zzz"], "truth, noise"),
        (["--policy", "noise"], "Try --sd 0.1 0.1, in the units of speed [m/s], spacing [m]."),
        (["--policy", "quantised"], "needs --step"),
        (["--policy", "subsampled"], "needs --every"),
        (["--policy", "noise", "--sd", "one", "two"], "--sd takes a number; got 'one'"),
        (["--policy", "noise", "--sd", "0.1", "0"], "positive"),
        (["--policy", "noise", "--sd", "0.1", "inf"], "finite"),
        (["--policy", "noise", "--sd", "0.1"], "one number per shared axis: speed [m/s], spacing [m]"),
        (["gain", "--policy", "noise", "--sd", "1", "2"], "shared axis: level. It got 2"),
        (["--step", "50"], "--steps"),
        (["--sd", "1", "1"], "--policy truth takes no --sd"),
        (["--policy", "transport", "--particles", "-3"], "give a positive number"),
        (["--episodes", "7"], "--episodes 8, two per secret"),
        (["--interval", "-1"], "nats"),
        (["--seconds", "0"], "positive"),
        (["--seed", "-1"], "--seed"),
        (["--steps", "0"], "at least 1 step"),
        (["--episode", "9"], "--episodes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_with_what_to_do(arguments, hint, engine, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = engine(KINDS["certifiable"])
    assert run(*arguments) == 2
    assert hint in capsys.readouterr().err
    assert not calls and not list(tmp_path.iterdir())


def test_every_option_of_the_audit_is_a_flag(tmp_path):
    flags = ["--steps", "7", "--episodes", "99", "--seed", "3", "--interval", "0.1", "--seconds", "60"]
    flags += ["--learned", "--scenarios", "--no-assisted", "--distortion-limit", "4", "--training", "128"]
    parsed = main.parse(["audit", "gain", *flags, "--out", str(tmp_path), "--explain"])
    assert isinstance(parsed, command.Audit)
    assert parsed.extent == AuditSettings(7, 99, 3, 0.1, 60.0, True, "full", False, 4.0, 128)
    assert (parsed.system, parsed.folder, parsed.explain) == ("gain", tmp_path, True)


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        ([], "brief"),
        (["--scenarios"], "full"),
        (["--scenarios", "gain"], "full"),
        (["--scenarios", "brief"], "brief"),
        (["--scenarios=none"], "none"),
        (["--no-scenarios"], "none"),
    ],
)
def test_scenarios_are_brief_unless_all_or_none_are_asked_for(words, choice):
    parsed = main.parse(["audit", *words])
    assert isinstance(parsed, command.Audit) and parsed.extent.scenarios == choice
    assert parsed.system == ("gain" if "gain" in words else "platoon")


def test_without_flags_it_is_the_truth_about_a_platoon():
    parsed = main.parse(["audit"])
    assert isinstance(parsed, command.Audit) and parsed.extent == AuditSettings()
    assert parsed.folder.as_posix() == "audit/platoon-truth"


@pytest.mark.parametrize("written", [["0.25", "0.43"], ["0.25 0.43"], ["0.25,0.43"], ["0.25,", "0.43"]])
def test_numbers_may_be_written_in_several_ways(written):
    made = main.parse(["audit", "--policy", "noise", "--sd", *written])
    assert isinstance(made, command.Audit)
    policy = made.sharing.build(Platoon())
    assert isinstance(policy, policies.GaussianNoise)
    assert policy.sd.tolist() == pytest.approx([0.25, 0.43])


def test_each_name_builds_its_policy():
    system = Gain()
    kinds = {
        "truth": (PolicyChoice("truth"), policies.Truth),
        "noise": (PolicyChoice("noise", {"sd": (0.3,)}), policies.GaussianNoise),
        "quantised": (PolicyChoice("quantised", {"step": (0.3,)}), policies.Quantised),
        "subsampled": (PolicyChoice("subsampled", {"every": 5}), policies.Subsampled),
        "blind": (PolicyChoice("blind"), policies.Blind),
        "transport": (PolicyChoice("transport", {"particles": 16}), policies.Transport),
        "counterfactual": (PolicyChoice("counterfactual"), policies.Counterfactual),
    }
    assert kinds.keys() <= set(POLICIES)
    for choice, kind in kinds.values():
        assert type(choice.build(system)) is kind
    held = PolicyChoice("subsampled", {"sd": (0.3,), "every": 5}).build(system)
    assert isinstance(held, policies.Subsampled) and isinstance(held.inner, policies.GaussianNoise)
    moved = PolicyChoice("transport", {"particles": 16}).build(system)
    assert isinstance(moved, policies.Transport) and getattr(moved.tracker, "count", 0) == 16
    with pytest.raises(Mistake, match="takes no --particles"):
        PolicyChoice("blind", {"particles": 3}).build(system)


def test_an_audit_of_an_edited_file_is_another_audit(engine, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Audit, "save_pictures", lambda self, folder: [])
    calls, path = engine(KINDS["certifiable"]), tmp_path / "edited.py"
    for words, code in (("one", 0), ("one", 0), ("two", 2)):
        path.write_text(f"from veil.systems import Gain\n\n\nclass Mine(Gain):\n    '''{words}'''\n")
        monkeypatch.delitem(sys.modules, "veil_own_edited", raising=False)
        assert run(f"{path}:Mine", "--policy", "noise", "--sd", 0.2, "--out", tmp_path) == code
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / "parts" / "audit.txt").write_text(calls[-1][3][1])  # as the store does
    assert "holds another audit" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "veil_own_edited")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("certifiable", 0),
        ("certified_leak", 0),
        ("not_enough_particles", 3),
        ("filter_inconsistent", 3),
        ("replay_mismatch", 3),
        ("one_secret", 0),
    ],
)
def test_the_exit_code_tells_a_verdict_from_a_refusal(kind, code, engine, tmp_path, capsys, monkeypatch):
    drawn = [tmp_path / "posterior.png"]
    monkeypatch.setattr(Audit, "save_pictures", lambda audit, folder: drawn)
    calls = engine(KINDS[kind])
    assert run("--policy", "noise", "--sd", "0.25", "0.43", "--out", tmp_path) == code
    ((system, policy, options, (folder, fingerprint)),) = calls
    assert isinstance(system, Platoon) and isinstance(policy, policies.GaussianNoise)
    assert options == AuditSettings() and folder == tmp_path and len(fingerprint) == 64
    shown = capsys.readouterr()
    assert shown.err == "playing (1024)\n"
    assert f"Verdict: {KINDS[kind].verdict.name.replace('_', ' ')}." in shown.out
    assert json.loads((tmp_path / "audit.json").read_text())["verdict"] == KINDS[kind].verdict.name
    for name in ("audit.json", "audit.csv", "posterior.png"):
        assert str(tmp_path / name) in shown.out


def test_an_audit_does_not_replace_another_one_unless_it_is_told_to(engine, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Audit, "save_pictures", lambda self, folder: [])
    calls = engine(KINDS["certifiable"])
    noise = ["gain", "--policy", "noise", "--out", tmp_path, "--sd"]
    assert run(*noise, 0.2) == 0
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "audit.txt").write_text(calls[0][3][1])  # as the store does
    assert run(*noise, 0.2) == 0  # the same once more
    for other in ([*noise, 0.3], [*noise, 0.2, "--episodes", 99], ["gain", "--out", tmp_path]):
        before = (tmp_path / "audit.json").read_bytes()
        assert run(*other) == 2
        refusal = capsys.readouterr().err
        assert f"{tmp_path} holds another audit: " in refusal and "--again" in refusal and "--out" in refusal
        assert (tmp_path / "audit.json").read_bytes() == before
    assert run(*noise, 0.3, "--again") == 0 and len(calls) == 3


def test_the_audit_of_a_policy_that_was_trained_anew_is_replaced(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(Audit, "save_pictures", lambda self, folder: [])
    engine(KINDS["certifiable"])
    assert run("gain", "--out", tmp_path / "audit") == 0
    (tmp_path / "policy.safetensors").write_text("")
    os.utime(tmp_path / "audit" / "audit.json", (0, 0))
    assert run("gain", "--out", tmp_path / "audit") == 0


def test_ctrl_c_says_that_the_same_command_goes_on(engine, tmp_path, capsys):
    engine(KeyboardInterrupt())
    assert run("--out", tmp_path) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_a_mistake(engine, tmp_path, capsys):
    calls = engine(KINDS["certifiable"])
    (tmp_path / "file").write_text("")
    assert run("--out", tmp_path / "file" / "audit") == 2
    assert "veil audit:" in capsys.readouterr().err and not calls


def show(audit, *, explain):
    for table in audit_tables(audit, explain=explain):
        grid(*table)


def test_tables_hold_the_numbers_and_explain_adds_the_gate(capsys):
    audit = KINDS["uneven_prior"]
    show(audit, explain=False)
    short = capsys.readouterr().out
    for part in ("0.300 ± 0.002", "0.310 ± 0.002", f"[{0.3166 / math.log(2):.3f}", "knows the first state"):
        assert part in short or part[1:] in short
    assert "tracking error, speed" in short and "1.3 ± 0.2" in short and "unknown" in short
    assert "secrets between" in short and "idm drivers" in short
    assert "lower best" not in short
    show(audit, explain=True)
    full = capsys.readouterr().out
    assert (
        full.startswith(short[:200])
        and "lower best" in full
        and "speed gain 0.4 1/s, difference gain 0.5 1/s" in full
    )


def test_on_a_terminal_the_tables_are_ruled_and_bars_move(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    show(KINDS["certifiable"], explain=False)
    with progress() as report:
        for done, total in ((0, 4), (4, 4), (0, 8), (8, 8)):
            report("playing", done, total)
    shown = capsys.readouterr()
    assert "━" in shown.out and "Kalman bank" in shown.out
    assert "8/8" in shown.err

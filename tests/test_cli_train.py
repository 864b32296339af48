"""`veil train` on a tiny problem, and what other commands make of its folder."""

import hashlib
import json
import platform
import shlex
import shutil
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.command_lines import quick, veil
from veil import policies
from veil.cli import main, train
from veil.cli.audit import Audit
from veil.cli.console import Mistake
from veil.cli.subject import PolicyChoice
from veil.cli.subject import train_command as command
from veil.io import StoreError
from veil.learners import run as runs
from veil.learners import training
from veil.problem import Objective
from veil.registry import LEARNERS, POLICIES
from veil.settings import ObjectiveWeights, PolicyDesign, TrainSettings
from veil.systems import Gain

TINY = [
    "gain",
    "--steps",
    "3",
    "--updates",
    "4",
    "--evaluate-every",
    "2",
    "--evaluation-episodes",
    "6",
    "--episodes",
    "3",
]
TINY += ["--width", "4"]


@pytest.fixture(scope="module", autouse=True)
def unhurried():
    with quick():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One training, and what it printed."""
    folder = tmp_path_factory.mktemp("run") / "new"
    return folder, veil("train", *TINY, "--out", folder)


@pytest.fixture
def run(trained, tmp_path):
    """A copy of its folder."""
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


@pytest.fixture
def engine(monkeypatch):
    """A stand-in for training; it tells what it found in the folder."""
    calls = []

    def fake(settings, system, folder, report, loggers):
        calls.append((settings, sorted(path.name for path in folder.iterdir())))
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_run", fake)
    return calls


def stop_after(monkeypatch, update):
    """Ctrl-C as soon as this update is reported."""

    def tell(line):
        if line["update"] == update:
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "_lines", lambda updates: tell)


def change(folder, edit):
    content = json.loads((folder / "run.json").read_text())
    edit(content)
    (folder / "run.json").write_text(json.dumps(content))


def test_training_fills_a_folder_and_says_what_to_do_next(trained):
    folder, (code, out, err) = trained
    assert code == 0, err
    files = ["checkpoint.safetensors", "config.toml", "environment.json", "learning.png", "metrics.jsonl"]
    files += ["policy.json", "policy.safetensors", "run.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert all(str(folder / name) in out for name in files)
    assert f"  veil audit {folder}\n" in out, "an audit takes the steps of the run"
    assert "of H(q) = 1.099 nats" in out and "all updates made" in out
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == [f"update {k} of 4" for k in (0, 2, 4)]
    assert (folder / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_the_folder_says_how_it_was_trained_and_what_came_out(trained):
    content = json.loads((trained[0] / "run.json").read_text())
    assert content["system"] == "gain" and content["steps"] == 3 and content["leakage"] == "estimate"
    assert content["design"] == asdict(PolicyDesign(width=4)) | {"reach": []} and content[
        "objective"
    ] == asdict(ObjectiveWeights())
    assert content["training"] == asdict(
        TrainSettings(updates=4, episodes=3, evaluate_every=2, evaluation_episodes=6)
    )
    last = [line for line in runs.history(trained[0]) if line["update"] == content["result"]["best"]]
    for line in last:  # the kept policy is evaluated once more in the end: the very same numbers
        assert content["result"]["upper"] == line["upper"] and content["result"]["cost"] == line["fresh_cost"]
    assert content["result"]["updates"] == 4


def test_the_file_of_settings_in_the_folder_makes_the_same_again(trained, tmp_path):
    again = main.parse(
        ["train", "--config", str(trained[0] / "config.toml"), "--out", str(tmp_path / "other")]
    )
    assert isinstance(again, train.Train) and again.settings == runs.Run.load(trained[0]).settings
    folder = tmp_path / "ready"
    assert veil("train", "gain", "--policy", "noise", "--sd", "0.3", "--seed", "4", "--out", folder)[0] == 0
    ready = main.parse(["train", "--config", str(folder / "config.toml")])
    assert isinstance(ready, train.Train) and ready.settings == runs.Run.load(folder).settings
    assert "updates" not in (folder / "config.toml").read_text()  # nothing was trained


def test_the_manifest_says_what_the_arrays_are(trained):
    """Every array at its path in the policy, and the numbers that are not arrays."""
    from importlib.metadata import version

    from safetensors.numpy import load_file

    arrays, found = (
        load_file(trained[0] / "policy.safetensors"),
        json.loads((trained[0] / "policy.json").read_text()),
    )
    with jax.enable_x64(True):
        policy = runs.load_policy(trained[0], Gain())
    for one in found["arrays"]:
        array = arrays.pop(one["name"])
        leaf = eval(f"policy{one['path']}", {"policy": policy})
        assert one["shape"] == list(array.shape) and one["dtype"] == str(array.dtype)
        assert np.array_equal(array, np.asarray(leaf, array.dtype)), one["path"]
    assert not arrays and found["schema"] == 1 and found["dtype"] == "float32"
    assert found["particles_per_secret"] == 0 and found["thresholds"]["low_limit"] == pytest.approx(0.05)
    assert found["sha256"] == hashlib.sha256((trained[0] / "policy.safetensors").read_bytes()).hexdigest()
    machine = json.loads((trained[0] / "environment.json").read_text())
    assert machine["python"] == platform.python_version() and machine["machine"] == platform.machine()
    assert all(version(name) == given for name, given in machine["packages"].items())
    assert platform.node() not in (trained[0] / "environment.json").read_text()


def test_the_manifest_of_particles_says_how_many_and_when_they_are_resampled(tmp_path):
    folder = tmp_path / "run"
    assert veil("train", "gain", "--policy", "transport", "--particles", 16, "--out", folder)[0] == 0
    found = json.loads((folder / "policy.json").read_text())
    assert found["particles_per_secret"] == 16 and found["thresholds"] == {"effective_share": 0.5}
    assert found["dtype"] == "float64" and found["policy"] == "Transport"


def test_a_loaded_policy_is_the_trained_one(trained):
    """Looked at once more it gives the numbers of the file."""
    from veil.learners import evaluate_family
    from veil.problem import Problem
    from veil.systems.scenarios import nominal
    from veil.types import as_float32, as_float64

    with jax.enable_x64(True):
        policy = runs.load_policy(trained[0], as_float64(as_float32(Gain())))  # as it was trained
    assert isinstance(policy, policies.ResidualPolicy) and policy.network.layers[0].weight.dtype == "float64"
    with jax.enable_x64(False):
        score = evaluate_family((Problem(nominal(as_float32(Gain())), 3, Objective()),), policy, 6, 0)
    result = runs.Run.load(trained[0]).result
    assert result is not None
    assert (score.leakage.upper.value, score.cost.value) == pytest.approx(
        (result.upper, result.cost), abs=1e-12
    )


def test_the_same_command_trains_once(run, engine):
    code, out, err = veil("train", *TINY, "--out", run)
    assert code == 0 and not engine, err
    assert "Already trained" in out and f"veil audit {run}" in out


def test_an_interrupted_training_goes_on_with_the_same_bits(trained, tmp_path, monkeypatch):
    folder = tmp_path / "new"
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        code, _, err = veil("train", *TINY, "--out", folder)
    assert code == 130 and "Stopped after update 3. The same command goes on from update 2" in err
    code, _, err = veil("audit", "gain", "--policy", folder)
    words = "--steps 3 --updates 4 --episodes 3 --evaluate-every 2 --evaluation-episodes 6 --width 4"
    assert code == 2 and "not finished" in err and f"veil train gain {words} --out {folder}" in err
    code, _, err = veil("train", *TINY, "--out", folder)
    assert code == 0 and "going on after update 2" in err
    assert (folder / "policy.safetensors").read_bytes() == (trained[0] / "policy.safetensors").read_bytes()
    ours, theirs = runs.history(folder), runs.history(trained[0])
    assert [{**line, "seconds": 0} for line in ours] == [{**line, "seconds": 0} for line in theirs]


def test_a_damaged_checkpoint_is_reported_and_training_begins_again(run, trained):
    change(run, lambda content: (content.pop("result"), content.pop("policy")))
    content = (run / "checkpoint.safetensors").read_bytes()
    (run / "checkpoint.safetensors").write_bytes(content[: len(content) // 2])
    code, _, err = veil("train", *TINY, "--out", run)
    assert code == 0 and "checkpoint.safetensors is damaged, so training begins again" in err
    assert "going on" not in err
    assert (run / "policy.safetensors").read_bytes() == (trained[0] / "policy.safetensors").read_bytes()


def cut(folder):
    path = folder / "run.json"
    path.write_text(path.read_text()[:-20])


def flip(folder):
    path = folder / "policy.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "hint"),
    [
        (cut, "is not the file of a run"),
        (lambda run: (run / "run.json").write_text("[]"), "is not the file of a run"),
        (lambda run: change(run, lambda c: c.update(veil="9.9.0")), "was made by veil 9.9.0"),
        (lambda run: change(run, lambda c: c.pop("veil")), "is not the file of a run"),
        (lambda run: change(run, lambda c: c.pop("steps")), "it needs system, steps"),
        (lambda run: change(run, lambda c: c["design"].pop("floor")), "it needs start, encoder"),
        (lambda run: change(run, lambda c: c["design"].update(width=-4)), "at least 1"),
        (lambda run: change(run, lambda c: c["design"].update(width="4")), "width cannot be '4'"),
        (lambda run: change(run, lambda c: c.update(leakage="none")), "leakage cannot be 'none'"),
        (
            lambda run: change(run, lambda c: c["objective"].update(privacy_weight=1)),
            "do not belong together",
        ),
        (lambda run: change(run, lambda c: c["result"].update(upper=0.0)), "do not belong together"),
        (lambda run: change(run, lambda c: c.update(policy="")), "do not belong together"),
        (flip, "do not belong together"),
        (lambda run: (run / "policy.safetensors").unlink(), "missing or was changed"),
    ],
)
def test_damaged_files_are_noticed_by_every_command(damage, hint, run, engine):
    damage(run)
    with pytest.raises(StoreError, match="again"):
        runs.Run.load(run)
    for arguments in (["train", *TINY, "--out", run], ["audit", "gain", "--policy", run]):
        code, _, err = veil(*arguments)
        assert code == 2 and hint in err and "veil train --again" in err, err
    assert not engine
    assert veil("train", *TINY, "--out", run, "--again")[0] == 130 and len(engine) == 1


def test_a_run_with_other_settings_is_not_overwritten_unless_asked(run, engine):
    before = (run / "run.json").read_bytes()
    code, _, err = veil("train", *TINY, "--out", run, "--seed", "7")
    assert code == 2 and "other settings: veil train gain" in err and "--again" in err and "--out" in err
    assert not engine and (run / "run.json").read_bytes() == before
    assert veil("train", *TINY, "--out", run, "--seed", "7", "--again")[0] == 130
    ((settings, files),) = engine
    assert settings.training.seed == 7 and "policy.safetensors" not in files
    assert "checkpoint.safetensors" not in files and runs.Run.load(run) == runs.Run(settings)


def test_stopping_before_the_first_evaluation_says_that_it_begins_again(tmp_path, engine):
    code, _, err = veil("train", *TINY, "--out", tmp_path / "new")
    assert code == 130 and "Stopped after update 0. The same command begins again" in err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["gian"], "Did you mean gain?"),
        (["--steps", "0"], "at least --steps 1"),
        (["--seed", "-1"], "--seed"),
        (["--start", "noise"], "transport"),
        (["--privacy-weight", "-1"], "cost units per nat"),
        (["--distortion-limit", "0"], "are positive"),
        (["--parts", "2"], "--start plain"),
        (["--floor", "2"], "between 0 and 1"),
        (["--updates", "0"], "at least 1"),
        (["--learning-rate", "0"], "must be positive"),
        (["--update", "9"], "--updates"),
        (["--leakage", "bound"], "closed_form"),
        (["--policy", "pathwize"], "Did you mean pathwise?"),
        (["--policy", "a2c", "--start", "plain"], "learns with --start grid"),
        (["--policy", "ddpg", "--robust"], "needs the learner pathwise"),
        (["--policy", "ddpg", "--sd", "1", "1"], "is for policies that need no training: "),
        (["--policy", "noise"], "needs --sd"),
        (["--policy", "noise", "--sd", "1"], "one number per shared axis"),
        (["--learner", "ddpg"], "there is no flag --learner"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_with_what_to_do(arguments, hint, tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = veil("train", *arguments)
    assert code == 2 and hint in out + err
    assert not engine and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_mistake(tmp_path, engine):
    (tmp_path / "file").write_text("")
    code, _, err = veil("train", *TINY, "--out", tmp_path / "file" / "run")
    assert code == 2 and "veil train:" in err and not engine


def test_every_field_is_a_flag_with_its_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = veil("train", "--help")
    assert code == 0
    for field in (*fields(PolicyDesign), *fields(TrainSettings), *fields(ObjectiveWeights)):
        name = "" if field.metadata.get("hidden") else field.name
        flag, value = f"  --{name.replace('_', '-')} ", field.default
        shown = value if isinstance(value, str | tuple) else f"{value:g}"
        default = "" if value is False or value == () else f"(default: {shown})"
        assert (flag in out and default in out.partition(flag)[2][:300]) == bool(name), field.name
    assert all(word in out for word in ("nat", "cost units", "spreads of the output", "runs/SYSTEM-POLICY"))


def test_the_flags_are_those_of_the_library():
    given, usual = ObjectiveWeights(), Objective()
    for field in fields(ObjectiveWeights):
        if field.name != "privacy_per_step":  # another way of saying privacy_weight
            assert getattr(given, field.name) == pytest.approx(float(getattr(usual, field.name)))
    parsed = main.parse(["train"])
    assert isinstance(parsed, train.Train) and parsed.folder.as_posix() == "runs/platoon-pathwise"


def test_the_command_that_is_told_trains_the_same():
    usual = train.Train().settings
    other = runs.Settings(
        *(
            "gain",
            7,
            PolicyDesign("plain", "mgf", 2, 9, "bootstrap", 0.1, 8),
            ObjectiveWeights(5.0, 0.3, 2.0),
        ),
        *(TrainSettings(7, 8, 1e-3, 2, 9, 0, True, 5), "kl_chernoff"),
    )
    paper = LEARNERS["ddpg_printed"]()
    long = replace(paper.training, updates=200)
    printed = runs.Settings("platoon", 50, paper.design, ObjectiveWeights(), long, paper.leakage)
    preset = LEARNERS["a2c"]()
    grid = runs.Settings(
        "gain", 50, replace(preset.design, points=7), ObjectiveWeights(), preset.training, "estimate"
    )
    moved = runs.Ready("platoon", POLICIES["transport"]((0.06, 0.1), particles=16, displacement=0.5))
    held = runs.Ready("gain", POLICIES["subsampled"](every=5))
    for settings in (usual, other, printed, grid, moved, held):
        words = shlex.split(command(settings, Path("some where")))
        parsed = main.parse(words[1:])
        assert isinstance(parsed, train.Train)
        assert words[0] == "veil" and parsed.settings == settings and parsed.folder == Path("some where")


def test_a_trained_policy_is_audited_for_its_own_system_only(run):
    choice = PolicyChoice(str(run))
    assert Audit("gain", choice).folder == run / "audit"
    with pytest.raises(Mistake, match="name that one: gain"):
        choice.build(Gain(), "platoon")
    with pytest.raises(Mistake, match="takes no --sd"):
        PolicyChoice(str(run), {"sd": (0.1,)}).check()
    with pytest.raises(Mistake, match=r"no run.json in it"):
        PolicyChoice(str(run.parent)).check()
    with pytest.raises(Mistake, match="folder of a `veil train`"):
        PolicyChoice(str(run / "nowhere")).check()


WITHOUT = ("--no-assisted", "--no-scenarios")


@pytest.mark.study
def test_an_audit_reads_the_folder(run):
    code, out, err = veil("audit", "gain", "--policy", run, "--steps", 3, "--episodes", 6, *WITHOUT)
    assert code in (0, 3), err
    content = json.loads((run / "audit" / "audit.json").read_text())
    assert content["policy"] == "ResidualPolicy" and "Verdict" in out


def test_transport_goes_as_far_as_it_is_told():
    moved = PolicyChoice("transport", {"displacement": 0.25}).build(Gain())
    assert isinstance(moved, policies.Transport) and float(moved.displacement) == 0.25
    with pytest.raises(Mistake, match="between 0 and 1"):
        PolicyChoice("transport", {"displacement": 1.5}).check()
    with pytest.raises(Mistake, match="that is for transport"):
        PolicyChoice("blind", {"displacement": 0.0}).check()


def test_on_a_terminal_one_bar_tells_the_trade_off(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    line = {"update": 0.0, "lower": 0.01, "upper": 0.02, "fresh_cost": 3.0, "fresh_distortion": 1.5}
    step = {"update": 1.0, "leakage": 0.015, "cost": 3.5, "distortion": 1.25, "price": 0.25}
    with train.progress(4, tmp_path) as report:
        report(line)
        report(step)
    shown = capsys.readouterr().err
    assert "1/4" in shown
    assert "leakage 0.0150 nats, distortion 1.25, cost 3.5, price 0.25" in shown
    assert "evaluation at 0: leakage 0.0100 to 0.0200 nats" in shown

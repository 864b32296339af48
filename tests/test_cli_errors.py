"""What goes wrong at the doors: one sentence, exit code 2, no traceback, whatever the command."""

import contextlib
import importlib
import resource
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from tests.command_lines import quick, veil
from veil import frontier
from veil.cli import main
from veil.cli.parser import settings
from veil.evaluation import audit as engine
from veil.io import save_arrays
from veil.learners import run as runs
from veil.learners import training
from veil.learners.manifest import SCHEMA
from veil.learners.run import CHECKPOINT

SECRET = ["--secret-file", "secret.json"]
TINY = [
    "gain",
    "--steps",
    2,
    "--updates",
    1,
    "--evaluate-every",
    1,
    "--evaluation-episodes",
    6,
    "--episodes",
    3,
    "--width",
    2,
]


@pytest.fixture(scope="module", autouse=True)
def unhurried():
    with quick():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that needed no training."""
    folder = tmp_path_factory.mktemp("runs") / "transport"
    assert veil("train", "gain", "--policy", "transport", "--out", folder)[0] == 0
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of it, and a secret beside it."""
    monkeypatch.chdir(tmp_path)
    Path("secret.json").write_text("1")
    Path("secret.json").chmod(0o600)
    Path("file").write_text("")
    return Path(shutil.copytree(finished, "run"))


def message(*arguments):
    """The one sentence, behind progress if there was any."""
    code, out, err = veil(*arguments)
    assert code == 2 and "Traceback" not in out + err, (code, out, err)
    *progress, sentence = err.splitlines()
    assert sentence.startswith(f"veil {arguments[0]}: "), err
    assert not any(line.startswith("veil") for line in progress), err
    return sentence


@pytest.mark.parametrize("command", main.COMMANDS)
def test_a_flag_and_a_setting_that_are_misspelt_get_the_nearest_one(command, run):
    kind = getattr(importlib.import_module(f"veil.cli.{command}"), command.capitalize())
    known = settings(kind)
    flags = [one for one in known if not one.positional]
    for one in flags:
        wrong = one.flag[:-1] + one.flag[-1] * 2  # an echo at the end
        if wrong not in {other.flag for other in known}:
            assert f"there is no flag {wrong}. Did you mean {one.flag}?" in message(command, wrong, "1")
            break
    for one in known:
        wrong = one.name[:-1] + one.name[-1] * 2
        Path("some.toml").write_text(f"{wrong} = 1")
        hint = f"some.toml: there is no setting '{wrong}'. Did you mean {one.name}?"
        assert hint in message(command, "--config", "some.toml")
    assert flags or command == "systems"


READERS = {
    "audit": ["audit"],
    "simulate": ["simulate"],
    "share": ["share", *SECRET],
    "report": ["report"],
    "measure": ["measure", "log.csv", "--system", "gain", "--policy"],
}


@pytest.mark.parametrize("command", [*READERS, "ledger"])
def test_a_folder_that_is_not_there_is_named(command, run):
    words = READERS.get(command, [command])
    Path("log.csv").write_text("level,push\n0.1,0.2\n0.3,0.1\n")
    assert "runs/none" in message(*words, "runs/none")


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def unfinished(folder):
    """As a training that was stopped leaves it."""
    made = main.parse(["train", *map(str, TINY)])
    runs.clear(folder)
    runs.begin(folder, made.settings)  # pyright: ignore[reportAttributeAccessIssue]


DAMAGES = {
    "settings that were cut": (lambda run: cut(run / "run.json"), "is not the file of a run"),
    "settings that are a list": (lambda run: (run / "run.json").write_text("[]"), "is not the file of a run"),
    "settings of another kind": (
        lambda run: (run / "run.json").write_text('{"veil": "0.1.0", "named": 3}'),
        "was changed",
    ),
    "no policy": (lambda run: (run / "policy.safetensors").unlink(), "do not belong together"),
    "a policy that was cut": (lambda run: cut(run / "policy.safetensors"), "do not belong together"),
    "a policy that was changed": (lambda run: flip(run / "policy.safetensors"), "do not belong together"),
    "unfinished": (unfinished, "is not finished"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["audit", "simulate", "share", "report"])
def test_a_run_that_is_damaged_or_not_finished_is_refused(command, damage, run):
    harm, hint = DAMAGES[damage]
    harm(run)
    assert hint in message(*READERS[command], run)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("{", "is not the manifest"),
        ("[]", "is not the manifest"),
        (f'{{"schema": {SCHEMA + 1}}}', "has schema"),
    ],
)
@pytest.mark.parametrize("command", ["audit", "simulate", "share"])
def test_a_manifest_that_is_not_understood_is_refused(command, content, hint, run):
    (run / "policy.json").write_text(content)
    assert hint in message(*READERS[command], run)


def test_metrics_that_were_changed_are_refused_by_the_report(run):
    (run / "metrics.jsonl").write_text('{"upper": 1.0}\n')
    assert "metrics.jsonl was changed" in message("report", run)


def out_of(command, run):
    """The command line of a command, up to where it writes to."""
    return {
        "audit": ["audit", run, "--out"],
        "train": ["train", *TINY, "--out"],
        "simulate": ["simulate", run, "--episodes", 3, "--steps", 2, "--out"],
        "frontier": ["frontier", "gain", "--out"],
        "demo": ["demo", "--fast", "--out"],
    }[command]


@pytest.mark.parametrize("command", ["audit", "train", "simulate", "frontier", "demo"])
def test_a_place_below_a_file_is_no_place_to_write_to(command, run):
    assert "file" in message(*out_of(command, run), Path("file") / "new" / "some.npz")


@contextlib.contextmanager
def full_disk(size=0):
    """No file may grow beyond so many bytes; compiled programs are not kept, or they would be cut short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    reset_cache()  # whether there is one is asked once
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        jax.config.update("jax_enable_compilation_cache", kept)
        reset_cache()


@pytest.mark.parametrize("command", ["audit", "train", "simulate", "frontier"])
def test_a_full_disk_ends_a_command_with_a_sentence_and_leaves_no_half_file(command, run, monkeypatch):
    def stage(*_, store=None, folder=Path(), **__):  # as the engines write
        (store.folder if store else folder / "points").joinpath("x").write_bytes(b"x" * 100)

    monkeypatch.setattr(engine, "audit", stage)
    monkeypatch.setattr(frontier, "trace_frontier", stage)
    Path("new/points").mkdir(parents=True)
    with full_disk():
        assert "File too large" in message(*out_of(command, run), "new")
    assert not [path for path in Path().rglob("*.part*")]


def test_a_training_on_a_disk_that_fills_up_says_so_and_keeps_its_settings(run, monkeypatch):
    def fit(settings, system, folder, report, loggers):
        save_arrays(folder / CHECKPOINT, np.zeros(1000))

    monkeypatch.setattr(training, "train_run", fit)
    with full_disk(5000):  # room for the settings, not for the checkpoint
        assert "File too large" in message("train", *TINY, "--out", "new")
    assert not runs.Run.load(Path("new")).finished and not list(Path("new").glob("*.partial"))


def test_a_command_that_does_not_exist_gets_the_nearest_one():
    code, out, err = veil("trian")
    assert (code, out) == (2, "") and "Did you mean train?" in err and err.startswith("veil: ")

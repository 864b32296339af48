"""`--resolution`: every command puts the same sensor before the system, and says so."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.command_lines import quick, veil
from tests.evaluation import made_audits as made
from veil.checks.system import check_system
from veil.cli import main, train
from veil.cli.console import Mistake
from veil.cli.subject import SensorChoice, train_command
from veil.evaluation import audit as engine
from veil.learners.run import Run
from veil.reports.leakage_sections import threat_section
from veil.reports.run_sections import ledger_section
from veil.reports.sources import Material, Source
from veil.results import Audit
from veil.results.text import CONTINUOUS, sensing
from veil.systems import Field, Gain, Platoon, name_of, resolution_of, with_resolution

OWN = '''
"""A loop read in steps."""

from veil.systems import Field, Gain


class Stepped(Gain):
    """A loop that is read in steps of 0.1."""

    state_fields = (Field("level", "m", resolution=0.1),)
    shared_fields = (Field("level", "m", resolution=0.1),)


class Half(Gain):
    """A loop whose releases are finer than its states."""

    state_fields = (Field("level", "m", resolution=0.1),)
'''


@pytest.fixture(scope="module", autouse=True)
def unhurried():
    with quick():
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("stepped.py").write_text(OWN)
    Path("log.csv").write_text("level,push\n1,0\n2,0\n3,1\n")
    Path("secret.json").write_text('{"index": 0}')
    Path("secret.json").chmod(0o600)
    return tmp_path


def on_grid(values, step):
    return np.allclose(values / step, np.round(values / step), atol=1e-9)


def shared(path):
    with np.load(path, allow_pickle=False) as file:
        return file["shared"]


@pytest.mark.parametrize(
    "words, steps",
    [
        *(("", None), ("0.01", 0.01), ("0", 0.0), ("1e-3", 0.001)),
        *(("speed=0.01,spacing=0.1", {"speed": 0.01, "spacing": 0.1}), ("level=2", {"level": 2.0})),
        ("speed=0.01 spacing=.1", {"speed": 0.01, "spacing": 0.1}),
    ],
)
def test_one_number_or_one_per_field(words, steps):
    assert SensorChoice(words).steps() == steps


@pytest.mark.parametrize("words", ["-1", "nan", "inf", "fine", "speed=", "=0.1", "a=1,a=2", "0.1,a=1", "1,2"])
def test_what_is_no_step_is_refused_with_an_example(words):
    with pytest.raises(Mistake, match="--resolution"):
        SensorChoice(words)


@pytest.mark.parametrize(
    "command",
    [
        *(
            "audit gain",
            "simulate gain",
            "train gain --policy quantised --step 0.1",
            "frontier gain",
            "train gain",
        ),
        *("measure log.csv --system gain", "share gain --secret-file secret.json"),
    ],
)
def test_a_name_that_no_field_has_is_one_line_that_says_what_to_write(command, here):
    code, out, err = veil(*shlex.split(command), "--resolution", "speed=0.1")
    said = "--resolution: Give a resolution for each of level: there is no field speed. Example: level=0.01."
    assert (code, out) == (2, "") and err == f"veil {command.split()[0]}: {said}\n"


def test_releases_of_a_simulation_lie_on_the_grid_and_the_hint_keeps_the_flag(here):
    words = ["simulate", "gain", "--policy", "noise", "--sd", 0.3, "--episodes", 6, "--steps", 5]
    code, out, err = veil(*words, "--resolution", "level=0.25", "--out", "grid.npz")
    assert code == 0, err
    assert on_grid(shared("grid.npz"), 0.25) and len(np.unique(shared("grid.npz"))) > 3
    assert "veil audit gain --policy noise --sd 0.3 --resolution level=0.25 --transcripts grid.npz" in out


def test_a_run_keeps_its_resolution_and_the_command_line_wins(here):
    assert (
        veil("train", "gain", "--policy", "noise", "--sd", 0.3, "--resolution", 0.25, "--out", "run")[0] == 0
    )
    assert json.loads(Path("run/run.json").read_text())["resolution"] == {"level": 0.25}
    settings = Run.load("run").settings
    assert settings.resolution == {"level": 0.25}
    assert (
        train_command(settings, Path("run"))
        == "veil train gain --policy noise --sd 0.3 --resolution 0.25 --out run"
    )
    size = ["--episodes", 6, "--steps", 5]
    for words, step in ((["run"], 0.25), (["gain", "--policy", "run"], 0.25)):
        assert veil("simulate", *words, *size, "--out", "own.npz")[0] == 0
        assert on_grid(shared("own.npz"), step)
    assert veil("simulate", "run", *size, "--resolution", 0.4, "--out", "given.npz")[0] == 0
    assert on_grid(shared("given.npz"), 0.4) and not on_grid(shared("given.npz"), 0.25)
    assert veil("simulate", "run", *size, "--resolution", 0, "--out", "real.npz")[0] == 0
    assert not on_grid(shared("real.npz"), 0.4) and not on_grid(shared("real.npz"), 0.25)
    code, _, err = veil("train", "gain", "--policy", "noise", "--sd", 0.3, "--out", "run")
    assert (
        code == 2
        and "other settings: veil train gain --policy noise --sd 0.3 --resolution 0.25 --out run" in err
    )


def test_the_file_of_a_training_gives_its_resolution_again(here):
    words = ["--steps", "3", "--resolution", "speed=0.01,spacing=0.1"]
    asked = main.parse(["train", "platoon", *words])
    assert isinstance(asked, train.Train)
    asked.begin()
    again = main.parse(["train", "--config", str(asked.folder / train.CONFIG)])
    assert again == asked and asked.settings.resolution == {"speed": 0.01, "spacing": 0.1}
    plain = replace(asked, sensor=SensorChoice(), out=Path("plain"))
    plain.begin()
    assert "resolution" not in Path("plain", train.CONFIG).read_text()


def test_an_audit_says_what_its_sensor_rounds_to_in_all_its_words(here, monkeypatch):
    """Attacks, use and pictures are left out: they say nothing about the sensor, and take long."""
    for name, nothing in (("_attack_stages", []), ("_true_use", {}), ("_utility", ())):
        monkeypatch.setattr(engine, name, lambda *_, it=nothing: it)
    monkeypatch.setattr(Audit, "save_pictures", lambda audit, folder: [])
    size = ["--episodes", 6, "--steps", 1, "--no-assisted", "--no-scenarios"]
    code, out, err = veil("audit", "gain", "--policy", "blind", *size, "--resolution", 0.5, "--out", "audit")
    assert code == 0, err
    found, said = Audit.load("audit"), sensing(*[(Field("level", resolution=0.5),)] * 2)
    assert said == "States are read in steps of 0.5, and releases are emitted in the same steps."
    line = json.loads(Path("audit/audit.json").read_text())
    assert line["resolution"] == {"level": 0.5} and line["system"] == "gain" and said in line["threat_model"]
    assert found.resolution == {"level": 0.5} and found.system == "gain"
    assert said in " ".join(out.split()) and "with_resolution" not in out
    assert found.policy_flags == ("--policy", "blind", "--resolution", "0.5")
    code, _, err = veil("audit", "gain", "--policy", "blind", *size, "--out", "audit")
    assert code == 2 and "--resolution 0.5" in err and "--again" in err  # another audit is in the folder


def test_a_continuous_audit_says_that_a_real_sensor_rounds():
    found = made.audit()
    assert CONTINUOUS in found.threat_model and CONTINUOUS in found.summary() and found.resolution == {}
    assert CONTINUOUS.endswith("audit with --resolution.")


def test_reports_say_it_and_their_commands_keep_the_flag():
    said = "States are read in steps of 0.1, and releases are emitted in the same steps."
    flags = ("--policy", "noise", "--sd", "0.3", "--resolution", "0.1")
    found = replace(made.audit(), sensing=said, resolution={"level": 0.1}, policy_flags=flags, place="gain")
    source = Source(Path("audit"), "one", None, found, None, {})
    section = threat_section(Material("", (source,), {}))
    assert said in str(section) and CONTINUOUS not in str(section)
    assert "--sd 0.3 --resolution 0.1" in source.audit_command()
    assert "--resolution 0.1 --secret-file" in str(ledger_section(Material("", (source,), {})))


@pytest.mark.parametrize(
    "system, said",
    [
        (
            with_resolution(Platoon(), 0.01),
            "0.01 m/s and 0.01 m, and releases are emitted in the same steps.",
        ),
        (with_resolution(Platoon(), {"speed": 1e-3, "spacing": 0.1}), "steps of 0.001 m/s and 0.1 m, and"),
        (with_resolution(Gain(), 0.5), "States are read in steps of 0.5, and releases"),
        (with_resolution(Gain(), 0.0), CONTINUOUS),
        (Platoon(), CONTINUOUS),
    ],
)
def test_the_sentence_has_the_steps_with_their_units(system, said):
    assert said in sensing(system.state_fields, system.shared_fields)


def test_the_sentence_names_what_the_units_do_not_tell_apart():
    two = Field("room", "K", resolution=0.1), Field("wall", "K", resolution=0.5)
    assert "0.1 K (room) and 0.5 K (wall), and releases are emitted in steps of 0.1 K." in sensing(
        two, two[:1]
    )
    partly = (two[0], Field("wall", "K"))
    assert "steps of 0.1 K (wall is taken to be a real number)" in sensing(partly, two[:1])


def test_a_sensor_changes_no_name_and_its_steps_are_told():
    system = with_resolution(Platoon(), {"speed": 0.01, "spacing": 0.1})
    assert name_of(system) == name_of(with_resolution(system, 0.2)) == name_of(Platoon()) == "platoon"
    assert resolution_of(system) == {"speed": 0.01, "spacing": 0.1} and resolution_of(Platoon()) == {}
    assert check_system(with_resolution(Gain(), 0.1)).name == "Gain"


def test_systems_shows_and_checks_the_steps_of_an_own_system(here):
    code, out, _ = veil("systems", "stepped.py:Stepped")
    assert code == 0 and out.count("level [m] in steps of 0.1") == 2 and "push\n" in out
    code, out, _ = veil("systems", "stepped.py:Half")
    assert code == 3 and "Some fields have a resolution, shared 'level' not." in " ".join(out.split())

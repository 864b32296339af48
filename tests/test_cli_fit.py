"""`veil fit` from the command line to its files, and a fit as the system of other commands."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.reports.made_folders import certified
from veil.cli import main
from veil.cli.console import Mistake
from veil.cli.recordings import content
from veil.cli.subject import (
    PolicyChoice,
    SensorChoice,
    build_for,
    build_system,
    fit_folder,
    live_twin,
)
from veil.policies.twin import twin_of
from veil.recordings import read_recording
from veil.registry import system_name
from veil.reports.run_sections import model_section
from veil.reports.sources import Material, Source
from veil.results import Fit
from veil.settings import ReadSettings
from veil.systems import WithColouredNoise

STEPS = 240


def recording(path, gains, colour=0.0, steps=STEPS):
    """One loop x' = g x + push + noise of 0.3 per gain, in one file."""
    rng, lines = np.random.default_rng(5), ["who,level,push"]
    for who, gain in enumerate(gains):
        level = error = 0.0
        for _ in range(steps):
            push = 0.3 * rng.standard_normal()
            lines.append(f"{who},{level:.12g},{push:.12g}")
            error = colour * error + np.sqrt(1 - colour**2) * 0.3 * rng.standard_normal()
            level = gain * level + push + error
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Commands run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "prepare", lambda: None)
    return tmp_path


def run(*arguments):
    """The exit code of a command line."""
    try:
        main.main([str(one) for one in arguments])
    except SystemExit as end:
        return end.code or 0
    return 0


def test_a_fit_writes_its_files_and_says_in_words_that_the_model_explains_the_recording(here, capsys):
    log = recording(here / "loops.csv", [0.3, 0.6, 0.85])
    assert run("fit", log, "--system", "gain", "--each", "who") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The model explains 3 of 3 recordings" in said
    assert "veil audit fits/loops --policy truth" in said
    content = json.loads((here / "fits" / "loops" / "fit.json").read_text())
    for gain, one in zip([0.3, 0.6, 0.85], content["individuals"], strict=True):
        found = one["parameters"]["gain"]
        assert abs(found["value"] - gain) < 4 * found["standard_error"]
        assert abs(one["noise"]["level"]["value"] - 0.3) < 4 * 0.3 / np.sqrt(2 * STEPS)
    assert {"population", "examination", "resolution", "steps", "version"} <= content.keys()
    picture = (here / "fits" / "loops" / "fit.png").read_bytes()
    assert picture[:4] == b"\x89PNG"
    parts = sorted((here / "fits" / "loops" / "parts").glob("*.npz"))
    times = [one.stat().st_mtime_ns for one in parts]
    assert len(parts) == 3 and run("fit", log, "--system", "gain", "--each", "who") == 0
    assert [one.stat().st_mtime_ns for one in parts] == times, "what is there is not computed again"
    other = recording(here / "others.csv", [0.5])
    assert run("fit", other, "--system", "gain", "--out", "fits/loops") == 2, "another fit is not replaced"
    assert "--again" in capsys.readouterr().err

    place = "fits/loops"
    assert fit_folder(place) is not None and system_name(place) == "loops"
    fitted = build_system(place)
    shared = Fit.load(place).population
    assert shared is not None and np.allclose(fitted.prior.secrets, shared.secrets)
    own = build_for(place, "who=1")
    assert np.allclose(own.prior.secrets[-1], content["individuals"][1]["parameters"]["gain"]["value"])
    scale = own.transition(own.prior.secrets[0], own.initial(own.prior.secrets[0]).mean, own.first_external())
    assert abs(float(scale.scale[0, 0]) - content["individuals"][1]["noise"]["level"]["value"]) < 1e-4
    assert run("measure", log, "--system", place, "--each", "who") == 0
    verdicts = [
        one["verdict"] for one in json.loads((here / "measure/loops/measure.json").read_text())["recordings"]
    ]
    assert verdicts.count("model_misfit") == 0, verdicts

    own = content["individuals"][1]
    name, policy, fit = live_twin(place, PolicyChoice("twin"), SensorChoice("0.01"), "who=1")
    twin = twin_of(policy)
    assert twin is not None and twin.models is not None and name == "gain" and fit.name == "who=1"
    assert np.allclose(twin.models.secret, own["parameters"]["gain"]["value"]) and twin.preroll == 25
    assert np.allclose(twin.system.prior.secrets, shared.secrets), "the standard is that of the population"
    assert twin.envelope is not None and twin.system.state_fields[0].resolution == 0.01
    choice = PolicyChoice("twin", {"learn": True, "envelope": False, "preroll": 3})
    assert choice.words() == ["--policy", "twin", "--learn", "--no-envelope", "--preroll", "3"]
    learning = twin_of(live_twin(place, choice, SensorChoice("0.01"), "who=1")[1])
    assert learning is not None and learning.models is not None and learning.models.learner is not None
    learner = learning.models.learner
    error = own["parameters"]["gain"]["standard_error"]
    assert np.allclose(np.sqrt(np.ravel(learner.start.covariance)), error, rtol=0.05)
    assert np.asarray(learner.start.shape)[0, 0] == 0.5 * own["steps"]

    (here / "me.json").write_text('"who=1"')
    (here / "me.json").chmod(0o600)
    words = ["share", place, "--policy", "twin", "--secret-file", "me.json", "--resolution", "0.01"]
    assert run(*words) == 2 and "declare in public" in " ".join(capsys.readouterr().err.split())
    assert run(*words, "--declared", "200") == 2 and "three numbers" in capsys.readouterr().err
    assert run(*words, "--declared", "200,20,0.00001") == 2, "the fit does not keep it"
    assert "does not keep what is declared" in " ".join(capsys.readouterr().err.split())

    source = Source(here, "true data", None, replace(certified(), place=place), None, {})
    section = model_section(Material("title", (source,), {}))
    assert section is not None and [block.kind for block in section.blocks] == ["text", "table", "picture"]
    assert source.fit is not None and source.fit.summary() in str(section.blocks[0])
    other = replace(source, audit=replace(certified(), place="gain"))
    assert model_section(Material("title", (other,), {})) is None, "no fit was used"


def test_coloured_noise_becomes_a_system_whose_noise_has_its_autocorrelation(here):
    log = recording(here / "loop.csv", [0.6], colour=0.7, steps=900)
    run("fit", log, "--system", "gain")
    found = Fit.load("fits/loop").individuals[0]
    assert found.family.order >= 1
    system = build_system("fits/loop")
    assert [field.name for field in system.state_fields] == ["level", "error of level"]
    assert isinstance(system, WithColouredNoise)
    keep, white = float(system.keep[0]), float(system.white[0])
    error = 4 / np.sqrt(900)
    assert abs((1 - white) * keep - 0.7) < error and abs((1 - white) * keep**2 - 0.49) < 2 * error


def test_a_folder_never_runs_code_that_the_command_line_does_not_name(here):
    source = ["from pathlib import Path", "from veil.systems import Gain", "Path('ran').write_text('x')"]
    (here / "own.py").write_text("\n".join([*source, "loop = Gain()", ""]))
    log = recording(here / "loop.csv", [0.6])
    assert run("fit", log, "--system", "own.py:loop") == 0
    assert (here / "ran").read_text() == "x"
    with pytest.raises(Mistake, match=r"own\.py:loop@fits/loop"):
        build_system("fits/loop")
    assert len(build_system("own.py:loop@fits/loop").prior.secrets) > 1
    assert system_name("own.py:loop@fits/loop") == "loop"


def test_the_same_numbers_of_another_day_are_another_fit(here):
    """Series of a system are found by instant, so that a fit depends on the date."""
    logs = []
    for day in (1, 2):
        times = [f"2026-01-0{day}T{hour:02d}:00:00" for hour in range(20)]
        lines = ["time,level,push", *(f"{at},{k % 3},{k % 2}" for k, at in enumerate(times))]
        path = here / f"{day}.csv"
        path.write_text("\n".join(lines) + "\n")
        logs.append(read_recording(path, settings=ReadSettings(time="time")))
    first, second = (content([replace(log, name="same")]) for log in logs)
    assert first != second and first == content([replace(logs[0], name="same")])


def test_mistakes_are_said_in_a_sentence(here, capsys):
    log = recording(here / "loop.csv", [0.6], steps=30)
    assert run("fit", log, "--system", "gain") == 2
    assert "29 steps; a fit needs at least 60" in " ".join(capsys.readouterr().err.split())
    (here / "broken").mkdir()
    (here / "broken" / "fit.json").write_text("{}")
    assert run("audit", "broken") == 2
    assert "Make it again with `veil fit`" in " ".join(capsys.readouterr().err.split())

"""`veil measure` from the command line to its files."""

import csv
import json

import numpy as np
import pytest

from tests.recordings import simulated as made
from tests.shaky import Shaky
from veil.cli import main
from veil.cli.console import Mistake
from veil.cli.measure import Measure
from veil.cli.recordings import pairs
from veil.results import Measurement
from veil.results.measurement import load_measurements
from veil.results.parts import ResultError

MAPPED = ["--columns", "speed=v_fol", "spacing=gap", "automated_speed=v_lead"]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Two drives of one file; commands run in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "prepare", lambda: None)
    rng = np.random.default_rng(0)
    white = made.drive(made.DRIVERS[2], 80, rng)
    coloured = made.drive(made.DRIVERS[2], 80, rng, coloured=0.4, keep=0.95)
    both = zip(white, coloured, strict=True)
    states, ahead = (np.concatenate(parts) for parts in both)
    path = made.write_drive(tmp_path / "drives.csv", states, ahead, pair=np.repeat([1, 2], 80))
    text = path.read_text().splitlines()
    times = [f"{0.2 * (i % 80):.1f}" for i in range(160)]
    rows = [",".join([time, *line.split(",")[1:]]) for time, line in zip(times, text[1:], strict=True)]
    path.write_text("\n".join([text[0], *rows]) + "\n")
    return path


def run(*arguments):
    """The exit code of a command line."""
    try:
        main.main(["measure", *map(str, arguments)])
    except SystemExit as end:
        return end.code
    return 0


def test_a_recording_of_the_model_leaks_and_is_written_down(log, capsys):
    assert run(log, *MAPPED, "--where", "pair=1") == 0
    out = capsys.readouterr().out
    assert (
        "Verdict: leak." in out
        and "taken as recorded" in out
        and "speed gain 1 1/s, difference gain 1.1 1/s" in out
    )
    folder = log.parent / "measure" / "drives"
    (found,) = json.loads((folder / "measure.json").read_text())["recordings"]
    states, ahead = made.drive(made.DRIVERS[2], 80, np.random.default_rng(0))
    expected = made.softmax(made.drive_log_likelihoods(states, ahead).sum(axis=0))
    np.testing.assert_allclose(found["posterior"], expected, atol=1e-6)
    assert found["information"] == pytest.approx(
        np.log(4) + expected @ np.log(np.maximum(expected, 1e-300)), abs=1e-6
    )
    assert (folder / "measure.png").stat().st_size > 10_000
    loaded = Measurement.load(folder)
    np.testing.assert_allclose(loaded.masses, expected, atol=1e-6)
    assert loaded.sentence == found["sentence"] and loaded.steps == 80
    loaded.save(folder / "again")
    assert (folder / "again" / "measure.json").read_text() == (folder / "measure.json").read_text()
    assert Measurement.load(folder / "again") == loaded
    lines = str(loaded).splitlines()
    assert len(lines) <= 25 and "leak" in lines[0] and "likeliest secret" in str(loaded)
    assert loaded._repr_html_().count("data:image/png;base64,") == 1


def test_a_measurement_does_not_replace_another_one_unless_it_is_told_to(log, capsys):
    first = [log, *MAPPED, "--where", "pair=1"]
    assert run(*first) == run(*first) == 0  # the same once more
    before = (log.parent / "measure" / "drives" / "measure.json").read_bytes()
    text = log.read_text()
    log.write_text(text.replace("\n0.2,", "\n0.20,", 1))  # other text, the same rows
    assert run(*first) == 0
    for other in ([log, *MAPPED, "--where", "pair=2"], [*first, "--seed", 1]):
        capsys.readouterr()
        assert run(*other) == 2
        refusal = capsys.readouterr().err
        assert "measure/drives holds another measurement: pair=1, shared as it is" in refusal
        assert "--again" in refusal and "--out" in refusal
        assert (log.parent / "measure" / "drives" / "measure.json").read_bytes() == before
    assert run(log, *MAPPED, "--where", "pair=2", "--again") == 3
    assert (log.parent / "measure" / "drives" / "measure.json").read_bytes() != before


def test_each_policy_has_a_folder_of_its_own(log):
    noise = main.parse(["measure", str(log), "--policy", "noise", "--sd", "0.25", "0.43"])
    plain = main.parse(["measure", str(log)])
    assert isinstance(noise, Measure) and noise.folder.as_posix() == "measure/drives-noise"
    assert isinstance(plain, Measure) and plain.folder.as_posix() == "measure/drives"


def test_each_recording_is_judged_by_itself_and_coloured_noise_differs_from_certainty(log, capsys):
    assert run(log, *MAPPED, "--each", "pair", "--out", "all") == 0
    out = capsys.readouterr().out
    assert "1 leak, 1 model does not fit" in out
    both = [one.information.value for one in load_measurements("all")]
    said = f"median {np.median(both):.3f} nats, from {min(both):.3f} to {max(both):.3f}"
    assert said in " ".join(out.split())
    with open("all/measure.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["recording"] for row in rows] == ["pair=1", "pair=2"]
    assert float(rows[1]["discounted"]) < float(rows[1]["information"])
    assert [one.name for one in load_measurements("all")] == ["pair=1", "pair=2"]
    with pytest.raises(ResultError, match="holds 2 recordings"):
        Measurement.load("all")
    (log.parent / "all" / "measure.json").write_text('{"recordings": [{}]}')
    with pytest.raises(ResultError, match="cut short or was changed"):
        load_measurements("all")


def test_where_nothing_can_be_said_the_exit_code_says_so(log, capsys):
    assert run(log, *MAPPED, "--where", "pair=2") == 3
    assert "model does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["drives.csv", "--columns", "speed=v_foll"], "Did you mean 'v_fol'?"),
        (["drives.csv", "--columns", "speed"], "takes NAME=VALUE, got 'speed'"),
        (["drives.csv", "--columns", "speed=a", "speed=b"], "names 'speed' twice"),
        (["nowhere.csv", *MAPPED], "no such file"),
        (["drives.csv", *MAPPED], "--each pair"),
        (["drives.csv", *MAPPED, "--where", "pair=9"], "no row with pair=9"),
        (["drives.csv", *MAPPED, "--system", "plato"], "Did you mean platoon?"),
        (["drives.csv", *MAPPED, "--policy", "noise"], "needs --sd"),
        (
            ["drives.csv", *MAPPED, "--where", "pair=1", "--policy", "noise", "--sd", "1"],
            "one number per shared axis",
        ),
        (["drives.csv", *MAPPED, "--draws", "0"], "1 draw"),
        ([], "LOG.csv is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_sentence_and_leave_nothing_behind(log, capsys, arguments, hint):
    assert run(*arguments) == 2
    mistake = capsys.readouterr().err.strip()
    assert hint in mistake and "Traceback" not in mistake
    assert len(mistake.splitlines()) == 1
    assert not (log.parent / "measure").exists()


def test_pairs_may_stand_apart_or_together():
    assert pairs("columns", ("a=b", "c=d")) == pairs("columns", ("a=b,c=d",)) == {"a": "b", "c": "d"}
    with pytest.raises(Mistake, match="--where pair=3"):
        pairs("where", ("pair=",))


def test_the_particles_of_the_reader_are_not_those_of_the_policy(tmp_path):
    command = Measure(tmp_path / "x.csv")
    assert command.extent.filter_particles > 0 and command.sharing.parameters == {}


def test_recordings_by_workers_are_those_of_one_process_and_a_failed_one_is_named(log, capsys, monkeypatch):
    from veil.cli.workers import WorkerChoice

    words = [log, *MAPPED, "--each", "pair"]
    assert run(*words) == 0
    here = (log.parent / "measure" / "drives" / "measure.json").read_bytes()
    executors = iter([Shaky(seed=1, loses=0.2), Shaky(doomed="pair=2"), Shaky(doomed="pair=")])
    monkeypatch.setattr(WorkerChoice, "executor", lambda self: next(executors))
    assert run(*words, "--out", "there") == 0
    assert (log.parent / "there" / "measure.json").read_bytes() == here
    capsys.readouterr()
    assert run(*words, "--out", "part") == 2
    assert "pair=2 cannot be measured: recording pair=2: its worker ended" in capsys.readouterr().err
    (left,) = json.loads((log.parent / "part" / "measure.json").read_text())["recordings"]
    assert left == json.loads(here)["recordings"][0]
    assert run(*words, "--out", "none") == 2 and not (log.parent / "none" / "measure.json").exists()

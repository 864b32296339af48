"""TOML files: the same settings as flags, and a sentence for what is not."""

import shlex

import pytest

from tests.command_lines import veil
from veil.cli import main, parser
from veil.cli.parser import settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files are named as people name them: beside where they are."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "platoon-pathwise"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    monkeypatch.setattr(main, "prepare", lambda: pytest.fail("it was begun"))
    return tmp_path


def written(folder, text):
    (folder / "some.toml").write_text(text)
    return ["--config", "some.toml"]


CASES = {
    "audit": (
        'system = "gain"\npolicy = "noise"\nsd = [0.25]\nout = "here"\nexplain = true\nassisted = false\n'
        "seconds = inf\ninterval = 0.02\nepisodes = 99",
        "gain --policy noise --sd 0.25 --out here --explain --no-assisted --interval 0.02 --episodes 99",
    ),
    "train": (
        'policy = "ddpg"\nsteps = 7\n[weights]\nprivacy-weight = 5\ndistortion-limit = 2.5\n'
        '[training]\nlearning_rate = 4e-05\nseed = 3\n[design]\nencoder = "mgf"',
        "--policy ddpg --steps 7 --privacy-weight 5 --distortion-limit 2.5 --learning-rate 4e-05 --seed 3 "
        "--encoder mgf",
    ),
    "simulate": ('run_or_system = "platoon"\nepisodes = 5\n', "platoon --episodes 5"),
    "frontier": ('weights = [5, 80.0]\nkinds = ["noise", "plain"]', "--weights 5 80 --kinds noise plain"),
    "share": (
        'run-or-system = "runs/platoon-pathwise"\nsecret_file = "a b.json"\nbudget = 0.1\nseed = 4',
        'runs/platoon-pathwise --secret-file "a b.json" --budget 0.1 --seed 4',
    ),
    "ledger": ('run_or_file = "runs/platoon-pathwise"\nrows = 3', "runs/platoon-pathwise --rows 3"),
    "systems": ('name = "gain"', "gain"),
}


@pytest.mark.parametrize("command", CASES)
def test_a_file_says_the_same_as_flags(command, elsewhere):
    text, flags = CASES[command]
    by_file = main.parse([command, *written(elsewhere, text)])
    assert by_file == main.parse([command, *shlex.split(flags)])


@pytest.mark.parametrize("command", CASES)
def test_what_is_written_of_a_command_reads_back_as_the_command(command, elsewhere):
    made = main.parse([command, *shlex.split(CASES[command][1])])
    text = parser.toml_text(made, lambda setting: True)
    assert main.parse([command, *written(elsewhere, text)]) == made
    names = [one.name for one in settings(type(made), made) if one.default is not None]
    lines = [line.partition(" = ")[0] for line in text.splitlines() if " = " in line]
    assert lines == names


def test_flags_win_over_files_and_later_files_over_earlier(elsewhere):
    (elsewhere / "one.toml").write_text('system = "gain"\nepisodes = 11\nsteps = 5\nlearned = true\nseed = 1')
    (elsewhere / "two.toml").write_text("[extent]\nepisodes = 22\nseed = 2\n")
    words = ["platoon", "--config=one.toml", "--seed", "3", "--config", "two.toml", "--no-learned"]
    made = main.parse(["audit", *words])
    found = getattr(made, "system", ""), getattr(made, "extent", None)
    same = main.parse(["audit", "platoon", "--episodes", "22", "--steps", "5", "--seed", "3"])
    assert found == ("platoon", getattr(same, "extent", None))


def test_the_policy_of_a_file_brings_what_is_usual_for_it(elsewhere):
    made = main.parse(["train", *written(elsewhere, 'policy = "a2c"\npoints = 7')])
    assert made == main.parse(["train", "--policy", "a2c", "--points", "7"])
    other = main.parse(["train", *written(elsewhere, 'policy = "a2c"'), "--policy", "ddpg"])
    assert other == main.parse(["train", "--policy", "ddpg"])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("episode = 9", "some.toml: there is no setting 'episode'. Did you mean episodes?"),
        ("[extend]\nepisodes = 9", "some.toml: there is no table [extend] here. Did you mean extent?"),
        ("[extent]\nexplain = true", "there is no setting 'explain'"),
        ("zzz = 9", "Choose again, assisted, displacement"),
        ('episodes = "many"', 'episodes takes a whole number; got "many".'),
        ("episodes = 9.5", "episodes takes a whole number; got 9.5."),
        ("episodes = true", "episodes takes a whole number; got true."),
        ("interval = [1.0]", "interval takes a number; got [1.0]."),
        ("learned = 1", "learned takes true or false; got 1."),
        ("policy = 1", "policy takes text; got 1."),
        ("out = 2024-01-01", 'out takes a path; got "2024-01-01".'),
        ("sd = 0.25", "sd takes a list, each a number; got 0.25."),
        ("sd = [true]", "sd takes a number; got true."),
        ("episodes = ", "some.toml is not a TOML file"),
        ("a = 1\na = 2", "some.toml is not a TOML file"),
        ("episodes = 7", "--episodes 8, two per secret"),
        ("seed = -1", "--seed must be between"),
    ],
)
def test_mistakes_in_a_file_are_told_in_one_sentence(text, hint, elsewhere, monkeypatch):
    monkeypatch.setattr(main, "prepare", lambda: None)
    code, out, err = veil("audit", *written(elsewhere, text))
    assert code == 2 and out == "" and hint in err and err.count("\n") == 1, err
    assert err.startswith("veil audit: ") and not (elsewhere / "audit").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--config", "none.toml"], "none.toml cannot be read (No such file or directory)."),
        (["--config", "runs"], "runs cannot be read (Is a directory)."),
        (["--config"], "--config needs a file"),
        (["--config", "--explain"], "--config needs a file"),
        (["--confg", "some.toml"], "Did you mean --config?"),
        (["--config", "latin.toml"], "latin.toml is not a TOML file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(arguments, hint, elsewhere):
    (elsewhere / "latin.toml").write_bytes(b'policy = "\xe9"')
    code, _, err = veil("audit", *arguments)
    assert code == 2 and hint in err and err.count("\n") == 1, err

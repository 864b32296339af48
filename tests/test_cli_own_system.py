"""A system of the user's on the command line: named by its file, loaded, refused in one sentence."""

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import jax
import numpy as np
import pytest

from tests.command_lines import quick
from tests.command_lines import veil as command
from veil.cli import main, subject
from veil.cli.console import Mistake
from veil.cli.systems import describe, rows_of
from veil.registry import system_name
from veil.sharing.sharer import Sharer
from veil.systems import Building, Gain, Series

FILE = '''
"""A loop with gains of its own."""

import veil
from veil.systems import Gain

slow = Gain(veil.systems.finite_prior([0.1, 0.2]))


def made():
    return slow


class Broken(Gain):
    """A loop whose output is not a number."""

    def output(self, state):
        return state * float("nan")


broken = Broken()


def needy(size):
    return size


number = 3
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    name = f"own_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("one = 1\ntwo = one / 0\n")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize("form", ["{}.py:slow", "{}.py:made", "{}:slow", "./{}.py:made"])
def test_a_system_is_found_where_it_says(here, form):
    found = subject.build_system(form.format(here))
    assert isinstance(found, Gain)
    np.testing.assert_allclose(found.prior.secrets[:, 0], [0.1, 0.2], rtol=1e-6)


def test_folders_are_named_after_the_system_alone():
    assert system_name("./models/house.py:House") == "house"
    assert system_name("platoon") == "platoon"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}.py:slo", "Did you mean slow? Choose slow, made, Broken, broken, needy."),
        ("{}.py:needy", "needs arguments"),
        ("nowhere.py:slow", "there is no file nowhere.py"),
        ("nowhere:slow", "ModuleNotFoundError"),
        ("broken.py:one", "ZeroDivisionError: division by zero (broken.py, line 2)"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_sentence(here, name, words):
    with pytest.raises(Mistake) as mistake:
        subject.build_system(name.format(here))
    assert words in str(mistake.value) and "\n" not in str(mistake.value)


@pytest.fixture
def unhurried():
    with quick():
        yield


def test_it_has_one_name_in_all_commands_and_its_runs_join_in_a_report(here, unhurried):
    place, noise = f"{here}.py:slow", ["--policy", "noise", "--sd", "0.2"]
    tiny = ["--steps", 2, "--episodes", 6, "--no-assisted", "--no-scenarios"]
    assert command("train", place, *noise)[0] == 0  # to runs/slow-noise
    code, _, err = command("audit", "runs/slow-noise", *tiny)
    assert code == 2 and "names Python code as its system" in err
    assert f"{place} --policy runs/slow-noise, or add --trust-code." in err
    code, _, err = command("audit", "runs/slow-noise", *tiny, "--trust-code")
    assert code in (0, 3), err
    code, _, err = command("audit", f"./{place}", *tiny)  # to audit/slow-truth
    assert code in (0, 3), err
    for folder in ("runs/slow-noise/audit", "audit/slow-truth"):
        assert json.loads(Path(folder, "audit.json").read_text())["system"] == "slow"
    assert json.loads(Path("audit/slow-truth/audit.json").read_text())["command"]["system"] == f"./{place}"
    ledger = Path("slow-noise/share/ledger.jsonl")
    ledger.parent.mkdir(parents=True)
    with jax.enable_x64(True):
        policy = subject.PolicyChoice("noise", {"sd": (0.2,)}).build(subject.build_system(place))
        with Sharer(policy, 1, ledger=ledger, seed=3, system=system_name(place), resolution=0.0) as sharer:
            sharer.share([0.1], [0.0])
    code, _, err = command("ledger", "slow-noise", "--recompute", *noise)
    assert code == 2 and "the ledger is about slow; say where that is, as --system FILE.py:slow." in err
    code, out, err = command("ledger", "slow-noise", "--recompute", *noise, "--system", place)
    assert code == 0 and "computed again" in out, err
    code, out, err = command("report", "runs/slow-noise", "audit/slow-truth", "--out", "both.html")
    assert code == 0 and "both.html" in out, err
    assert f"veil share {place} --policy runs/slow-noise" in Path("both.html").read_text()


def test_examples_in_messages_are_those_of_the_system(here, unhurried):
    code, _, err = command("audit", f"{here}.py:slow", "--policy", "noise")
    assert code == 2 and "Try --sd 0.1, in the units of level." in err and "platoon" not in err


def test_series_are_shown_with_their_dates_and_the_first_step():
    dates = Series({"a": np.zeros(240)}, begins=datetime(2025, 10, 17, 22, tzinfo=UTC), seconds=3600.0)
    said = "240 rows, 2025-10-17 22:00:00+00:00 to 2025-10-27 21:00:00+00:00"
    first = datetime(2025, 10, 20, tzinfo=ZoneInfo("Europe/Copenhagen"))
    assert rows_of(dates.starting(first)) == f"{said}; step 1 is row 48, 2025-10-19 22:00:00+00:00"
    assert rows_of(Series({"a": np.zeros(9)}, start=3)) == "9 rows; step 1 is row 3"
    lines = describe("building", Building()).splitlines()
    assert lines[5].strip() == rows_of(Building().series) and lines[4].split()[0] == "series"


def test_the_command_examines_it(here, capsys, monkeypatch):
    monkeypatch.setattr(main, "prepare", lambda: None)  # it would change the precision of all tests to come
    main.main(["systems", f"{here}.py:slow"])
    assert "Gain: ready to use" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main.main(["systems", f"{here}.py:broken"])
    assert end.value.code == 3 and "not ready" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main.main(["systems", f"{here}.py:nothing"])
    assert end.value.code == 2 and "no system" in capsys.readouterr().err

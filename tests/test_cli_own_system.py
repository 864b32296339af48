"""A system of the user's on the command line: named by its file, loaded, refused in one sentence."""

import numpy as np
import pytest

from veil.cli import main, subject
from veil.cli.console import Mistake
from veil.registry import system_name
from veil.systems import Gain

FILE = '''
"""A loop with gains of its own."""

import veil
from veil.registry import system_name
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
    with pytest.raises(Mistake) as told:
        subject.build_system(name.format(here))
    assert words in str(told.value) and "\n" not in str(told.value)


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

"""Registries: a thing is one file, and is known without importing JAX."""

import dataclasses
import importlib
import subprocess
import sys
from typing import get_type_hints

import pytest

from veil import registry
from veil.cli import main
from veil.cli.audit import Audit
from veil.cli.parser import parameters
from veil.registry import ATTACKS, LEAKAGE, LEARNERS, POLICIES, SYSTEMS, Registry
from veil.systems import Gain

FAMILIES = {"attack": ATTACKS, "policy": POLICIES, "system": SYSTEMS, "leakage": LEAKAGE, "learner": LEARNERS}

LOUD = '''
"""The same noise on every axis."""

from dataclasses import dataclass

import jax.numpy as jnp

from veil.policies.plain import GaussianNoise
from veil.registry import POLICIES
from veil.systems.base import System


@POLICIES.register("loud")
@dataclass(frozen=True)
class LoudSettings:
    """Share the output with the same noise on every axis."""

    loudness: float = 1.0
    """Sd of the noise on every shared axis, in the unit of the axis"""

    def build(self, system: System) -> GaussianNoise:
        """The policy for a system."""
        return GaussianNoise(system, jnp.full(len(system.shared_fields), self.loudness))
'''


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_has_one_sentence_and_leads_to_its_thing(family):
    things = FAMILIES[family]
    assert len(things) >= 4
    for name in things:
        assert things.about(name) and "\n" not in things.about(name)
        assert callable(things[name]) and things.name_of(things[name]) == name


@pytest.mark.parametrize("family", ["policy", "leakage", "learner"])
def test_what_is_read_from_the_source_is_what_is_imported(family):
    things = FAMILIES[family]
    for name in things:
        read, own = things._read(things._entries[name]), things[name]
        assert read is not own
        assert [field.name for field in dataclasses.fields(read)] == [f.name for f in dataclasses.fields(own)]
        hints = get_type_hints(read, include_extras=True), get_type_hints(own, include_extras=True)
        for field in dataclasses.fields(own):
            assert hints[0][field.name] == hints[1][field.name], (name, field.name)
        if all(field.default is not dataclasses.MISSING for field in dataclasses.fields(own)):
            assert vars(read()) == vars(own()), name
        texts = read.__sentences__
        assert all(texts.get(field.name) for field in dataclasses.fields(own)) or family == "learner", name


def test_names_and_settings_are_known_without_jax():
    words = "for r in (POLICIES, SYSTEMS, LEAKAGE, LEARNERS): list(r)\n"
    words += "for r in (POLICIES, LEAKAGE, LEARNERS): [r.header(name) for name in r]\n"
    program = f"import sys\nfrom veil.registry import *\n{words}assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_that_there_is_not_gets_the_nearest_one():
    with pytest.raises(KeyError, match=r"no policy 'nois'. Did you mean noise\? Choose"):
        POLICIES["nois"]
    with pytest.raises(ValueError, match=r"no learner 'pathwize'. Did you mean pathwise"):
        LEARNERS.check("pathwize")
    assert "nois" not in POLICIES and "noise" in POLICIES


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The package of policies with one more file."""
    (tmp_path / "loud.py").write_text(LOUD)
    package = importlib.import_module("veil.policies")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert package.__spec__ is not None
    monkeypatch.setattr(package.__spec__, "submodule_search_locations", list(package.__path__))
    monkeypatch.setattr(POLICIES, "_registered", dict(POLICIES._registered))
    monkeypatch.delitem(vars(POLICIES), "_entries", raising=False)
    yield
    monkeypatch.undo()
    vars(POLICIES).pop("_entries", None)
    POLICIES._headers.pop("loud", None)
    sys.modules.pop("veil.policies.loud", None)


def test_a_policy_is_one_file(added, capsys, monkeypatch):
    """Its name, its flag and its help are there; nothing else names it."""
    monkeypatch.setenv("COLUMNS", "100")
    made = main.parse(["audit", "gain", "--policy", "loud", "--loudness", "2"])
    assert isinstance(made, Audit) and made.sharing.parameters == {"loudness": 2.0}
    assert "veil.policies.loud" not in sys.modules  # not before it is built
    assert made.sharing.build(Gain()).sd.tolist() == [2.0]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SystemExit):
        main.parse(["audit", "--help"])
    shown = capsys.readouterr().out
    assert "--loudness FLOAT" in shown and " loud, " in " ".join(shown.partition("--policy TEXT")[2].split())
    with pytest.raises(SystemExit):
        main.parse(["audit", "gain", "--policy", "noise", "--sd", "1", "--loudness", "2"])
    assert "takes no --loudness; that is for loud." in capsys.readouterr().err


TOY = """
from dataclasses import dataclass
import numpy
from veil.registry import TOYS


@TOYS.register("one")
@dataclass(frozen=True)
class One:
    size: {kind} = 1
"""


def toys(folder, monkeypatch, **files):
    """A registry of a package that has these files."""
    name = f"toys_{abs(hash(folder)) % 10**9}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    for stem, text in files.items():
        (folder / name / f"{stem}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    made = Registry("toy", name)
    monkeypatch.setattr(registry, "TOYS", made, raising=False)
    return made


def test_a_header_that_needs_more_than_light_modules_is_refused(tmp_path, monkeypatch):
    made = toys(tmp_path, monkeypatch, first=TOY.format(kind="numpy.ndarray"))
    with pytest.raises(TypeError, match="read without JAX"):
        made.header("one")


def test_a_name_is_given_once(tmp_path, monkeypatch):
    made = toys(tmp_path, monkeypatch, first=TOY.format(kind="int"), second=TOY.format(kind="int"))
    with pytest.raises(TypeError, match="two toy entries are called 'one'"):
        list(made)


def test_a_flag_means_one_type(tmp_path, monkeypatch):
    other = TOY.format(kind="float").replace('"one"', '"two"')
    made = toys(tmp_path, monkeypatch, first=TOY.format(kind="int"), second=other)
    with pytest.raises(TypeError, match="size of two is a number, and elsewhere a whole number"):
        parameters(made, "group")

"""Habits of the project: the same checks everywhere, whole wheels, files without code in them."""

import ast
import math
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [path for name in ("veil", "paper", "bench", "examples") for path in (ROOT / name).rglob("*.py")]
MESSAGES = ROOT / "veil/executors/messages.py"  # between processes of one run; never read from a file
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def recipe(target):
    """The commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert found is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_hooks_before_a_commit_run_the_very_commands_of_make_check():
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^ +entry: (.*)$", text, re.MULTILINE) == recipe("check")
    assert text.count("- id:") == text.count("pass_filenames: false") == text.count("language: system")


def pickling(node):
    """Whether a piece of syntax may run code from a file."""
    if isinstance(node, ast.Import):
        return bool({alias.name.partition(".")[0] for alias in node.names} & PICKLERS)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in PICKLERS
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load", "jnp.load"):
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        return given.get("allow_pickle") != "False"
    return False


def test_nothing_is_pickled():
    """A pickle runs code when it is read, and so may a numpy file that is allowed to hold objects."""
    for text in (
        "import pickle",
        "from joblib import dump",
        "np.load(path)",
        "np.load(x, allow_pickle=True)",
    ):
        assert any(pickling(node) for node in ast.walk(ast.parse(text)))
    for path in set(SOURCES) - {MESSAGES}:
        found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if pickling(node)]
        assert not found, f"{path.relative_to(ROOT)}: {ast.unparse(found[0])}"


def test_the_base_install_needs_no_torch_and_every_extra_is_pinned():
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=\[;]", need)[0].lower() for need in content["dependencies"]]
    assert not {"torch", "stable-baselines3", "gymnasium", "tensorboardx", "paho-mqtt"} & set(names)
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = content["optional-dependencies"]
    wanted = [need for name in ("gym", "mqtt", "tensorboard", "dev") for need in extras[name]]
    wanted = [re.split(r"[<>=;]", need)[0].lower() for need in wanted if not need.startswith("veil[")]
    assert set(names) | set(wanted) <= pinned


@pytest.mark.study
def test_a_wheel_holds_the_package_its_types_and_its_data(tmp_path):
    """Built as `pip install .` builds it, from what the project tracks."""
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "-w", str(tmp_path)]
    subprocess.run(command, check=True, timeout=600)
    (path,) = tmp_path.glob("veil-*.whl")
    names = set(zipfile.ZipFile(path).namelist())
    expected = [one for one in (ROOT / "veil").rglob("*") if one.is_file() and one.suffix != ".pyc"]
    assert {one.relative_to(ROOT).as_posix() for one in expected} <= names
    assert "veil/py.typed" in names and not any(name.startswith("tests") for name in names)


@pytest.mark.study
def test_the_example_runs_and_its_environment_passes_the_checker_of_stable_baselines():
    """Its first numbers are those of the untrained policy: no more than a secret has to tell."""
    pytest.importorskip("stable_baselines3")
    program = [
        sys.executable,
        str(ROOT / "examples" / "train_with_sb3.py"),
        "--timesteps",
        "300",
        "--steps",
        "5",
    ]
    shown = subprocess.run(program, check=True, timeout=900, capture_output=True, text=True).stdout
    rows = dict(re.findall(r"^(\S.*?) +(\S+) before, +\S+ after 300 releases$", shown, re.MULTILINE))
    assert len(rows) == 4 and 0.0 < float(rows["leakage, nats"]) < math.log(3)
    parts = 80 * float(rows["leakage, nats"]) + float(rows["cost per episode"])
    parts += 0.2 * 5 * (float(rows["distortion per release"]) - 4.0)
    assert float(rows["objective per episode"]) == pytest.approx(parts, abs=0.1)  # three digits are printed

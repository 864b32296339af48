"""The page of a new user, executed: three files, one Python file, eight commands."""

import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path

import jax
import pytest

from tests.command_lines import quick, veil
from veil.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "story.md").read_text(encoding="utf-8")

# What makes a command small enough for a test; its words are otherwise those of the page.
SMALL = {
    "audit": ["--episodes", "10", "--no-assisted", "--no-scenarios"],
    "train": ["--updates", "1", "--episodes", "5", "--evaluate-every", "1", "--evaluation-episodes", "5"],
}


def block(kind):
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found, kind
    return found.group(1)


def test_it_is_as_short_as_it_says():
    source, commands = block(r"python my_house\.py").splitlines(), block("sh").splitlines()
    assert f"in {len(source)} lines of Python" in PAGE and len(source) <= 60 and len(commands) == 8


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python files"), "story.md", "exec"), {"__name__": "story"})
    Path("my_house.py").write_text(block(r"python my_house\.py"), encoding="utf-8")
    Path("secret.json").write_text("2")
    Path("secret.json").chmod(0o600)
    rows = [{"step": t, "state": {"indoor": 20.31}, "external": {"power": 2.9}} for t in (1, 2, 3)]
    Path("hours.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def streamed(words):
    """`veil share`, which reads and writes bytes."""
    written, err, code = Path("released.jsonl"), io.StringIO(), 0
    with written.open("w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with jax.enable_x64(True):
                main.main(["share", *words])
        except SystemExit as end:
            code = end.code
    return code, written.read_text(), err.getvalue()


def run(line):
    """One line of the page in this process, with few and short episodes."""
    line, _, source = line.replace("--steps 168", "--steps 6").partition(" < ")
    _, command, *words = shlex.split(line)
    with contextlib.ExitStack() as stack:
        if source:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(sys, "stdin", io.TextIOWrapper(stack.enter_context(Path(source).open("rb"))))
        code, out, err = streamed(words) if source else veil(command, *words, *SMALL.get(command, []))
    assert code in (0, 3), f"{line}: {err}"
    return out + err


def test_the_house_is_ready_to_use(here):
    with quick():
        said = run(block("sh").splitlines()[0])
    assert "House: ready to use" in said and "tariff [EUR/kWh]" in said and "observed likelihood  no" in said


@pytest.mark.study
def test_all_commands_run_as_printed(here):
    with quick():
        said = [run(line) for line in block("sh").splitlines()]
    checked, measured, truth, _, _, learned, shared, _ = said
    assert "House: ready to use" in checked and "tariff [EUR/kWh]" in checked
    assert "Room temperature" in measured and "heat_loss" in measured
    assert "exact Kalman filters" in truth and "kWh per step" in truth and "(6 h)" in truth
    assert "bill" in learned
    assert shared.count('"shared"') == 3 and "may leave out wall" in shared
    page = Path("house.html").read_text(encoding="utf-8")
    assert "discomfort" in page and "EUR per step" in page and "how it is built" in page

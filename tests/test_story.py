"""The page of a new user, executed: three files, one Python file, eight commands."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from tests.cheap_commands import short, streamed
from tests.command_lines import quick, veil

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
    rows = Path("hours.jsonl").read_text().splitlines()
    assert len(rows) == 168
    Path("hours.jsonl").write_text("\n".join(rows[:3]) + "\n")


def run(line):
    """One line of the page in this process, with few and short episodes."""
    line, _, source = line.replace("--steps 168", "--steps 6").partition(" < ")
    _, command, *words = shlex.split(line)
    if source:
        return "".join(streamed([command, *words], source))
    code, out, err = veil(command, *words, *SMALL.get(command, []))
    assert code in (0, 3), f"{line}: {err}"
    return out + err


LONG = (
    "--policy transport",
    "veil train",
    "veil audit runs",
)  # 40 s of the processor, also when they are small


def test_the_commands_run_as_printed(here):
    """Training and the audits of policies are replaced by what they would return; the rest is computed."""
    said = []
    with quick():
        for line in block("sh").splitlines():
            with short() if any(one in line for one in LONG) else contextlib.nullcontext():
                said.append(run(line))
    check(said)


@pytest.mark.study
def test_the_commands_run_as_printed_with_nothing_replaced(here):
    with quick():
        said = [run(line) for line in block("sh").splitlines()]
    check(said)
    assert "bill" in said[5] and "(6 h)" in said[5], "as many steps as the run"


def check(said):
    """What the commands of the page must have printed, in their order."""
    checked, measured, truth, _, trained, learned, shared, _ = (" ".join(text.split()) for text in said)
    assert "House: ready to use" in checked and "tariff [EUR/kWh]" in checked
    assert "observed likelihood no" in checked
    assert "Room temperature" in measured
    assert "by date and time; they run from 2026-01-04 00:00:00 to 2026-01-11 23:00:00" in measured
    assert "Verdict: leak." in measured and "heat loss 0.15 kW/K, capacity 10 kWh/K" in measured
    assert "exact Kalman filters" in truth and "kWh per step" in truth and "(6 h)" in truth
    audited = block("sh").splitlines()[5]
    assert audited.partition(" --resolution")[0] in trained, "the page audits as the training says"
    assert "over 6 steps" in learned, "as many as the run"
    assert shared.count('"shared"') == 3 and "may leave out wall" in shared
    assert "step 1 is row 24 of its series, of 2026-01-05 00:00:00" in shared
    assert "3 steps: 3 released; " in shared
    page = Path("house.html").read_text(encoding="utf-8")
    assert "discomfort" in page and "EUR per step" in page and "how it is built" in page

"""Help: quick, short, with examples that work, and about everything that there is."""

import dataclasses
import importlib
import os
import re
import shlex
import subprocess
import sys
import time

import pytest

from veil.cli import main
from veil.cli.help import page
from veil.cli.parser import settings
from veil.registry import POLICIES

LINES, COLUMNS, SECONDS = 50, 100, 0.5
# Flags of a broker; flags that say how a file is written; flags of workers, and of several trainings.
LONGEST = {"share": 76, "measure": 65, "audit": 56, "train": 58}


def kind(command):
    return getattr(importlib.import_module(f"veil.cli.{command}"), command.capitalize())


def help_of(command, monkeypatch, **given):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    return page(command, kind(command), given)


def pages(command, monkeypatch):
    """All that the help of a command can be: `train` has a page for learning and one per ready policy."""
    given = [{}, *({"policy": name} for name in POLICIES)] if command == "train" else [{}]
    return [help_of(command, monkeypatch, **one).splitlines() for one in given]


@pytest.mark.parametrize("command", main.COMMANDS)
def test_help_fits_a_screen_and_names_every_setting(command, monkeypatch):
    shown = pages(command, monkeypatch)
    assert all(
        len(lines) <= LONGEST.get(command, LINES) and max(map(len, lines)) <= COLUMNS for lines in shown
    )
    assert all(lines[2] == main.COMMANDS[command] for lines in shown)
    for one in settings(kind(command)):
        assert one.text and one.text[-1] != ".", one.name  # one sentence each, without its full stop
        word = one.metavar if one.positional else one.flag
        word = f"--no-{one.flag[2:]}" if one.kind is bool and one.default is True else word
        assert any(line.startswith(f"  {word}") for lines in shown for line in lines), one.name


def test_help_of_training_names_the_settings_of_the_policy_that_is_given(monkeypatch):
    moved = help_of("train", monkeypatch, policy="transport")
    assert all(f"  --{name} " in moved for name in ("sd", "particles", "displacement", "out"))
    assert not any(f"  --{name} " in moved for name in ("step", "every", "updates", "privacy-weight"))
    assert "  --updates " in (learning := help_of("train", monkeypatch)) and "  --sd " not in learning
    assert "veil train --policy" in learning


@pytest.mark.parametrize("command", main.COMMANDS)
def test_the_example_in_help_is_a_command_that_is_understood(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("run.json", "share/ledger.jsonl"):
        path = tmp_path / "runs" / "platoon-pathwise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (example,) = re.findall(r"^Example: `veil (.*)`$", help_of(command, monkeypatch), re.MULTILINE)
    words = shlex.split(example.partition(" < ")[0])
    made = main.parse(words)
    assert words[0] == command and type(made) is kind(command)


def test_the_list_of_commands_has_an_example_that_is_understood(capsys):
    main.main(["--help"])
    shown = capsys.readouterr().out
    (example,) = re.findall(r"^Example: `veil (.*)`$", shown, re.MULTILINE)
    assert main.parse(shlex.split(example)) is not None
    assert all(f"  {name} " in shown and text in shown for name, text in main.COMMANDS.items())


def test_help_shows_what_is_usual_for_the_policy_that_is_named(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    for words, updates in (([], "250"), (["--policy", "ddpg"], "80"), (["--policy", "a2c", "--oops"], "250")):
        with pytest.raises(SystemExit) as end:
            main.main(["train", *words, "--help"])
        shown = capsys.readouterr().out
        assert end.value.code == 0 and re.search(rf"--updates INT .*\(default: {updates}\)", shown), words


def test_every_command_is_a_frozen_dataclass():
    for command in main.COMMANDS:
        made = kind(command)
        blank = object.__new__(made)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(blank, dataclasses.fields(made)[0].name, "other")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_are_instant(argument):
    """The best of five: the machine may be busy with something else."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "veil", argument], check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    assert min(taken) < SECONDS


@pytest.mark.parametrize("command", main.COMMANDS)
def test_help_of_a_command_is_as_quick(command):
    """By the time of the processor, for which a busy machine does not matter."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "veil", command, "--help"], check=True, capture_output=True)
    after = os.times()
    taken = after.children_user - before.children_user + after.children_system - before.children_system
    assert taken < SECONDS

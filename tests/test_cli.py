"""The command line, as a user meets it: in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import quick
from tests.command_lines import veil as within

ROOT = Path(__file__).parent.parent


def veil(*arguments, **options):
    program = [sys.executable, "-m", "veil.cli.main", *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, timeout=600, check=False, **options)


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )


def test_importing_veil_and_asking_for_help_leaves_jax_alone():
    run_python("import sys, veil; assert 'jax' not in sys.modules and 'numpy' not in sys.modules")
    code = """
import sys
from pathlib import Path
from veil.cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
assert not {"jax", "matplotlib", "scipy"} & set(sys.modules)
"""
    shown = run_python(code).stdout
    assert "demo" in shown and "systems" in shown


def test_the_package_shows_the_documented_names_and_nothing_else():
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    page = page.partition("`veil.environment`")[0]
    documented = sorted(set(re.findall(r"`veil\.(\w+)`", page)))
    code = f"""
import veil
assert dir(veil) == {documented}, set(dir(veil)) ^ set({documented})
for name in dir(veil):
    assert getattr(veil, name) is not None, name
assert dir(veil) == {documented}  # nor do uses add to it
assert callable(veil.audit) and callable(veil.rollout.rollout) and callable(veil.rollout.follow)
import veil.reports.page
assert callable(veil.report)  # no module takes the place of a verb
for name in ("sys", "importlib", "TYPE_CHECKING", "nonsense"):
    try:
        getattr(veil, name)
    except AttributeError as error:
        assert "audit" in str(error)
    else:
        raise SystemExit(name + " can be reached")
"""
    run_python(code)


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["systems"]], ids=" ".join)
def test_a_reader_who_closes_the_output_early_sees_no_error(arguments):
    read, write = os.pipe()
    os.close(read)  # before anything is written: the earliest that `| head -1` may leave
    program = [sys.executable, "-m", "veil.cli.main", *arguments]
    ended = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_version_is_the_packages():
    import veil as package

    assert veil("--version").stdout == f"veil {package.__version__}\n"


def test_without_arguments_help_is_shown():
    assert "systems" in veil().stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["dmo"], "demo"),
        (["systems", "plat"], "platoon"),
    ],
    ids=" ".join,
)
def test_mistakes_are_answered_with_what_to_do(arguments, hint):
    result = veil(*arguments)
    assert result.returncode == 2
    assert hint in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_systems_are_listed_with_fields_units_and_secrets():
    with quick():
        (_, shown, _), (_, checked, _) = within("systems"), within("systems", "platoon")
    for word in ("platoon", "idm_platoon", "gain", "speed [m/s]", "spacing [m]", "(0.4, 0.5)", "1.386 nats"):
        assert word in shown
    assert "ready to use" in checked

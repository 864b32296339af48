"""The command line, as a user meets it: in a process of its own."""

import subprocess
import sys

import pytest


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
from veil.cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
assert not {"jax", "matplotlib", "scipy"} & set(sys.modules)
"""
    shown = run_python(code).stdout
    assert "demo" in shown and "systems" in shown


def test_every_public_name_is_there_and_rollout_stays_a_module():
    code = """
import veil
for name in veil.__all__:
    assert getattr(veil, name) is not None, name
assert set(veil.__all__) <= set(dir(veil)) and "rollout" in dir(veil)
assert callable(veil.rollout.rollout) and callable(veil.rollout.follow)
try:
    veil.nonsense
except AttributeError as error:
    assert "Platoon" in str(error)
else:
    raise SystemExit("no error")
"""
    run_python(code)


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
    shown = veil("systems").stdout
    for word in ("platoon", "idm_platoon", "gain", "speed [m/s]", "spacing [m]", "(0.4, 0.5)", "1.386 nats"):
        assert word in shown
    assert "ready to use" in veil("systems", "platoon").stdout

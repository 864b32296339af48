"""Every template passes the examination of its contract as it stands."""

import runpy
from pathlib import Path

import pytest

from veil.checks.attack import check_attack
from veil.checks.learner import check_learner
from veil.checks.measure import check_measure
from veil.checks.policy import check_policy
from veil.checks.system import check_system

TEMPLATES = Path(__file__).parents[2] / "templates"
CHECKS = {
    "system": check_system,
    "policy": check_policy,
    "measure": check_measure,
    "attack": check_attack,
    "learner": check_learner,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_template_keeps_its_contract(name):
    example = runpy.run_path(str(TEMPLATES / f"{name}.py"))["example"]
    report = CHECKS[name](example)
    assert report.ok, str(report)
    # A bound by convexity also pays for what the components of one secret tell apart.
    expected = {"nothing"} if name == "measure" else set()
    assert {finding.rule for finding in report.findings} == expected, str(report)


def test_there_is_a_template_for_every_contract():
    assert {path.stem for path in TEMPLATES.glob("*.py")} == set(CHECKS)

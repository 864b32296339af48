"""What is found in a folder, and one sentence about whatever is wrong with it."""

import json
import os
from dataclasses import replace

import pytest

from tests.evaluation.made_audits import audit
from tests.reports.made_folders import (
    CHARGES,
    SETTINGS,
    audit_folder,
    certified,
    frontier_folder,
    ledger,
    metrics,
    run_folder,
)
from veil.learners import run as runs
from veil.learners.run import Run
from veil.registry import system_name
from veil.reports.blocks import ReportError
from veil.reports.sources import collect, gather


def test_a_run_brings_its_training_its_audit_and_its_ledger(tmp_path):
    found = collect(run_folder(tmp_path / "learned"))
    assert found.learned and found.name == "learned" and found.system == "platoon"
    assert (
        found.run is not None
        and found.run.history == tuple(metrics())
        and found.audit is not None
        and found.account is not None
    )
    assert found.account.total == pytest.approx(sum(CHARGES)) and found.note == ""
    assert found.audit.interval == pytest.approx((certified().lowest, certified().leakage.high))
    assert (
        found.audit_command("--scenarios")
        == f"veil audit platoon --policy {tmp_path / 'learned'} --scenarios --again"
    )


def test_an_audit_alone_knows_the_kind_of_its_policy_only(tmp_path):
    found = collect(audit_folder(tmp_path / "noise"))
    assert found.run is None and found.account is None and not found.learned
    assert (
        found.audit_command() == "veil audit platoon --policy POLICY --again"
    )  # made audits have no such class
    assert found.horizon == 50 and found.system == "platoon"


def test_hints_name_the_system_and_the_policy_as_the_command_line_does(tmp_path):
    made = replace(
        audit(), system="house", place="my/house.py:House", policy_flags=("--policy", "noise", "--sd", "1")
    )
    found = collect(audit_folder(tmp_path / "noise", made))
    assert found.system == "house"
    assert found.audit_command() == "veil audit my/house.py:House --policy noise --sd 1 --again"


def test_a_system_of_ones_own_has_one_name_in_runs_and_audits(tmp_path):
    """A run says where the system is, an audit from Python knows its class."""
    folder = run_folder(tmp_path / "learned", audited=False, shared=False)
    run = Run(replace(SETTINGS, system="my/house.py:House"))
    trained = replace(collect(folder), run=run)
    audited = collect(audit_folder(tmp_path / "noise", replace(audit(), system=system_name("House"))))
    assert trained.system == audited.system == "house" and trained.place == "my/house.py:House"
    assert system_name("IdmPlatoon") == "idm_platoon" == system_name("idm_platoon")


def test_an_audit_older_than_the_policy_is_doubted(tmp_path):
    folder = run_folder(tmp_path / "learned")
    old = (folder / runs.POLICY).stat().st_mtime - 3600
    os.utime(folder / "audit" / "audit.json", (old, old))
    assert "older than the policy" in collect(folder).note


def test_an_audit_of_another_system_is_doubted(tmp_path):
    folder = run_folder(tmp_path / "learned", audited=False)
    path = audit_folder(folder / "audit") / "audit.json"
    path.write_text(path.read_text().replace('"system": "platoon"', '"system": "gain"'))
    assert "another system, gain" in collect(folder).note


def test_two_folders_of_one_name_are_told_apart(tmp_path):
    folders = [audit_folder(tmp_path / one / "noise") for one in "ab"]
    assert [source.name for source in gather(folders).sources] == ["noise (1)", "noise (2)"]
    assert [source.name for source in gather(folders, names=["x", "y"]).sources] == ["x", "y"]


def unfinished(folder):
    run_folder(folder)
    content = json.loads((folder / runs.RUN).read_text())
    del content["result"], content["policy"]
    (folder / runs.RUN).write_text(json.dumps(content))


def spoiled_ledger(folder):
    path = ledger(folder / "ledger.jsonl")
    audit_folder(folder)
    path.write_bytes(path.read_bytes().replace(b'"charge":0.013', b'"charge":0.003'))


def spoiled_metrics(folder):
    run_folder(folder)
    (folder / "metrics.jsonl").write_text('{"upper": 1.0}\n')


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "no folder"),
        (lambda folder: folder.mkdir(), "neither run.json of a training nor audit.json"),
        (lambda folder: folder.write_text(""), "no folder"),
        (unfinished, "is not finished"),
        (spoiled_ledger, "broken at line 3"),
        (spoiled_metrics, "metrics.jsonl was changed"),
        (lambda folder: (run_folder(folder) / runs.POLICY).write_bytes(b""), "do not belong together"),
        (lambda folder: (run_folder(folder) / runs.RUN).write_text("{"), "is not the file of a run"),
    ],
)
def test_whatever_is_wrong_is_said_in_one_sentence(tmp_path, make, said):
    make(tmp_path / "it")
    with pytest.raises(ReportError, match=said.replace(".", r"\.")):
        collect(tmp_path / "it")


def test_runs_of_two_systems_are_not_put_side_by_side(tmp_path):
    first = audit_folder(tmp_path / "a")
    second = audit_folder(tmp_path / "b", audit())
    path = second / "audit.json"
    path.write_text(path.read_text().replace('"system": "platoon"', '"system": "gain"'))
    with pytest.raises(ReportError, match="Make a report for each"):
        gather([first, second])
    with pytest.raises(ReportError, match="is about gain, not platoon"):
        gather([first], frontier=frontier_folder(tmp_path / "f", "gain"))
    with pytest.raises(ReportError, match="as many names"):
        gather([first], names=["x", "y"])


@pytest.mark.parametrize("text", ["{", "{}", '{"points": []}', '{"points": [{"kind": "magic"}]}'])
def test_a_damaged_frontier_is_refused(tmp_path, text):
    folder = frontier_folder(tmp_path / "frontier")
    (folder / "frontier.json").write_text(text)
    with pytest.raises(ReportError, match="cut short or was changed"):
        gather([audit_folder(tmp_path / "a")], frontier=folder)
    with pytest.raises(ReportError, match="makes it"):
        gather([tmp_path / "a"], frontier=tmp_path)

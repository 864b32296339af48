"""`veil report` as its users meet it: paths, side by side, and one sentence about every mistake."""

import json

import pytest

from tests.command_lines import quick, veil
from tests.reports.made_folders import audit_folder, certified, frontier_folder, run_folder
from veil.cli import report as command
from veil.learners import run as runs
from veil.systems import Gain

BUILT = command.built


@pytest.fixture(scope="module", autouse=True)
def without_playing():
    """No system is built, so that no episode is played: that is tested by itself."""
    with quick(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "built", lambda name: None)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reported")
    audit_folder(folder / "true")
    run_folder(folder / "learned")
    frontier_folder(folder / "frontier")
    return folder


def test_two_runs_side_by_side(folders, tmp_path):
    page = tmp_path / "new" / "page.html"
    names = ["--names", "true data", "learned", "--title", "Both"]
    frontier = ["--frontier", folders / "frontier"]
    code, out, err = veil("report", folders / "true", folders / "learned", *names, *frontier, "--out", page)
    assert (code, err) == (0, "")
    for path in (page, page.with_suffix(".json"), page.with_suffix(".csv")):
        assert str(path) in out and path.exists()
    text = page.read_text()
    assert "<h1>Both</h1>" in text and text.count('<article class="card') == 2
    content = json.loads(page.with_suffix(".json").read_text())
    assert [run["verdict"] for run in content["runs"]] == ["certified_leak", "certifiable"]
    assert content["runs"][1]["numbers"]["leakage"]["high"] == certified().leakage.high


def test_without_names_folders_name_the_columns(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert veil("report", folders / "learned")[0] == 0
    content = json.loads((tmp_path / "report.json").read_text())
    assert [run["name"] for run in content["runs"]] == ["learned"]
    assert "What sharing tells about the driving style" in (tmp_path / "report.html").read_text()


def test_an_unfinished_run_is_refused_with_the_command_that_goes_on(folders, tmp_path):
    folder = run_folder(tmp_path / "half")
    content = json.loads((folder / runs.RUN).read_text())
    del content["result"], content["policy"]
    (folder / runs.RUN).write_text(json.dumps(content))
    code, _, err = veil("report", folders / "true", folder)
    again = f"veil train platoon --updates 40 --evaluate-every 20 --evaluation-episodes 64 --out {folder}"
    assert code == 2 and f"Go on with {again}" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "RUN [RUN ...] is missing"),
        (["nowhere"], "no folder nowhere"),
        (["{}"], "neither run.json of a training nor audit.json"),
        (["{}/true", "--names", "a", "b"], "one name per run: 1, not 2"),
        (["{}/true", "--out", "page.pdf"], "e.g. --out report.html"),
        (["{}/true", "--frontier", "{}"], "makes it"),
        (["{}/true", "--out", "{}/true/audit.json/page.html"], "cannot be written"),
        (["{}/true", "--nmes", "a"], "Did you mean --names?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_with_one_sentence(folders, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = veil("report", *(word.format(folders) for word in arguments))
    assert (code, out) == (2, "") and said in err
    assert err.startswith("veil report: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_only_systems_of_the_command_line_are_built():
    assert isinstance(BUILT("gain"), Gain) and BUILT("somebodys_plant") is None

"""Numbers of the pages against the files of results that they come from."""

import json
import re
from pathlib import Path

import pytest

from paper import (
    study_audits,
    study_control,
    study_fitting,
    study_learned_twin,
    study_learning,
    study_linkage,
    study_long_training,
    study_readings,
    study_recordings,
    study_workers,
    study_worlds,
)
from paper.reproduction import pages
from paper.reproduction.columns import BY_NAME

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"(?<![\w.:/=])[−+-]?\d+\.\d+(?![\w.]*\()")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text):
    """A page without its blocks of code and its words in code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def decimals(text):
    """All decimal numbers, without their signs."""
    return {match.group().lstrip("−+-") for match in NUMBER.finditer(text)}


@pytest.fixture(scope="module")
def results():
    return pages.published()


def test_the_page_of_results_says_what_its_file_says(results):
    page = text_of("paper/RESULTS.md")
    assert f"version {results['version']}" in page and results["command"] in page
    assert results["commit"] and results["commit"] in page
    for claim in results["claims"]:
        assert f"| {claim['text']} | {claim['threshold']} |" in page and claim["evidence"] in page
    for name, column in results["columns"].items():
        rows = [line for line in page.splitlines() if line.startswith(f"| {column['title']} |")]
        assert column["title"] == BY_NAME[name].title and len(rows) >= 4, name
        for what in ("fuel", "squared", "change"):
            entries = [f"{mean['value']:.3f} ± {1.96 * mean['error']:.3f}" for mean in column[what]]
            assert any(all(entry in row for entry in entries) for row in rows), (name, what)
        privacy = [row for row in rows if f"{column['distortion']['value']:.3f} ±" in row]
        assert privacy and pages.leakage(column).split(" (")[0] in privacy[0], name
    for name, course in results["trainings"].items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` | {course['learner']}"))
        assert f"| {course['updates']} | {course['episodes']} |" in row


def test_the_table_of_learners_is_that_of_the_reproduction(results):
    page = text_of("docs/learning.md")
    assert pages.learning_table(results) in page and pages.learning_words(results) in page


def test_the_measurements_of_learning_are_those_of_their_study():
    content, page = study_learning.read(), text_of("docs/learning.md")
    assert all(part in page for part in study_learning.tables(content))
    assert {"trained", "gain", "robust"} <= set(content)
    by_way = {(one["kind"], one["value"]): one for one in content["robust"]}
    worst = {way: max(high for _, high, _ in one["plants"].values()) for way, one in by_way.items()}
    assert worst["robust", 80.0] < 0.25 * worst["transport", 0.05]
    assert by_way["robust", 80.0]["distortion"] == pytest.approx(1.0, abs=0.05)
    known = decimals("\n".join(study_learning.tables(content)))
    section = page[page.index("## Measured on the platoon") : page.index("## A learner of your own")]
    assert decimals(prose(section)) <= known | {"1.386", "0.2", "0.5", "0.05", "1.0", "0.9", "0.75"}


def test_the_tables_of_audits_are_those_of_their_study():
    rows = study_audits.read(ROOT / "paper" / "audits.json")
    assert study_audits.short_table(rows) in text_of("README.md")
    assert study_audits.table(rows) in text_of("docs/audit.md")


def test_the_table_of_ways_of_sharing_is_that_of_its_study():
    cells = study_worlds.read()
    assert study_worlds.table(cells) in text_of("docs/choosing.md")
    assert (ROOT / study_worlds.PICTURE).exists() and study_worlds.PICTURE.name in text_of("docs/choosing.md")
    platoon = [cell for cell in cells if cell.system == "platoon" and cell.policy != study_worlds.FITTED]
    assert platoon == study_worlds.platoon_cells(ROOT / "paper" / "audits.json")
    for cell in cells:
        assert 0.0 <= cell.worst_low <= cell.entropy + 1e-9 and 0.0 <= cell.low <= cell.entropy
        if cell.worlds:
            best = max(world.mean - 3.0 * world.error for world in cell.worlds)
            assert cell.worst_low <= max(best, 0.0), "corrected for all attackers"
        for world in cell.worlds:
            assert world.high is None or world.mean - 3.0 * world.error <= world.high, (
                "below the exact reader"
            )


def test_the_table_of_learned_twins_is_that_of_its_study():
    assert study_learned_twin.table(study_learned_twin.read()) in text_of("docs/choosing.md")


def test_the_table_of_readings_is_that_of_its_study():
    content = study_readings.read()
    assert study_readings.table(content) in text_of("paper/deviations.md")
    assert study_readings.table(content) in text_of("paper/RESULTS.md")


def test_the_tables_of_the_printed_learner_are_those_of_their_studies():
    page = text_of("paper/deviations.md")
    assert study_long_training.table(study_long_training.read()) in page
    assert study_control.table(study_control.read()) in page


def test_every_decimal_number_of_the_first_page_is_in_a_file_of_results():
    """But for the settings that its sentences name."""
    rows = study_audits.read(ROOT / "paper" / "audits.json")
    known = decimals(study_audits.short_table(rows)) | {"1.386"}
    settings = {"0.25", "0.43", "0.06", "0.1", "3.4", "2602.04262", "3.11", "2.0"}
    assert decimals(prose(text_of("README.md"))) <= known | settings


def test_readings_drive_as_the_library_does():
    """The plain numpy of the study against the audited True Data row, by their errors."""
    mine = study_readings.read()["readings"]["C"]["true"]
    theirs = pages.published()["columns"]["true"]
    for what, error in zip(("fuel", "squared", "change"), mine["standard_errors"], strict=True):
        for value, mean in zip(mine[what], theirs[what], strict=True):
            assert value == pytest.approx(mean["value"], abs=5.0 * (mean["error"] ** 2 + error**2) ** 0.5), (
                what
            )


def test_files_of_results_are_strict_json():
    for name in (
        "results",
        "readings",
        "audits",
        "worlds",
        "budget",
        "resolution",
        "workers",
        "control",
        "long_training",
        "linkage",
    ):
        json.loads(text_of(f"paper/{name}.json"), parse_constant=lambda word: pytest.fail(word))


def test_the_figures_of_workers_are_those_of_their_study_and_all_audits_have_the_same_bits():
    found, page = study_workers.read(), text_of("docs/workers.md")
    assert study_workers.with_figures(page, found) == page
    assert [run["workers"] for run in found["audit"]] == [0, 1, 2, 4]
    assert len({run["digest"] for run in found["audit"]}) == 1


def test_the_tables_of_fits_are_those_of_their_studies():
    page = text_of("docs/fit.md")
    assert study_fitting.table(json.loads(text_of("paper/fitting.json"))) in page
    found = json.loads(text_of("paper/recordings.json"))
    assert study_recordings.table(found["rows"]) in page
    assert study_recordings.reasons(found["rows"]) in " ".join(page.split())
    assert f"{found['drivers']['drivers']:,} published" in page


def test_the_tables_of_linkage_are_those_of_their_study():
    """And what the page says in words about who is linked."""
    page, found = text_of("docs/linkage.md"), study_linkage.read()
    for names in (study_linkage.SIMULATED, study_linkage.ONE_HEADWAY, study_linkage.RECORDED):
        assert study_linkage.summary_table(found, names) in page
        assert study_linkage.attackers_table(found, names) in page
    assert study_linkage.price_table(found) in page and study_linkage.modelled_table(found) in page
    assert study_linkage.PICTURE.exists() and study_linkage.PICTURE.name in page
    assert len(study_linkage.linking(found["true data"])) >= 8
    assert study_linkage.linking(found["twin"]) == []
    for cell in found.values():
        assert all(len(row["places"]) == row["streams"] for row in cell.get("attackers", ()))

"""The documentation: its python blocks run, and what it names exists."""

import importlib
import inspect
import json
import math
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from paper import study_budget, study_pybamm, study_resolution, study_systems, study_twin, study_twin_limits
from tests.test_house import LAYERS
from veil.registry import POLICIES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page, monkeypatch):
    monkeypatch.setattr(POLICIES, "_registered", dict(POLICIES._registered))  # a page may add one
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": f"docs.{page.stem}"}
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback shows the page's line
        exec(compile("\n" * above + block.group(1), str(page), "exec"), namespace)


def test_a_flagged_block_is_skipped():
    text = "```python no-run\nboom\n```\n\n```python\nfine\n```\n"
    assert [block.group(1) for block in BLOCK.finditer(text)] == ["fine\n"]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/extending.md", "docs/own-system.md"])
def test_every_block_asserts_something(page):
    blocks = [block.group(1) for block in BLOCK.finditer(text_of(page))]
    assert blocks and all(re.search(r"^assert ", block, re.MULTILINE) for block in blocks)


def test_the_table_of_the_theory_names_tests_and_studies_that_exist():
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text_of("docs/concepts.md"))
    assert len(named) > 20
    for file, test in named:
        path = ROOT / file if file.startswith(("paper/", "tests/")) else ROOT / "tests" / file
        assert path.exists(), file
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"


def found(dotted):
    """What a dotted name stands for: attributes, and modules where there is no such attribute."""
    first, *rest = dotted.split(".")
    value, path = importlib.import_module(first), first
    for name in rest:
        path = f"{path}.{name}"
        value = getattr(value, name) if hasattr(value, name) else importlib.import_module(path)
    return value


def test_every_statement_of_the_theory_names_functions_that_exist():
    rows = re.findall(r"^\| (?!Statement|Definition|-)([^|]+)\| ([^|]+)\|", text_of("docs/concepts.md"), re.M)
    assert len(rows) > 25
    for statement, functions in rows:
        named = re.findall(r"`(veil\.[\w.]+)`", functions)
        assert named, f"{statement} has no function"
        assert all(found(name) is not None for name in named)


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/extending.md", "docs/concepts.md", "README.md"])
def test_names_of_the_library_in_a_page_exist(page):
    for name in re.findall(r"`(veil\.[a-z][\w.]*)", text_of(page)):
        if name != "veil.environment.Sharing":  # needs an extra
            found(name)


def test_files_named_in_the_pages_for_contributors_exist():
    for page in ("docs/extending.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`((?:veil|tests|templates|docs)/[\w/.]+)`", text_of(page)):
            assert "NAME" in name or (ROOT / name).exists(), f"{page} names {name}"


def reference():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "make_reference.py")))


def test_the_reference_is_current():
    advice = "run `python docs/make_reference.py`"
    assert text_of("docs/reference.md") == reference().page(), advice


def test_every_public_name_is_described():
    made = reference()
    for title in ["veil", *made.modules()]:
        module = importlib.import_module(title)
        folder = inspect.getsourcefile(module)
        assert hasattr(module, "__all__") or not str(folder).endswith("__init__.py"), (
            f"{title} lists no names"
        )
        for name in made.names(module):
            assert made.summary(module, name), f"{title}.{name} has no docstring"


def test_the_table_of_budgets_is_that_of_its_study():
    """Every cell as the study wrote it, and what the page says about all of them."""
    cells = study_budget.read(ROOT / "paper" / "budget.json")
    page = text_of("docs/budget.md")
    assert study_budget.table(cells) in page
    assert len(cells) == 14 and all(cell.holds for cell in cells)
    above = [cell for cell in cells if cell.excess > 2.0 * cell.excess_error]
    assert {cell.policy for cell in above} <= {"transport"} and max(cell.excess for cell in above) <= 3e-4
    telling = [cell for cell in cells if cell.divergence > 0.01]
    ratios = [cell.error / cell.divergence_error for cell in telling]
    assert min(ratios) >= 1.35 and max(ratios) <= 6.0


def test_the_table_of_the_twin_is_that_of_its_study():
    """Every row as the study wrote it, and what the page says about all of them."""
    results = json.loads(text_of("paper/twin.json"))
    assert study_twin.table(results) in text_of("docs/twin.md")
    assert {one["world"] for one in results} == set(study_twin.worlds())
    for one in results:
        (lower, upper, error), (bound, _) = one["exact"], one["bound"]
        most = {5000: 0.07, 50000: 0.01}[one["history"]]
        assert max(upper, lower) <= most and upper <= bound
        assert one["regressions"] <= upper + 3 * error
        if one["history"] == 5000:
            assert 1 / 2.2 <= bound / one["law"] <= 2.2
        ratio, most = one["distortion"][1] / one["counterfactual_distortion"][1], 1.1
        if one["world"] == "FVD, noise law by driver":
            most = {"white": 1.6, "by driver": 1.4}[one["standard"]]
        assert most - 0.1 < ratio <= most or ratio <= 1.1 == most


def test_the_tables_of_strained_twins_are_those_of_their_study():
    """Every row as the study wrote it, and what the page says about them."""
    results, page = json.loads(text_of("paper/twin_limits.json")), text_of("docs/twin.md")
    study = study_twin_limits
    tables = study.stops_table, study.runs_table, study.rounding_table, study.learning_table
    assert all(table(results) in page for table in tables)
    assert set(results) <= set(study_twin_limits.cells())
    for name, one in results.items():
        if name.startswith("rounding"):
            assert one["leaks"][1] <= 0.02 and one["refused live"] == (name == "rounding 0.05")
        if name in ("wrong 0.8", "wrong 1.2"):
            assert 0.35 <= one["never"]["leaks"][0] <= one["never"]["leaks"][1] <= 0.5
            assert 0.2 < one["guard"]["acts"] < 0.3 and one["guard"]["step"] > 30
            assert 5.4 <= one["never"]["bound"][0] <= 5.6
        if "never" in one:
            assert one["never"]["leaks"][1] <= one["never"]["bound"][0] + 3 * one["never"]["bound"][1]
        if name.startswith("learns, wrong"):
            assert one["leaks"][0] < 0.01 and one["leaks"][1] <= 0.15
            assert 0.3 < one["bound"][0] < 0.45
        if "twenty" in one:
            assert one["twenty"][1] <= one["bound"][0] + 3 * one["bound"][1]
            assert one["twenty"][1] <= 20 * one["one"][1] + 3 * one["twenty"][2]


def test_the_table_of_resolutions_is_that_of_its_study():
    """Every cell as the study wrote it, and what the page says about all of them."""
    cells = study_resolution.read(ROOT / "paper" / "resolution.json")
    page = text_of("docs/resolution.md")
    assert study_resolution.table(cells) in page
    faulty = ("read as exact", "uniform noise")
    sound = [cell for cell in cells if cell.policy not in faulty]
    for cell in sound:
        if cell.ratio <= 0.5:
            assert all(gain - 3.0 * error <= 0.01 for gain, error in cell.gains.values()), cell
        if cell.policy == "counterfactual":
            assert cell.verdict == "certifiable" and cell.upper is not None and cell.upper < 1e-4
    by_name = {(cell.system, cell.policy, cell.resolution): cell for cell in cells}
    assert abs(by_name["platoon", "uniform noise", 0.01].best[1] - 0.5) < 0.1
    assert all(cell.best[1] > 1.0 for cell in cells if cell.policy == "read as exact")


def test_the_tables_of_the_systems_are_those_of_their_study():
    cells = study_systems.read(ROOT / "paper" / "systems.json")
    for system in study_systems.MAKE:
        own = {cell.policy: cell for cell in cells if cell.system == system}
        assert study_systems.table(cells, system) in text_of(f"docs/{system}.md")
        assert own["counterfactual"].verdict == "certifiable" and own["counterfactual"].low == 0.0
        assert own["true data"].low > 0.5 * own["true data"].entropy
        assert own["noise"].low > own["transport"].low == 0.0


def test_what_the_page_of_the_battery_says_about_simulated_cells_is_in_their_file():
    """The table, and that the fits find what the simulator was given."""
    rows = study_pybamm.read(ROOT / "paper" / "pybamm.json")
    page = text_of("docs/battery.md")
    assert study_pybamm.table(rows) in page
    assert all(row.verdict == "model_does_not_fit" for row in rows)
    for row in (one for one in rows if one.estimates):
        (series, _), (inner, _), (storage, _), (capacity, error) = row.estimates.values()
        assert abs(capacity - row.capacity) < error
        fallen = series + inner * (1.0 - math.exp(-5.0 / (inner * storage)))
        assert abs(fallen - row.resistance) < 1.2  # as the page says
        told = (f"{row.capacity:.2f} Ah", f"{row.resistance:.1f} mV", f"{fallen:.1f}")
        assert all(number in page for number in told), told


def test_the_order_of_layers_is_told_as_it_is_enforced():
    listed = re.search(
        r"only from modules before it in this list:\n\n(.*?)\.\n\n", text_of("CONTRIBUTING.md"), re.S
    )
    assert listed and tuple(re.findall(r"`(\w+)`", listed.group(1))) == LAYERS

"""Every python block of the documentation runs: one namespace per page, in order."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page):
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": f"docs.{page.stem}"}
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback shows the page's line
        exec(compile("\n" * above + block.group(1), str(page), "exec"), namespace)


def test_a_flagged_block_is_skipped():
    text = "```python no-run\nboom\n```\n\n```python\nfine\n```\n"
    assert [block.group(1) for block in BLOCK.finditer(text)] == ["fine\n"]


def test_the_table_of_the_theory_names_tests_and_studies_that_exist():
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 20
    for file, test in named:
        path = ROOT / file if file.startswith(("paper/", "tests/")) else ROOT / "tests" / file
        assert path.exists(), file
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"

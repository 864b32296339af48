"""The parts of a reproduction: figures, tables, learning curves, and the page with all of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from paper.reproduction import figures, files, report, tables
from paper.reproduction.claims import Claim, claims
from paper.reproduction.engine import Work
from paper.reproduction.summary import drives, summaries
from veil.io import replace_text

PAGE = "RESULTS.md"


def figure_1(work: Work) -> list[Path]:
    """Posterior on the true secret and misdetections, one picture per learned column."""
    return _per_column(work, "figure_1", figures.figure_1)


def figure_2(work: Work) -> list[Path]:
    """True and estimated states, one picture per learned column."""
    return _per_column(work, "figure_2", figures.figure_2)


def _per_column(work: Work, name: str, draw: Callable[..., Path]) -> list[Path]:
    paths = []
    for column in work.learned:
        study = work.study(column.name)
        assert study.read is not None  # learned policies publish their kernels
        title = f"{column.title}: a reader with {work.extent.particles} particles per secret"
        secrets = np.asarray(study.system.prior.secrets)
        paths.append(draw(title, study.read, secrets, _pictures(work) / f"{name}_{column.name}.png"))
    return paths


def table_1(work: Work) -> list[Path]:
    """Fuel."""
    return [replace_text(_made(work.folder) / "table_1.md", tables.table_1(drives(work)))]


def table_2(work: Work) -> list[Path]:
    """Accelerations."""
    return [replace_text(_made(work.folder) / "table_2.md", tables.table_2(drives(work)))]


def learning_curves(work: Work) -> list[Path]:
    """Leakage and distortion over the time of training, all learned columns in one picture."""
    courses = {column.title: work.study(column.name).history for column in work.learned}
    return [figures.learning(courses, _pictures(work) / "learning_curves.png")] if courses else []


def everything(work: Work) -> tuple[list[Path], list[Claim]]:
    """All of it, and the page that says what came out; the page is the first of the paths."""
    found = summaries(work)
    claimed = claims(found)
    pictures = [*figure_1(work), *figure_2(work), *learning_curves(work)]
    page = replace_text(work.folder / PAGE, report.results(work, found, claimed, pictures))
    made = [*table_1(work), *table_2(work), *files.write(found, claimed, work.extent, work.folder)]
    return [page, *pictures, *made], claimed


PARTS: dict[str, Callable[[Work], list[Path]]] = {
    "figure_1": figure_1,
    "figure_2": figure_2,
    "table_1": table_1,
    "table_2": table_2,
    "learning_curves": learning_curves,
}


def _pictures(work: Work) -> Path:
    return _made(work.folder / "pictures")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder

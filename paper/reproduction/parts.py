"""The parts of a reproduction: figures, tables, learning curves, and the page with all of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from paper.reproduction import figures, files, report, tables
from paper.reproduction.claims import Claim, claims
from paper.reproduction.courses import courses
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
        if column.run:  # their numbers are in the tables
            continue
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
    own = [column for column in work.learned if not column.run]
    lines = {column.title: work.study(column.name).history for column in own}
    made = [figures.learning(lines, _pictures(work) / "learning_curves.png")] if lines else []
    found = courses(work)
    printed = {name: one for name, one in found.items() if one.value}
    if printed:
        made.append(figures.printed_courses(printed, _pictures(work) / "printed_learner.png"))
    discrete = {name: one for name, one in found.items() if one.learner.startswith("a2c")}
    if discrete:
        made.append(figures.discrete_courses(discrete, _pictures(work) / "discrete_learners.png"))
    return made


def everything(work: Work) -> tuple[list[Path], list[Claim]]:
    """All of it, and the page that says what came out, which is the first of the paths."""
    found = summaries(work)
    claimed, trained, commit = claims(found), courses(work), files.commit()
    pictures = [*figure_1(work), *figure_2(work), *learning_curves(work)]
    page = replace_text(work.folder / PAGE, report.results(work, found, claimed, trained, pictures, commit))
    written = files.write(work, found, claimed, trained, commit)
    return [page, *written, *pictures, *table_1(work), *table_2(work)], claimed


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

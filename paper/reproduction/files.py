"""A reproduction as files: everything as strict JSON, the tables as CSV. Both speak nats."""

import csv
import io
import json
import shutil
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from paper.reproduction.claims import Claim
from paper.reproduction.courses import Course
from paper.reproduction.engine import Work
from paper.reproduction.printed import PRINTED
from paper.reproduction.summary import Reader, Summary
from veil.io import plain, replace_text, write_json
from veil.results.parts import leakage_to_dict
from veil.stats import Mean
from veil.version import __version__

COLUMNS = ("column", "quantity", "secret", "value", "error", "printed")

PER_SECRET = ("fuel", "squared", "change", "speed", "extra")

_BESIDE: dict[tuple[str, str | None], tuple[float, ...]] = {
    (what, who): values for what, rows in PRINTED.items() for who, values in rows.items()
}

OVERALL = ("distortion", "bound", "clamped")


def write(
    work: Work, found: dict[str, Summary], claimed: list[Claim], trained: dict[str, Course], sources: str
) -> list[Path]:
    """Write results.json and results.csv; a reader finds the old file or the new one, never half of one.

    Args:
        work: the reproduction.
        found: of every column.
        claimed: the claims, held against them.
        trained: the trainings behind them.
        sources: commit that made them; empty where that is not known.
    """
    content: dict[str, object] = {
        "unit": "nats",
        "version": __version__,
        "commit": sources,
        "command": "make reproduce-full" if work.full else "make reproduce",
        "sittings": sittings(work.folder),
        "extent": asdict(work.extent),
        "claims": [asdict(one) for one in claimed],
        "columns": {name: _column(one) for name, one in found.items()},
        "trainings": {name: asdict(one) for name, one in trained.items()},
        "seconds": {name: round(work.study(name).seconds, 1) for name in found},
        "processor_seconds": processor(work),
        "printed": PRINTED,
    }
    text = json.dumps(plain(content), indent=1, allow_nan=False, ensure_ascii=False)
    return [
        replace_text(work.folder / "results.json", text + "\n"),
        replace_text(work.folder / "results.csv", table(found)),
    ]


def processor(work: Work) -> dict[str, dict[str, float]]:
    """Seconds of processor time by column and stage; of the columns of the full run, their trainings."""
    found = {one.name: work.study(one.name).processor for one in work.columns}
    found |= {one.name: {"training": work.study(one.name).trained_for} for one in work.more}
    return {name: {part: round(spent, 1) for part, spent in parts.items()} for name, parts in found.items()}


SITTINGS = "sittings.json"


def sit_down(folder: Path) -> None:
    """Note that work on this folder begins or goes on, and from which sources."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder / SITTINGS, [*sittings(folder), {"began": now, "commit": commit()}])


def sittings(folder: Path) -> list[dict[str, str]]:
    """When work on this folder began and went on, and from which sources."""
    path = folder / SITTINGS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def commit() -> str:
    """The commit of these sources, with a plus where files differ from it; empty outside of a repository."""
    here = Path(__file__).parent
    try:
        said = [
            subprocess.run(
                ["git", *words], cwd=here, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--", "*.py"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said[0] + ("+" if said[1] else "")


def _column(one: Summary) -> dict[str, object]:
    line: dict[str, object] = {"title": one.column.title, "printed": one.column.printed}
    line |= {"trusted": one.trusted, "verdict": one.verdict, "reasons": one.reasons, "method": one.method}
    line |= {"leakage": leakage_to_dict(one.leakage), "reader": one.reader and asdict(one.reader)}
    line |= {"attacker": one.attacker and asdict(one.attacker)}
    line |= {name: [asdict(mean) for mean in getattr(one.drive, name)] for name in PER_SECRET}
    line |= {"overall": asdict(one.drive.overall)}
    return line | {name: (mean := getattr(one, name)) and asdict(mean) for name in OVERALL}


def table(found: dict[str, Summary]) -> str:
    """One row per number; `secret` is counted from 1 and empty where all are meant."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, one in found.items():
        for quantity in PER_SECRET:
            printed = _BESIDE.get((quantity, one.column.printed), ())
            _rows(writer, name, quantity, getattr(one.drive, quantity), printed)
        if one.reader is not None:
            _reader(writer, name, one.reader)
        overall = {quantity: getattr(one, quantity) for quantity in OVERALL}
        overall |= {
            "extra": one.drive.overall,
            "leakage_lower": one.leakage.lower,
            "leakage_upper": one.leakage.upper,
        }
        for quantity, mean in overall.items():
            if mean is not None:
                writer.writerow((name, quantity, "", plain(mean.value), plain(mean.error), ""))
    return text.getvalue()


def _rows(writer, name: str, quantity: str, means: tuple[Mean, ...], printed: tuple[float, ...]) -> None:
    for place, mean in enumerate(means):
        beside = printed[place] if printed else ""
        writer.writerow((name, quantity, place + 1, plain(mean.value), plain(mean.error), beside))


def _reader(writer, name: str, reader: Reader) -> None:
    _rows(writer, name, "posterior", reader.posterior, ())
    _rows(writer, name, "missed", reader.missed, ())
    for axis, error in zip(("speed", "spacing"), reader.tracking, strict=True):
        writer.writerow((name, f"tracking_{axis}", "", error, "", ""))


PICTURES = ("figure_?_*.png", "learning_curves.png", "printed_learner.png", "discrete_learners.png")


def publish(paths: list[Path], folder: Path) -> list[Path]:
    """Copy RESULTS.md, results.json and the pictures; links stay right, old pictures of it go."""
    place = folder / "pictures"
    place.mkdir(parents=True, exist_ok=True)
    pictures = [path for path in paths if path.suffix == ".png"]
    for old in (path for names in PICTURES for path in place.glob(names)):
        old.unlink()
    copies = [Path(shutil.copyfile(path, place / path.name)) for path in pictures]
    texts = [path for path in paths if path.name in ("RESULTS.md", "results.json")]
    return [replace_text(folder / path.name, path.read_text(encoding="utf-8")) for path in texts] + copies

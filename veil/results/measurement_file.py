"""Measurements as files: everything as strict JSON, a line each as CSV. Both speak nats."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from veil.io import plain, replace_text
from veil.results import measurement_text as words
from veil.results.measurement import ERRORS, Measurement

COLUMNS = (
    *("recording", "verdict", "survives", "rows", "told", "told_error", "low", "high", "filter_error"),
    *("disagreement", "drop", "as_it_is", "discounted", "discounted_error", "entropy", "likeliest", "odds"),
    *("fit_p_value", "method"),
)


def write(found: Sequence[Measurement], folder: Path) -> list[Path]:
    """Write measure.json and measure.csv, each in one move."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(content(found)), indent=2, allow_nan=False, ensure_ascii=False)
    return [
        replace_text(folder / "measure.json", text + "\n"),
        replace_text(folder / "measure.csv", table(found)),
    ]


def content(found: Sequence[Measurement]) -> dict[str, object]:
    """All fields of measure.json."""
    from veil.version import __version__

    return {"unit": "nats", "version": __version__, "recordings": [one(each) for each in found]}


def one(found: Measurement) -> dict[str, object]:
    """One recording."""
    return {
        **line(found),
        "system": found.system,
        "policy": found.policy,
        "sentence": words.sentence(found),
        "reasons": found.verdict.reasons,
        "advice": words.advice(found),
        "assumptions": words.assumptions(found),
        "standard_errors": ERRORS,
        "options": asdict(found.options),
        "secrets": found.secrets,
        "believed": found.believed,
        "posterior": found.masses,
        "discounted_posterior": found.honest,
        "drop_error": found.drop.error,
        "fit": asdict(found.fit) | {"ok": found.fit.ok, "weights": found.fit.weights()},
        "trail": found.trail,
    }


def line(found: Measurement) -> dict[str, object]:
    """The numbers of one line of the table."""
    values = (
        *(found.name, found.verdict.name, found.verdict.survives, found.steps, found.told.value),
        *(found.told.error, found.low, found.high, found.filter_error, found.disagreement, found.drop.value),
        *(found.as_it_is, found.honest_told.value, found.honest_told.error, found.entropy),
        *(words.secret(found, found.likeliest), found.odds, found.fit.p_value, found.method),
    )
    return dict(zip(COLUMNS, values, strict=True))


def table(found: Sequence[Measurement]) -> str:
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line(each) for each in found)
    return text.getvalue()

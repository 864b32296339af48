"""The ratios of every version so far, in `bench/history.jsonl`, and what became worse since the last entry.

Ratios to peers in the same run hardly depend on the machine; seconds do, and are not kept. Versions from
before this file were measured anew: their own `python -m bench.run --only ...`, in the environment of today.
"""

import json
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench import report

FILE = Path(__file__).parent / "history.jsonl"

BUSY = 1.0  # load before the run above which peers with threads starve and no entry is written

LEAST = 0.05  # a change below this is noise, however steady the two runs were

# What is kept of each comparison: where its ratios and their noise are, and whether more is better.
KEPT = {"particle_filter": True, "mixture_entropy": True, "door": False}


def ratios(found: dict[str, dict]) -> dict[str, dict[str, float | bool]]:
    """The ratios of a run by name, each with its relative noise and its direction."""
    return {
        f"{comparison}: {name}": {
            "value": float(f"{value:.4g}"),
            "noise": float(f"{found[comparison]['noise'][name]:.2g}"),
            "more_is_better": better,
        }
        for comparison, better in KEPT.items()
        if comparison in found
        for name, value in found[comparison]["ratios"].items()
    }


def worse(before: dict, now: dict) -> list[str]:
    """One line for each ratio that became worse by more than the noise of both runs."""
    lines = []
    for name, new in now.items():
        old = before.get(name)
        if old is None:
            continue
        change = new["value"] / old["value"] if new["more_is_better"] else old["value"] / new["value"]
        if change < 1.0 - max(LEAST, old["noise"] + new["noise"]):
            lines.append(f"{name}: {new['value']:.3g}, was {old['value']:.3g}")
    return lines


def entries() -> list[dict]:
    """All entries, the oldest first."""
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def compare(found: dict[str, dict], *, load: float, write: bool, version: str | None) -> None:
    """Print the history and what became worse since the last entry; write an entry if asked to.

    Args:
        found: what the comparisons returned, by name.
        load: of the machine before the run.
        write: whether to add this run to the file.
        version: what to call it; by default the installed version and the commit.
    """
    now, past = ratios(found), entries()
    if not now:
        return
    shown = past[-2:]  # more do not fit beside the names
    title = version or _version()
    rows = [
        [name, *(_number(entry["ratios"].get(name)) for entry in shown), _number(value)]
        for name, value in now.items()
    ]
    columns = ["ratio", *(entry["version"] for entry in shown), f"now ({title})"]
    note = "Times faster than the peer, and times the kernel's time for the door."
    report.table("Ratios by version", columns, rows, note)
    if load > BUSY:
        report.console.print(f"The machine was busy (load {load:g}): compare with care. No entry is written.")
    elif write:
        entry = {"version": title, "date": datetime.now(UTC).date().isoformat(), "ratios": now}
        with FILE.open("a") as file:
            file.write(json.dumps(entry) + "\n")
    if not past:
        report.console.print("No entry to compare with yet.")
        return
    lines = worse(past[-1]["ratios"], now)
    for line in lines:
        report.console.print(f"[yellow]worse[/] {line}")
    last = past[-1]["version"]
    summary = f"{len(lines)} of {len(now)} ratios became worse than noise since {last}."
    report.console.print(summary if lines else f"Nothing became worse than noise since {last}.")


def _number(entry: dict | None) -> str:
    return "–" if entry is None else f"{entry['value']:.3g} ± {100 * entry['noise']:.0f} %"


def _version() -> str:
    """Installed version and commit."""
    asked = ["git", "-C", str(FILE.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return " ".join(part for part in (metadata.version("veil"), commit) if part)

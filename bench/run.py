"""`python -m bench.run`: every comparison in one run, as tables and as JSON."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import tyro

from bench import history, report

Comparison = Literal[
    "mixture_entropy",
    "particle_filter",
    "door",
    "scaling",
    "attackers",
    "learning",
    "live",
    "charges",
    "fitting",
]
COMPARISONS = get_args(Comparison)
QUICK = ("mixture_entropy", "particle_filter", "door")  # what the history keeps


@dataclass(frozen=True)
class Bench:
    """Compare with peers and print cost against size. Nothing here fails for being slow."""

    fast: bool = False
    """small sizes and few repeats, under a minute: shows that everything runs, not how fast"""
    out: Path = Path("bench/results")
    """folder for the JSON files"""
    only: Comparison | None = None
    """one comparison instead of all"""
    quick: bool = False
    """the hot loops only, at full size: two to three minutes"""
    write: bool = False
    """add the ratios to bench/history.jsonl"""
    version: str | None = None
    """name of the entry; by default the installed version and the commit"""

    def run(self) -> None:
        """Run, print, write."""
        machine = report.machine()
        report.console.print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load']}")
        report.console.print(
            ", ".join(f"{name} {version}" for name, version in report.versions().items()) + "\n"
        )
        everything, found = QUICK if self.quick else COMPARISONS, {}
        for name in (self.only,) if self.only else everything:
            # Imported here: an old version that is measured anew has not all that the others use.
            found[name] = importlib.import_module(f"bench.{name}").run(self.out, fast=self.fast)
            report.write(self.out, name, {"machine": machine, "fast": self.fast, **found[name]})
        report.console.print(f"Written to {self.out}/.")
        if not self.fast:
            history.compare(found, load=machine["load"][0], write=self.write, version=self.version)


if __name__ == "__main__":
    tyro.cli(Bench, prog="python -m bench.run").run()

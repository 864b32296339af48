"""`python -m bench.run`: every comparison in one run, as tables and as JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from bench import attackers, charges, learning, live, mixture_entropy, particle_filter, report, scaling

COMPARISONS = {
    "mixture_entropy": mixture_entropy.run,
    "particle_filter": particle_filter.run,
    "scaling": scaling.run,
    "attackers": attackers.run,
    "learning": learning.run,
    "live": live.run,
    "charges": charges.run,
}


@dataclass(frozen=True)
class Bench:
    """Compare with peers and print cost against size. Nothing here fails for being slow."""

    fast: bool = False
    """small sizes and few repeats, under a minute: shows that everything runs, not how fast"""
    out: Path = Path("bench/results")
    """folder for the JSON files"""
    only: (
        Literal["mixture_entropy", "particle_filter", "scaling", "attackers", "learning", "live", "charges"]
        | None
    ) = None
    """one comparison instead of all"""

    def run(self) -> None:
        """Run, print, write."""
        machine = report.machine()
        report.console.print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load']}")
        report.console.print(
            ", ".join(f"{name} {version}" for name, version in report.versions().items()) + "\n"
        )
        for name in [self.only] if self.only else COMPARISONS:
            found = COMPARISONS[name](self.out, fast=self.fast)
            report.write(self.out, name, {"machine": machine, "fast": self.fast, **found})
        report.console.print(f"Written to {self.out}/.")


if __name__ == "__main__":
    tyro.cli(Bench, prog="python -m bench.run").run()

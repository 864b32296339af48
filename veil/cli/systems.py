"""`veil systems`: which systems there are, and what the library says about one of them."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import REFUSED, Mistake, complain
from veil.cli.parser import Flag
from veil.cli.subject import build_system, check_system
from veil.registry import SYSTEMS, fit_folder, system_name

if TYPE_CHECKING:
    from veil.systems.base import Field, System
    from veil.systems.series import Series


@dataclass(frozen=True)
class Systems:
    """List the systems with a secret, or examine one of them.

    Exit code 0: ready to use; 3: not ready, and the errors say why; 2: a mistake on the command line.

    Example: `veil systems platoon`
    """

    name: Annotated[str, Flag("[SYSTEM]", positional=True, names=SYSTEMS)] = ""
    """{names}, or your own as FILE.py:NAME; by default all of ours"""

    def run(self) -> None:
        """Print the list or the examination."""
        if not self.name:
            print("\n\n".join(describe(name, build_system(name)) for name in SYSTEMS))
            print("\nExamine one of them with `veil systems NAME`.")
            return
        from veil.checks.system import check_system as examine

        try:
            check_system(self.name)
            system = build_system(self.name)
        except Mistake as mistake:
            complain("systems", mistake)
        print(describe(self.name, system))
        print()
        report = examine(system)
        print(report)
        if not report.ok:
            sys.exit(REFUSED)


def describe(name: str, system: "System") -> str:
    """What is secret, what is private, what is public, what is shared; and the secrets of the prior."""
    from veil.results.text import duration
    from veil.systems.base import series_of

    kinds = (
        ("secret", system.secret_fields),
        ("state", system.state_fields),
        ("external", system.external_fields),
        ("series", system.exogenous_fields),
        ("shared", system.shared_fields),
    )
    lines = [f"  {kind:<9} {', '.join(map(label, fields))}" for kind, fields in kinds if fields]
    series = series_of(system)
    if series is not None:
        lines.insert(4, f"            {rows_of(series)}")
    if system.step_seconds is not None:
        lines.append(f"  step      {duration(float(system.step_seconds))}")
    if system.cost_fields:
        parts = (f"{part.weight:g} × {part.name} [{part.unit or 1}]" for part in system.cost_fields)
        lines.append(f"  cost      {' + '.join(parts)}")
    values = (", ".join(f"{float(number):g}" for number in secret) for secret in system.prior.secrets)
    count, entropy = len(system.prior.secrets), float(system.prior.entropy)
    lines.append(f"  prior     {count} secrets ({'), ('.join(values)}); H(q) = {entropy:.3f} nats")
    doc = (type(system).__doc__ or "a system of your own").strip().splitlines()[0]
    about = SYSTEMS.about(name) if name in SYSTEMS else doc
    if fit_folder(name) is not None:
        about = f"{system.nouns.owner}, as `veil fit` found it in recordings"
    return "\n".join([f"{system_name(name)}: {about}", *lines])


def rows_of(series: "Series") -> str:
    """How many rows there are, from when to when, and which one the first step uses."""
    from veil.systems.series import later

    rows = f"{series.rows} rows"
    if series.begins is None or series.seconds is None:
        return f"{rows}; step 1 is row {series.start}"
    first = later(series.begins, series.seconds * series.start)
    return f"{rows}, {series.span}; step 1 is row {series.start}, {first}"


def label(field: "Field") -> str:
    """Name and unit of a field, its resolution if it has one, and whether only the owner knows it."""
    unit = f" [{field.unit}]" if field.unit else ""
    step = f" in steps of {field.resolution:g}" if field.resolution else ""
    return field.name + unit + step + (" (private)" if field.private else "")

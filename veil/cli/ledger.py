"""`veil ledger`: what a stream has leaked so far, whether its ledger holds, and whether its charges do."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from veil.cli.console import Mistake, bars, complain, grid, known
from veil.cli.parser import Flag
from veil.cli.share import EXHAUSTED, LEDGER
from veil.cli.subject import RUN, PolicyChoice, build_system, check_code, is_own, run_system
from veil.registry import SYSTEMS, system_name

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.sharing.account import Account
    from veil.sharing.recompute_charges import RecomputedCharges


HEADS = ("step", "decision", "charge", "total", "remaining", "ESS share", "ms", "computed again", "by")

TOTALS = ("decision", "steps", "nats")

PLACE = "default: ledger.png beside the ledger"

TOO_LITTLE = 1  # exit code where a charge was too low


@dataclass(frozen=True)
class Ledger:
    """Verify a ledger, print its charges and draw them; may run while the stream goes on.

    With --recompute the public history is replayed and every release is charged again by a stronger
    method; the policy's flags are then those that `veil share` was given. Neither needs the secret.
    Exit code 2: the ledger is broken, or a mistake on the command line; 1: a step was charged too
    little.

    Example: `veil ledger runs/platoon-pathwise --recompute`
    """

    run_or_file: Annotated[Path, Flag("RUN", positional=True)]
    """Folder of `veil train` or of `veil share`, or the file of the ledger"""
    rows: int = 20
    """Steps to print, the last ones"""
    recompute: bool = False
    """Charge every release again, by a stronger method"""
    system: Annotated[str, Flag("FILE.py:NAME", default="")] = ""
    """System of the ledger, where it is your own and no run says where"""
    trust_code: bool = False
    """Run the Python file that the folder names as its system; only for folders of your own making"""
    out: Annotated[Path | None, Flag(default=PLACE)] = None
    """File for the picture"""
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    on_exhausted: str = "blind"
    """What `veil share` does at the end of the budget"""
    horizon: int = 50
    """Steps over which `veil share` divides the budget"""
    charge_particles: int = 0
    """Particles per secret that `veil share` charges by"""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if self.rows < 0:
            raise Mistake("--rows is a count of steps, 0 or more.")
        known("--on-exhausted", self.on_exhausted, EXHAUSTED)
        flags = self.sharing, self.on_exhausted, self.horizon, self.charge_particles
        if not self.recompute and flags != (PolicyChoice(), "blind", 50, 0):
            raise Mistake("the flags of the policy are for --recompute; add it, or leave them out.")
        if self.recompute and self.trained and self.sharing != PolicyChoice():
            raise Mistake(f"{self.trained} has its own policy; leave out --policy and its flags.")
        self.sharing.check()

    @property
    def file(self) -> Path:
        """The file of the ledger."""
        place = self.run_or_file
        if place.is_file():
            return place
        found = [one for one in (place / "share" / LEDGER, place / LEDGER) if one.exists()]
        if not found:
            raise Mistake(f"no ledger in {place}. `veil share` writes one, as {place / 'share' / LEDGER}.")
        return found[0]

    @property
    def trained(self) -> Path | None:
        """The folder of the run that the ledger belongs to, if it does."""
        folder = self.file.resolve().parent.parent
        return folder if (folder / RUN).exists() else None

    def run(self) -> None:
        """Verify the chain, print the account, draw it."""
        from veil.sharing.account import read_account
        from veil.sharing.ledger import LedgerError

        try:
            account = read_account(self.file)
        except (Mistake, LedgerError, OSError) as error:
            complain("ledger", error)
        print(f"{account.path}: the chain holds, {len(account)} entries.")
        if account.note:
            print(account.note)
        again = self.charged_again(account) if self.recompute else []
        self.show(account, again)
        try:
            print(f"\nWritten to {self.draw(account, again)}")
        except OSError as error:
            complain("ledger", error)
        if any(one.short > 0.0 for one in again):
            sys.exit(TOO_LITTLE)

    def charged_again(self, account: "Account") -> "list[RecomputedCharges]":
        """By a stronger method; what is wrong with the flags ends the program here."""
        from veil.io import StoreError
        from veil.sharing.ledger import LedgerError
        from veil.sharing.recompute_charges import rebuilt, recompute_charges

        try:
            policy = self.build(account)
            if policy.has_memory:
                raise Mistake(
                    "a policy with private memory has no charges to compute; leave out --recompute."
                )
            made = rebuilt(
                policy,
                account,
                exhausted=self.on_exhausted,  # pyright: ignore[reportArgumentType]
                steps=self.horizon,
                particles=self.charge_particles,
            )
            with progress() as report:
                return recompute_charges(made, account, report)
        except (Mistake, StoreError, LedgerError, OSError, ValueError) as error:
            complain("ledger", error)

    def build(self, account: "Account") -> "Policy":
        """The policy with the system that the ledger names."""
        name = account.about["system"]
        own = run_system(self.trained) if self.trained and name not in SYSTEMS else name
        place = self.system or own
        if self.trained and not self.system and is_own(own):
            check_code(self.trained, self.trust_code)
        if system_name(place) != name or not (is_own(place) or place in SYSTEMS):
            raise Mistake(f"the ledger is about {name}; say where that is, as --system FILE.py:{name}.")
        choice = replace(self.sharing, policy=str(self.trained)) if self.trained else self.sharing
        return choice.build(build_system(place), place)

    def show(self, account: "Account", again: "list[RecomputedCharges]") -> None:
        """The last steps, the sums, and what computing them again says."""
        begin = max(1, len(account) - self.rows + 1)
        rows = [row(entry, again) for entry in account.entries(begin)]
        grid(f"\nLast {len(rows)} steps, nats", HEADS, rows)
        counts = account.counts().items()
        grid("All steps", TOTALS, [(name, str(count), f"{nats:.6g}") for name, (count, nats) in counts])
        for line in (*sums(account), *compared(account, again)):
            print(line)

    def draw(self, account: "Account", again: "list[RecomputedCharges]") -> Path:
        """The picture, beside the ledger or where it was asked for."""
        from veil.sharing import ledger_plot as ledger_chart

        path = self.out or account.path.parent
        path = path / "ledger.png" if path.is_dir() else path
        return ledger_chart.draw(account, path, [one.value for one in again])


def row(entry: dict, again: "list[RecomputedCharges]") -> tuple[str, ...]:
    """The row of one step."""
    from veil.sharing.ledger import release_of

    receipt = release_of(entry).receipt
    better = again[receipt.step - 1] if again else None
    return (
        str(receipt.step),
        receipt.decision,
        f"{receipt.charge:.6f}",
        f"{receipt.total:.6f}",
        "" if math.isinf(receipt.remaining) else f"{receipt.remaining:.6f}",
        "" if receipt.effective is None else f"{receipt.effective:.0%}",
        f"{receipt.milliseconds:.1f}",
        "" if better is None else f"{better.value:.6f}",
        "" if better is None or better.method == "nothing" else better.method,
    )


def sums(account: "Account") -> Iterator[str]:
    """Total, budget, alarm and the largest charge, in words."""
    total = f"{account.total:.6g} nats ({account.total / math.log(2):.6g} bits) charged"
    if math.isfinite(account.budget):
        yield f"{total}, {account.budget - account.total:.6g} left of a budget of {account.budget:.6g} nats."
    else:
        yield f"{total}; there is no budget."
    if account.about.get("unproved"):
        fields = ", ".join(account.about["unproved"])
        yield (
            f"These totals are not proved: the sensor reads {fields} in steps too coarse for charges by "
            "Kalman filters, and the stream was begun with --accept-unproved-charges."
        )
    declared = account.about.get("declared")
    if declared:
        yield (
            f"Charged by declaration, {declared['rate']:.3g} nats per release: the self-model was fitted to "
            f"at least {declared['steps']:g} steps, estimated at most {declared['numbers']:g} numbers, and "
            f"no rival gains more than {declared['rival_gain']:g} nats in {declared['horizon']:g} steps. "
            "This adds up estimates, and is not a proof."
        )
    if account.start > 0.0:
        yield f"Of it {account.start:.2g} nats for what an alarm can tell, charged at the start."
    if account.alarmed:
        yield (
            f"Alarm: the plant is not the model. Charges mean nothing from step {account.alarmed - 1} on, "
            "where the stream went blind."
        )
    step, charge = account.largest()
    if charge > 0.0:
        yield f"Largest charge: {charge:.6g} nats at step {step}."


def compared(account: "Account", again: "list[RecomputedCharges]") -> Iterator[str]:
    """What the stronger method says about the charges, in words."""
    from veil.sharing.recompute_charges import totals

    if not again:
        return
    value, error = totals(again)
    value += account.start
    rest = f" ({value / account.total:.2%} of it)" if account.total > 0.0 else ""
    yield f"Charged {account.total:.6g} nats, computed again {value:.6g} ± {error:.1g} nats{rest}."
    same = sum(one.method == "live" for one in again)
    if same:
        yield f"Releases without a stronger method than their charge: {same}; they count as charged."
    worst = max(again, key=lambda one: one.short)
    if worst.short > 0.0:
        yield (
            f"Step {worst.step} was charged {worst.charged:.6g} nats, too little: it leaked "
            f"{worst.value:.6g}, {worst.short:.2g} above what numerical error explains."
        )
    else:
        yield "No step was charged too little."


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line now and then elsewhere."""
    if sys.stderr.isatty():
        with bars(transient=True) as shown:
            bar = shown.add_task("charging again", total=None)
            yield lambda done, total: shown.update(bar, completed=done, total=total)
        return
    yield (
        lambda done, total: (
            None if done % 1000 else print(f"charging again, {done} of {total}", file=sys.stderr, flush=True)
        )
    )

"""`veil demo`: train, audit, share live and report on the platoon, in one go."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veil.cli.audit import Audit
from veil.cli.console import Mistake, complain
from veil.cli.report import Report
from veil.cli.subject import build_system
from veil.cli.train import Train
from veil.settings import AuditSettings, TrainSettings

if TYPE_CHECKING:
    from veil.learners.run import Run
    from veil.results import Audit as Found
    from veil.sharing.account import Account


SYSTEM, SECRET = "platoon", 2  # the third driver is the simulated one

NAMES = ("true data", "learned")

TITLE = "What shared platoon data tell about the driver"

BUDGET = 0.1  # nats

RESOLUTION = 0.001  # of the sensor, m/s and m


@dataclass(frozen=True)
class Size:
    """How much of everything.

    Attributes:
        training: of the policy.
        audit: of both ways of sharing.
        live: steps of the live stream.
        pause: between two of them, s.
    """

    training: TrainSettings
    audit: AuditSettings
    live: int
    pause: float


FULL = Size(
    TrainSettings(updates=100, evaluate_every=50, evaluation_episodes=64),
    AuditSettings(episodes=256, assisted=False),
    50,
    0.15,
)

FAST = Size(
    TrainSettings(updates=2, episodes=4, evaluate_every=2, evaluation_episodes=8),
    AuditSettings(steps=5, episodes=8, assisted=False),
    5,
    0.0,
)


@dataclass(frozen=True)
class Demo:
    """See all of it on the platoon: train a policy, audit it beside true data, share live and report.

    Takes about three minutes on two cores. Ctrl-C (exit code 130) keeps what is finished: the same command
    goes on.

    Example: `veil demo --out demo`
    """

    out: Path = Path("demo")
    """Folder for the runs and the report"""
    fast: bool = False
    """Tiny sizes: shows that all works, not what comes out (no unit)"""

    @property
    def size(self) -> Size:
        """How much of everything."""
        return FAST if self.fast else FULL

    def run(self) -> None:
        """Do what is missing, then tell."""
        from veil.io import StoreError

        began = time.monotonic()
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            folders = self.out / "true", self.out / "learned"
            say("1 of 4: training a policy that shares little about the driver")
            self.ready(folders[0])
            fresh = self.trained(folders[1])
            say("2 of 4: auditing true data and the policy, as an adversary would")
            for folder in folders:
                self.audited(folder, again=fresh and folder == folders[1])
            say(f"3 of 4: sharing live from a simulated vehicle, with a budget of {BUDGET:g} nats")
            self.shared(folders[1], again=fresh)
            say("4 of 4: writing the report")
            paths = Report(folders, self.out / "report.html", NAMES, TITLE).write()
            self.tell(folders, paths[0], time.monotonic() - began)
        except KeyboardInterrupt:
            print(f"Stopped. What is done is kept in {self.out}; the same command goes on.", file=sys.stderr)
            sys.exit(130)
        except (Mistake, StoreError, OSError) as mistake:
            complain("demo", mistake)

    def ready(self, folder: Path) -> None:
        """The run of true data, which needs no training."""
        train = Train(policy="truth", out=folder)
        if self.begun(train) is None:
            train.begin()
            train.make(train.settings, ())

    def trained(self, folder: Path) -> bool:
        """The policy; whether it was trained now."""
        train = Train(training=self.size.training, steps=self.size.audit.steps, out=folder)
        found = self.begun(train)
        if found is None:
            train.begin()
        if found is not None and found.finished:
            return False
        train.make(train.settings, ())
        return True

    def begun(self, train: Train) -> "Run | None":
        """The run in a folder of the demo; refuses another one."""
        from veil.learners import run as runs

        run = runs.Run.load(train.folder) if (train.folder / runs.RUN).exists() else None
        if run is not None and run.settings != train.settings:
            raise Mistake(f"{train.folder} holds something else than this demo. Give another --out.")
        return run

    def audited(self, folder: Path, *, again: bool) -> None:
        """The audit of a run, unless it is there."""
        audit = Audit(str(folder), extent=self.size.audit, again=again)
        if (audit.folder / "audit.json").exists() and not again:
            return
        system, policy = audit.build()
        found = audit.measure(system, policy)
        found.save_pictures(audit.folder)
        found.save(audit.folder)

    def shared(self, folder: Path, *, again: bool) -> None:
        """A few seconds of a live stream, unless they are there; a simulated vehicle always begins anew."""
        from veil.cli.demo_stream import Vehicle, view
        from veil.learners import run as runs
        from veil.sharing import snapshots
        from veil.sharing.account import read_account
        from veil.sharing.sharer import Sharer

        ledger, size = folder / "share" / "ledger.jsonl", self.size
        if ledger.exists() and not again and len(read_account(ledger)) >= size.live:
            return
        for old in (ledger, snapshots.beside(ledger)):
            old.unlink(missing_ok=True)
        system = build_system(SYSTEM)
        vehicle = Vehicle(system, SECRET, seed=size.audit.seed)
        policy = runs.load_policy(folder, system)
        with (
            Sharer(policy, SECRET, budget=BUDGET, ledger=ledger, resolution=RESOLUTION) as sharer,
            view(system.shared_fields) as show,
        ):
            for _ in range(size.live):
                release = sharer.share(vehicle.state.tolist(), vehicle.external.tolist())
                show(vehicle.state, release)
                vehicle.go_on(release.shared)
                time.sleep(size.pause)

    def tell(self, folders: tuple[Path, Path], page: Path, seconds: float) -> None:
        """Five lines of result, and where the report is."""
        from veil.results import Audit as Found
        from veil.sharing.account import read_account

        true, learned = (Found.load(folder / "audit") for folder in folders)
        account = read_account(folders[1] / "share" / "ledger.jsonl")
        print("\n" + "\n".join(result_lines(true, learned, account)))
        print(f"\nThe report, after {seconds / 60:.1f} minutes: {page}")


def say(text: str) -> None:
    """Print the title of the next stage."""
    print(text, file=sys.stderr, flush=True)


MARGIN = 11  # letters of the first word of each line


def result_lines(true: "Found", learned: "Found", account: "Account") -> list[str]:
    """What true data tell, what the policy tells, what it is good for, what it costs, what was spent live."""
    return [
        _line("True data", learned_by_adversary(true)),
        _line("Learned", learned_by_adversary(learned)),
        _line("Use", usefulness(learned)),
        _line("Cost", cost(learned)),
        _line("Live", spent(account)),
    ]


def learned_by_adversary(found: "Found") -> str:
    """How well the best adversary guesses, and what it learns."""
    from veil.results.text import at_least, interval_text, percent

    (low, _), entropy, best = found.interval, found.leakage.entropy, found.best_attack
    guess = (
        ""
        if best is None
        else f"names the right {found.nouns.candidate} {percent(best.accuracy.value)} of the time "
    )
    guess += f"({percent(found.chance)} by chance)" if best is not None else ""
    if found.verdict.certified:
        amount = f"learns {interval_text(found.interval, entropy)} of {entropy:.3f} nats"
    elif found.verdict.refused:
        amount = "nothing is certified: assume that everything may leak"
    else:
        amount = f"learns at least {at_least(low)} of {entropy:.3f} nats"
    worst = found.worst_scenario
    if worst is not None:
        amount += f" as modelled, and at least {at_least(worst.low)} in the worst of {worst.scenarios} other "
        amount += f"worlds ({worst.scenario.name})"
    return f"an adversary {guess}; {amount}."


def spent(account: "Account") -> str:
    """What the live stream was charged."""
    from veil.results.text import charged

    return f"{len(account)} releases, {charged(account.total)} charged of a budget of {account.budget:g}."


def usefulness(found: "Found") -> str:
    """How far off the receiver is."""
    from veil.results.parts import TRACKING

    distortion = found.quantity("distortion")
    errors = [
        f"{row.value.value:.2f} {row.unit} in {row.name.removeprefix(TRACKING)}"
        for row in found.utility
        if row.name.startswith(TRACKING)
    ]
    mean = "" if distortion is None else f" (mean distortion {distortion.value.value:.2f})"
    return f"whoever receives the data is off by {' and '.join(errors)}{mean}."


def cost(found: "Found") -> str:
    """Fuel against true data."""
    from veil.results.text import change_text

    row = found.quantity("cost")
    return "unknown." if row is None or row.change is None else f"fuel {change_text(row)} against true data."


def _line(word: str, text: str) -> str:
    return f"{word:<{MARGIN}}{text}"

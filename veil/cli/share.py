"""`veil share`: a live stream between the sensor and the network."""

import gc
import importlib.util
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

from veil.cli.console import Mistake, complain, known
from veil.cli.parser import Flag
from veil.cli.subject import PolicyChoice, check_subject, run_folder, subject
from veil.registry import SYSTEMS, system_name

if TYPE_CHECKING:
    from veil.sharing.sharer import Sharer


EXHAUSTED = ("withhold", "blind", "blur")

LEDGER = "ledger.jsonl"

STOPPED = 1  # exit code of --strict at a fault, and where nothing can be written


USUAL_PORT = 1883  # of an MQTT broker


@dataclass(frozen=True)
class Network:
    """The way in and out."""

    mqtt: Annotated[str, Flag("HOST[:PORT]", default="default: none; stdin and stdout")] = ""
    """MQTT 5 broker to stream over, at least once each way; needs the extra veil[mqtt]"""
    topic_in: Annotated[str, Flag("TOPIC", default="")] = ""
    """Topic of the inputs, one JSON object per message"""
    topic_out: Annotated[str, Flag("TOPIC", default="")] = ""
    """Topic of the releases; readers drop repeats by step"""

    def check(self) -> None:
        """Refuse what cannot be connected to."""
        given = (self.mqtt, self.topic_in, self.topic_out)
        if not any(given):
            return
        if not all(given):
            raise Mistake("--mqtt, --topic-in and --topic-out go together; give all three or none.")
        if any(sign in topic for topic in given[1:] for sign in "+#"):
            raise Mistake("--topic-in and --topic-out are single topics, without + and #.")
        if self.topic_in == self.topic_out:
            raise Mistake("--topic-in and --topic-out must differ, or releases would come back as inputs.")
        self.address()
        if importlib.util.find_spec("paho") is None:
            raise Mistake("--mqtt needs the package paho-mqtt; install it with `pip install 'veil[mqtt]'`.")

    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        try:
            parts = urlsplit(f"//{self.mqtt}")
            if parts.hostname and parts.netloc == self.mqtt and parts.username is None:
                return parts.hostname, parts.port or USUAL_PORT
        except ValueError:  # a port that is none
            pass
        raise Mistake("--mqtt is HOST or HOST:PORT, e.g. --mqtt localhost:1883.")

    def serve(self, sharer: "Sharer", tell: Callable[[str], None]) -> int:
        """Share until the input ends; gives the number of faults. Over MQTT it ends by Ctrl-C only."""
        if not self.mqtt:
            from veil.sharing.stream import serve

            return serve(sharer, sys.stdin.buffer, sys.stdout.buffer, tell)
        from veil.sharing import mqtt

        mqtt.serve(sharer, mqtt.Route(*self.address(), self.topic_in, self.topic_out), tell)


@dataclass(frozen=True)
class Share:
    """Share a live stream within a budget: JSON lines in on stdin, JSON lines out on stdout.

    In:  {"step": 1, "state": {"speed": 15.1, "spacing": 19.8}, "external": {...}}
    Out: {"step": 1, "shared": {"speed": 15.0, "spacing": 19.9}}, or null where nothing is shared.

    Every release is in the ledger before it goes out; started again with the same ledger, the stream
    goes on where it was, and steps that were released are answered with the same bytes.
    Exit code 2: a mistake on the command line; 1: a fault with --strict, or a file or output that
    cannot be written; 130: stopped by Ctrl-C.

    Example: `veil share runs/platoon-pathwise --secret-file driver.json --budget 0.1 < sensor.jsonl`
    """

    run_or_system: Annotated[str, Flag("RUN", positional=True, names=SYSTEMS)]
    """Folder of `veil train`, or a system ({names}, FILE.py:NAME) together with --policy"""
    secret_file: Path
    """JSON file with the secret, its index in the prior or its values; mode 0600"""
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    budget: float = math.inf
    """Nats that the whole stream may leak; without one they are only counted"""
    on_exhausted: str = "blind"
    """What a release that would overspend gets: withhold, blind or blur"""
    horizon: int = 50
    """Steps over which `blur` divides the budget"""
    charge_particles: int = 0
    """Particles per secret to charge by; 0 for Kalman filters, or the policy's own belief"""
    ledger: Annotated[Path | None, Flag(default="default: RUN/share/ledger.jsonl")] = None
    """File of the ledger"""
    seed: Annotated[int | None, Flag(default="default: drawn")] = None
    """Public seed of a new ledger (no unit)"""
    strict: bool = False
    """Stop at the first fault instead of withholding that release"""
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        """Refuse what cannot be shared."""
        known("--on-exhausted", self.on_exhausted, EXHAUSTED)
        if not self.budget >= 0.0:
            raise Mistake("--budget is a number of nats, 0 or more, e.g. --budget 0.1.")
        if self.horizon < 1 or self.charge_particles < 0:
            raise Mistake("--horizon and --charge-particles are counts; give positive numbers.")
        if self.seed is not None and not 0 <= self.seed < 1 << 31:
            raise Mistake("--seed must be between 0 and 2147483647.")
        check_subject(self.run_or_system, self.sharing)
        self.network.check()

    @property
    def file(self) -> Path:
        """The file of the ledger."""
        name = f"{system_name(self.run_or_system)}-{self.sharing.policy}"
        folder = run_folder(self.run_or_system) or Path(name)
        return self.ledger or folder / "share" / LEDGER

    def run(self) -> None:
        """Share until the input ends."""
        import jax

        from veil.sharing.inputs import Fault

        no_core_dumps()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # for a quick restart
        gc.disable()  # tracing makes many objects, and nearly all of them stay
        sharer = self.open()
        gc.freeze()
        gc.enable()
        tell(f"ready at step {sharer.next_step}; ledger {self.file}")
        try:
            faults = self.network.serve(sharer, tell)
        except Fault as fault:
            tell(f"{fault} Stopped (--strict). The same command goes on.")
            sys.exit(STOPPED)
        except OSError as error:
            give_up(error)
        except KeyboardInterrupt:
            tell("stopped. The same command goes on.")
            sys.exit(130)
        finally:
            sharer.close()
        spent, left = sharer.accountant.total(), sharer.accountant.remaining()
        rest = "" if math.isinf(left) else f", {left:.4g} left"
        tell(f"{sharer.next_step - 1} steps, {spent:.4g} nats charged{rest}, {faults} faults.")

    def open(self) -> "Sharer":
        """The sharer; what is wrong with files ends the program here, by name and never by content."""
        from veil.io import StoreError
        from veil.sharing.inputs import SecretError, in_prior, read_secret
        from veil.sharing.ledger import LedgerError
        from veil.sharing.sharer import Sharer

        try:
            place, _, policy = subject(self.run_or_system, self.sharing)
            secret = read_secret(self.secret_file, policy.system)
            if not in_prior(secret, policy.system):
                tell("the secret is none of the prior's, and charges speak of those only.")
            sharer = Sharer(
                policy,
                secret,
                budget=self.budget,
                exhausted=self.on_exhausted,  # pyright: ignore[reportArgumentType]
                steps=self.horizon,
                particles=self.charge_particles,
                seed=self.seed,
                ledger=self.file,
                memory=self.secret_file.with_name(self.secret_file.name + ".memory"),
                strict=self.strict,
                system=system_name(place),
                progress=replayed,
            )
        except (Mistake, StoreError, LedgerError, SecretError, OSError, ValueError) as error:
            complain("share", error)
        if sharer.ledger.note:
            tell(sharer.ledger.note)
        return sharer


def tell(text: str) -> None:
    """A line for the owner."""
    print(f"veil share: {text}", file=sys.stderr, flush=True)


def give_up(error: OSError) -> NoReturn:
    """End where a file or the output cannot be written; nothing went out that is not in the ledger."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it would fail again at the end
    reason = (error.strerror or str(error)).rstrip(".")
    if isinstance(error, BrokenPipeError):
        reason = "nobody reads the output any more"
    tell(f"{reason}. The same command goes on.")
    sys.exit(STOPPED)


def replayed(done: int, total: int) -> None:
    """Progress on long ledgers."""
    if total > 2000 and done % 2048 == 0:
        tell(f"replaying the ledger, {done} of {total}")


def no_core_dumps() -> None:
    """A dump of this process would hold the secret."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

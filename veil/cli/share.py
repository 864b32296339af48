"""`veil share`: a live stream between the sensor and the network."""

import contextlib
import gc
import importlib.util
import ipaddress
import math
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

from veil.cli.console import Mistake, complain, known
from veil.cli.parser import Flag
from veil.cli.subject import (
    PolicyChoice,
    SensorChoice,
    check_subject,
    live_twin,
    run_folder,
    subject,
    trust_words,
)
from veil.registry import SYSTEMS, fit_folder, system_name

if TYPE_CHECKING:
    from veil.policies.base import Policy
    from veil.sharing.sharer import Sharer


EXHAUSTED = ("withhold", "blind", "blur")

DECIDED = {
    "released": "released",
    "blurred": "blurred",
    "blind": "blind",
    "withheld": "withheld",
    "alarmed": "blind or withheld by an alarm",
    "fault": "without a usable line",
    "gap": "left out of the input",
}
"""What the last line of a stream calls the steps of each decision."""

ON_ALARM = ("blind", "stop", "warn")

LEDGER = "ledger.jsonl"

PR_SET_DUMPABLE = 4  # of Linux

STOPPED = 1  # exit code of --strict at a fault, and where nothing can be written

ALARMED = 4  # exit code where an alarm ended the stream


PORTS = {False: 1883, True: 8883}  # of an MQTT broker, in clear and by TLS

USER, PASSWORD = "VEIL_MQTT_USER", "VEIL_MQTT_PASSWORD"  # in the environment


@dataclass(frozen=True)
class Network:
    """The way in and out. True states come in: off this machine they travel by TLS."""

    mqtt: Annotated[str, Flag("HOST[:PORT]", default="default: none; stdin and stdout")] = ""
    """MQTT 5 broker to stream over, at least once each way; needs the extra veil[mqtt]"""
    topic_in: Annotated[str, Flag("TOPIC", default="")] = ""
    """Topic of the inputs, one JSON object per message"""
    topic_out: Annotated[str, Flag("TOPIC", default="")] = ""
    """Topic of the releases; readers drop repeats by step"""
    mqtt_tls: bool = False
    """Encrypt, and verify the broker's certificate (port 8883 unless given)"""
    mqtt_ca: Annotated[Path | None, Flag(default="default: those of the machine")] = None
    """PEM file of the authorities that the broker's certificate must come from"""
    mqtt_cert: Annotated[Path | None, Flag(default="")] = None
    """PEM file of our own certificate, where the broker asks for one"""
    mqtt_key: Annotated[Path | None, Flag(default="")] = None
    """PEM file of its private key; mode 0600"""
    mqtt_login: Annotated[Path | None, Flag(default="default: VEIL_MQTT_USER, VEIL_MQTT_PASSWORD")] = None
    """File of user and password, one per line; mode 0600"""
    mqtt_in_clear: bool = False
    """Let true states cross the network unencrypted"""

    def check(self) -> None:
        """Refuse what cannot be connected to, and what must not be sent in clear."""
        given = (self.mqtt, self.topic_in, self.topic_out)
        secure = (self.mqtt_tls, self.mqtt_ca, self.mqtt_cert, self.mqtt_key, self.mqtt_login)
        if not any(given):
            if any(secure) or self.mqtt_in_clear:
                raise Mistake("the flags of MQTT need --mqtt, --topic-in and --topic-out.")
            return
        if not all(given):
            raise Mistake("--mqtt, --topic-in and --topic-out go together; give all three or none.")
        if any(sign in topic for topic in given[1:] for sign in "+#"):
            raise Mistake("--topic-in and --topic-out are single topics, without + and #.")
        if self.topic_in == self.topic_out:
            raise Mistake("--topic-in and --topic-out must differ, or releases would come back as inputs.")
        self._check_security(self.address()[0])
        if importlib.util.find_spec("paho") is None:
            raise Mistake("--mqtt needs the package paho-mqtt; install it with `pip install 'veil[mqtt]'`.")

    def _check_security(self, host: str) -> None:
        if not self.mqtt_tls and (self.mqtt_ca or self.mqtt_cert or self.mqtt_key):
            raise Mistake("--mqtt-ca, --mqtt-cert and --mqtt-key are for --mqtt-tls; add it.")
        if bool(self.mqtt_cert) != bool(self.mqtt_key):
            raise Mistake("--mqtt-cert and --mqtt-key go together; give both or none.")
        if self.mqtt_tls and self.mqtt_in_clear:
            raise Mistake("--mqtt-tls and --mqtt-in-clear exclude each other.")
        if not self.mqtt_tls and not self.mqtt_in_clear and not _is_local(host):
            raise Mistake(
                f"true states would cross the network to {host} in clear. Add --mqtt-tls, or --mqtt-in-clear "
                "if everybody on the way may read them."
            )

    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        try:
            parts = urlsplit(f"//{self.mqtt}")
            if parts.hostname and parts.netloc == self.mqtt and parts.username is None:
                return parts.hostname, parts.port or PORTS[self.mqtt_tls]
        except ValueError:  # a port that is none
            pass
        raise Mistake("--mqtt is HOST or HOST:PORT, e.g. --mqtt localhost:1883.")

    def login(self) -> tuple[str, str] | None:
        """User and password, from the file or the environment; never from the command line."""
        if self.mqtt_login is None:
            user = os.environ.get(USER, "")
            return (user, os.environ.get(PASSWORD, "")) if user else None
        _check_private(self.mqtt_login)
        lines = self.mqtt_login.read_text(encoding="utf-8").splitlines()
        if len(lines) != 2 or not lines[0]:
            raise Mistake(f"{self.mqtt_login} needs two lines: the user, and the password.")
        return lines[0], lines[1]

    def serve(self, sharer: "Sharer", tell: Callable[[str], None], pace: float = 0.0) -> int:
        """Share until the input ends; gives the number of faults. Over MQTT it ends by Ctrl-C only.

        Args:
            sharer: shares.
            tell: told what the owner should know.
            pace: seconds; answers leave at multiples of it after their input came.
        """
        if not self.mqtt:
            from veil.sharing.stream import serve

            return serve(sharer, sys.stdin.buffer, sys.stdout.buffer, tell, pace)
        from veil.sharing import mqtt

        if self.mqtt_key is not None:
            _check_private(self.mqtt_key)
        tls = mqtt.Tls(self.mqtt_ca, self.mqtt_cert, self.mqtt_key) if self.mqtt_tls else None
        route = mqtt.Route(*self.address(), self.topic_in, self.topic_out, tls, self.login())
        mqtt.serve(sharer, route, tell, pace)


def _is_local(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise Mistake(f"{path} can be read by others. Protect it with `chmod 600 {path}`.")


@dataclass(frozen=True)
class Share:
    """Share a live stream within a budget: JSON lines in on stdin, JSON lines out on stdout.

    In:  {"step": 1, "state": {"speed": 15.1, "spacing": 19.8}, "external": {...}}
    Out: {"step": 1, "shared": {"speed": 15.0, "spacing": 19.9}, "head": "5f..."}; shared is null where
    nothing is, step is null where a line has none that can be read.

    Every release is in the ledger before it goes out; started again with the same ledger, the stream
    goes on where it was, and steps that were released are answered with the same bytes. Beside the
    secret, SECRET.account keeps its key, how far each stream went, and what all of them spent.
    Exit code 2: a mistake on the command line; 1: a fault with --strict, or a file or output that
    cannot be written; 4: stopped by an alarm; 130: stopped by Ctrl-C.

    Example: `veil share runs/platoon-pathwise --secret-file driver.json --resolution 0.01 < in.jsonl`
    """

    run_or_system: Annotated[str, Flag("RUN", positional=True, names=SYSTEMS)]
    """Folder of `veil train`, or a system ({names}, FILE.py:NAME) together with --policy"""
    secret_file: Path
    """JSON file with the secret, its index in the prior or its values; mode 0600"""
    sharing: PolicyChoice = field(default_factory=PolicyChoice)
    sensor: SensorChoice = field(default_factory=SensorChoice)
    budget: float = math.inf
    """Nats that all streams of this secret may leak; without one they are only counted"""
    on_exhausted: str = "blind"
    """Instead of overspending: withhold, blind or blur"""
    horizon: int = 50
    """Steps over which `blur` divides the budget"""
    charge_particles: int = 0
    """Particles per secret to charge by; 0 for Kalman filters, or the policy's own belief"""
    ledger: Annotated[Path | None, Flag(default="default: RUN/share/ledger.jsonl")] = None
    """File of the ledger"""
    seed: Annotated[int | None, Flag(default="default: drawn")] = None
    """Public seed of a new ledger (no unit)"""
    on_alarm: str = "blind"
    """What happens when the plant is not the model: blind, stop or warn (the owner only)"""
    alarm_level: Annotated[float | None, Flag(default="default: 0.0001, twins 0.01")] = None
    """Probability of ever an alarm under a right model"""
    accept_uncharged: bool = False
    """Share although the secret is none of the prior's, so that charges do not speak of it"""
    accept_unproved_charges: bool = False
    """Share although the sensor is too coarse for the charges to be proved; the ledger says so"""
    trust_code: bool = False
    """Run the Python file that the folder names as its system; only for folders of your own making"""
    declared: Annotated[str, Flag("N,P,NATS", default="")] = ""
    """What a twin by a fit says of it: steps, numbers, a rival's gain"""
    max_gap: int = 100
    """Steps that may be left out at once; a line further ahead is a fault and takes no step"""
    pace: float = 0.0
    """Milliseconds; an answer leaves at a multiple of this after its line came (0: at once)"""
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
        known("--on-alarm", self.on_alarm, ON_ALARM)
        if self.alarm_level is not None and not 0.0 < self.alarm_level <= 0.5:
            raise Mistake("--alarm-level is a probability above 0 and up to 0.5, e.g. --alarm-level 0.0001.")
        if not 0 <= self.max_gap <= 100_000 or not 0.0 <= self.pace <= 60_000.0:
            raise Mistake("--max-gap is a count up to 100000, --pace a time up to 60000 ms.")
        check_subject(self.run_or_system, self.sharing, self.trust_code)
        if self.declared and not self.by_fit:
            raise Mistake("--declared goes with the folder of a `veil fit` and --policy twin.")
        self.declaration()
        self.network.check()

    @property
    def by_fit(self) -> bool:
        """Whether this is a twin whose self-model is a fit."""
        return self.sharing.policy == "twin" and fit_folder(self.run_or_system) is not None

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
        from veil.sharing.ledger import LedgerError
        from veil.sharing.secret_account import AccountError
        from veil.sharing.sharer import AlarmStop

        keep_to_itself()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # for a quick restart
        gc.disable()  # tracing makes many objects, and nearly all of them stay
        sharer = self.open()
        gc.freeze()
        gc.enable()
        tell(f"ready at step {sharer.next_step}; ledger {self.file}")
        try:
            faults = self.network.serve(sharer, tell, 1e-3 * self.pace)
        except Fault as fault:
            tell(f"{fault} Stopped (--strict). The same command goes on.")
            sys.exit(STOPPED)
        except AlarmStop:  # told when it came, or at the start
            tell(self.ended(sharer))
            sys.exit(ALARMED)
        except (LedgerError, AccountError) as error:
            tell(str(error))
            sys.exit(STOPPED)
        except Mistake as mistake:
            complain("share", mistake)
        except OSError as error:
            give_up(error)
        except KeyboardInterrupt:
            tell(f"{self.ended(sharer)} Stopped. The same command goes on.")
            sys.exit(130)
        else:
            said = self.ended(sharer, faults)
        finally:
            sharer.close()
        tell(said)

    def ended(self, sharer: "Sharer", faults: int | None = None) -> str:
        """How many steps were released, how many not and why, what was charged, and what to do next.

        Args:
            sharer: at the end of its stream.
            faults: lines that could not be used; None where they are in the counts only.
        """
        from veil.sharing.ledger import opening

        counts, steps = sharer.ledger.decisions, sharer.next_step - 1
        shown = [f"{counts[name]} {word}" for name, word in DECIDED.items() if counts[name]]
        wrong = "" if faults is None else f", {faults} faults"
        said = [f"{steps} steps: {', '.join(shown) or 'none'}; {sums(sharer)}{wrong}."]
        if self.by_fit:  # also withheld in the pre-roll, and blind where inputs are new
            rate = sharer.ledger.about["declared"]["rate"]
            if sharer.left < rate:
                said.append(
                    f"The budget of {self.budget:g} nats is at its end: a release is charged {rate:g} nats, "
                    "as declared. A fit to more steps keeps a declaration with a lower rate (with another "
                    "--ledger); or give a larger --budget with another --ledger; what was spent stays spent."
                )
            return " ".join(said)
        short = {name: counts[name] for name in ("blind", "withheld", "blurred") if counts[name]}
        if short and math.isfinite(self.budget):
            what = " and ".join(f"{number} {name}" for name, number in short.items())
            said.append(f"The budget of {self.budget:g} nats did not pay for what is {what}.")
            full, each = counts["released"], sharer.accountant.total() - opening(sharer.ledger.about)
            if full and not counts["blurred"]:
                said.append(f"The {full} released cost {each / full:.2g} nats each.")
            said.append(
                f"To release more, share by a policy that tells less ({self.audit_words()} says how much a "
                "run tells), or give a larger --budget with another --ledger; what was spent stays spent."
            )
        return " ".join(said)

    def audit_words(self) -> str:
        """The command that audits what is shared here."""
        run = run_folder(self.run_or_system)
        flags = trust_words(run) if run else self.sharing.words()
        words = ["veil", "audit", self.run_or_system, *flags, *self.sensor.words()]
        return f"`{shlex.join(words)}`"

    def open(self) -> "Sharer":
        """The sharer; what is wrong with files ends the program here, by name and never by content."""
        from veil.io import StoreError
        from veil.sharing.declared import Declared
        from veil.sharing.inputs import SecretError, in_prior, read_private, read_secret
        from veil.sharing.ledger import LedgerError
        from veil.sharing.sharer import Sharer

        try:
            fit, declared = None, None
            if self.by_fit:
                asked = read_private(self.secret_file)
                place, policy, fit = live_twin(self.run_or_system, self.sharing, self.sensor, named(asked))
                said = self.declaration()
                secret, declared = fit.values, None if said is None else Declared(*said)
            else:
                place, _, policy = subject(self.run_or_system, self.sharing, self.sensor, self.trust_code)
                secret = read_secret(self.secret_file, policy.system)
            self.check_covered(in_prior(secret, policy.system) or policy.has_memory)
            self.check_sensor(policy)
            sharer = Sharer(
                policy,
                secret,
                resolution=self.sensor.steps(),
                budget=self.budget,
                exhausted=self.on_exhausted,  # pyright: ignore[reportArgumentType]
                steps=self.horizon,
                particles=self.charge_particles,
                seed=self.seed,
                ledger=self.file,
                account=self.secret_file.with_name(self.secret_file.name + ".account"),
                on_alarm=self.on_alarm,  # pyright: ignore[reportArgumentType]
                alarm_level=self.alarm_level,
                most_missing=self.max_gap,
                accept_unproved_charges=self.accept_unproved_charges,
                declared=declared,
                fit=fit,
                strict=self.strict,
                system=system_name(place),
                progress=replayed,
            )
        except (Mistake, StoreError, LedgerError, SecretError, OSError, ValueError) as error:
            complain("share", error)
        if sharer.unproved:
            fields = ", ".join(sharer.unproved)
            tell(f"charges are not proved: the sensor reads {fields} too coarsely for Kalman filters.")
        if sharer.ledger.note:
            tell(sharer.ledger.note)
        if sharer.optional:
            names = ", ".join(sharer.optional)
            watch = "The alarm watches only steps where nothing is left out."
            tell(f"state may leave out {names}. {'A twin does not read it.' if sharer.is_twin else watch}")
        if sharer.alarmed:
            tell(sharer.alarm_sentence())
        told = borrowed(sharer)
        if told:
            tell(told)
        return sharer

    def declaration(self) -> tuple[int, int, float] | None:
        """What is said about the fit: steps, numbers, and the gain of a rival in 50 steps."""
        if not self.declared:
            return None
        try:
            steps, numbers, gain = self.declared.split(",")
            return int(steps), int(numbers), float(gain)
        except ValueError:
            raise Mistake(
                "--declared takes three numbers: steps that the fit was made from at least, numbers that it "
                "estimated at most, and nats that a rival may gain in 50 steps, e.g. --declared 5000,20,0.05."
            ) from None

    def check_sensor(self, policy: "Policy") -> None:
        """Refuse a stream that does not say in which steps its sensor reads."""
        from veil.policies.base import has_resolution

        if self.sensor.steps() is not None or policy.shares_truth or has_resolution(policy.system):
            return
        fields = policy.system.state_fields
        units = ", ".join(field.unit for field in fields if field.unit)
        example = ",".join(f"{field.name}=0.01" for field in fields)
        raise Mistake(
            f"say in which steps the sensor reads: --resolution {example}{f' ({units})' if units else ''}. "
            "Every sensor rounds, and what rounding leaves in the last digits tells the secret. "
            "--resolution 0 is for simulated states, which are not rounded."
        )

    def check_covered(self, covered: bool) -> None:
        """Refuse a secret that no charge speaks of, unless the owner accepts that."""
        if covered:
            return
        if not self.accept_uncharged:
            raise Mistake(
                "the secret is none of the prior's, and charges speak of those only. Share by "
                "counterfactual, which covers every secret, or add --accept-uncharged."
            )
        tell("the secret is none of the prior's: what its releases tell is not what is charged.")


def named(content: object) -> str:
    """The individual that a secret file names, for a stream by a fit; empty for the only one."""
    from veil.sharing.inputs import SecretError

    if isinstance(content, str):
        return content
    raise SecretError(
        'For a stream by a fit the secret file holds the name of the individual in the fit, as "drive"; an '
        "empty name stands for the only one."
    )


def sums(sharer: "Sharer") -> str:
    """What was charged, in words."""
    spent, left = sharer.accountant.total(), sharer.left
    rest = "" if math.isinf(left) else f", {left:.4g} left"
    void = f"; charges mean nothing from step {sharer.alarmed} on, by an alarm" if sharer.alarmed else ""
    doubt = (
        f"; not proved, the sensor reads {', '.join(sharer.unproved)} too coarsely" if sharer.unproved else ""
    )
    stated = " by declaration" if "declared" in sharer.ledger.about else ""
    return f"{spent:.4g} nats charged{stated}{rest}{doubt}{void}"


def borrowed(sharer: "Sharer") -> str:
    """Which exogenous values a line may leave out, and what the first step is taken for."""
    from veil.systems.base import series_of
    from veil.systems.series import later

    series = series_of(sharer.system)
    if series is None or not series.names:
        return ""
    names, date = ", ".join(series.names), ""
    if series.begins is not None and series.seconds is not None:
        date = f", of {later(series.begins, series.start * series.seconds)}"
    return (
        f"external may leave out {names}, which are then those of the system: step 1 is row {series.start} "
        f"of its series{date}."
    )


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


def keep_to_itself() -> None:
    """No core dumps, and no other process of the user may read this one's memory: it holds the secret."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library, or a kernel that forbids it
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)

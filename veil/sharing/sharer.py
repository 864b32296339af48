"""The sharer, between the sensor and the network: a state goes in, a release and its receipt come out."""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np

from veil.beliefs.readings import CellFilter
from veil.io import fingerprint
from veil.policies.base import Policy, has_resolution, with_sensor
from veil.policies.budgeted import Exhausted
from veil.policies.counterfactual import keeps_copies
from veil.policies.twin import Twin, apart, twin_of
from veil.results.fit import Individual
from veil.sharing import snapshots
from veil.sharing.account import ROUNDING, Accountant, BudgetError
from veil.sharing.alarm import LEVEL, REASONS, TWIN_LEVEL, OnAlarm, alarm_charge, no_bets, unpacked_bets
from veil.sharing.budget import CoarseField, budgeted, coarse_fields
from veil.sharing.declared import Declared
from veil.sharing.inputs import Fault, Request, checked_secret, given, given_external
from veil.sharing.ledger import (
    CHAIN,
    Entry,
    Ledger,
    LedgerError,
    MemoryLedger,
    Release,
    first_line,
    opening,
    release_of,
)
from veil.sharing.secret_account import SecretAccount
from veil.sharing.snapshots import MemoryFile
from veil.sharing.step_program import PendingStep, StepEngine, unread_fields
from veil.systems.variants import name_of
from veil.types import as_float64
from veil.version import __version__

MOST_MISSING = 100  # steps that a gap may have, unless told otherwise

CLOSE = 1e-9  # replayed charges may differ by this from those on record, relative and absolute

TIMING = 10.0  # milliseconds; the ledger is public and says no more exactly how long a step took

NOTHING_LEFT = -1.0  # nats left after an alarm: not even a release that is charged nothing fits


SELF_REASON = "its noise goes with its state or its inputs, so that your model of yourself is wrong"

OVERFLOW = "the numbers are too large for the model."


class Sharer:
    """Shares a stream by a policy, within a budget, and keeps the ledger.

    The accountant owns what is left of the budget. The policy receives it before every step, and the ledger
    writes down what it received, since other streams may spend from the same budget.

    The private randomness of a release comes from the operating system; the public randomness comes from the
    seed. A step that is in the ledger is answered from the ledger and never drawn again.

    Args:
        policy: any policy; one with private memory is charged nothing for its releases, but a twin by a
            fitted self-model what is `declared`.
        secret: its index in the prior, or its values.
        budget: nats for the whole stream, and with `account` for all streams of the secret together; with
            infinity the sharer only counts.
        exhausted: what happens to a release that would exceed the budget: "withhold", "blind" or "blur".
        steps: number of steps among which a blurring policy divides its budget.
        particles: per secret, to compute charges by particles; with 0 the kind of release decides.
        seed: of the public randomness; by default taken from the ledger, or drawn.
        ledger: file of the ledger; without one, nothing survives the process.
        account: private file beside the secret, see `veil.sharing.secret_account`. Without one, a ledger that
            was cut back is not noticed, and every stream has a budget of its own.
        memory: file for the private memory of a policy that has one; by default beside the account.
        shared_budget: an accountant that other streams of the same secret spend from as well.
        on_alarm: what happens when the plant turns out not to be the model: from the next step on nothing
            but what is public is shared ("blind"; a policy with memory withholds), the stream ends ("stop"),
            or only the owner is told ("warn"). The first two are public decisions, and `alarm_charge` is
            charged for them at the start.
        alarm_level: probability that the alarm ever comes where the model is right; by default 0.0001, and
            0.01 for twins, whose stop is free.
        most_missing: steps that a gap may have; a step further ahead is a fault.
        resolution: step in which the sensor reads every field of the state, or steps by the names of the
            fields, in their units; releases are emitted in the same steps. By default that of the policy's
            system, which must have one unless true data are shared. 0 takes the states for real numbers, as
            in a simulation; charges do not hold then for a sensor that rounds.
        accept_unproved_charges: share although the sensor is too coarse for the charges of this policy (see
            `veil.sharing.budget.coarse_fields`); without it such a stream is refused. The first line of the
            ledger then names the fields, and totals say that they are not proved.
        declared: what the owner of a fitted self-model says of it in public, see `veil.sharing.declared`;
            each release is charged by it.
        fit: what the self-model was made from, to check in private that it keeps what is declared.
        strict: raise `Fault` at unusable input instead of withholding the release.
        system: what the ledger calls the system; by default the name of its class, in snake case.
        progress: called with the number of steps of an old ledger that were replayed, and their total.

    Attributes:
        alarm: why the plant is not the model, in words; empty as long as nothing says so.
        is_twin: whether the policy is a twin.
        alarmed: the step of the alarm; 0 without one. Charges mean nothing from this step on.
        optional: fields of the state that no release depends on, and that need not be given: nobody measures
            the envelope of a building. The alarm watches only steps where all are given.
        unproved: names of the fields that are read too coarsely for the charges to be proved.
    """

    def __init__(
        self,
        policy: Policy,
        secret: object,
        *,
        budget: float = math.inf,
        exhausted: Exhausted = "blind",
        steps: int = 50,
        particles: int = 0,
        seed: int | None = None,
        ledger: Path | None = None,
        account: Path | None = None,
        memory: Path | None = None,
        shared_budget: Accountant | None = None,
        on_alarm: OnAlarm = "blind",
        alarm_level: float | None = None,
        most_missing: int = MOST_MISSING,
        resolution: float | Mapping[str, float] | None = None,
        accept_unproved_charges: bool = False,
        declared: Declared | None = None,
        fit: Individual | None = None,
        strict: bool = False,
        system: str = "",
        progress: Callable[[int, int], None] = lambda done, total: None,
    ):
        if resolution is not None:
            policy = with_sensor(policy, resolution)
        elif not (policy.shares_truth or has_resolution(policy.system)):
            names = ", ".join(field.name for field in policy.system.state_fields)
            raise ValueError(
                f"Say by `resolution` in which steps the sensor reads {names}: every sensor rounds, and what "
                "rounding leaves in the last digits tells the secret. Only simulated states have a "
                "resolution of 0."
            )
        if on_alarm not in get_args(OnAlarm):
            raise ValueError(f"on_alarm must be one of {', '.join(get_args(OnAlarm))}; got {on_alarm!r}.")
        self.system, self.strict, self._most_missing = policy.system, strict, most_missing
        twin = twin_of(policy)
        if alarm_level is None:
            alarm_level = LEVEL if twin is None else TWIN_LEVEL
        self._on_alarm, self._threshold = on_alarm, -math.log(alarm_level)
        self._rate, self._exhausted = _declared_rate(twin, declared, fit, exhausted), exhausted
        self._watched = len(policy.system.state_fields if twin is None else twin.axes)
        self.is_twin = twin is not None
        self._bets, self.alarm, self.alarmed = no_bets(self._watched), "", 0
        self.accountant = Accountant(budget, shared=shared_budget)
        self._memory: MemoryFile | None = None
        self._account: SecretAccount | None = None
        self._snapshots = None if ledger is None or account is None else snapshots.beside(ledger)
        self._broken = ""
        values = checked_secret(secret, policy.system)
        # What stops a twin is a function of its noise and of w, as its releases are.
        charge = 0.0 if on_alarm == "warn" or twin is not None else alarm_charge(alarm_level)
        name = "" if fit is None else fit.name
        with jax.enable_x64(True):
            policy = as_float64(policy)
            self.optional = unread_fields(policy)
            coarse = CellFilter(policy.system).too_coarse() if keeps_copies(policy) else ()
            twin = twin_of(policy)  # in double precision
            if twin is not None:
                coarse = twin.too_coarse()
            if coarse:
                raise ValueError(
                    f"The sensor reads {', '.join(coarse)} in steps too coarse for the noise of one step, so "
                    "that nothing is proved about what this policy leaks. Use a finer sensor, or a policy "
                    "that adds noise."
                )
            unproved: tuple[CoarseField, ...] = ()
            if not policy.has_memory:
                policy = budgeted(policy, budget, exhausted, steps=steps, particles=particles)
                unproved = coarse_fields(policy)
                if unproved and not accept_unproved_charges:
                    raise ValueError(_unproved_sentence(unproved))
            self.unproved = tuple(one.field.name for one in unproved)
            self._withholds = policy.has_memory
            about = _about(policy, budget, system) | ({"unproved": list(self.unproved)} if unproved else {})
            about["alarm"] = {"then": on_alarm, "level": alarm_level, "charge": charge}
            about |= {} if declared is None else {"declared": declared.to_dict()}
            own = apart(policy)[1]
            if own is not None:  # the account is that of the one who was fitted, whatever the fit found
                values = np.frombuffer(hashlib.sha256(name.encode()).digest())
            try:
                self._spend_opening(charge, budget)
                kept = "" if own is None else fingerprint(own)
                self.ledger = self._opened(ledger, account, values, about, seed, kept)
                if policy.has_memory and (memory is not None or self._account is not None):
                    self._memory = MemoryFile(*self._memory_place(memory))
                values = checked_secret(secret, policy.system)
                number = self.ledger.about["seed"]
                self._engine = StepEngine(policy, values, number, self._memory, self._rate)
                self._replay(progress)
            except BaseException:
                self.close()
                raise

    def _spend_opening(self, charge: float, budget: float) -> None:
        try:
            self.accountant.spend(charge)
        except BudgetError:
            raise BudgetError(
                f"The decision to go blind or to stop at an alarm can tell {charge:.2g} nats, more than the "
                f"budget of {budget:g} leaves. Choose `warn`, a lower level of the alarm, or more budget."
            ) from None

    def _opened(
        self,
        path: Path | None,
        account: Path | None,
        secret: np.ndarray,
        about: Entry,
        seed: int | None,
        own: str = "",
    ) -> Ledger | MemoryLedger:
        """The ledger, begun or gone on with; it knows the seed if nobody else does.

        Of the owner's fitted self-model (`own`) it holds a digest by the key: a fingerprint that others could
        compute would tell whose it is.
        """
        first = None if path is None else first_line(path)
        if seed is None:
            seed = secrets.randbits(31) if first is None else int(first["about"].get("seed", 0))
        about["seed"] = seed
        if account is None:
            return MemoryLedger(about) if path is None else Ledger(path, about)
        if path is None:
            raise ValueError("An account goes with a ledger; give both, or none.")
        self._account = found = SecretAccount(account, secret)
        spent = self.accountant.total()
        name = None if first is None else str(first.get("stream"))
        mark = found.claim(path, name, spent, self.accountant.budget)
        self.alarmed, self._bets = mark.alarmed, unpacked_bets(mark.notes, self._watched)
        self.alarm = self._reason() if self.alarmed else ""
        about |= {"own": hmac.digest(found.key, own.encode(), "sha256").hex()[:32]} if own else {}
        made = Ledger(path, about, key=found.key, stream=mark.stream.hex(), released=mark.step)
        try:
            last = range(max(1, mark.step), len(made) + 1)
            heads = [(entry[CHAIN], entry["decision"] == "gap") for entry in map(made.__getitem__, last)]
            found.check(path, heads, last.start if heads else len(made) + 1)
        except BaseException:
            made.close()
            raise
        return made

    def _memory_place(self, path: Path | None) -> tuple[Path, str, bytes]:
        """File, stream and key of the private memory."""
        stream = self.ledger.stream
        if self._account is None:
            assert path is not None  # or there is no memory
            return path, stream, b""
        return path or self._account.path.with_suffix(f".memory-{stream[:8]}"), stream, self._account.key

    @property
    def next_step(self) -> int:
        """The step that is expected next."""
        return self._engine.step + 1

    @property
    def stops(self) -> bool:
        """Whether the stream has come to its end by an alarm."""
        return bool(self.alarmed) and self._on_alarm == "stop"

    def alarm_sentence(self) -> str:
        """What the owner should know about the alarm, and what happens now."""
        then = {
            "blind": "From the next step on only what is public anyway is shared",
            "stop": "The stream ends here",
            "warn": "The stream goes on, as --on-alarm warn asks",
        }
        return (
            f"step {self.alarmed}: the plant is not the model: {self.alarm}. {then[self._on_alarm]}. Charges "
            "mean nothing from this step on. Audit before you go on."
        )

    def share(self, state: object, external: object, *, step: int | None = None) -> Release:
        """Share one step.

        Args:
            state: x_t, by name or in the order of the system's fields.
            external: w_t, the same. Exogenous values that are left out are those of the system's series.
            step: its number; by default the next one. Steps that are left out are withheld.
        """
        number = self.next_step if step is None else step
        if number in self.ledger:
            return self.answer(Request(number, None, None))
        try:
            w = given_external(external, self.system, number)
        except Fault as fault:
            return self.answer(Request(number, None, None, str(fault)))
        try:
            fields = self.system.state_fields
            x = given("state", state, fields, limits=False, optional=self.optional)
        except Fault as fault:
            return self.answer(Request(number, None, w, str(fault)))
        return self.answer(Request(number, x, w))

    def skip(self, external: object = None, *, step: int | None = None) -> Release:
        """A step in which nothing is released; without w_t the last one is taken to hold."""
        number = self.next_step if step is None else step
        w = None if external is None else given_external(external, self.system, number)
        return self.answer(Request(number, None, w))

    def answer(self, request: Request) -> Release:
        """The release of a step, from the ledger if it is there; what is missing before it is withheld."""
        if self._broken:
            raise OSError(self._broken)
        if request.step in self.ledger:
            return release_of(self.ledger[request.step])
        if request.step > self.next_step + self._most_missing:
            raise Fault(f"step is more than {self._most_missing} ahead of the next one, and takes none.")
        if request.fault and self.strict:
            raise Fault(request.fault)
        if self.stops:
            raise AlarmStop(self.alarm_sentence())
        return self._advance(request)

    def _advance(self, request: Request) -> Release:
        """Decide, draw, write, and only then go on."""
        began = time.perf_counter()
        standing = self._engine.standing()
        try:
            while True:
                entries, made, content = self._made(request, began)
                spent = self.accountant.after(made.charge)
                limit = self.accountant.budget * (1.0 + ROUNDING)
                if self._account is None or made.charge == 0.0 or self._account.reserve(spent, limit):
                    break
                self._engine.stand(standing)  # another stream spent in between: decide again
            self.accountant.check(made.charge)
            if content and self._snapshots is not None:
                snapshots.write(self._snapshots, content)
            self._engine.prepare(made, len(self.ledger))
            *_, head = self.ledger.append(*entries)
        except BaseException:
            self._engine.stand(standing)
            raise
        self._engine.keep(made)
        self.accountant.spend(made.charge)
        self._watch(made)
        self._commit()
        release, exact = release_of({**entries[-1], CHAIN: head}), 1e3 * (time.perf_counter() - began)
        fault = request.fault or (OVERFLOW if release.receipt.decision == "fault" else "")
        receipt = replace(release.receipt, fault=fault, milliseconds=round(exact, 3))
        return release._replace(receipt=receipt)

    def _made(self, request: Request, began: float) -> tuple[list[Entry], PendingStep, bytes]:
        """The entries of the missing steps and of this one, the last step, and a snapshot if one is due."""
        entries, content = list[Entry](), b""
        while True:
            own = self.next_step == request.step
            given = request if own else Request(self.next_step, None, None)
            entry, made, belief = self._one(given, began)
            entries.append(entry)
            content = belief or content
            if own:
                return entries, made, content
            self._engine.keep(made)

    def _one(self, request: Request, began: float) -> tuple[Entry, PendingStep, bytes]:
        """One step that is computed and not in force."""
        alarmed = bool(self.alarmed) and self._on_alarm == "blind"
        left = NOTHING_LEFT if alarmed else self.left
        short = self._rate > 0.0 and self._rate > left * (1.0 + ROUNDING)
        blind = alarmed or short
        state = None if blind and self._withholds else request.state
        # The copies of a twin can go on without the owner's noise, and be released.
        coasts = self.is_twin and blind and request.state is not None
        coasts = coasts and (alarmed or self._exhausted == "blind")
        content = self._snapshot() if snapshots.due(request.step) and self._snapshots is not None else b""
        missing = "" if request.state is not None else "fault" if request.fault else "gap"
        with jax.enable_x64(True):
            made = self._engine.make(state, request.external, left, blind=coasts)
            if not made.public.sound:  # it would spoil all that comes after
                missing, made = "fault", self._engine.make(None, None, left)
        entry = made.entry(missing) | {
            "left": None if math.isinf(left) else left,
            "total": self.accountant.after(made.charge),
            "milliseconds": TIMING * math.ceil(1e3 * (time.perf_counter() - began) / TIMING),
        }
        entry |= {"alarmed": True} if alarmed else {}
        return entry | ({"belief": snapshots.digest(content)} if content else {}), made, content

    @property
    def left(self) -> float:
        """Nats that this stream may still spend, the other streams of the secret considered."""
        own = self.accountant.remaining()
        if self._account is None or math.isinf(self.accountant.budget):
            return own
        others = self._account.spent_elsewhere()
        return max(0.0, min(own, self.accountant.budget - self.accountant.total() - others))

    def _watch(self, made: PendingStep) -> None:
        """Bet against the model; what comes of it counts from the next step on."""
        self._bets = self._bets.after(made.noise)
        if not self.alarmed and self._bets.log_wealth >= self._threshold:
            self.alarmed, self.alarm = made.step, self._reason()

    def _reason(self) -> str:
        """What the alarm bet on."""
        found = self._bets.reason()
        return SELF_REASON if self.is_twin and found == REASONS[0] else found

    def _commit(self) -> None:
        """The mark beside the secret; before it is on the disk nothing goes out."""
        if self._account is None:
            return
        total, lost = self.accountant.parts()
        mark = replace(
            self._account.mark,
            step=len(self.ledger),
            head=bytes.fromhex(self.ledger.head),
            spent=total,
            lost=lost,
            alarmed=self.alarmed,
            notes=self._bets.packed(),
        )
        try:
            self._account.commit(mark)
        except BaseException as error:  # the line is written, but may not go out
            self._broken = f"{str(error) or type(error).__name__} Start again; the same ledger goes on."
            raise

    def _snapshot(self) -> bytes:
        """The belief before this step, bound to the ledger and to the spending up to there."""
        content = self._engine.snapshot()
        # Steps that are missing before this one are not in the ledger yet: they have no head to bind to.
        if not content or self._engine.step != len(self.ledger):
            return b""
        return snapshots.bound(content, self.ledger.head, *self.accountant.parts())

    def _replay(self, progress: Callable[[int, int], None]) -> None:
        """Bring belief and spending to where the ledger ends."""
        total, first = len(self.ledger), self._restored()
        for step in range(first, total + 1):
            entry = self.ledger[step]
            self._check(self._engine.again(entry), entry)
            if step % 256 == 0:
                progress(step, total)
        for charge in self.ledger.charges:
            self.accountant.spend(charge)
        self._engine.resume()
        if self._account is None:
            return
        mark, spent = self._account.mark, self.accountant.total()
        if mark.step == total and abs(spent - mark.spent) > CLOSE * (1.0 + spent):
            raise LedgerError(
                f"The charges of the ledger add up to {spent:.6g} nats, but {mark.spent:.6g} were spent. "
                "Begin a new stream in another file."
            )
        if mark.step < total:  # a crash came between the ledger and the mark
            self._commit()

    def _restored(self) -> int:
        """Go on from the snapshot, if it is that of this ledger; gives the step to replay from."""
        content = b"" if self._snapshots is None else snapshots.read(self._snapshots)
        first = self.ledger.beliefs.get(snapshots.digest(content), 1) if content else 1
        if first == 1:
            return 1
        belief, head, total, _ = snapshots.unbound(content)
        spent = Accountant(spent=[opening(self.ledger.about), *self.ledger.charges[: first - 1]]).total()
        last = self.ledger[first - 1]
        if head != last[CHAIN] or abs(total - spent) > CLOSE * (1.0 + spent):
            return 1
        self._engine.restore(belief, last)
        return first

    def _check(self, made: PendingStep, entry: Entry) -> None:
        """Go on from a replayed step that came out as it is on record."""
        if abs(made.charge - entry["charge"]) > CLOSE * (1.0 + entry["charge"]):
            raise LedgerError(
                f"Step {entry['step']} of the ledger was charged otherwise than this policy would be: it was "
                "written by another version or on another kind of machine. Begin a new ledger."
            )
        self._engine.keep(made)

    def close(self) -> None:
        """Close the files, so that another process may open them."""
        for file in (self._memory, getattr(self, "ledger", None), self._account):
            if file is not None:
                file.close()

    def __enter__(self) -> "Sharer":
        """The sharer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the ledger."""
        self.close()


def _about(policy: Policy, budget: float, name: str) -> dict[str, Any]:
    """What the first line of the ledger says, apart from seed and alarm."""
    system = policy.system
    private = [field.name for field in system.input_fields if field.private]
    return {
        "veil": __version__,
        "system": name or name_of(system),
        "policy": fingerprint(apart(policy)[0]),
        "budget": None if math.isinf(budget) else budget,
        "external": [field.name for field in system.input_fields],
        "shared": [field.name for field in system.shared_fields],
        "resolution": {
            field.name: field.resolution
            for field in (*system.state_fields, *system.shared_fields)
            if field.resolution
        },
    } | ({"private": private} if private else {})


def _declared_rate(
    twin: Twin | None, declared: Declared | None, fit: Individual | None, exhausted: Exhausted
) -> float:
    """Nats per release of a twin by a fitted self-model; 0 for every other policy.

    Args:
        twin: the policy, if it is one.
        declared: what is said about the fit in public.
        fit: the fit itself.
        exhausted: what happens at the end of the budget.
    """
    fitted = twin is not None and twin.models is not None
    if not fitted:
        if declared is not None or fit is not None:
            raise ValueError("A declaration is about a fitted self-model; this policy has none.")
        return 0.0
    if declared is None or fit is None:
        raise ValueError(
            "A stream by a fitted self-model is charged for the errors of the fit. A charge by the fit "
            "itself would tell about it: declare in public from how many steps it was made at least, how "
            "many numbers it estimated at most, and what a rival may gain (`declared`, --declared), "
            "and give the fit, for a check in private."
        )
    if exhausted == "blur":
        raise ValueError("Only Gaussian releases can be blurred. Choose `withhold` or `blind`.")
    declared.check(fit)
    return declared.rate


def _unproved_sentence(fields: Sequence[CoarseField]) -> str:
    """Why such a stream is refused, and what to do next."""

    def one(coarse: CoarseField) -> str:
        field, unit = coarse.field, f" {coarse.field.unit}" if coarse.field.unit else ""
        noise = (
            f"one step's noise is {coarse.noise:.3g}{unit}" if coarse.finest > 0 else "no noise of its own"
        )
        return f"{field.name} in steps of {field.resolution:g}{unit} ({noise})"

    steps = ", ".join(f"{one.finest:.3g} for {one.field.name}" for one in fields if one.finest > 0)
    finer = f"read in steps of at most half that noise ({steps}), " if steps else ""
    return (
        f"The sensor reads {', '.join(map(one, fields))}, and charges by Kalman filters are not proved for "
        f"steps so coarse. Share by the counterfactual policy, {finer}charge by particles (`particles`, "
        "--charge-particles), or accept it (`accept_unproved_charges`, --accept-unproved-charges); the "
        "ledger then says that its totals are not proved."
    )


class AlarmStop(Exception):
    """The end of a stream whose plant is not the model."""

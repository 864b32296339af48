"""A stream over MQTT 5: inputs from one topic, releases to another, each at least once.

The ledger is the outbox. A release is published from it, with the same bytes every time, until the broker has
acknowledged it; an input is acknowledged only then, so that the broker keeps it for us until its release is
safe. A connection begins where the mark beside the ledger says, be it the first one or one after a crash of
the broker or of this program, and forgets everything else when it ends. Readers drop repeats by step.
"""

import hashlib
import json
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from paho.mqtt.client import Client, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from veil.sharing.inputs import LONGEST, Fault
from veil.sharing.ledger import CHAIN, Ledger, release_of
from veil.sharing.sharer import AlarmStop, Sharer
from veil.sharing.stream import answered, outgoing

AGAIN = 64  # releases published again on connecting, since a broker that crashed may forget what it took


class Mark:
    """The file beside a ledger that says how far its releases were acknowledged, and by whom.

    Losing it costs repeats and nothing else, so it is replaced as a whole and not waited for. It names the
    entry by its digest: a mark of another ledger counts for nothing.
    """

    def __init__(self, ledger: Ledger, to: str):
        self.path = ledger.path.with_name(ledger.path.name + ".published")
        self._ledger, self._to = ledger, to

    def read(self) -> int:
        """The last step that was acknowledged, all before it included; 0 if none is known."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            known = content["to"] == self._to and self._ledger[content["step"]][CHAIN] == content[CHAIN]
            return content["step"] if known else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def write(self, step: int) -> None:
        """All up to this step was acknowledged."""
        content = {"step": step, CHAIN: self._ledger[step][CHAIN], "to": self._to}
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(content), encoding="utf-8")
        os.replace(partial, self.path)


class Input(NamedTuple):
    """An input that waits for us: its message, and the step that must be safe first; 0 for none."""

    message: int
    step: int


class Outbox:
    """What is to be published next, and which inputs may be acknowledged. One connection's view."""

    def __init__(self, acknowledged: int):
        self.acknowledged = acknowledged  # the last step, all before it included
        self.flight = dict[int, int]()  # message -> step
        self._sent = max(0, acknowledged - AGAIN)
        self._inputs = deque[Input]()
        self._asked = deque[int]()  # steps that an input asks for again
        self._repeats = dict[int, int]()  # those in flight, message -> step

    def received(self, message: int, step: int) -> None:
        """An input whose step is in the ledger now, or which has none."""
        self._inputs.append(Input(message, step))
        if 0 < step <= self.acknowledged:
            self._asked.append(step)

    def due(self, last: int) -> int | None:
        """The step to publish next, of a ledger that goes up to `last`; None if all are under way."""
        if self._asked:
            return self._asked[0]
        return self._sent + 1 if self._sent < last else None

    def publishing(self, message: int) -> None:
        """What was due is under way."""
        if self._asked:
            self._repeats[message] = self._asked.popleft()
        else:
            self._sent += 1
            self.flight[message] = self._sent

    def published(self, message: int) -> None:
        """The broker has it."""
        self._repeats.pop(message, None)
        self.flight.pop(message, None)
        self.acknowledged = max(self.acknowledged, min(self.flight.values(), default=self._sent + 1) - 1)

    @property
    def waiting(self) -> int:
        """Messages under way."""
        return len(self.flight) + len(self._repeats)

    def settled(self) -> Iterator[int]:
        """Inputs to acknowledge now, in the order in which they came, as the protocol wants it."""
        unsafe = {*self._asked, *self._repeats.values()}
        while self._inputs and self._inputs[0].step <= self.acknowledged:
            if self._inputs[0].step in unsafe:
                return
            yield self._inputs.popleft().message


WINDOW = 32  # messages each way that may wait for their acknowledgement: all that is held in memory

KEEPALIVE = 30  # seconds without a word after which the broker counts as lost

WAIT = 1.0  # seconds, at most, between two looks at the connection

PAUSES = (0.25, 8.0)  # seconds before the first attempt to connect again, and at most

FOREVER = 0xFFFFFFFF  # the broker keeps the session until we come back

Tell = Callable[[str], None]


class Lost(Exception):
    """The connection ended, or is of no use; the text says why."""


@dataclass(frozen=True)
class Tls:
    """PEM files: authorities that the broker must be known to, our own certificate and its key."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class Route:
    """Where a stream comes from and goes to: the broker, the topic of inputs and that of releases.

    Attributes:
        host: of the broker.
        port: of the broker.
        source: topic of the inputs.
        sink: topic of the releases.
        tls: how the connection is encrypted; None for one in clear.
        login: user and password; None for none.
    """

    host: str
    port: int
    source: str
    sink: str
    tls: Tls | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The broker, for people."""
        return f"{self.host}:{self.port}"


class Link:
    """One connection, from its beginning to its end; all in one thread."""

    def __init__(self, sharer: Sharer, route: Route, tell: Tell, pace: float = 0.0):
        assert isinstance(sharer.ledger, Ledger)  # a stream over MQTT goes on from its file
        self._sharer, self._ledger, self._route, self._tell = sharer, sharer.ledger, route, tell
        self._mark = Mark(sharer.ledger, f"{route}/{route.sink}")
        self._outbox = Outbox(self._mark.read())
        self._arrived = deque[MQTTMessage]()
        self._pace = pace
        self._window, self._known, self._reason, self._alarm = 0, True, "", sharer.alarm
        self._client = _client(self._identity())
        _secure(self._client, route)
        self._client.on_connect, self._client.on_disconnect = self._connected, self._disconnected
        self._client.on_subscribe, self._client.on_publish = self._subscribed, self._published
        self._client.on_message = lambda client, data, message: self._arrived.append(message)

    def _identity(self) -> str:
        """The same name for the same stream: the broker keeps what was sent while we were away."""
        known = json.dumps([self._ledger.about, self._route.source, self._route.sink], sort_keys=True)
        return f"veil-{hashlib.sha256(known.encode()).hexdigest()[:18]}"

    @property
    def established(self) -> bool:
        """Whether the broker has accepted it."""
        return self._window > 0

    def run(self) -> NoReturn:
        """Serve until the connection is `Lost`."""
        try:
            self._connect()
            while True:
                code = self._client.loop(WAIT)
                if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                    raise Lost(self._reason or error_string(code).rstrip("."))
                self._serve()
        finally:
            self._client.disconnect()
            if (opened := self._client.socket()) is not None:
                opened.close()

    def _connect(self) -> None:
        wishes = Properties(PacketTypes.CONNECT)
        wishes.SessionExpiryInterval, wishes.ReceiveMaximum = FOREVER, WINDOW
        wishes.MaximumPacketSize = 2 * LONGEST
        given = {"keepalive": KEEPALIVE, "clean_start": False, "properties": wishes}
        try:
            self._client.connect(self._route.host, self._route.port, **given)
        except ssl.SSLError as error:
            raise Lost(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from None
        except OSError as error:
            raise Lost(error.strerror or str(error)) from None

    def _serve(self) -> None:
        """Share what came in, publish what is due, acknowledge what is safe."""
        while self._arrived and not self._sharer.stops:
            self._take(self._arrived.popleft())
        while self._outbox.waiting < self._window:
            step = self._outbox.due(len(self._ledger))
            if step is None:
                break
            line = outgoing(self._sharer, release_of(self._ledger[step]))
            sent = self._client.publish(self._route.sink, line.rstrip(b"\n"), qos=1)
            if sent.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise Lost(error_string(sent.rc).rstrip("."))
            self._outbox.publishing(sent.mid)
        for message in self._outbox.settled():
            self._client.ack(message, 1)
        if self._sharer.stops and self._outbox.waiting == 0 and self._window:
            raise AlarmStop  # all that was released is with the broker

    def _take(self, message: MQTTMessage) -> None:
        """One input; where its step cannot be read it is reported and takes none."""
        came = time.monotonic()
        try:
            release = answered(self._sharer, bytes(message.payload))
        except Fault as fault:
            if self._sharer.strict:
                self._client.ack(message.mid, message.qos)  # or it would stop us again and again
                raise
            self._tell(f"an input: {fault}")
            release = None
        step = 0 if release is None else release.receipt.step
        if message.qos > 0:
            self._outbox.received(message.mid, step)
        if release is not None and release.receipt.fault:
            self._tell(f"step {step}: {release.receipt.fault} Withheld.")
        if self._pace > 0.0:
            time.sleep(self._pace - (time.monotonic() - came) % self._pace)
        if self._sharer.alarm != self._alarm:
            self._alarm = self._sharer.alarm
            self._tell(self._sharer.alarm_sentence())

    def _connected(self, client: Client, data: object, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            raise Lost(f"the broker refuses the connection ({reason})")
        self._window = min(WINDOW, getattr(properties, "ReceiveMaximum", WINDOW))
        self._known = flags.session_present or len(self._ledger) == 0
        client.subscribe(self._route.source, qos=1)

    def _disconnected(self, client: Client, data: object, flags: Any, reason: Any, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._reason = str(reason)

    def _subscribed(self, client: Client, data: object, mid: int, reasons: Any, properties: Any) -> None:
        if any(reason.value != 1 for reason in reasons):
            raise Lost(f"the broker refuses the topic of the inputs ({reasons[0]})")
        forgotten = "" if self._known else ", which does not remember us"
        self._tell(f"connected to {self._route}{forgotten}; next step {self._sharer.next_step}")

    def _published(self, client: Client, data: object, mid: int, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            raise Lost(f"the broker refuses a release ({reason})")
        before = self._outbox.acknowledged
        self._outbox.published(mid)
        if self._outbox.acknowledged > before:
            self._mark.write(self._outbox.acknowledged)


def serve(sharer: Sharer, route: Route, tell: Tell, pace: float = 0.0) -> NoReturn:
    """Share until interrupted; connect again whenever the connection is lost.

    Args:
        sharer: shares; its ledger is a file.
        route: from where and whereto.
        tell: called with faults, alarms and the connection, for the owner; never a value.
        pace: seconds; releases leave at multiples of it after their inputs came. 0 sends them at once.
    """
    pause, reported = PAUSES[0], ""
    while True:
        link = Link(sharer, route, tell, pace)
        try:
            link.run()
        except Lost as lost:
            if link.established:
                pause, reported = PAUSES[0], ""
            if str(lost) != reported:
                reported = str(lost)
                tell(f"no connection to {route}: {reported}. Trying again.")
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def _secure(client: Client, route: Route) -> None:
    """Encryption and login as the route says."""
    if route.tls is not None:
        context = ssl.create_default_context(cafile=route.tls.authorities)
        if route.tls.certificate is not None:
            context.load_cert_chain(route.tls.certificate, route.tls.key)
        client.tls_set_context(context)
    if route.login is not None:
        client.username_pw_set(*route.login)


def _client(name: str) -> Client:
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id=name,
        protocol=MQTTProtocolVersion.MQTTv5,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.max_inflight_messages_set(WINDOW)
    return client

"""What streams over MQTT are tested with: a sharer that needs no compiling, and a real broker."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import replace

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from veil.sharing import Accountant, Fault, Ledger, Sharer, mqtt
from veil.sharing.ledger import release_of
from veil.systems import Gain

ABOUT = {"system": "Gain", "policy": "stand", "seed": 1, "budget": None}
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
DURABLE = ("persistence true", "autosave_interval 1", "autosave_on_changes true", "max_queued_messages 0")


def input_line(step, level: object = 0.5, push=0.0):
    return json.dumps({"step": step, "state": {"level": level}, "external": {"push": push}}).encode()


class Stop(Exception):
    """Ends what would go on for ever."""


class Stand(Sharer):
    """Releases its input as it is, with a ledger and all; nothing is compiled."""

    def __init__(self, path, strict=False, dies_at=0):
        self.dies_at = dies_at
        self.system, self.strict, self.alarm, self.accountant = Gain(), strict, "", Accountant()
        self.ledger: Ledger = Ledger(path, ABOUT)
        self._memory = self._account = None
        self.alarmed, self._on_alarm, self.optional = 0, "warn", ()

    @property
    def next_step(self):
        return len(self.ledger) + 1

    def answer(self, request):
        if request.fault and self.strict:
            raise Fault(request.fault)
        if request.step == self.dies_at:
            raise Stop
        while self.next_step <= request.step:
            step, decision, shared = self.next_step, "gap", None
            if step == request.step:
                decision = "released" if request.state is not None else "fault"
                shared = None if request.state is None else request.state.tolist()
            entry = {"step": step, "decision": decision, "shared": shared, "charge": 0.0, "total": 0.0}
            self.ledger.append(entry | {"left": None, "effective": None, "milliseconds": 0.0})
        release = release_of(self.ledger[request.step])
        return release._replace(receipt=replace(release.receipt, fault=request.fault))


class Background(threading.Thread):
    """Serves such a stream until `end`."""

    def __init__(self, path, port, tls=None, login=None, **options):
        super().__init__(daemon=True)
        self.options, self.path = options, path
        self.route = mqtt.Route("127.0.0.1", port, "in", "out", tls, login)
        self.messages, self.ending = [], threading.Event()
        self.start()

    def run(self):
        with contextlib.suppress(Stop), Stand(self.path, **self.options) as sharer:
            mqtt.serve(sharer, self.route, self.tell)

    def tell(self, text):
        self.messages.append(text)
        if self.ending.is_set():
            raise Stop

    def marked(self):
        """The step up to which the broker has confirmed."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self.path.with_name(self.path.name + ".published").read_text())["step"]
        return 0

    def end(self, broker):
        """Stop the broker, and with it the stream."""
        self.ending.set()
        broker.stop(signal.SIGKILL)
        self.join(20)
        assert not self.is_alive()


class Mosquitto:
    """A broker on a free port of this machine."""

    def __init__(self, folder, *settings, first=()):
        assert MOSQUITTO is not None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder.mkdir()
        lines = (f"listener {self.port} 127.0.0.1", "allow_anonymous true", f"persistence_location {folder}/")
        owner = ("user root",) if os.geteuid() == 0 else ()
        (folder / "broker.conf").write_text("\n".join([*first, *owner, *lines, *settings, ""]))
        self.command = [MOSQUITTO, "-c", str(folder / "broker.conf")]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        soon(self._answers)

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def stop(self, how=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(20)
            self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)


class Peer:
    """Another member of the network, with a session that the broker keeps: a reader or a writer."""

    def __init__(self, name, port, topic=None):
        self.payloads, self.confirmed, self.topic = [], set(), topic
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = self._connected
        self.client.on_message = lambda client, data, message: self.payloads.append(bytes(message.payload))
        self.client.on_publish = lambda client, data, mid, reason, properties: self.confirmed.add(mid)
        self.ready = threading.Event()
        self.client.on_subscribe = lambda *_: self.ready.set()
        wishes = Properties(PacketTypes.CONNECT)
        wishes.SessionExpiryInterval = 0xFFFFFFFF
        self.client.connect("127.0.0.1", port, clean_start=False, properties=wishes)
        self.client.loop_start()

    def _connected(self, client, data, flags, reason, properties):
        if self.topic is not None:
            client.subscribe(self.topic, qos=1)

    def send(self, line):
        return self.client.publish("in", line, qos=1).mid

    def send_in_turn(self, line):
        """Wait for the broker before the next one: the client would overtake itself on connecting again."""
        message = self.send(line)
        soon(lambda: message in self.confirmed, 60)

    def steps(self):
        return [json.loads(payload)["step"] for payload in list(self.payloads)]

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def soon(condition, seconds=30.0):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def entries_of(path):
    """Whole lines of a ledger that may be written right now, the first one apart."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]]


def assert_nothing_is_lost(path, payloads):
    """Every step of the ledger arrived, in order once repeats are dropped, with the same bytes each time."""
    first = {}
    for payload in payloads:
        assert first.setdefault(json.loads(payload)["step"], payload) == payload
    entries = entries_of(path)
    assert list(first) == [entry["step"] for entry in entries]
    for entry in entries:
        shared = None if entry["shared"] is None else {"level": entry["shared"][0]}
        told = {"step": entry["step"], "shared": shared, "head": entry["chain"]}
        assert json.loads(first[entry["step"]]) == told

"""Streams over MQTT: the bookkeeping by hand, and connections against a stand-in for the client."""

import json
import socket
from types import SimpleNamespace

import numpy as np
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from tests.sharing.brokers import Stand, input_line
from veil.cli import main
from veil.cli.console import Mistake
from veil.cli.share import Network
from veil.sharing import Fault, Ledger, mqtt, stream
from veil.sharing import mqtt as outbox
from veil.sharing.mqtt import AGAIN, WINDOW, Link, Lost, Mark, Outbox, Route

ROUTE = Route("localhost", 1883, "in", "out")
FINE = SimpleNamespace(is_failure=False, value=1)
WRONG = SimpleNamespace(is_failure=True, value=0x87)


class Harness:
    """A link whose client sends nothing and remembers everything, and the broker's side of it by hand."""

    def __init__(self, sharer, monkeypatch):
        self.out, self.acks, self.topics, self.messages = [], [], [], []
        self.client, self.code, self.mids = Client(CallbackAPIVersion.VERSION2), 0, 0
        monkeypatch.setattr(self.client, "publish", self._publish)
        monkeypatch.setattr(self.client, "ack", lambda mid, qos: self.acks.append(mid))
        monkeypatch.setattr(self.client, "subscribe", lambda topic, qos: self.topics.append((topic, qos)))
        monkeypatch.setattr(mqtt, "_client", lambda name: self.client)
        self.link = Link(sharer, ROUTE, self.messages.append)

    def _publish(self, topic, payload, qos):
        self.out.append((topic, payload, qos))
        return SimpleNamespace(rc=self.code, mid=len(self.out))

    def event(self, name, *given):
        """What the network would cause."""
        getattr(self.client, f"on_{name}")(self.client, None, *given)

    def connect(self, session=True, **properties):
        flags = SimpleNamespace(session_present=session)
        self.event("connect", flags, FINE, SimpleNamespace(**properties))
        self.event("subscribe", 1, [FINE], None)
        self.link._serve()

    def send(self, *lines, qos=1):
        for line in lines:
            self.mids += 1
            message = MQTTMessage(self.mids if qos else 0, b"in")
            message.payload, message.qos = line, qos
            self.event("message", message)
        self.link._serve()

    def confirm(self, *mids):
        for mid in mids:
            self.event("publish", mid, FINE, None)
            self.link._serve()

    @property
    def steps(self):
        return [json.loads(payload)["step"] for _, payload, _ in self.out]


@pytest.fixture
def stand(tmp_path):
    with Stand(tmp_path / "ledger.jsonl") as sharer:
        yield sharer


@pytest.fixture
def harness(stand, monkeypatch):
    return Harness(stand, monkeypatch)


def test_an_input_is_acknowledged_after_its_release_and_not_before(harness, stand):
    harness.send(input_line(1))
    assert not harness.out and len(stand.ledger) == 1  # nobody is there yet
    harness.connect()
    assert harness.topics == [("in", 1)]
    harness.send(input_line(2), input_line(3))
    assert harness.steps == [1, 2, 3] and not harness.acks
    mark = Mark(stand.ledger, "localhost:1883/out")
    harness.confirm(2)
    assert mark.read() == 0
    assert not harness.acks  # step 2 is safe, but acknowledgements keep the order of the inputs
    harness.confirm(1)
    assert harness.acks == [1, 2] and mark.read() == 2
    harness.confirm(3)
    assert harness.acks == [1, 2, 3]


def test_what_goes_out_is_the_line_of_the_stream_for_every_step_of_the_ledger(harness, stand):
    """Also for gaps and faults, so that a reader can see whether it lacks one."""
    harness.connect()
    harness.send(input_line(1), input_line(4), input_line(5, level="high"))
    assert [entry["decision"] for entry in stand.ledger] == ["released", "gap", "gap", "released", "fault"]
    for (topic, payload, qos), entry in zip(harness.out, stand.ledger, strict=True):
        assert (topic, qos) == ("out", 1)
        value = None if entry["shared"] is None else {"level": entry["shared"][0]}
        assert json.loads(payload) == {"step": entry["step"], "shared": value, "head": entry["chain"]}
        assert payload + b"\n" == stream.outgoing(stand, stand.share([9.0], [9.0], step=entry["step"]))
    assert harness.messages[-1] == "step 5: state.level must be a number. Withheld."


def test_memory_is_bounded_while_the_broker_says_nothing(harness, stand):
    harness.connect()
    harness.send(*(input_line(step) for step in range(1, WINDOW + 9)))
    assert len(stand.ledger) == WINDOW + 8 and harness.steps == list(range(1, WINDOW + 1))
    assert not harness.acks
    harness.confirm(1, 2, 3)
    assert harness.steps == list(range(1, WINDOW + 4)) and harness.acks == [1, 2, 3]
    harness.confirm(*range(4, WINDOW + 9))
    assert harness.acks == list(range(1, WINDOW + 9))


def test_the_brokers_own_limit_is_kept(harness):
    harness.connect(ReceiveMaximum=2)
    harness.send(*(input_line(step) for step in range(1, 6)))
    assert harness.steps == [1, 2]


def test_a_step_that_is_asked_for_again_is_answered_again_with_the_same_bytes(harness):
    harness.connect()
    harness.send(input_line(1), input_line(2))
    harness.send(
        input_line(2, level=7.0)
    )  # again before the first release of it is safe: nothing more goes out
    assert harness.steps == [1, 2]
    harness.confirm(1, 2)
    assert harness.acks == [1, 2, 3]
    harness.send(input_line(1, level=8.0))
    assert harness.out[2] == harness.out[0] and harness.acks == [1, 2, 3]
    harness.send(input_line(3))
    harness.confirm(4)
    assert harness.acks == [1, 2, 3]  # the repeat is not safe yet, and it came first
    harness.confirm(3)
    assert harness.acks == [1, 2, 3, 4, 5]


def test_repeats_count_in_the_window_and_the_last_step_may_be_asked_for_too(harness, stand, monkeypatch):
    harness.connect(ReceiveMaximum=2)
    harness.send(input_line(1), input_line(2))
    harness.confirm(1, 2)
    harness.send(input_line(2), input_line(1), input_line(1))
    assert harness.steps == [1, 2, 2, 1] and harness.acks == [1, 2]
    harness.confirm(3)
    assert harness.steps == [1, 2, 2, 1, 1] and harness.acks == [1, 2, 3]
    again = Harness(stand, monkeypatch)
    again.connect(ReceiveMaximum=1)  # busy with what is published again on connecting
    again.send(input_line(2))
    assert again.steps == [1] and not again.acks
    again.confirm(1, 2)
    assert again.steps == [1, 2, 2] and again.acks == [1]


def test_inputs_without_a_step_are_reported_and_acknowledged(harness, stand):
    harness.connect()
    harness.send(b"nonsense", b"", b"{}")
    assert harness.acks == [1, 2, 3] and not harness.out and len(stand.ledger) == 0
    assert sum(line.startswith("an input: ") for line in harness.messages) == 2
    harness.send(input_line(1), qos=0)
    harness.confirm(1)
    assert harness.acks == [1, 2, 3] and harness.steps == [1]


def test_a_strict_stream_stops_once_at_a_fault_and_not_for_ever(tmp_path, monkeypatch):
    with Stand(tmp_path / "ledger.jsonl", strict=True) as sharer:
        harness = Harness(sharer, monkeypatch)
        harness.connect()
        harness.send(input_line(1))
        with pytest.raises(Fault, match="must be a number"):
            harness.send(input_line(2, level="high"))
        assert harness.acks == [2] and len(sharer.ledger) == 1


def test_an_alarm_is_told_once(harness, stand):
    harness.connect()
    stand.alarm, stand.alarmed = "it drifts", 1
    harness.send(input_line(1), input_line(2))
    assert [line for line in harness.messages if "drifts" in line] == [
        "step 1: the plant is not the model: it drifts. The stream goes on, as --on-alarm warn asks. Charges "
        "mean nothing from this step on. Audit before you go on."
    ]


def test_a_new_connection_goes_on_from_the_mark_and_a_little_before(stand, monkeypatch):
    first = Harness(stand, monkeypatch)
    first.connect()
    for step in range(1, AGAIN + 31):
        first.send(input_line(step))
        if step <= AGAIN + 20:
            first.confirm(step)
    assert Mark(stand.ledger, "localhost:1883/out").read() == AGAIN + 20
    second = Harness(stand, monkeypatch)
    second.connect()
    second.confirm(*range(1, AGAIN + 11))
    assert second.steps == list(range(21, AGAIN + 31))
    bytes_of = {payload: step for _, payload, _ in first.out for step in [json.loads(payload)["step"]]}
    assert all(bytes_of[payload] == json.loads(payload)["step"] for _, payload, _ in second.out)
    other = Harness(stand, monkeypatch)
    assert other.link._identity() == first.link._identity()
    monkeypatch.setattr(other.link, "_route", Route("localhost", 1883, "elsewhere", "out"))
    assert other.link._identity() != first.link._identity()


def test_a_broker_that_forgot_us_is_named_unless_the_stream_is_new(harness, stand, monkeypatch):
    harness.connect(session=False)
    assert "remember" not in harness.messages[-1]
    harness.send(input_line(1))
    again = Harness(stand, monkeypatch)
    again.connect(session=False)
    assert "does not remember us; next step 2" in again.messages[-1]
    again.connect(session=True)
    assert "remember" not in again.messages[-1]


def test_refusals_of_the_broker_end_the_connection(harness):
    with pytest.raises(Lost, match="refuses the connection"):
        harness.event("connect", None, WRONG, None)
    for granted in (SimpleNamespace(value=0), WRONG):
        with pytest.raises(Lost, match="topic of the inputs"):
            harness.event("subscribe", 1, [granted], None)
    harness.connect()
    harness.send(input_line(1))
    with pytest.raises(Lost, match="refuses a release"):
        harness.event("publish", 1, WRONG, None)
    assert not harness.acks
    harness.code = 4
    with pytest.raises(Lost, match="not currently connected"):
        harness.send(input_line(2))


def test_a_mark_counts_for_its_ledger_and_its_broker_only(stand, tmp_path):
    for step in (1, 2, 3):
        stand.share([0.1], [0.0], step=step)
    mark = Mark(stand.ledger, "a/out")
    assert mark.read() == 0
    mark.write(2)
    assert mark.read() == 2 and Mark(stand.ledger, "b/out").read() == 0
    content = mark.path.read_text()
    with Stand(tmp_path / "other" / "ledger.jsonl") as other:
        assert isinstance(other.ledger, Ledger)
        for step in (1, 2, 3):
            other.share([0.2], [0.0], step=step)
        foreign = Mark(other.ledger, "a/out")
        for text in (content, content[:9], "[]", '{"step": 9, "chain": "x", "to": "a/out"}'):
            foreign.path.write_text(text)
            assert foreign.read() == 0


class Broker:
    """Takes messages in their order and confirms them in any; a consumer reads all it takes."""

    def __init__(self, numbers):
        self.numbers, self.consumer, self.queue, self.confirmations = numbers, [], [], []

    def take(self):
        message, step = self.queue.pop(0)
        self.consumer.append(step)
        self.confirmations.append(message)

    def confirm(self):
        return self.confirmations.pop(int(self.numbers.integers(len(self.confirmations))))

    def lose(self):
        """The connection ends: of what was on its way, only the first part arrives."""
        for _ in range(int(self.numbers.integers(len(self.queue) + 1))):
            self.take()
        self.queue, self.confirmations = [], []


def story(seed, inputs_in_all=40):
    """A stream with repeated inputs and lost connections; checks what must hold at every moment."""
    numbers = np.random.default_rng(seed)
    broker, box, last, sent, losses = Broker(numbers), Outbox(0), 0, 0, 0
    inputs, settled = [], 0
    while settled < inputs_in_all:
        act = numbers.choice(5, p=[0.2, 0.35, 0.25, 0.19, 0.01])
        if act == 0 and len(inputs) < inputs_in_all:
            inputs.append(int(numbers.integers(1, last + 2)))
            last = max(last, inputs[-1])
            box.received(len(inputs), inputs[-1])
        elif act == 1 and (step := box.due(last)) is not None:
            sent += 1
            box.publishing(sent)
            broker.queue.append((sent, step))
        elif act == 2 and broker.queue:
            broker.take()
        elif act == 3 and broker.confirmations:
            box.published(broker.confirm())
        elif act == 4:
            broker.lose()
            box, losses = Outbox(box.acknowledged), losses + 1
            for message in range(settled + 1, len(inputs) + 1):  # not acknowledged, so they come again
                box.received(message, inputs[message - 1])
        for message in box.settled():
            settled += 1
            assert message == settled and inputs[message - 1] in broker.consumer
    kept = list(dict.fromkeys(broker.consumer))  # without repeats
    assert kept == list(range(1, last + 1)) == list(range(1, box.acknowledged + 1))
    return losses


def test_whatever_the_network_does_a_reader_gets_every_step_in_order(monkeypatch):
    monkeypatch.setattr(outbox, "AGAIN", 3)
    assert sum(story(seed) for seed in range(100)) > 100


class Stop(Exception):
    """Ends what would go on for ever."""


def test_without_a_broker_it_says_so_once_and_tries_at_growing_intervals(stand, monkeypatch):
    with socket.socket() as taken:  # bound and not listening: refused
        taken.bind(("127.0.0.1", 0))
        pauses, messages = [], []

        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) == 8:
                raise Stop

        monkeypatch.setattr(mqtt, "time", SimpleNamespace(sleep=sleep))
        route = Route("127.0.0.1", taken.getsockname()[1], "in", "out")
        with pytest.raises(Stop):
            mqtt.serve(stand, route, messages.append)
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert messages == [f"no connection to {route}: Connection refused. Trying again."]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mqtt", "localhost"], "go together"),
        (["--topic-in", "a"], "go together"),
        (["--mqtt", "localhost", "--topic-in", "a/#", "--topic-out", "b"], "without + and #"),
        (["--mqtt", "localhost", "--topic-in", "a", "--topic-out", "a"], "must differ"),
        (["--mqtt", "localhost:x", "--topic-in", "a", "--topic-out", "b"], "HOST:PORT"),
        (["--mqtt", "mqtt://localhost", "--topic-in", "a", "--topic-out", "b"], "HOST:PORT"),
        (["--mqtt", "me@localhost", "--topic-in", "a", "--topic-out", "b"], "HOST:PORT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_answered_with_what_to_do(flags, words, capsys):
    with pytest.raises(SystemExit) as end:
        main.parse(["share", "gain", "--secret-file", "s.json", *flags])
    assert end.value.code == 2 and words in capsys.readouterr().err


def test_addresses_and_the_way_to_the_broker(stand, monkeypatch):
    network = Network()
    for given, meant in (("there", ("there", 1883)), ("there:7", ("there", 7)), ("[::1]:7", ("::1", 7))):
        network = Network(given, "a", "b", mqtt_in_clear=given != "[::1]:7")
        network.check()
        assert network.address() == meant

    def serve(*given):
        raise Stop(given)

    monkeypatch.setattr(mqtt, "serve", serve)
    with pytest.raises(Stop) as asked:
        network.serve(stand, print)
    assert asked.value.args == ((stand, Route("::1", 7, "a", "b"), print, 0.0),)


def test_without_the_extra_one_sentence_names_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    Network().check()
    with pytest.raises(Mistake, match=r"paho-mqtt; install it with `pip install 'veil\[mqtt\]'`"):
        Network("localhost", "a", "b").check()

"""Whole streams through a real broker: killed brokers, a killed sharer and absent readers lose nothing."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.sharing.brokers import (
    DURABLE,
    MOSQUITTO,
    Background,
    Mosquitto,
    Peer,
    assert_nothing_is_lost,
    entries_of,
    input_line,
    soon,
)

pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="no broker here: install mosquitto to run these")
STEPS = 200


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker", *DURABLE) as made:
        yield made


@pytest.fixture
def peers(broker):
    """A reader and a writer, both with sessions."""
    reader, writer = Peer("reader", broker.port, "out"), Peer("writer", broker.port)
    assert reader.ready.wait(10)
    yield reader, writer
    reader.close()
    writer.close()


def test_the_command_survives_its_own_death_and_that_of_the_broker(broker, peers, tmp_path):
    (reader, writer), path = peers, tmp_path / "stream" / "ledger.jsonl"
    secret = tmp_path / "secret.json"
    secret.write_text("1")
    secret.chmod(0o600)
    command = [sys.executable, "-m", "veil.cli.main", "share", "gain", "--policy", "noise", "--sd", "0.3"]
    command += ["--resolution", "0", "--budget", "0.5", "--secret-file", str(secret), "--ledger", str(path)]
    command += ["--mqtt", f"127.0.0.1:{broker.port}", "--topic-in", "in", "--topic-out", "out"]
    environment = {**os.environ, "VEIL_CACHE": str(tmp_path / "cache")}

    messages = (tmp_path / "messages.txt").open("w+")

    def share():
        return subprocess.Popen(command, stderr=messages, env=environment)

    def feed(first, last):
        for step in range(first, last + 1):
            writer.send_in_turn(input_line(step, level=0.01 * step))

    def feeding(first, last):
        thread = threading.Thread(target=feed, args=(first, last), daemon=True)
        thread.start()
        return thread

    sharer = share()
    try:
        soon(lambda: "connected to" in (tmp_path / "messages.txt").read_text(), 60)
        inputs = feeding(1, 60)
        soon(lambda: len(entries_of(path)) >= 40)
        sharer.kill()
        sharer.wait()
        inputs.join(60)
        feed(61, 100)  # nobody takes these now
        sharer = share()
        soon(lambda: len(entries_of(path)) == 100, 60)
        inputs = feeding(101, 190)
        soon(lambda: len(entries_of(path)) >= 150)
        broker.stop()
        time.sleep(0.5)
        broker.start()
        inputs.join(60)
        feed(191, STEPS)
        soon(lambda: len(entries_of(path)) == STEPS and STEPS in reader.steps(), 60)
    finally:
        sharer.kill()
        sharer.wait()
        messages.close()
    assert_nothing_is_lost(path, reader.payloads)
    assert {entry["decision"] for entry in entries_of(path)} == {"released", "blind"}


def test_a_broker_that_is_killed_may_forget_but_readers_get_all_of_the_ledger(broker, peers, tmp_path):
    """Four times without a warning; what it forgets of the inputs, or mixes up, are gaps."""
    (reader, writer), path = peers, tmp_path / "ledger.jsonl"
    sharer = Background(path, broker.port)
    soon(lambda: sharer.messages)
    for step in range(1, 401):
        writer.send(input_line(step, level=0.01 * step))
        time.sleep(0.002)
        if step % 100 == 50:
            broker.stop(signal.SIGKILL)
            broker.start()
    soon(lambda: len(entries_of(path)) == 400 and 400 in reader.steps(), 60)
    sharer.end(broker)
    assert_nothing_is_lost(path, reader.payloads)


def test_a_reader_who_is_away_finds_everything_when_it_comes_back(broker, peers, tmp_path):
    (reader, writer), path = peers, tmp_path / "ledger.jsonl"
    reader.close()
    sharer = Background(path, broker.port)
    soon(lambda: sharer.messages)
    for step in range(1, 1101):  # more than a broker queues by itself
        writer.send(input_line(step, level=0.01 * step))
    soon(lambda: len(entries_of(path)) == 1100, 60)
    assert not reader.payloads
    reader = Peer("reader", broker.port, "out")
    soon(lambda: 1100 in reader.steps(), 60)
    reader.close()
    sharer.end(broker)
    assert_nothing_is_lost(path, reader.payloads)


def test_an_input_in_work_when_the_program_died_comes_again(broker, peers, tmp_path):
    (reader, writer), path = peers, tmp_path / "ledger.jsonl"
    sharer = Background(path, broker.port, dies_at=5)
    soon(lambda: sharer.messages)
    for step in range(1, 9):
        writer.send_in_turn(input_line(step, level=0.01 * step))
    sharer.join(20)
    assert not sharer.is_alive() and len(entries_of(path)) == 4
    sharer = Background(path, broker.port)
    soon(lambda: 8 in reader.steps())
    sharer.end(broker)
    assert_nothing_is_lost(path, reader.payloads)
    assert [entry["decision"] for entry in entries_of(path)] == ["released"] * 8


def test_a_broker_without_memory_is_told_the_last_releases_again(tmp_path):
    """It acknowledged them and forgot; who subscribes before we come back gets them all the same."""
    path = tmp_path / "ledger.jsonl"
    with Mosquitto(tmp_path / "broker", "persistence false") as broker:
        writer, sharer = Peer("writer", broker.port), Background(path, broker.port)
        soon(lambda: sharer.messages)
        for step in range(1, 41):
            writer.send(input_line(step))
        soon(lambda: len(entries_of(path)) == 40 and sharer.marked() == 40)
        writer.close()
        sharer.end(broker)
        broker.start()
        reader = Peer("reader", broker.port, "out")
        assert reader.ready.wait(10)
        sharer = Background(path, broker.port)
        soon(lambda: 40 in reader.steps())
        reader.close()
        assert "does not remember us; next step 41" in sharer.messages[0]
        sharer.end(broker)
    assert_nothing_is_lost(path, reader.payloads)

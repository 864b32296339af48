"""MQTT by TLS: a real broker with a certificate made here, passwords, client certificates, refusals."""

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sharing.brokers import MOSQUITTO, Background, Mosquitto, Peer, Stand, input_line, soon
from veil.cli import main
from veil.cli.console import Mistake
from veil.cli.share import Network
from veil.sharing import mqtt
from veil.sharing.mqtt import Link, Lost, Route, Tls

OPENSSL, PASSWD = shutil.which("openssl"), shutil.which("mosquitto_passwd")
broker_needed = pytest.mark.skipif(
    MOSQUITTO is None or OPENSSL is None, reason="no broker here: install mosquitto and openssl to run these"
)


def openssl(folder, *words):
    command = [str(OPENSSL), *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def signed(folder, name, *extensions):
    """A key and a certificate that the authority signed."""
    (folder / "extensions").write_text("\n".join(extensions))
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr"]
    openssl(folder, "req", *key, "-subj", f"/CN={name}")
    issue = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *issue)
    (folder / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, a broker and a client; and an authority that nobody knows."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "stranger"):
        new = ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2"]
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        openssl(folder, "req", "-x509", *new, "-subj", f"/CN={name}", *usage)
    signed(folder, "broker", "subjectAltName=IP:127.0.0.1")
    signed(folder, "client", "extendedKeyUsage=clientAuth")
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def secure(certificates, tmp_path):
    """A broker with a second, encrypted way in, which wants a password or a certificate."""
    port, users = free_port(), tmp_path / "users"
    settings = [f"listener {port} 127.0.0.1", f"cafile {certificates}/ca.pem"]
    settings += [f"certfile {certificates}/broker.pem", f"keyfile {certificates}/broker.key"]
    if PASSWD:
        subprocess.run([PASSWD, "-b", "-c", str(users), "car", "a word"], check=True, capture_output=True)
        users.chmod(0o600)
        settings += ["allow_anonymous false", f"password_file {users}"]
    else:
        settings += ["require_certificate true", "use_identity_as_username true", "allow_anonymous false"]
    with Mosquitto(tmp_path / "broker", *settings, first=("per_listener_settings true",)) as broker:
        yield broker, port


@broker_needed
def test_a_stream_goes_through_an_encrypted_broker(secure, certificates, tmp_path):
    broker, port = secure
    reader, writer = Peer("reader", broker.port, "out"), Peer("writer", broker.port)
    assert reader.ready.wait(10)
    tls = Tls(certificates / "ca.pem", certificates / "client.pem", certificates / "client.key")
    sharer = Background(tmp_path / "ledger.jsonl", port, tls=tls, login=("car", "a word") if PASSWD else None)
    soon(lambda: any("connected to" in line for line in sharer.messages))
    for step in range(1, 21):
        writer.send(input_line(step))
    soon(lambda: 20 in reader.steps())
    assert list(dict.fromkeys(reader.steps())) == [*range(1, 21)]
    reader.close()
    writer.close()
    sharer.end(broker)


@broker_needed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves a refused socket
@pytest.mark.parametrize("wrong", ["authority", "password", "clear"])
def test_a_broker_that_is_not_known_and_a_wrong_word_are_refused(secure, certificates, tmp_path, wrong):
    _, port = secure
    tls = Tls(certificates / ("stranger.pem" if wrong == "authority" else "ca.pem"))
    login = ("car", "another word" if wrong == "password" else "a word")
    route = Route("127.0.0.1", port, "in", "out", None if wrong == "clear" else tls, login)
    with Stand(tmp_path / "ledger.jsonl") as stand, pytest.raises(Lost) as lost:
        Link(stand, route, print).run()
    if wrong == "authority":
        assert "TLS: " in str(lost.value) and "certificate" in str(lost.value)
    assert "word" not in str(lost.value) and "word" not in repr(route)
    gc.collect()


MQTT = ["--mqtt", "broker.example", "--topic-in", "a", "--topic-out", "b"]
LOCAL = ["--mqtt", "localhost", "--topic-in", "a", "--topic-out", "b"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (MQTT, "would cross the network to broker.example in clear. Add --mqtt-tls"),
        (["--mqtt", "192.0.2.1:1883", *MQTT[2:]], "in clear"),
        ([*MQTT, "--mqtt-tls", "--mqtt-in-clear"], "exclude each other"),
        ([*LOCAL, "--mqtt-ca", "ca.pem"], "are for --mqtt-tls"),
        ([*MQTT, "--mqtt-tls", "--mqtt-cert", "a.pem"], "go together"),
        (["--mqtt-tls"], "need --mqtt"),
        ([*LOCAL, "--mqtt-password", "word"], "there is no flag --mqtt-password"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_true_states_do_not_cross_a_network_in_clear(flags, words, capsys):
    with pytest.raises(SystemExit) as end:
        main.parse(["share", "gain", "--secret-file", "s.json", *flags])
    told = capsys.readouterr().err
    assert end.value.code == 2 and words in told and told.count("\n") == 1


def test_addresses_by_tls_and_on_this_machine():
    for network, meant in (
        (Network("there", "a", "b", mqtt_tls=True), ("there", 8883)),
        (Network("there:7", "a", "b", mqtt_in_clear=True), ("there", 7)),
        (Network("127.0.0.2", "a", "b"), ("127.0.0.2", 1883)),
    ):
        network.check()
        assert network.address() == meant


def test_credentials_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("VEIL_MQTT_USER", raising=False)
    assert Network("localhost", "a", "b").login() is None
    monkeypatch.setenv("VEIL_MQTT_USER", "car")
    monkeypatch.setenv("VEIL_MQTT_PASSWORD", "a word")
    assert Network("localhost", "a", "b").login() == ("car", "a word")
    path = tmp_path / "login"
    path.write_text("boat\nanother word\n")
    network = Network("localhost", "a", "b", mqtt_login=path)
    path.chmod(0o640)
    with pytest.raises(Mistake, match="can be read by others"):
        network.login()
    path.chmod(0o600)
    assert network.login() == ("boat", "another word")
    path.write_text("boat")
    with pytest.raises(Mistake, match="needs two lines"):
        network.login()


def test_the_flags_arrive_at_the_connection(tmp_path, monkeypatch):
    sent = []

    class Told(Exception):
        """Ends what would go on for ever."""

    def serve(sharer, route, tell, pace):
        sent.append((route, pace))
        raise Told

    monkeypatch.setattr(mqtt, "serve", serve)
    with Stand(tmp_path / "ledger.jsonl") as stand, pytest.raises(Told):
        Network("localhost", "a", "b", mqtt_tls=True).serve(stand, print, 0.25)
    assert sent == [(Route("localhost", 8883, "a", "b", Tls(), None), 0.25)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
def test_the_memory_of_the_process_is_closed_to_others(tmp_path):
    """prctl(PR_GET_DUMPABLE) is 0 after it, and /proc gives the process to root."""
    code = (
        "import ctypes, json, os, resource\n"
        "from veil.cli.share import keep_to_itself\n"
        "keep_to_itself()\n"
        "dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "limit = resource.getrlimit(resource.RLIMIT_CORE)\n"
        "print(json.dumps([dumpable, limit, os.stat('/proc/self').st_uid]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    made = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert json.loads(made.stdout) == [0, [0, 0], 0]

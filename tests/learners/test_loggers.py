"""Who receives the metrics of a training: what, in which order, and until when."""

import importlib.util
import json
from dataclasses import asdict

import numpy as np
import pytest

from tests.command_lines import veil
from tests.learners.learner_truths import dial, halves, seen
from tests.learners.test_loop import Walk
from veil.learners import train_policy
from veil.learners import training as loop
from veil.learners.loggers import JsonLines, Logger, TensorBoard
from veil.learners.run import METRICS
from veil.settings import TrainSettings

OPTIONS = TrainSettings(updates=5, evaluate_every=2, patience=0)


class Fake:
    """Notes all calls; interrupts after some update."""

    def __init__(self, until=99):
        self.calls, self.until = [], until

    def start(self, settings):
        self.calls.append(("start", dict(settings)))

    def log(self, step, values):
        self.calls.append((step, dict(values)))
        if step == self.until:
            raise KeyboardInterrupt

    def close(self):
        self.calls.append(("close", {}))


def run(monkeypatch, *loggers, folder=None):
    monkeypatch.setattr(loop, "evaluate_family", lambda *_: seen(1.0))
    made = halves()
    return train_policy((made,), Walk(), dial(made.scenario.plant), OPTIONS, folder=folder, loggers=loggers)


def timeless(values):
    return {name: value for name, value in values.items() if name != "seconds"}


def test_a_logger_is_told_what_the_file_holds(monkeypatch, tmp_path):
    fake = Fake()
    assert isinstance(fake, Logger) and isinstance(JsonLines(tmp_path), Logger)
    run(monkeypatch, fake, folder=tmp_path)
    assert fake.calls[0] == ("start", asdict(OPTIONS)) and fake.calls[-1] == ("close", {})
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [(int(line["update"]), line) for line in lines] == fake.calls[1:-1]
    assert [step for step, _ in fake.calls[1:-1]] == [0, 1, 2, 3, 4, 5]


def test_without_a_folder_loggers_are_told_all_the_same(monkeypatch, tmp_path):
    fake, other = Fake(), Fake()
    run(monkeypatch, fake)
    run(monkeypatch, other, folder=tmp_path)
    assert [timeless(values) for _, values in fake.calls] == [timeless(values) for _, values in other.calls]


def test_a_training_that_is_stopped_closes_its_loggers_and_goes_on_after_its_checkpoint(
    monkeypatch, tmp_path
):
    first, second, whole = Fake(until=3), Fake(), Fake()
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, first, folder=tmp_path / "some")
    assert first.calls[-1] == ("close", {}) and first.calls[-2][0] == 3
    run(monkeypatch, second, folder=tmp_path / "some")
    assert second.calls[0] == ("start", {**asdict(OPTIONS), "update": 2})  # the last look
    assert [step for step, _ in second.calls[1:-1]] == [3, 4, 5]
    run(monkeypatch, whole, folder=tmp_path / "whole")
    texts = ((tmp_path / name / METRICS).read_text().splitlines() for name in ("some", "whole"))
    some, all_of_it = ([timeless(json.loads(line)) for line in text] for text in texts)
    assert some == all_of_it and len(some) == 6


def test_tensorboard_files_hold_the_metrics(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore
    from tensorboardX.record_writer import masked_crc32c  # pyright: ignore[reportMissingImports]

    board = TensorBoard(tmp_path)
    board.start({**asdict(OPTIONS), "update": 2})
    board.log(3, {"update": 3.0, "leakage": 0.25, "cost": float("nan")})
    board.close()
    (path,) = tmp_path.iterdir()
    content, events, place = path.read_bytes(), [], 0
    while place < len(content):  # length, checksum of it, record, checksum of that
        size = int(np.frombuffer(content[place : place + 8], "<u8")[0])
        record = content[place + 12 : place + 12 + size]
        check = int(np.frombuffer(content[place + 12 + size : place + 16 + size], "<u4")[0])
        assert check == masked_crc32c(record)
        events.append(Event.FromString(record))
        place += 16 + size
    found = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
    assert (3, "leakage", 0.25) in found and not any(tag == "cost" for _, tag, _ in found)
    assert any(event.session_log.status == event.session_log.START and event.step == 3 for event in events)


def test_a_missing_package_is_named_with_its_command(monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec  # the registry may ask it for the package itself
    missing = "tensorboardX"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else find_spec(name))
    monkeypatch.setattr("veil.cli.main.prepare", lambda: None)
    code, _, err = veil("train", "gain", "--log", "tensorboard", "--out", tmp_path / "new")
    assert code == 2 and "pip install 'veil[tensorboard]'" in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()

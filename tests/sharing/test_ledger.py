"""The ledger: durable, verified, repaired where a crash cut it, refused where somebody edited it."""

import hashlib
import hmac
import json
import multiprocessing
import os

import pytest

from veil.sharing import Ledger, LedgerError
from veil.sharing import ledger as ledger_module

ABOUT = {"system": "gain", "seed": 3, "budget": 0.1}
STREAM = "5" * 32


def entry(step):
    return {
        "step": step,
        "shared": {"level": 0.1 * step + 1e-17},
        "charge": 1.0 / (step + 3),
        "decision": "intended",
    }


def written(path, count):
    with Ledger(path, ABOUT, stream=STREAM) as ledger:
        for step in range(1, count + 1):
            ledger.append(entry(step))
    return path.read_bytes()


def test_entries_come_back_bit_for_bit_and_the_chain_is_that_of_sha256(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    content = written(path, 5)
    with Ledger(path, ABOUT) as ledger:
        for step, one in zip(range(1, 6), ledger, strict=True):
            assert one == {**entry(step), **{end: one[end] for end in ("chain", "mac", "sum")}}
        assert ledger[4]["shared"] == entry(4)["shared"] and len(ledger) == 5
        assert 5 in ledger and 6 not in ledger and ledger.note == ""
        with pytest.raises(KeyError):
            ledger[6]
    before = "0" * 64
    for line in content.splitlines():
        digest = json.loads(line)["chain"]
        body = line.decode().partition(f',"chain":"{digest}"')[0] + "}"
        assert hashlib.sha256((before + body).encode()).hexdigest() == digest
        before = digest


def test_going_on_gives_the_same_bytes_as_never_having_stopped(tmp_path):
    whole = written(tmp_path / "whole", 6)
    written(tmp_path / "parts", 3)
    with Ledger(tmp_path / "parts", ABOUT) as ledger:
        for step in range(4, 7):
            ledger.append(entry(step))
    assert (tmp_path / "parts").read_bytes() == whole


def test_a_last_line_cut_anywhere_is_removed_with_a_note_and_written_again(tmp_path):
    path, whole = tmp_path / "ledger", written(tmp_path / "ledger", 3)
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in (last + 1, (last + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with Ledger(path, ABOUT) as ledger:
            assert (
                "Line 4" in ledger.note
                and "cut short" in ledger.note
                and len(ledger) == 2
                and 3 not in ledger
            )
            ledger.append(entry(3))
        assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [b"", b"\0" * 5000])
def test_room_for_lines_to_come_is_not_taken_for_lines(tmp_path, tail):
    """After a crash the file ends in zeros, behind a whole line or behind one that was torn."""
    path, whole = tmp_path / "ledger", written(tmp_path / "ledger", 3)
    last = whole.rindex(b"\n", 0, -1) + 1
    path.write_bytes(whole + tail)
    with Ledger(path, ABOUT) as ledger:
        assert len(ledger) == 3 and ledger.note == ""
    assert path.read_bytes() == whole
    path.write_bytes(whole[: last + 9] + b"\0" * 40 + tail)
    with Ledger(path, ABOUT) as ledger:
        assert len(ledger) == 2 and "Line 4" in ledger.note


def test_zeros_in_the_middle_are_damage_and_remove_nothing(tmp_path):
    path, whole = tmp_path / "ledger", written(tmp_path / "ledger", 5)
    lines = whole.splitlines(keepends=True)
    for harmed in (
        [*lines[:2], lines[2].replace(b"step", b"st\0p"), *lines[3:]],
        [*lines[:2], b"\0" * 300, *lines[2:]],
    ):
        path.write_bytes(b"".join(harmed))
        with pytest.raises(LedgerError, match="broken at line 3"):
            Ledger(path, ABOUT)
        assert path.read_bytes() == b"".join(harmed)


def test_only_a_line_without_its_end_is_torn(tmp_path):
    """A zero byte in a line that has its end is damage, unless it is known that the line never went out."""
    path, whole = tmp_path / "ledger", written(tmp_path / "ledger", 3)
    last = whole.rindex(b"\n", 0, -1) + 1
    for harmed in (whole[: last + 9] + b"\0" + whole[last + 10 :], whole[: last + 9] + b"\0" * 40 + b"\n"):
        path.write_bytes(harmed + b"\0" * 5000)
        for known in (None, 3):
            with pytest.raises(LedgerError, match="broken at line 4, which was damaged"):
                Ledger(path, ABOUT, released=known)
        assert path.read_bytes() == harmed + b"\0" * 5000
        with Ledger(path, ABOUT, released=2) as ledger:  # a disk that wrote the end before the beginning
            assert len(ledger) == 2 and "Line 4" in ledger.note
    path.write_bytes(whole[: last + 9])
    with pytest.raises(LedgerError, match="ends at step 2, but step 3 was released"):
        Ledger(path, ABOUT, released=3)


@pytest.mark.parametrize(
    "content", [b"1", b'{"gain": 0.6}\n', b"\0" * 90, b'{"about":{}}\n', b"{", b'{"VEIL":']
)
def test_what_is_not_a_ledger_is_not_touched(tmp_path, content):
    path = tmp_path / "secret.json"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"secret\.json is not a ledger.* it was not touched"):
        Ledger(path, ABOUT)
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["secret.json"]


def test_a_ledger_is_begun_in_one_piece(tmp_path, monkeypatch):
    """Whenever a crash comes, there is no file, an empty one, or a whole first line."""
    path, sync = tmp_path / "ledger", os.fsync

    def dies(file):
        sync(file)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dies)
        with pytest.raises(KeyboardInterrupt):
            Ledger(path, ABOUT)
    assert not path.exists()
    path.touch()
    Ledger(path, ABOUT).close()
    assert path.read_bytes().startswith(b'{"VEIL":"ledger 2",') and path.read_bytes().count(b"\n") == 1
    path.write_bytes(path.read_bytes()[:7])
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(path, ABOUT)


def test_lines_are_authenticated_by_the_key_and_readable_by_all(tmp_path):
    """Whoever rewrites the public chain cannot rewrite the second one, which HMAC of Python also finds."""
    path, key = tmp_path / "ledger", b"k" * 32
    with Ledger(path, ABOUT, key=key, stream=STREAM) as ledger:
        ledger.append(entry(1))
        ledger.append(entry(2), entry(3))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        assert line["mac"] == hmac.new(key, line["chain"].encode(), "sha256").hexdigest()[:32]
    with Ledger(path, ABOUT, key=key) as ledger:
        assert len(ledger) == 3
    before, forged = "0" * 64, b""
    for line in lines:
        line = {name: value for name, value in line.items() if name not in ("chain", "mac", "sum")}
        line |= {"charge": 0.0} if line.get("step") == 2 else {}
        before, text = ledger_module.chained(line, before)
        forged += text
    path.write_bytes(forged)
    with Ledger(path, ABOUT):
        pass  # without the key the chain is all there is
    with pytest.raises(LedgerError, match="broken at line 1, which was not written with the key"):
        Ledger(path, ABOUT, key=key)


@pytest.mark.parametrize("harm", ["copied over", "moved away"])
def test_a_ledger_that_is_replaced_under_its_writer_ends_the_stream(tmp_path, harm):
    path = tmp_path / "ledger"
    with Ledger(path, ABOUT) as ledger:
        ledger.append(entry(1))
        if harm == "copied over":
            (tmp_path / "new").write_bytes(path.read_bytes().rstrip(b"\0"))
            os.replace(tmp_path / "new", path)
        else:
            path.rename(tmp_path / "away")
        with pytest.raises(LedgerError, match="moved or replaced while it was in use"):
            ledger.append(entry(2))
        assert 2 not in ledger


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: [*lines[:2], lines[2].replace(b"intended", b"withheld"), *lines[3:]],
        lambda lines: [*lines[:2], *lines[3:]],  # one taken out
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],  # two exchanged
        lambda lines: [
            *lines[:2],
            lines[2].replace(b'"charge":0.2', b'"charge":0.20'),
            *lines[3:],
        ],  # equal number
        lambda lines: [*lines[:2], b"{}\n", *lines[2:]],
        lambda lines: [*lines[:2], b"\xff\xfe\n", *lines[2:]],
    ],
)
def test_an_edit_is_found_at_its_line(tmp_path, harm):
    path, whole = tmp_path / "ledger", written(tmp_path / "ledger", 5)
    path.write_bytes(b"".join(harm(whole.splitlines(keepends=True))))
    with pytest.raises(LedgerError, match="broken at line 3"):
        Ledger(path, ABOUT)


def test_another_stream_and_a_second_release_of_a_step_are_refused(tmp_path):
    path = tmp_path / "ledger"
    whole = written(path, 2)
    with pytest.raises(LedgerError, match="another stream"):
        Ledger(path, {**ABOUT, "budget": 0.2})
    with Ledger(path, ABOUT) as ledger:
        with pytest.raises(LedgerError, match="leak twice"):
            ledger.append(entry(2))
        for bad in ({}, {"step": "3"}, {"step": True}):
            with pytest.raises(LedgerError, match="whole number"):
                ledger.append(bad)
        with pytest.raises(ValueError, match="JSON"):
            ledger.append({"step": 3, "charge": float("nan")})
    assert path.read_bytes() == whole


def opened(path, answer):
    try:
        Ledger(path, ABOUT).close()
        answer.put("opened")
    except LedgerError as error:
        answer.put(str(error))


def test_a_second_process_is_refused_while_the_first_one_lives(tmp_path):
    context = multiprocessing.get_context("spawn")
    answer, path = context.Queue(), tmp_path / "ledger"
    with Ledger(path, ABOUT):
        other = context.Process(target=opened, args=(path, answer))
        other.start()
        assert "in use by another process" in answer.get(timeout=60)
        other.join()
    Ledger(path, ABOUT).close()


def test_a_line_is_on_the_disk_before_append_returns(tmp_path, monkeypatch):
    """Written, then synced, then the offsets move: what another reader of the file finds."""
    path, calls = tmp_path / "ledger", []
    synced = os.fdatasync

    def sync(file):
        calls.append(path.read_bytes().count(b"\n"))
        synced(file)

    with Ledger(path, ABOUT) as ledger:
        monkeypatch.setattr(os, "fdatasync", sync)
        ledger.append(entry(1))
        assert calls == [2] and 1 in ledger


def test_a_full_disk_leaves_no_half_line_and_the_chain_as_it_was(tmp_path, monkeypatch):
    path, write = tmp_path / "ledger", os.pwrite
    monkeypatch.setattr(ledger_module, "ROOM", 1)  # every line makes the file grow
    with Ledger(path, ABOUT) as ledger:
        ledger.append(entry(1))
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda file, line, offset: write(file, line[:9], offset))
            with pytest.raises(OSError, match="disk may be full"):
                ledger.append(entry(2))
        assert path.read_bytes() == before and 2 not in ledger
        ledger.append(entry(2))
    with Ledger(path, ABOUT) as again:
        assert len(again) == 2

"""Attacks on the files of a stream: in version 0.1 they released steps twice, or were believed."""

import json
import math
import os
import shutil
import stat
from typing import Any

import numpy as np
import pytest

from tests.sharing import attacks
from tests.sharing.attacks import Files
from tests.sharing.streams import SECRET, Plant, noise_policy, private_policy, run
from veil.sharing import LedgerError, Sharer, snapshots
from veil.sharing.alarm import alarm_charge
from veil.sharing.secret_account import AccountError, SecretAccount, same_file
from veil.sharing.snapshots import LedgerBehindError

BUDGET = 0.5
POLICIES = {"noise": noise_policy, "private": private_policy}


def options(folder, name="ledger.jsonl") -> dict[str, Any]:
    return {"budget": BUDGET, "ledger": folder / name, "account": folder / "secret.account", "seed": 5}


@pytest.fixture(scope="module", params=[*POLICIES])
def stream(request, tmp_path_factory):
    """A stream of 30 steps with its files as they are, as they were after 24, and those of another one."""
    policy, folder = POLICIES[request.param](), tmp_path_factory.mktemp(request.param)
    elsewhere = tmp_path_factory.mktemp("other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "EVERY", 8)
        with Sharer(policy, SECRET, **options(folder), resolution=0.0) as sharer:
            stream = sharer.ledger.stream
        files = Files(
            folder / "ledger.jsonl",
            folder / "secret.account",
            folder / "ledger.jsonl.belief",
            folder / f"secret.memory-{stream[:8]}",
        )
        plant = Plant(4)
        for steps in (24, 6):
            with Sharer(policy, SECRET, **options(folder), resolution=0.0) as sharer:
                run(sharer, plant, steps)
            files.old = files.old or files.read()
        with Sharer(policy, 0, **options(elsewhere), resolution=0.0) as sharer:
            run(sharer, Plant(5), 30)
        other = Files(
            elsewhere / "ledger.jsonl",
            elsewhere / "secret.account",
            elsewhere / "ledger.jsonl.belief",
            next(elsewhere.glob("secret.memory-*"), elsewhere / "none"),
        )
        files.other = other.read()
    return request.param, policy, folder, files


def attempt(stream, attack, policy=None):
    """Open the stream after an attack and share two steps: the error or the releases. All is put back."""
    _, own, folder, files = stream
    before = files.read()
    try:
        attack(files, np.random.default_rng(7))
        with Sharer(policy or own, SECRET, **options(folder), resolution=0.0) as sharer:
            return [sharer.share([0.1], [0.2]) for _ in range(2)], sharer.accountant.total()
    except (LedgerError, AccountError, LedgerBehindError) as error:
        return str(error), files.read()
    finally:
        files.write(before)


@pytest.mark.parametrize("name", attacks.REFUSED)
def test_cut_replaced_and_edited_files_are_refused_and_left_alone(stream, name):
    files = stream[3]
    told, found = attempt(stream, attacks.REFUSED[name])
    assert isinstance(told, str), f"{name} was accepted"
    assert "estore" not in told and "copy" not in told.replace("older copy", "")
    assert told.rstrip().endswith(".") and str(files.ledger.parent) in told
    if name == "not a ledger":
        assert isinstance(found, dict) and found["ledger"] == b"2"


def test_snapshots_and_memories_that_were_changed_are_not_believed(stream):
    """With them the stream stands where it stands without: next step and total are the same."""
    kind = stream[0]
    honest, total = attempt(stream, lambda files, chance: None)
    assert not isinstance(honest, str)
    for name, attack in (attacks.HARMLESS if kind == "noise" else attacks.HARMLESS_TO_MEMORY).items():
        made, charged = attempt(stream, attack)
        assert not isinstance(made, str), (name, made)
        assert [one.receipt.step for one in made] == [31, 32]
        assert kind == "private" or abs(charged - total) < 0.05


def test_an_older_ledger_and_account_that_fit_together_are_betrayed_by_the_memory(stream):
    if stream[0] != "private":
        pytest.skip("there is no memory")
    (attack,) = attacks.REFUSED_BY_MEMORY.values()
    told, _ = attempt(stream, attack)
    assert isinstance(told, str) and "knows 29 steps of this stream, but the ledger ends at step 24" in told


def test_a_secret_that_is_changed_in_mid_stream_is_refused(stream, tmp_path):
    _, policy, folder, files = stream
    before = files.read()
    with pytest.raises(AccountError, match="account of another secret"):
        Sharer(policy, 0, **options(folder), resolution=0.0)
    with pytest.raises(AccountError, match="account of another secret"):
        Sharer(policy, 0, **{**options(folder), "ledger": tmp_path / "new.jsonl"}, resolution=0.0)
    assert files.read() == before and not (tmp_path / "new.jsonl").exists()


def test_a_moved_ledger_goes_on_and_a_copy_of_it_does_not(stream, tmp_path):
    """Whoever goes on with a copy takes the stream away from the original, and the other way round."""
    _, policy, folder, files = stream
    before, copy = files.read(), tmp_path / "copy.jsonl"
    shutil.copy(files.ledger, copy)
    try:
        with Sharer(policy, SECRET, **{**options(folder), "ledger": copy}, resolution=0.0) as sharer:
            sharer.share([0.1], [0.2])
            with pytest.raises(AccountError, match="in use by another process"):
                Sharer(policy, SECRET, **options(folder), resolution=0.0)
        with pytest.raises(AccountError, match="ends at step 30, but step 31 was released"):
            Sharer(policy, SECRET, **options(folder), resolution=0.0)
    finally:
        files.write(before)


def test_one_secret_has_one_budget_over_all_its_ledgers(tmp_path):
    """Half a nat each were .98 together in version 0.1."""
    policy, plant = noise_policy(), Plant(1)
    totals = []
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        with Sharer(policy, SECRET, **options(tmp_path, name), on_alarm="warn", resolution=0.0) as sharer:
            run(sharer, plant, 60)
            totals.append(sharer.accountant.total())
            decisions = {entry["decision"] for entry in sharer.ledger}
    assert "blind" in decisions and math.fsum(totals) > 0.9 * BUDGET
    assert math.fsum(totals) <= BUDGET * (1 + 1e-12)
    assert stat.S_IMODE((tmp_path / "secret.account").stat().st_mode) == 0o600
    with pytest.raises(AccountError, match="less of the budget than an alarm can tell"):
        Sharer(
            policy, SECRET, **{**options(tmp_path, "d.jsonl"), "budget": math.fsum(totals)}, resolution=0.0
        )
    assert not (tmp_path / "d.jsonl").exists()


def test_two_streams_in_turn_never_spend_more_than_what_is_left(tmp_path):
    """Each knows of the charges of the other one before it decides, and writes down what it knew."""
    policy, first, second = noise_policy(), Plant(1), Plant(2)
    with (
        Sharer(policy, SECRET, **options(tmp_path, "a.jsonl"), resolution=0.0) as one,
        Sharer(policy, SECRET, **options(tmp_path, "b.jsonl"), resolution=0.0) as other,
    ):
        for _ in range(40):
            run(one, first, 1)
            run(other, second, 1)
        spent = [one.accountant.total(), other.accountant.total()]
        entries = [entry for pair in zip(one.ledger, other.ledger, strict=True) for entry in pair]
    assert sum(spent) <= BUDGET * (1 + 1e-12) and min(spent) > alarm_charge(1e-4)
    total = 2 * alarm_charge(1e-4)
    for entry in entries:
        assert entry["left"] == pytest.approx(BUDGET - total, abs=1e-12)
        total += entry["charge"]


def test_a_charge_that_another_stream_made_impossible_is_decided_again(tmp_path, monkeypatch):
    """The other one spends between the decision and the reservation: the release must not go out as it is."""
    policy, plant, elsewhere = noise_policy(), Plant(1), []
    with Sharer(policy, SECRET, **options(tmp_path, "a.jsonl"), resolution=0.0) as one:
        run(one, plant, 5)
        reserve = SecretAccount.reserve

        def spent_meanwhile(self, spent, limit):
            if not elsewhere:
                elsewhere.append(BUDGET - self.mark.spent - 1e-9)
                monkeypatch.setattr(SecretAccount, "_spent_elsewhere", lambda self: elsewhere[0])
            return reserve(self, spent, limit)

        monkeypatch.setattr(SecretAccount, "reserve", spent_meanwhile)
        made = one.share([2.0], [0.0])
        assert made.receipt.decision == "blind" and made.receipt.charge == 0.0
        assert one.ledger[6]["left"] == pytest.approx(1e-9, rel=1e-3)


def test_a_reservation_counts_for_the_others_until_it_is_settled(tmp_path):
    """Between its reservation and its mark a process may die: what it may have spent stays reserved."""
    secret, path = np.array([0.6]), tmp_path / "account"
    one, other = SecretAccount(path, secret), SecretAccount(path, secret)
    one.claim(tmp_path / "a", None, 0.1)
    other.claim(tmp_path / "b", None, 0.1)
    assert one.reserve(0.3, 0.5) and not other.reserve(0.21, 0.5) and other.reserve(0.2, 0.5)
    one.close()  # dies
    assert other.spent_elsewhere() == pytest.approx(0.3)
    again = SecretAccount(path, secret)
    mark = again.claim(tmp_path / "a", one.mark.stream.hex())
    assert mark.spent == pytest.approx(0.1) and again.spent_elsewhere() == pytest.approx(0.2)
    assert again.reserve(0.3, 0.5) and not again.reserve(0.31, 0.5)
    again.close()
    other.close()


def test_a_process_whose_stream_was_taken_over_stops(tmp_path, monkeypatch):
    """Also where the system has no lock for a part of a file."""
    secret, path = np.array([0.6]), tmp_path / "account"
    one = SecretAccount(path, secret)
    mark = one.claim(tmp_path / "a", None)
    with pytest.raises(AccountError, match="in use by another process"):
        SecretAccount(path, secret).claim(tmp_path / "a", mark.stream.hex())
    monkeypatch.delattr("fcntl.F_OFD_SETLK")
    other = SecretAccount(path, secret)
    other.commit(other.claim(tmp_path / "a", mark.stream.hex()))
    with pytest.raises(AccountError, match="Another process has gone on"):
        one.reserve(0.1, 1.0)
    os.replace(path, tmp_path / "moved")
    with pytest.raises(AccountError, match="moved or replaced"):
        other.reserve(0.1, 1.0)
    one.close()
    other.close()


def test_a_mark_is_on_the_disk_before_the_release_is_answered(tmp_path, monkeypatch):
    """Ledger first, then the mark: whoever reads the files after the last sync finds the step in both."""
    synced, sync = [], os.fdatasync

    def noted(file):
        sync(file)
        synced.append(os.readlink(f"/proc/self/fd/{file}").rsplit("/", 1)[1])

    with Sharer(private_policy(), SECRET, **options(tmp_path), resolution=0.0) as sharer:
        sharer.share([0.1], [0.0])
        monkeypatch.setattr(os, "fdatasync", noted)
        sharer.share([0.2], [0.0])
    assert [name.split("-")[0] for name in synced] == ["secret.memory", "ledger.jsonl", "secret.account"]


def test_a_mark_that_cannot_be_written_holds_the_release_back(tmp_path, monkeypatch):
    """The line is in the ledger then; asked again, it does not go out before the mark is there."""
    with Sharer(noise_policy(), SECRET, **options(tmp_path), resolution=0.0) as sharer:
        sharer.share([0.1], [0.0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", short_of(os.pwrite, 4096))
            with pytest.raises(OSError, match="disk may be full"):
                sharer.share([0.2], [0.0])
        for _ in range(2):
            with pytest.raises(OSError, match="Start again"):
                sharer.share([0.2], [0.0], step=2)
    with Sharer(noise_policy(), SECRET, **options(tmp_path), resolution=0.0) as sharer:
        assert sharer.next_step == 3 and sharer.share([9.0], [0.0], step=2).receipt.step == 2


def short_of(write, size):
    """A disk that has no room for blocks of this size."""
    return lambda file, content, place: write(file, content[: len(content) - (len(content) == size)], place)


def test_the_head_goes_out_with_the_release_and_is_that_of_the_chain(tmp_path):
    with Sharer(noise_policy(), SECRET, **options(tmp_path), resolution=0.0) as sharer:
        heads = [one.receipt.head for one in run(sharer, Plant(3), 4)]
    kept = [json.loads(line)["chain"] for line in (tmp_path / "ledger.jsonl").read_bytes().splitlines()]
    assert heads == kept[1:] and len(set(heads)) == 4


def test_a_file_that_is_replaced_is_noticed(tmp_path):
    path = tmp_path / "file"
    path.touch()
    opened = os.open(path, os.O_RDONLY)
    same_file(path, opened, LedgerError)
    path.unlink()
    with pytest.raises(LedgerError, match="moved or replaced"):
        same_file(path, opened, LedgerError)
    os.close(opened)

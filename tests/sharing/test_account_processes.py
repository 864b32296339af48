"""One account in several processes, some of which are killed: never more than the limit, never stuck."""

import os
from dataclasses import replace

import numpy as np
import pytest

from tests.stream_study import account
from veil.sharing.secret_account import SecretAccount

SECRET = np.array([0.6])


def test_killed_processes_leave_an_account_that_is_never_overspent(tmp_path):
    """20 of the 10,000 runs of the study: two processes, four streams, one of the two killed at random."""
    found = account(20, tmp_path)
    assert found["overspent"] == 0 and found["killed"] > 2 and found["slowest_seconds"] < 15.0


class Died(BaseException):
    """The process of a stream ends."""


@pytest.mark.parametrize("torn", [False, True], ids=["between writes", "within a write"])
@pytest.mark.parametrize("writes", range(5))
def test_after_a_death_between_any_two_writes_a_reader_that_remembers_is_one_that_does_not(
    tmp_path, monkeypatch, writes, torn
):
    """A stream that remembers what the others spent must not miss a charge of one that died."""
    path = tmp_path / "account"
    dying, living = SecretAccount(path, SECRET), SecretAccount(path, SECRET)
    dying.claim(tmp_path / "dying", None)
    living.claim(tmp_path / "living", None)
    assert living.reserve(0.1, 1.0)
    living.commit(replace(living.mark, step=1, spent=0.1))
    assert living.spent_elsewhere() == 0.0  # and remembered

    made, write = [], os.pwrite

    def until_death(file: int, content: bytes, offset: int) -> int:
        if len(made) == writes:
            if torn:
                write(file, content[: len(content) // 2], offset)
            raise Died
        made.append(offset)
        return write(file, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", until_death)
        try:
            assert dying.reserve(0.7, 1.0)
            dying.commit(replace(dying.mark, step=1, spent=0.7))
        except Died:
            pass
    dying.close()
    afresh = SecretAccount(path, SECRET)
    everything = afresh.spent_elsewhere()
    assert living.spent_elsewhere() == pytest.approx(everything - 0.1)
    if writes >= 2:  # the reservation is on the disk: it counts, whatever became of the mark
        assert everything == pytest.approx(0.8)
        assert not living.reserve(0.4, 1.0)
    afresh.close()
    living.close()

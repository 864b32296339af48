"""One account in several processes, some of which are killed: never more than the limit, never stuck."""

from tests.stream_study import account


def test_killed_processes_leave_an_account_that_is_never_overspent(tmp_path):
    """20 of the 10,000 runs of the study: two processes, four streams, one of the two killed at random."""
    found = account(20, tmp_path)
    assert found["overspent"] == 0 and found["killed"] > 2 and found["slowest_seconds"] < 15.0

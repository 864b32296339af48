"""Both sides of a leakage by a Kalman bank: the truth for a gain, and quick to compile elsewhere."""

from veil.attacks.kalman import KalmanBank
from veil.auditing.rungs import Rung, _exact_sides


class Exact(Rung):
    """The two sides are one."""

    bank: KalmanBank

    @property
    def name(self):
        return "exact"

    @property
    def particles(self):
        return 0

    def sides(self, record, length, *, play_key, key, apart):
        del length, play_key
        found = self.bank(record.public, key=key).log_likelihood
        return _exact_sides(found, found[record.index], record, apart)


def exact_ladder(system, policy):
    return (Exact(KalmanBank(system, policy)),)

"""Both sides of a leakage by a Kalman bank: the truth for a gain, and quick to compile elsewhere."""

from veil.attacks.kalman import KalmanBank
from veil.evaluation.bounds import LeakageBounder, exact_bound


class Exact(LeakageBounder):
    """The two sides are one."""

    method = "exact"

    bank: KalmanBank

    @property
    def name(self):
        return "exact"

    @property
    def particles(self):
        return 0

    def bound(self, record, length, *, play_key, key, apart):
        del length, play_key
        found = self.bank(record.public, key=key).log_likelihood
        return exact_bound(found, found[record.index], record, apart)


def exact_candidates(system, policy, believed=None):
    return (Exact(KalmanBank(system, policy)),)

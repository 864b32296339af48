"""An audit without its attackers: the gate and the use of episodes, for tables of many policies."""

import numpy as np

from veil.auditing.context import Context
from veil.auditing.episodes import chosen, in_batches
from veil.auditing.forecast import calibration, vulnerability
from veil.auditing.gate import Measured, judge
from veil.auditing.measure import Scored, failed_share
from veil.auditing.reading import use_batch
from veil.auditing.result import Verdict
from veil.auditing.rungs import Rung
from veil.auditing.sandwich import Sides
from veil.auditing.utility import Use
from veil.rollout import Record


def judged(context: Context, rung: Rung | None, sides: Sides | None, scored: Scored) -> Verdict:
    """The gate, without attackers and without a replay."""
    found = Measured(
        leakage=scored.leakage,
        bad=0.0 if rung is None else float(scored.bad.mean()),
        calibration=calibration(scored.forecast),
        vulnerability=vulnerability(scored.forecast),
        ranks=None if sides is None or rung is None or rung.particles == 0 else np.asarray(sides.rank),
        attacks=(),
        mismatch=0,
        failed=0.0 if sides is None else failed_share(sides),
        applicable=rung is not None,
    )
    return judge(found, float(np.exp(context.log_prior).max()))


def used(context: Context, records: Record) -> Use:
    """What these episodes cost and gave."""

    def run(part: np.ndarray) -> Use:
        return use_batch(context.system, chosen(records, part))

    return in_batches("measuring use", run, np.arange(len(records.index)), context.progress)

"""What is measured of one policy: each stage gives arrays by name, so that it can be kept."""

import numpy as np

from veil.auditing.attackers import array
from veil.auditing.context import Context
from veil.auditing.episodes import PILOT, chosen, in_batches
from veil.auditing.forecast import calibration, vulnerability
from veil.auditing.gate import Measured, judge, width_limit
from veil.auditing.measure import Scored, failed_share, score
from veil.auditing.reading import use_batch
from veil.auditing.result import Verdict
from veil.auditing.rungs import Rung, ladder
from veil.auditing.sandwich import Sides
from veil.auditing.two_sides import PILOTS, measure
from veil.auditing.utility import TRAFFIC, Use
from veil.auditing.worlds import faithful
from veil.policies import PrivatePolicy
from veil.reproduce.charges import Charges, charge_batch
from veil.reproduce.reader import Reader, Reading, read_batch
from veil.rollout import Record
from veil.systems import Platoon

Arrays = dict[str, np.ndarray]
_MOTION = [name for name, _ in TRAFFIC]


def played(context: Context, count: int) -> Record:
    """The first episodes, equally many per secret, with the same random numbers for every policy."""
    return context.play(context.policy, faithful(context.system), np.arange(count), "playing")


def driven(context: Context, count: int) -> Arrays:
    """Per episode: fuel in mL/s, E[a²], E[(Δa)²], speed in m/s, distortion."""
    records = played(context, count)
    use = used(context, records)
    return {
        "index": np.asarray(records.index),
        "fuel": np.asarray(use.cost),
        "squared": np.asarray(use.traffic)[:, _MOTION.index("E[a²]")],
        "change": np.asarray(use.traffic)[:, _MOTION.index("E[(Δa)²]")],
        "speed": np.asarray(records.states)[:, :-1, 0].mean(axis=1),
        "distortion": np.asarray(use.distortion),
    }


def used(context: Context, records: Record) -> Use:
    """What these episodes cost and gave, as the audit says it."""

    def run(part: np.ndarray) -> Use:
        return use_batch(context.system, chosen(records, part))

    return in_batches("measuring use", run, np.arange(len(records.index)), context.progress)


def audited(context: Context, records: Record) -> Arrays:
    """Both sides of the leakage, and whether the gate believes them."""
    rung = way(context)
    sides, scored = measure(context, rung, records)
    verdict, leakage = _judged(context, rung, sides, scored), scored.leakage
    return {
        "index": np.asarray(records.index),
        "distortion": np.asarray(used(context, records).distortion),
        "lower": np.array([leakage.lower.value, leakage.lower.error]),
        "upper": np.array([leakage.upper.value, leakage.upper.error]),
        "entropy": np.array(leakage.entropy),
        "verdict": np.array(verdict.name),
        "reasons": np.array(verdict.reasons, dtype=np.str_),
        "method": np.array("none applies" if rung is None else rung.name),
        "particles": np.array(0 if rung is None else rung.particles),
    }


def way(context: Context) -> Rung | None:
    """The first rung of the ladder, or the second where pilot episodes find the first too wide.

    What comes after the second takes several times as long and is left to `veil audit`.
    """
    rungs = ladder(context.system, context.policy)
    if len(rungs) < 2:
        return rungs[0] if rungs else None
    numbers = np.arange(PILOT, PILOT + PILOTS)
    records = context.play(context.policy, faithful(context.system), numbers, "playing pilots")
    sides = context.sides(rungs[0], records, numbers, context.options.steps, "pilots")
    scored = score(sides, np.asarray(records.index), context.log_prior)
    width = float(np.nan_to_num(scored.leakage.width, nan=np.inf) + scored.bad.mean())
    return rungs[0] if width < 0.5 * width_limit(scored.entropy) else rungs[1]


def _judged(context: Context, rung: Rung | None, sides: Sides | None, scored: Scored) -> Verdict:
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


def read(context: Context, records: Record, particles: int) -> Arrays:
    """Posterior of the secret and mean of the state after each release, by one and the same reader."""
    system, policy = context.system, context.policy
    assert isinstance(system, Platoon)
    assert not isinstance(policy, PrivatePolicy)
    reader = Reader(system, policy, particles, context.kind)

    def run(part: np.ndarray) -> Reading:
        return read_batch(reader, chosen(records, part), array(part), context.own_key)

    rows = np.arange(len(records.index))
    found = in_batches(f"reading, {particles} particles", run, rows, context.progress)
    return {
        "index": np.asarray(records.index),
        "log_masses": np.asarray(found.log_masses),
        "means": np.asarray(found.means),
        "states": np.asarray(records.states)[:, :-1],
        "shared": np.asarray(records.public.shared),
    }


def charged(context: Context, count: int) -> Arrays:
    """The paper's bound per episode, as it is and clamped."""
    policy = context.policy
    assert not isinstance(policy, PrivatePolicy)
    records = played(context, count)

    def run(part: np.ndarray) -> Charges:
        return charge_batch(policy, chosen(records, part))

    found = in_batches("the paper's bound", run, np.arange(count), context.progress)
    return {name: np.asarray(values) for name, values in {"index": records.index, **vars(found)}.items()}

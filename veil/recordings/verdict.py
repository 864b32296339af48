"""The rules of the verdict.

`leak` and `no leak` speak of a limit, a tenth of H(q). The model comes first: under one that does not explain
the recording a posterior is a number without meaning. A small number under protection means something only if
the recording as it is would tell the secrets apart; otherwise it was too short or too calm to tell anything.
"""

from veil.results.measurement import (
    DISAGREE,
    FEWEST,
    FEWEST_WORTH,
    LEVEL,
    SHARE,
    RecordingFit,
    RecordingVerdict,
)
from veil.stats import ERRORS, Mean


def judge_recording(
    told: Mean, as_it_is: float, honest: Mean, fit: RecordingFit, entropy: float, disagreement: float = 0.0
) -> RecordingVerdict:
    """Apply the rules in their order.

    Args:
        told: by this way of sharing, nats.
        as_it_is: by the recording as it is.
        honest: by this way of sharing, discounted for what the model does not explain.
        fit: of the model.
        entropy: H(q).
        disagreement: of the filters, a share of the posterior mass.
    """
    limit = SHARE * entropy
    survives = honest.low(ERRORS) >= limit > 0.0 and fit.worth >= FEWEST_WORTH
    if entropy <= 0.0:
        return RecordingVerdict("no leak", ("there is only one secret",), False)
    if not fit.examined:
        return RecordingVerdict(
            "not enough data", (f"{fit.count} steps; the model can be examined from {FEWEST}",), False
        )
    if not fit.ok:
        return RecordingVerdict("model does not fit", misfits(fit), survives)
    if disagreement > DISAGREE:
        reason = f"the filters disagree about {disagreement:.0%} of the posterior mass"
        return RecordingVerdict("not enough data", (reason,), False)
    if told.low(ERRORS) >= limit:
        return RecordingVerdict("leak", (), survives)
    if told.high(ERRORS) >= limit:
        reason = (
            f"the interval {told.low(ERRORS):.3f} to {told.high(ERRORS):.3f} nats holds the limit {limit:.3f}"
        )
        return RecordingVerdict("not enough data", (reason,), False)
    if as_it_is < limit:
        reason = f"even as it is, the recording tells {as_it_is:.3f} nats, less than the limit {limit:.3f}"
        return RecordingVerdict("not enough data", (reason,), False)
    return RecordingVerdict("no leak", (), False)


def misfits(fit: RecordingFit) -> tuple[str, ...]:
    """What contradicts the model, worst first within each axis."""
    found, level = [], LEVEL / fit.tests
    for axis in fit.axes:
        if axis.counts and axis.white_p < level:
            found.append(
                f"residuals of {axis.name} follow each other (correlation of neighbours {axis.follow:.2f} ± "
                f"{fit.count**-0.5:.2f}: {fit.count} of them are worth {axis.effective:.0f})"
            )
        if axis.counts and axis.spread_p < level:
            found.append(
                f"residuals of {axis.name} are {axis.spread:.3g} times as large as the model's noise"
            )
    if fit.free_p < level:
        values = ", ".join(f"{x:.3g}" for x in fit.free)
        found.append(f"no secret of the prior is near the best fit, ({values})")
    return tuple(found)

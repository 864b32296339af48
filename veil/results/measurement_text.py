"""What a measurement found, in words. Bits are for people and appear here only."""

import math

from veil.results.audit_text import nats, percent
from veil.results.measurement import DISAGREE, ERRORS, FEWEST_WORTH, SHARE, Measurement

JUDGED = ("leak", "no leak")  # verdicts that answer the question

AS_IT_IS = "Truth"


def sentence(found: Measurement) -> str:
    """The verdict in one sentence with its numbers."""
    what = f"{found.name}, {_way(found)}, {found.steps} rows"
    verdict = found.verdict
    if verdict.name == "leak":
        return f"{what}: tells {amount(found)} of the {found.entropy:.3f} there are; {likeliest(found)}."
    if verdict.name == "no leak" and found.entropy > 0.0:
        most = nats(found.high, up=True)
        return f"{what}: tells at most {most}; shared as it is, it would tell {found.as_it_is:.3f} nats."
    because = "; ".join(verdict.reasons)
    if verdict.name == "no leak":
        return f"{what}: tells nothing, because {because}."
    if verdict.name == "not enough data":
        return f"{what}: tells {amount(found)} by the model, and this decides nothing: {because}."
    return f"{what}: the model does not fit, so {amount(found)} is no leakage: {because}. {survival(found)}"


def survival(found: Measurement) -> str:
    """What is left of the leak if the likelihood is discounted for the misfit."""
    left = nats(max(0.0, found.honest_told.value))
    discount = f"Discounted for the size and the persistence of the residuals, {left} are left"
    if found.verdict.survives:
        share = percent(float(found.honest.max()))
        return f"{discount}: the leak survives, and {share} of the mass is on one secret."
    if found.fit.worth < FEWEST_WORTH:
        discount += f", by residuals that are worth {found.fit.worth:.0f} independent ones"
    return f"{discount}: too little to say that there is a leak, which does not say that there is none."


def advice(found: Measurement) -> str:
    """What to do next."""
    verdict, fit = found.verdict, found.fit
    if verdict.name == "leak":
        return (
            "Protect it: try --policy noise, transport or counterfactual here, then `veil audit`, which "
            "bounds what a policy tells on average."
        )
    if verdict.name == "no leak":
        return "One recording is an example; `veil audit` bounds what the policy tells on average."
    if verdict.name == "model does not fit":
        coloured = any(axis.counts and axis.follow > 0.5 for axis in fit.axes)
        model = (
            "one with coloured noise (for a platoon --system coloured_platoon)" if coloured else "another one"
        )
        return (
            "Fit the noise of the system and the secrets of its prior to recordings like this, or measure "
            f"with {model}. Until then take it that the recording may tell everything."
        )
    limit = SHARE * found.entropy
    undecided = found.told.high(ERRORS) >= limit > found.told.low(ERRORS)
    if fit.examined and (undecided or found.disagreement > DISAGREE):
        return "Give more --draws, and more --particles if the filters are what is uncertain."
    return "Record longer, or while more happens: what is calm tells little whatever the sharing."


def amount(found: Measurement) -> str:
    """What is told, with its interval where there is one."""
    if found.told.error == 0.0:
        return nats(found.told.value)
    return f"{nats(found.told.value)}, {found.low:.3f} to {found.high:.3f} with {ERRORS:g} standard errors,"


def likeliest(found: Measurement) -> str:
    """The secret with the largest mass, and its odds."""
    odds = found.odds
    shown = "more than a million" if odds > 1e6 else f"{odds:.0f}" if odds >= 10 else f"{odds:.1f}"
    return f"the likeliest secret is {secret(found, found.likeliest)}, {shown} to one"


def secret(found: Measurement, index: int) -> str:
    """One secret of the prior."""
    return "(" + ", ".join(f"{value:g}" for value in found.secrets[index]) + ")"


def assumptions(found: Measurement) -> list[str]:
    """What the numbers take for granted."""
    lines = [
        "What the others did is taken as recorded; what they would have done with other data is not known "
        "from a log.",
        "The first row is taken as known to the adversary, who also knows the system, its noise, the prior "
        "and the policy.",
    ]
    if found.policy != AS_IT_IS:
        lines.append(f"The owner takes its secret for {secret(found, found.believed)} (--secret).")
    if found.filtered:
        lines.append(
            f"Means over {found.options.draws} draws of the noise, each read by independent filters of "
            f"{found.options.particles} particles per secret; the filters' share of the standard error is "
            f"{found.filter_error:.1g} nats."
        )
    if not found.checked:
        lines.append("There is no column of times (--time), so that the length of a step was not checked.")
    return lines


def summary(found: Measurement) -> str:
    """The few lines at the end."""
    return "\n".join(
        filter(None, [f"Verdict: {found.verdict.name}.", capital(sentence(found)), advice(found)])
    )


def capital(text: str) -> str:
    """With a capital at the beginning, unless it begins with a name."""
    return (
        text
        if "=" in text.partition(" ")[0] or "." in text.partition(" ")[0]
        else text[:1].upper() + text[1:]
    )


def bits(value: float) -> float:
    """Nats in bits."""
    return value / math.log(2)


def _way(found: Measurement) -> str:
    return "shared as it is" if found.policy == AS_IT_IS else f"shared by {found.policy}"

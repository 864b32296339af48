"""What an audit found, in words. Files and code speak nats; bits are for people and appear here only.

What is said to leak at most is rounded up, what is said to leak at least is rounded down.
"""

import math

import numpy as np

from veil.results.audit import AttackResult, Audit
from veil.stats import ERRORS

TOOL = "error of the tool"  # how the gate begins a reason that is our mistake

WORST = 0.99  # quantile of the realised leakage that is told

_COUNTS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]

ADVICE = {
    "certifiable": "",
    "certified_leak": "Protect more: add noise, or use the transport or the counterfactual policy.",
    "no_upper_bound": "The audit has no filter for this kernel. Add a floor of noise (sd), so that releases "
    "have a density; a learned attacker (--learned) needs no filter and may prove a leak.",
    "not_enough_particles": "Give the filter more particles, or limit the kernel so that a filter can follow "
    "it: a floor under its noise (sd), and no folding of distant states onto one release. A learned attacker "
    "(--learned) needs no filter and may prove a leak.",
    "filter_inconsistent": "The filter does not describe these transcripts. Check that the system and the "
    "policy are those that made them; a learned attacker (--learned) needs no filter and may prove a leak.",
    "replay_mismatch": "Check the public seed, the number of particles and the build that made the "
    "transcripts, then audit again with the same.",
    "model_does_not_fit": "Fit the system to the recorded data first, above all its noise, or audit with a "
    "system that fits; a leakage under a model that does not fit says nothing about these data.",
}

BUG = (
    "This is an error of the tool, not of the policy: two of its numbers contradict each other. Please "
    "report it and add audit.json."
)


def refused(audit: Audit) -> bool:
    """Whether the audit proves neither a bound nor a leak."""
    return audit.verdict.name not in ("certifiable", "certified_leak")


def interval(audit: Audit) -> tuple[float, float]:
    """The leakage that the verdict stands for, nats: what is proven, and what must be assumed."""
    high = audit.leakage.high if audit.verdict.certified else audit.leakage.entropy
    unproven = audit.verdict.name in ("replay_mismatch", "model_does_not_fit") or tool_error(audit)
    low = 0.0 if unproven else float(audit.lowest)
    return min(max(low, 0.0), high), high


def verdict_sentence(audit: Audit) -> str:
    """The verdict in one sentence; a refusal also says what to do about it."""
    low, high = interval(audit)
    entropy, over = audit.leakage.entropy, f"over {audit.horizon} steps"
    if audit.verdict.certified and entropy <= 0.0:
        return f"leaks at most {nats(0.0)} {over}: there is only one secret, so there is nothing to tell"
    if audit.verdict.certified:
        amount = nats(high, up=True) if high < entropy else f"everything there is to know, {nats(entropy)},"
        return f"leaks at most {amount} {over}, {ERRORS:g} standard errors included" + attackers(audit)
    if audit.verdict.name == "certified_leak":
        share = f"of the {entropy:.3f} nats there are"
        return f"leaks at least {nats(low, up=False)} {share} {over}, errors included" + attackers(audit)
    known = f"; at least {nats(low, up=False)} do" if low >= 1e-3 else ""
    reasons = "; ".join(audit.verdict.reasons) or audit.verdict.name.replace("_", " ")
    return (
        f"cannot certify: {reasons}; assume everything ({entropy:.3f} nats) may leak{known}. {advice(audit)}"
    )


def advice(audit: Audit) -> str:
    """What to do next; nothing where all is well."""
    if tool_error(audit):
        return BUG
    return ADVICE.get(audit.verdict.name, "")


def tool_error(audit: Audit) -> bool:
    """Whether the gate found the tool to contradict itself."""
    return any(reason.startswith(TOOL) for reason in audit.verdict.reasons)


def attackers(audit: Audit) -> str:
    """How often the best guess is right, as the end of a sentence; nothing without an attacker."""
    fair = fair_attacks(audit)
    if not fair:
        return ""
    best = max(fair, key=lambda row: row.accuracy.value)
    who = f"the best of {count(len(fair))} attackers" if len(fair) > 1 else "the one attacker"
    right, chance = percent(best.accuracy.value), percent(audit.chance)
    return f"; {who} names the right secret {right} of the time, chance is {chance}"


def fair_attacks(audit: Audit) -> list[AttackResult]:
    """The attackers who know what the threat model grants and no more."""
    return [row for row in audit.attacks if row.role == "attack"]


def worst(audit: Audit) -> tuple[float, float]:
    """What one episode in a hundred exceeds and what the largest told, nats; zero where none is known."""
    known = audit.realised[np.isfinite(audit.realised)]
    return (float(np.quantile(known, WORST)), float(known.max())) if len(known) else (0.0, 0.0)


def threat_model(audit: Audit) -> list[str]:
    """What the adversary knows, what is not covered, and what the number is a number of."""
    lines = [
        "The adversary knows the system, the policy, the prior over the secrets, the public seed, and all "
        f"{audit.horizon} releases and public inputs of one episode. It does not know the secret, the states "
        "or the private random numbers.",
        "The plant is taken to be the model. What leaks where it is not is outside"
        + ("; some such scenarios were tried as examples." if audit.scenarios else "."),
        "Outside: an adversary who knows the first state x_1, or anything else about the states.",
        "Outside: several episodes of the same secret. They add up: n of them, each begun anew, leak at most "
        "n times as much as one.",
        "Outside: side channels, such as timing, other sensors, or the owner's other messages.",
        "Faults, such as lost or repeated releases, are taken to be independent of the secret.",
        _average(audit),
        f"{ERRORS:g} standard errors over episodes are added; that they suffice is a normal approximation.",
    ]
    if any(row.role == "assisted" for row in audit.attacks):
        lines.insert(1, "Attackers called assisted know more than that; they do not enter the verdict.")
    return lines


def summary(audit: Audit) -> str:
    """The few lines at the end of an audit."""
    name = audit.verdict.name.replace("_", " ")
    lines = [f"Verdict: {name}.", f"{audit.policy} on {audit.system}: {_sentence(verdict_sentence(audit))}"]
    if refused(audit):
        return "\n".join([*lines, *_other_scenarios(audit)])
    lines += filter(None, [advice(audit), _average(audit) if audit.leakage.entropy > 0 else ""])
    lines += _other_scenarios(audit)
    lines.append(
        "This holds against an adversary who knows the system, the policy, the prior, the public seed and "
        "the transcript of one episode, and if the plant is the model; audit.json lists what is outside."
    )
    return "\n".join(lines)


def nats(value: float, *, up: bool | None = None) -> str:
    """Nats and bits to three decimals; rounded up, down, or to the nearest."""
    return f"{_rounded(value, up)} nats ({_rounded(value / math.log(2), up)} bits)"


def percent(share: float) -> str:
    """A share in per cent; with a decimal near the ends, so that nearly always is not always."""
    near_an_end = 0.0 < share < 0.01 or 0.99 < share < 1.0
    return f"{100 * share:.{1 if near_an_end else 0}f} %"


def count(number: int) -> str:
    """A small number in words."""
    return _COUNTS[number] if number < len(_COUNTS) else str(number)


def _rounded(value: float, up: bool | None) -> str:
    if up is None:
        return f"{value:.3f}"
    # A hair's breadth of rounding error does not cost a digit.
    thousands = math.ceil(1e3 * value - 1e-7) if up else math.floor(1e3 * value + 1e-7)
    return f"{thousands / 1e3 + 0.0:.3f}"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _average(audit: Audit) -> str:
    quantile, largest = worst(audit)
    whose = " by a filter that is not to be believed here" if refused(audit) else ""
    return (
        "Mutual information is an average over secrets and episodes; a single one may tell more. Of the "
        f"{len(audit.realised)} episodes played, equally many per secret, one in a hundred told more than "
        f"{quantile:.3f} nats and the worst told {largest:.3f}{whose}."
    )


def _other_scenarios(audit: Audit) -> list[str]:
    rows = [
        (row.lower.value, row.name, scenario.name) for scenario in audit.scenarios for row in scenario.attacks
    ]
    gains = [row for row in rows if math.isfinite(row[0])]
    if not gains:
        return []
    gain, attack, scenario = max(gains)
    return [f"Where the plant is not the model, {attack} gains most: {max(gain, 0.0):.3f} nats ({scenario})."]

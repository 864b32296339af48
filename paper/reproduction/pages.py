"""Tables of the documentation, made from the published results.json: a test holds the pages against them."""

import json
from pathlib import Path
from typing import Any

from paper.reproduction.ending import DIVERGED_WORD, OVER, SETTLED_WORD
from paper.reproduction.tables import markdown

PUBLISHED = Path(__file__).parents[1] / "results.json"

LEARNERS = {
    "constant": "none: always (15 m/s, 20 m)",
    "uniform": "none: a blind uniform draw on the grid",
    "discrete_printed": "`a2c_printed`, last iterate",
    "discrete": "`a2c`",
    "ddpg_untrained": "`ddpg_printed`, untrained",
    "ddpg_printed": "`ddpg_printed`, last iterate",
    "ddpg": "`ddpg`",
    "pathwise": "`pathwise`",
}


def published() -> dict[str, Any]:
    """The results of the last published run."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


def leakage(column: dict[str, Any]) -> str:
    """As the tables of RESULTS.md say it, with its standard error."""
    found, attacker = column["leakage"], column["attacker"]
    lower = max(found["lower"], 0.0)
    if column["trusted"]:
        return f"{lower:.3f} to {found['upper']:.3f} ({found['standard_error']:.3f})"
    if attacker is not None and attacker["value"] > lower:
        return f"at least {attacker['value']:.3f} ({attacker['error']:.3f})"
    return f"at least {lower:.3f} ({found['standard_error']:.3f})"


def learning_table(content: dict[str, Any]) -> str:
    """The table of docs/learning.md."""
    rows = []
    for name, title in LEARNERS.items():
        if name not in content["columns"]:
            continue
        column = content["columns"][name]
        reader = column["reader"]
        posterior = ", ".join(f"{mean['value']:.2f}" for mean in reader["posterior"])
        distortion, explained = f"{column['distortion']['value']:.2f}", f"{reader['explained']:.0%}"
        rows.append((title, leakage(column), distortion, posterior, explained))
    heads = (
        *("learner", "leakage, nats (standard error)", "distortion"),
        *("posterior on θ\\* at the end", "variance of the state explained"),
    )
    return markdown(heads, rows)


def learning_words(content: dict[str, Any]) -> str:
    """What docs/learning.md says about the seeds of the printed learner."""
    trained = content["trainings"].items()
    own = [one for name, one in trained if one["learner"] == "ddpg_printed" and "no_privacy" not in name]
    first = [max(one["looks"][0]["upper"], 0.0) for one in own]
    last = [one["looks"][-1]["lower"] for one in own]
    far = [one["looks"][-1]["distortion"] for one in own]
    kept = sum(one["best"] == 0 for one in own)
    return (
        f"Over {len(own)} seeds the upper bounds of the untrained printed actor are {min(first):.2f} to "
        f"{max(first):.2f} nats.\nAfter the last update the lower bounds are {min(last):.2f} to "
        f"{max(last):.2f} nats, and the mean distortion is {min(far):.0f} to {max(far):.0f},\n"
        "where 4 is allowed. "
        f"The best of the looks is the untrained actor in {kept} of {len(own)} trainings. {_ends(own)}"
    )


def _ends(own: list[dict[str, Any]]) -> str:
    """How the trainings of the printed learner ended; of those before there was a rule, how Q changed."""
    if not all(one.get("paid") for one in own):
        changes = [one["change"] for one in own if one["change"] is not None]
        return (
            "The mean Q of the\n"
            f"last 100 updates differs by {min(changes):.0%} to {max(changes):.0%} from that of the 100 "
            "before: it had not settled.\n"
        )
    ended = {reason: [one["updates"] for one in own if one["reason"] == reason] for reason in WORDS}
    ends = ", ".join(
        f"{len(some)} {WORDS[reason]} after {_span(some)}" for reason, some in ended.items() if some
    )
    rises = sum(one["paid"][-1] > one["paid"][0] for one in own)
    return (
        f"Of the\ntrainings, {ends} (the rule is in `paper/reproduction/ending.py`).\n"
        f"What a run is charged, by the learner's own measure, rose in {rises} of {len(own)}.\n"
    )


WORDS = {
    SETTLED_WORD: "settled",
    DIVERGED_WORD: "diverged",
    OVER: "had neither settled nor diverged",
}


def _span(updates: list[int]) -> str:
    least, most = min(updates), max(updates)
    return f"{least} updates" if least == most else f"{least} to {most} updates"

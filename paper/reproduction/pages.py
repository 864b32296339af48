"""Tables of the documentation, made from the published results.json: a test holds the pages against them."""

import json
from pathlib import Path
from typing import Any

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

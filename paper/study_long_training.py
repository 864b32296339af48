"""What the printed learner does where nobody ends it: trainings of the reproduction, past their end.

The reproduction ends a training of the printed learner where it has settled or diverged by the rule of
`paper.reproduction.ending`. Here the same trainings, with the same random numbers, go on. A study that was
stopped goes on.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax

from paper.reproduction import ending
from paper.reproduction.columns import BY_NAME, PRINTED_LEARNER, settings
from paper.reproduction.courses import paid
from paper.reproduction.tables import markdown
from veil.learners import training
from veil.learners.run import history
from veil.systems.platoon import Platoon
from veil.types import as_float64
from veil.version import __version__

PUBLISHED = Path(__file__).parent / "long_training.json"

SHORT = {3: 200}  # updates by seed, where `--updates` are not needed: it diverges at once


def trained(seed: int, updates: int, folder: Path) -> dict[str, Any]:
    """Train without the rule, and sum the course up by windows."""
    column = BY_NAME[f"{PRINTED_LEARNER}_{seed}" if seed else PRINTED_LEARNER]
    wanted = settings(column, 50, 1.0, 0)

    def far_enough(lines: list[dict[str, float]]) -> str:
        return "far enough" if lines and lines[-1]["update"] >= updates else ""

    with jax.enable_x64(True):
        system = as_float64(Platoon())
    training.train_run(wanted, system, folder, lambda line: None, ending=far_enough)
    return summed(seed, history(folder), wanted)


def summed(seed: int, lines: list[dict[str, float]], wanted: Any) -> dict[str, Any]:
    """Mean Q, distortion and charges by windows, the looks, and where the rule would have ended it."""
    ends = ((int(one["update"]), ending.ending(lines[: place + 1])) for place, one in enumerate(lines))
    update, reason = next(((at, why) for at, why in ends if why), (None, ""))
    looks = [one for one in lines if "upper" in one]
    names = {"lower": "lower", "upper": "upper", "distortion": "fresh_distortion"}
    return {
        "seed": seed,
        "ended_by_rule_after": update,
        "reason": reason,
        "value": list(map(float, ending.windows(ending.mean_values(lines)))),
        "distortion": list(map(float, ending.windows(ending.series(lines, "distortion")))),
        "paid": list(map(float, ending.windows(paid(lines, wanted)))),
        "looks": [
            {"update": one["update"], **{key: one[name] for key, name in names.items()}} for one in looks
        ],
    }


def read(path: Path = PUBLISHED) -> list[dict[str, Any]]:
    """The trainings of a file."""
    return json.loads(path.read_text(encoding="utf-8"))["trainings"]


def table(found: list[dict[str, Any]]) -> str:
    """As in paper/deviations.md: a row per window."""
    heads = ["updates"]
    for one in found:
        end = f"seed {one['seed']} ({one['reason']} after {one['ended_by_rule_after']})"
        heads += [f"{end}: mean Q", "change", "distortion per step", "charged per run"]
    rows = []
    for window in range(max(len(one["value"]) for one in found)):
        row = [f"to {ending.WINDOW * (window + 1)}"]
        for one in found:
            if window >= len(one["value"]):
                row += [""] * 4
                continue
            now, before = one["value"][window], one["value"][window - 1] if window else 0.0
            change = f"{abs(now - before) / abs(before):.1%}" if window else ""
            row += [f"{now:.3g}", change, f"{one['distortion'][window]:.3g}", f"{one['paid'][window]:.3g}"]
        rows.append(row)
    return markdown(heads, rows)


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description="Trainings of the printed learner past their end.")
    parser.add_argument("--out", type=Path, default=PUBLISHED, help="file to write")
    parser.add_argument("--updates", type=int, default=3000, help="of the first training")
    parser.add_argument("--folder", type=Path, default=Path("build/long"), help="of the trainings")
    options = parser.parse_args()
    lengths = {0: options.updates} | SHORT
    found = [trained(seed, updates, options.folder / f"{seed}") for seed, updates in lengths.items()]
    content = {"version": __version__, "trainings": found}
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()

"""RESULTS.md: every claim, every table and every picture, made from the numbers only."""

from pathlib import Path

from paper.reproduction import tables
from paper.reproduction.claims import Claim
from paper.reproduction.engine import Work
from paper.reproduction.options import FULL
from paper.reproduction.summary import Summary
from veil.learners import run as runs
from veil.version import __version__

ANSWERS = {"yes": "reproduced", "no": "not reproduced", "open": "undecided", "not measured": "not measured"}

OWN = {"yes": "holds", "no": "does not hold", "open": "undecided", "not measured": "not measured"}


def results(work: Work, found: dict[str, Summary], claimed: list[Claim], pictures: list[Path]) -> str:
    """The whole page."""
    driven = {name: one.drive for name, one in found.items()}
    sections = [
        "# The paper's experiment again\n",
        _how(work),
        "## Claims of the paper\n",
        _claims([one for one in claimed if one.whose == "paper"], ANSWERS),
        "## Claims of ours\n",
        _claims([one for one in claimed if one.whose == "ours"], OWN),
        f"## Table 1: fuel\n\n{_START}",
        tables.table_1(driven),
        "## Table 2: accelerations\n",
        tables.table_2(driven),
        "## Privacy and use\n",
        _privacy_words(work),
        tables.table_3(found),
        *_doubts(found),
        "## Trainings\n",
        _trainings(work),
        "## Pictures\n",
        *(f"![{path.stem}](pictures/{path.name})\n" for path in pictures),
    ]
    return "\n".join(sections)


_START = (
    "Everybody starts at equilibrium exactly, as the printed True Data rows need; ± is a 95 % interval over "
    "episodes. All rows share their random numbers, so the changes against True Data are paired.\n"
)


def _how(work: Work) -> str:
    extent = work.extent
    note = "" if extent == FULL else "**A shortened run: these are not the numbers of the experiment.** "
    if extent.training_fraction < 1.0:
        note += f"Trainings were cut to {extent.training_fraction:.0%} of their usual updates. "
    return (
        f"{note}Written by `make reproduce`, version {__version__}, seed {extent.seed}: {extent.steps} "
        f"releases per episode, {extent.table_episodes} episodes per θ in Tables 1 and 2, "
        f"{extent.audit_episodes} audited episodes per policy, {extent.read_episodes} per θ in Figures 1 and "
        f"2, {extent.bound_episodes} per θ for the paper's bound. Policies that track by particles are "
        f"evaluated with {extent.particles} per secret. Where Veil reads the paper differently is in "
        "`paper/deviations.md`.\n"
    )


def _claims(claimed: list[Claim], words: dict[str, str]) -> str:
    rows = [(one.text, words[one.answer], one.evidence) for one in claimed]
    heads = ("claim", "here", "numbers")
    lines = [heads, ("---",) * 3, *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _privacy_words(work: Work) -> str:
    return (
        "Leakage is that of a whole run, mean lower to mean upper side of the audit (its gate, "
        f"without attackers), H(q) = {_entropy(work):.3f} nats at most, from a start spread by 0.5 m/s "
        "and 1 m around equilibrium; s.e. is the larger standard error of the two sides. The "
        "posterior and the tracking error are those of one and the same reader for all columns: "
        f"{work.extent.particles} particles per secret that weigh by the published kernels (exact "
        "densities for True Data; no reader where the owner's memory decides). The paper's bound is "
        "the sum over the run of its regime-adaptive bound under the policy's own belief, as trained; "
        "a policy without a belief has none, and on a grid it is the exact information.\n"
    )


def _entropy(work: Work) -> float:
    return float(work.study(work.columns[0].name).audited["entropy"])


def _doubts(found: dict[str, Summary]) -> list[str]:
    """Why some leakages are not bounded from above."""
    lines = [
        f"- {one.column.title} ({one.verdict.replace('_', ' ')}): {'; '.join(one.reasons)}"
        for one in found.values()
        if not one.trusted
    ]
    return ["Not bounded from above:\n", *lines, ""] if lines else []


def _trainings(work: Work) -> str:
    rows = []
    for column in work.learned:
        run = runs.Run.load(work.study(column.name).run)
        assert run.result is not None and isinstance(run.settings, runs.Settings)
        training, result = run.settings.training, run.result
        rows.append(
            (
                *(column.title, training.learner, f"{result.updates}", f"{result.best}", result.reason),
                *(f"{result.seconds:.0f}", f"{result.lower:.3f} to {result.upper:.3f}"),
                f"{result.distortion:.3f}",
            )
        )
    heads = (
        *("", "learner", "updates", "best after", "ended by", "seconds"),
        *("leakage at its own evaluations", "distortion at its own evaluations"),
    )
    return tables.markdown(heads, rows)

"""RESULTS.md: every claim, every table and every picture, made from the numbers only."""

from pathlib import Path

from paper import study_readings
from paper.reproduction import tables
from paper.reproduction.claims import Claim
from paper.reproduction.columns import MOST, PRINTED_LEARNER
from paper.reproduction.courses import Course, Look
from paper.reproduction.ending import FARTHEST, MOVED, SETTLED, WINDOW
from paper.reproduction.engine import Work
from paper.reproduction.files import processor, sittings
from paper.reproduction.options import DEFAULT
from paper.reproduction.summary import Summary
from veil.version import __version__

ANSWERS = {
    "calibrated": "calibrated",
    "yes": "reproduced",
    "no": "not reproduced",
    "open": "undecided",
    "untestable": "not testable",
    "not measured": "not measured",
}

MET = {"yes": "met", "no": "not met", "open": "undecided", "not measured": "not measured"}

OWN = {"yes": "holds", "no": "does not hold", "open": "undecided", "not measured": "not measured"}


def results(
    work: Work,
    found: dict[str, Summary],
    claimed: list[Claim],
    trained: dict[str, Course],
    pictures: list[Path],
    commit: str,
) -> str:
    """The whole page.

    Args:
        work: the reproduction.
        found: of every column.
        claimed: the claims, held against them.
        trained: the trainings behind them.
        pictures: to be shown.
        commit: of the sources; empty where that is not known.
    """
    driven = {name: one.drive for name, one in found.items()}
    by = {whose: [one for one in claimed if one.whose == whose] for whose in ("paper", "blind", "ours")}
    sections = [
        "# The paper's experiment again\n",
        _how(work, commit),
        "## Claims of the paper\n",
        _CLAIMS,
        _summary(by["paper"]),
        *_apart(by["paper"]),
        f"## The same thresholds, for releases that look at nothing\n\n{_BLIND}",
        _claims(by["blind"], MET),
        "## Claims of ours\n",
        _claims(by["ours"], OWN),
        f"## Table 1: fuel\n\n{_START}",
        tables.table_1(driven),
        "## Table 2: accelerations\n",
        tables.table_2(driven),
        "## Privacy and use\n",
        _privacy_words(work),
        tables.table_3(found),
        *_doubts(found),
        *_printed_seeds(trained),
        *_readings(),
        "## Trainings\n",
        _trainings(trained),
        *_times(processor(work)),
        "## Pictures\n",
        *(f"![{path.stem}](pictures/{path.name})\n" for path in pictures),
    ]
    return "\n".join(sections)


_CLAIMS = (
    "In the words of the paper; the thresholds are ours, for it states none. *Calibrated*: numbers that the "
    "paper "
    "leaves open were chosen so that it holds, so it is no evidence. `ddpg_printed` is the printed learner "
    "after its "
    "last update, `ddpg_printed_best` the best of its looks, `ddpg` our repaired variant, whose actor keeps "
    "within "
    "limits; the discrete policy that they are held against is `discrete_printed`.\n"
)

_BLIND = (
    "A constant leaks nothing at a small part of the allowed distortion. Where it meets a threshold, that "
    "threshold does not speak for a learned policy; what a blind release cannot give is the state.\n"
)

_START = (
    "Everybody starts at equilibrium exactly, as the printed True Data rows need; ± is a 95 % interval over "
    "episodes. All rows share their random numbers, so the changes against True Data are paired. The True "
    "Data "
    "rows are a calibration, not a reproduction: noise and leader were chosen to fit them "
    "(`paper/deviations.md`).\n"
)


def _how(work: Work, commit: str) -> str:
    extent, command = work.extent, "make reproduce-full" if work.full else "make reproduce"
    note = "" if extent == DEFAULT else "**A shortened run: these are not the numbers of the experiment.** "
    if extent.training_fraction < 1.0:
        note += f"Trainings were cut to {extent.training_fraction:.0%} of their usual updates. "
    sources = f"version {__version__}, sources {commit}" if commit else f"version {__version__}"
    begun = sittings(work.folder)
    if len(begun) > 1:
        note += f"Made in {len(begun)} sittings, each of which went on where the last one ended. "
    return (
        f"{note}Written by `{command}`, {sources}, seed {extent.seed}: {extent.steps} "
        f"releases per episode, {extent.table_episodes} episodes per θ in Tables 1 and 2, "
        f"{extent.audit_episodes} audited episodes per policy, {extent.read_episodes} per θ in Figures 1 and "
        f"2, {extent.bound_episodes} per θ for the paper's bound. Policies that track by particles are "
        f"evaluated with {extent.particles} per secret. Where Veil reads the paper differently is in "
        "`paper/deviations.md`; all numbers of this page are in `paper/results.json`.\n"
    )


def _summary(claimed: list[Claim]) -> str:
    """How many of each answer, for the printed learner and in all."""
    own = [one for one in claimed if one.policy == PRINTED_LEARNER]
    counts = {answer: sum(one.answer == answer for one in own) for answer in ("yes", "no", "open")}
    return (
        f"{len(own)} claims are held against the printed learner: reproduced {counts['yes']}, not reproduced "
        f"{counts['no']}, undecided {counts['open']}.\n"
    )


def _apart(claimed: list[Claim]) -> list[str]:
    """The claims of the paper, those with one answer together."""
    sections = []
    for answer, title in ANSWERS.items():
        own = [one for one in claimed if one.answer == answer]
        if own:
            sections += [f"### {title.capitalize()}\n", _claims(own, ANSWERS)]
    return sections


def _claims(claimed: list[Claim], words: dict[str, str]) -> str:
    rows = [
        (one.text, one.threshold, f"`{one.policy}`" if one.policy else "–", words[one.answer], one.evidence)
        for one in claimed
    ]
    heads = ("claim", "our threshold", "policy", "here", "numbers")
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _privacy_words(work: Work) -> str:
    return (
        "Leakage is that of a whole run, mean lower to mean upper side of the audit (its gate, "
        f"without attackers), H(q) = {_entropy(work):.3f} nats at most, from a start spread by 0.5 m/s "
        "and 1 m around equilibrium; s.e. is the larger standard error of the two sides. Where the gate "
        "refuses, a trained attacker gives a lower bound, named as such. The "
        "posterior, the tracking error and the least share of the variance of speed and spacing that is "
        "explained are those of one and the same reader for all columns: "
        f"{work.extent.particles} particles per secret that weigh by the published kernels (exact "
        "densities for True Data; no reader where the owner's memory decides). The reader also sees the "
        "automated vehicle: what it explains of a blind release, it knows without the driver. The share is "
        "of the variance under that policy: one that shakes the platoon makes it larger. The paper's "
        "bound "
        "is the sum over the run of its regime-adaptive bound under the policy's own belief, as trained; "
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


def _printed_seeds(trained: dict[str, Course]) -> list[str]:
    """The printed learner, one row per training: before, on the way, at the end."""
    rows = []
    for name, course in trained.items():
        if course.learner != PRINTED_LEARNER:
            continue
        first, last = course.looks[0], course.looks[-1]
        kept = next(look for look in course.looks if look.update == course.best)
        changed = "–" if course.change is None else f"{course.change:.1%}"
        rows.append(
            (
                f"{course.seed}" + (", ρ = 0" if name.endswith("no_privacy") else ""),
                *(course.reason, f"{course.updates}", changed),
                *(_first_and_last(course.value), _first_and_last(course.paid)),
                *(_sides(first), f"{first.distortion:.2f}", _sides(last), f"{last.distortion:.2f}"),
                f"{_sides(kept)} after {kept.update}",
            )
        )
    if not rows:
        return []
    heads = (
        *("seed", "ended", "updates", f"change of mean Q per {WINDOW} updates"),
        *("mean Q, first and last", "charged per run, first and last"),
        *("leakage untrained, nats", "distortion", "leakage after the last update", "distortion"),
        "best of looks",
    )
    words = (
        "Each row is a training of the printed learner by its looks: mean lower to mean upper side of the "
        "leakage on 64 episodes that it does not learn from. A training ends, by a rule that is ours and "
        f"looks every {WINDOW} updates: *settled* where the mean Q of {WINDOW} updates differed by less than "
        f"{SETTLED:.0%} from that of the {WINDOW} before, and the mean distortion by less than {MOVED:.0%}, "
        "twice in a row; *diverged* where the releases of "
        f"two windows of {WINDOW} updates in a row were further from the data, in the mean, than any two "
        f"states of the platoon lie apart ({FARTHEST:g}, at a limit of 4); else after {MOST} updates. The "
        "control with ρ = 0 is not ended by it. Mean Q and what the played runs were charged (leakage as the "
        "learner measures it, cost and priced distortion, exploration included) are in units of ρ, in mL/s "
        "where ρ = 0, over the first and the last 20 updates. Q stands for the steps that are left of a run, "
        "at a discount of 0.99, and begins at the values of a random critic; what is charged is what "
        "learning should lower.\n"
    )
    return ["## The printed learner, training by training\n", words, tables.markdown(heads, rows)]


def _first_and_last(values: tuple[float, ...]) -> str:
    return f"{values[0]:.3g}, {values[-1]:.3g}" if values else "–"


def _sides(look: Look) -> str:
    return f"{max(look.lower, 0.0):.3f} to {max(look.upper, 0.0):.3f}"


def _readings() -> list[str]:
    """Untrained ways of sharing under four readings of the controller."""
    content = study_readings.read()
    if not content:
        return []
    words = (
        "Largest difference of the twelve entries of Tables 1 and 2 from each printed column, for ways of "
        "sharing that nobody trained, under four readings of the printed controller (`paper/readings.json`, "
        f"{content['episodes_per_secret']} episodes per θ from equilibrium). Fitted means: push and sd "
        "(m/s, m) "
        "fitted to the printed continuous column, half-widths to the discrete one.\n"
    )
    return ["## Readings of the controller\n", words, study_readings.table(content)]


def _trainings(trained: dict[str, Course]) -> str:
    rows = []
    for name, one in trained.items():
        kept = next(look for look in one.looks if look.update == one.best)
        rows.append(
            (
                *(
                    f"`{name}`",
                    one.learner,
                    f"{one.seed}",
                    f"{one.updates}",
                    f"{one.episodes}",
                    f"{one.best}",
                ),
                *(one.reason, f"{one.seconds:.0f}", f"{kept.lower:.3f} to {kept.upper:.3f}"),
                *(f"{kept.distortion:.3f}", f"{one.looks[-1].lower:.3f} to {one.looks[-1].upper:.3f}"),
                f"{one.looks[-1].distortion:.3f}",
            )
        )
    heads = (
        *("", "learner", "seed", "updates", "episodes", "best after", "ended by", "seconds"),
        *("leakage at its best look", "distortion there", "leakage at its last look", "distortion there"),
    )
    return tables.markdown(heads, rows)


def _times(spent: dict[str, dict[str, float]]) -> list[str]:
    """Processor time, and what it allows to say about the time on two quiet cores."""
    rows, total = [], 0.0
    for name, parts in spent.items():
        training = parts.get("training")
        measuring = sum(value for part, value in parts.items() if part != "training")
        total += measuring + (training or 0.0)
        rows.append((f"`{name}`", "–" if training is None else f"{training:.0f}", f"{measuring:.0f}"))
    words = (
        f"{total / 60:.0f} minutes of processor time in all, so that two quiet cores need at least "
        f"{total / 120:.0f} minutes, and one process alone about {total / 60:.0f}. Columns of the full run "
        "are trained and told by their looks. What an interruption lost is not counted.\n"
    )
    heads = ("seconds of processor time", "training", "measuring")
    return ["## Processor time\n", words, tables.markdown(heads, rows)]

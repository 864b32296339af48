"""The sections about what leaks: the threat model, beliefs over time, attackers, and other scenarios."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from veil.plots import INK
from veil.reports.blocks import (
    ACCENT,
    GREY,
    SOFT,
    WARN,
    Block,
    Bullets,
    Missing,
    Picture,
    Section,
    Table,
    Text,
    canvas,
    quiet,
    svg,
)
from veil.reports.sources import Material, Source
from veil.results import Audit
from veil.results import text as words
from veil.results.audit import LEAST
from veil.results.parts import AttackResult, Curves, ScenarioResult
from veil.stats import CONFIDENCE

THREAT = (
    "The adversary of this report is a strong one: it knows the model, the way of sharing and the list of "
    "possible secrets with their probabilities, and it reads everything that is shared. All that is kept "
    "from it is which secret is the true one, the true states, and the owner's private random numbers."
)


def threat_section(material: Material) -> Section | None:
    """What all audits grant is said once, what only one of them says in its own column."""
    lists = [audit.threat_model for _, audit in material.audited]
    if not lists:
        return None
    common = tuple(line for line in lists[0] if all(line in other for other in lists))
    own = {name: tuple(x for x in audit.threat_model if x not in common) for name, audit in material.audited}
    columns = material.columns(lambda source: (Bullets(own[source.name]),) if own.get(source.name) else ())
    kept = tuple(column for column in columns if column.blocks)
    lead = "What the adversary is assumed to know, and what it is not."
    return Section("threat", "Threat model", lead, (Text(THREAT), Bullets(common)), kept)


PANELS = 8  # most secrets that get a panel each

CLOSE = 0.25  # a leakage below this fraction of all there is to know is also shown close up

FLAT = (
    "There is no curve over time for this way of sharing: such curves come from filters for releases with "
    "noise of their own, and these have none."
)


def beliefs_section(material: Material) -> Section:
    """What the adversary believes over time, secret by secret, and what that amounts to in nats."""
    lead = "The probability that the adversary gives to the right secret, release by release."
    columns = material.columns(_beliefs)
    return Section("beliefs", "What the adversary comes to believe", lead, (), columns)


def _beliefs(source: Source) -> tuple[Block, ...]:
    audit = source.audit
    if audit is None:
        return (source.not_audited(),)
    first = Text(FLAT) if audit.curves is None else _posterior(audit, audit.curves)
    return first, _over_time(audit), Text(_single_runs(audit)), _by_secret(audit)


def _posterior(audit: Audit, curves: Curves) -> Picture:
    """Mean mass on the true secret, a panel for each, or a line for each where there are many."""
    last = curves.posterior[:, -1]
    ends = [words.percent(float(end)) for end in (last.min(), last.max())]
    reach = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    says = f"Belief in the true secret over {audit.horizon} releases; at the end {reach}."
    caption = (
        f"The belief that the adversary gives to the true secret, averaged over episodes: {reach} at the "
        f"end, where {words.percent(audit.chance)} is what it began with. A line that stays on the dotted "
        "one learns nothing; one that climbs to 1 has found the secret."
    )
    many = len(curves.posterior) > PANELS or len(audit.secrets) != len(curves.posterior)
    return Picture(_belief_lines(curves) if many else _belief_panels(audit, curves), says, caption)


def _belief_panels(audit: Audit, curves: Curves) -> str:
    count = len(curves.posterior)
    columns = 1 if count == 1 else 2
    rows = -(-count // columns)
    names = [part.name.replace(", ", "\n") for part in audit.secrets]
    figure = canvas((1.6 + 0.18 * max(name.count("\n") + 1 for name in names)) * rows + 0.9)
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for panel, mean, spread, part, name in zip(
        panels, curves.posterior, curves.spread, audit.secrets, names, strict=False
    ):
        _band(panel, mean, spread)
        panel.axhline(math.exp(-part.leakage.entropy), color=INK, linestyle=":", linewidth=1.3)
        panel.set_title(name, fontsize=10.5)
    for panel in panels[count:]:
        panel.set_axis_off()
    figure.supxlabel("releases seen", fontsize=11)
    figure.supylabel("belief in the true secret", fontsize=11)
    handles = [
        Line2D([], [], color=ACCENT, linewidth=2.2),
        Line2D([], [], color=SOFT, linewidth=8, alpha=0.5),
        Line2D([], [], color=INK, linestyle=":"),
    ]
    figure.legend(handles, ["mean", "± 1 sd", "before reading"], loc="outside upper center", ncols=3)
    return svg(figure)


def _band(panel: Axes, mean: np.ndarray, spread: np.ndarray) -> None:
    times = np.arange(1, len(mean) + 1)
    low, high = np.clip(mean - spread, 0.0, 1.0), np.clip(mean + spread, 0.0, 1.0)
    panel.fill_between(times, low, high, color=SOFT, alpha=0.5, linewidth=0)
    panel.plot(times, mean, color=ACCENT, linewidth=2.2, marker="o" if len(times) == 1 else None)
    panel.set_ylim(-0.03, 1.03)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    quiet(panel)


def _belief_lines(curves: Curves) -> str:
    figure = canvas(3.4)
    panel = figure.subplots()
    times = np.arange(1, curves.posterior.shape[1] + 1)
    panel.plot(times, curves.posterior.T, color=SOFT, linewidth=0.9)
    panel.plot(times, curves.posterior.mean(axis=0), color=ACCENT, linewidth=2.4, label="mean over secrets")
    panel.set(xlabel="releases seen", ylabel="belief in the true secret", ylim=(-0.03, 1.03))
    panel.legend(loc="upper left")
    quiet(panel)
    return svg(figure)


def _over_time(audit: Audit) -> Picture:
    """The interval at a few times, on the scale of all there is and, if it is small, close up."""
    entropy = audit.leakage.entropy
    rows = {row.step: (row.leakage.low, row.leakage.high) for row in audit.times}
    rows[audit.horizon] = audit.interval  # what the verdict stands for
    tallest = max(high for _, high in rows.values())
    close = 0.0 < tallest < CLOSE * entropy
    figure = canvas(4.6 if close else 2.9)
    panels = np.atleast_1d(figure.subplots(2 if close else 1, 1, sharex=True))
    for panel in panels:
        ends = [low for low, _ in rows.values()], [high for _, high in rows.values()]
        colour = WARN if audit.verdict.refused else ACCENT
        panel.vlines(list(rows), *ends, color=colour, linewidth=7, alpha=0.8)
        panel.plot(list(rows), ends[1], "_", color=colour, markersize=11, markeredgewidth=2)
        if audit.curves is not None:
            times = np.arange(1, len(audit.curves.score) + 1)
            panel.plot(times, np.clip(audit.curves.score, 0.0, None), color=GREY, linewidth=1.5)
        panel.set_xlim(0, 1.04 * audit.horizon + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        quiet(panel)
    top = max(entropy, 1e-3)
    panels[0].axhline(entropy, color=INK, linestyle="--", linewidth=1.2)
    panels[0].set_ylim(-0.02 * top, 1.08 * top)
    panels[0].set_title(f"out of all there is to know, {entropy:.3f} nats", loc="left", fontsize=10.5)
    if close:
        panels[1].set_ylim(-0.02 * tallest, 1.25 * tallest)
        panels[1].set_title("the same, close up", loc="left", fontsize=10.5)
    figure.supylabel("leakage (nats)", fontsize=11)
    panels[-1].set_xlabel("releases seen")
    interval = f"{words.interval_text(audit.interval, entropy)} nats"
    bars = (
        "bars begin at what is proven and end at all there is"
        if audit.verdict.refused
        else "bars are proven intervals"
    )
    preview = "" if audit.curves is None else ", the grey line is a quick preview by Kalman filters"
    caption = (
        f"What has leaked after so many releases: {bars} ({interval} at the end, each end with "
        f"{CONFIDENCE} confidence){preview}, the dashed line is everything."
    )
    return Picture(svg(figure), f"Leakage over time, {interval} after {audit.horizon} releases.", caption)


def _single_runs(audit: Audit) -> str:
    """How much single runs revealed, since the leakage is a mean."""
    known = [audit.realised_quantile(fraction) for fraction in (0.5, 0.95, 0.99, 1.0)]
    if audit.verdict.refused or not all(map(math.isfinite, known)):
        return "How much single runs revealed is not known, because the filter cannot be relied on here."
    if known[-1] < LEAST:
        none = f"not one revealed {LEAST:g} nats or more"
        return f"The leakage is a mean. Of the {audit.episodes} runs played, {none}."
    half, twentieth, hundredth, most = (words.signed(value, 3) for value in known)
    return (
        f"The leakage is a mean; single runs can reveal more. Of the {audit.episodes} runs played, half "
        f"revealed less than {half} nats, one in twenty more than {twentieth}, one in a hundred more than "
        f"{hundredth}, and the worst one {most}."
    )


def _by_secret(audit: Audit) -> Table:
    rows = tuple(
        (
            part.name.replace("_", " "),
            words.interval_text((part.leakage.low, part.leakage.high), part.leakage.entropy),
        )
        for part in (*audit.secrets, *audit.components)
    )
    caption = "The same by secret: no secret should be much worse off than the average."
    return Table(caption, ("secret", "leakage, nats"), rows)


ROLES = {"attack": "", "assisted": "knows more", "mismatched": "believes something wrong"}

COLOURS = {"attack": ACCENT, "assisted": WARN, "mismatched": GREY}

PLAIN = {
    "Bayes": "the strongest filter there is for this kernel",
    "exact observer": "weighs true states by the model; nothing is better",
    "Kalman bank": "one Kalman filter per secret",
    "noise-free Kalman bank": "the same where a part of the state is shared as it is",
    "prior": "does not read; guesses by the prior",
    "least squares": "fits the secret to the releases as if they were true",
    "takes data for true": "thinks that nothing was changed",
    "bootstrap filter": "the textbook particle filter",
    "last digits": "counts the last digits of the releases per secret",
    "regression bank": "predicts each release from those before, by one regression per secret",
    "learned": "a network trained on transcripts, without a model",
    "knows the first state": "knows where the system started",
    "four runs of one secret": "reads four runs of the same owner",
    "twice the horizon": "reads twice as long",
}


def attackers_section(material: Material) -> Section:
    """The attackers, and how much each one found."""
    lead = "Several attackers read the same releases. The best of those within the threat model counts."
    blocks: tuple[Block, ...] = (_attack_table(material),) if material.audited else ()
    columns = material.columns(_attackers)
    return Section("attackers", "Attackers and what they found", lead, blocks, columns)


def _attackers(source: Source) -> tuple[Block, ...]:
    if source.audit is None:
        return (source.not_audited(),)
    return (_accuracies(source.audit),) if source.audit.attacks else ()


def _attack_table(material: Material) -> Table:
    """A row for each attacker of any run, fair ones first; a column for each run."""
    audits = material.audited
    rows: dict[str, AttackResult] = {}
    for role in ROLES:
        for _, audit in audits:
            rows |= {row.name: row for row in audit.attacks if row.role == role and row.name not in rows}
    alone = len(audits) == 1
    lines = []
    for name, row in rows.items():
        does = "; ".join(filter(None, (PLAIN.get(name, ""), ROLES[row.role])))
        cells = [_attack_cells(audit, name) for _, audit in audits]
        lines.append(
            (name, does, *(cells[0] if alone else ("\n".join(filter(None, cell)) for cell in cells)))
        )
    heads = ("right guesses", "learns at least, nats") if alone else tuple(name for name, _ in audits)
    chance = " and ".join(sorted({words.percent(audit.chance) for _, audit in audits}))
    both = "" if alone else "Each cell has the right guesses and the nats that are learned at least. "
    caption = (
        f"{both}Guessing blindly is right in {chance} of cases. Brackets are 95 % intervals, ± is one "
        "standard error. Whoever knows more than the threat model grants, or believes something wrong, does "
        "not enter the verdict."
    )
    return Table(caption, ("attacker", "what it does", *heads), tuple(lines))


def _attack_cells(audit: Audit, name: str) -> tuple[str, str]:
    row = next((one for one in audit.attacks if one.name == name), None)
    return ("", "") if row is None else (words.accuracy_text(row), words.mean_text(row.lower))


def _accuracies(audit: Audit) -> Picture:
    """How often each attacker is right, the fair ones on top."""
    order = list(ROLES)
    rows = sorted(audit.attacks, key=lambda row: order.index(row.role) if row.role in ROLES else len(order))
    figure = canvas(0.3 * max(len(rows), 3) + 1.15)
    panel = figure.subplots()
    for place, row in enumerate(rows[::-1]):
        panel.barh(place, row.accuracy.value, 0.66, color=COLOURS.get(row.role, GREY), alpha=0.75)
        panel.plot([row.accuracy.low, row.accuracy.high], [place] * 2, color=INK, linewidth=1.6)
    panel.axvline(audit.chance, color=INK, linestyle=":", linewidth=1.6)
    panel.set_yticks(np.arange(len(rows)), [row.name for row in rows[::-1]])
    panel.set(xlim=(0.0, 1.02), ylim=(-0.6, max(len(rows), 2) - 0.4))
    panel.set_xlabel("fraction of right guesses")
    quiet(panel, "x")
    best = audit.best_attack
    reach = ""
    if best is not None:
        reach = f"The best attacker within the threat model is right {words.accuracy_text(best)}. "
    caption = (
        f"{reach}Blue bars are attackers within the threat model, orange ones know more, grey ones use a "
        f"wrong model; the dotted line is chance, {words.percent(audit.chance)}, the dark lines are 95 % "
        "intervals."
    )
    return Picture(svg(figure), f"Right guesses of {len(rows)} attackers. {reach}", caption)


def scenarios_section(material: Material) -> Section:
    """What leaks where the plant is not the model."""
    lead = "All numbers above assume that the system follows its model. Here it does not."
    tried = [(name, audit) for name, audit in material.audited if audit.scenarios]
    table, worst = _scenario_table(tried), _worst_scenarios(tried)
    blocks: tuple[Block, ...] = () if table is None else (*worst, table)
    columns = material.own_columns(_not_tried)
    kept = () if blocks and all(x.kind == "missing" for one in columns for x in one.blocks) else columns
    return Section("scenarios", "When the plant is not the model", lead, blocks, kept)


def _not_tried(source: Source) -> tuple[Block, ...]:
    if source.audit is None:
        return (source.not_audited(),)
    if source.audit.scenarios:
        return ()
    said = (
        "This was not tried. Scenarios are worlds in which the system, its noise, its inputs or what the "
        "owner believes differ from the model. All of them take several minutes:"
    )
    return (Missing(said, source.audit_command("--scenarios")),)


def _worst_scenarios(audits: list[tuple[str, Audit]]) -> tuple[Block, ...]:
    """A sentence for each run."""
    lines = []
    for name, audit in audits:
        worst = audit.worst_scenario
        if worst is not None:
            whose = f" for “{name}”" if len(audits) > 1 else ""
            lines.append(
                f"The worst scenario{whose} is “{worst.scenario.name}”: the attacker “{worst.attack.name}” "
                f"learns at least {words.at_least(worst.low)} of {worst.scenario.entropy:.3f} nats "
                f"(corrected for {worst.tried} attackers in {worst.scenarios} scenarios)."
            )
    return (Text(lines[0]),) if len(lines) == 1 else (Bullets(tuple(lines)),) if lines else ()


def _scenario_table(audits: list[tuple[str, Audit]]) -> Table | None:
    """A row for each scenario that was tried; several runs have a column each."""
    names = list(dict.fromkeys(row.name for _, audit in audits for row in audit.scenarios))
    if not names:
        return None
    caption = (
        "In each scenario, the attacker who learned most: the nats that it learns at least, and how often it "
        "is right. There is no upper bound here: more may leak."
    )
    alone = len(audits) == 1
    heads = ("best attacker", "learns at least, nats", "right guesses", "distortion")
    lines = []
    for name in names:
        found = [_scenario(audit, name) for _, audit in audits]
        chance = next(words.percent(row.chance) for row in found if row is not None)
        cells = [("",) * 4 if row is None else _scenario_cells(row) for row in found]
        merged = (f"{nats}\n{right}\n{who}".strip() for who, nats, right, _ in cells)
        lines.append((name, chance, *(cells[0] if alone else merged)))
    return Table(
        caption, ("scenario", "chance", *(heads if alone else (name for name, _ in audits))), tuple(lines)
    )


def _scenario(audit: Audit, name: str) -> ScenarioResult | None:
    return next((row for row in audit.scenarios if row.name == name), None)


def _scenario_cells(scenario: ScenarioResult) -> tuple[str, ...]:
    """The best attacker, what it learns, how often it is right, and the distortion."""
    known = [row for row in scenario.attacks if math.isfinite(row.lower.value)]
    best = max(known, key=lambda row: row.lower.value, default=None)
    cells = (
        ("", "unknown", "")
        if best is None
        else (best.name, words.mean_text(best.lower), words.accuracy_text(best))
    )
    return (*cells, words.mean_text(scenario.distortion))

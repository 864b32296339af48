"""The sections about the runs themselves: live stream, training, settings, and the words used."""

import math
import platform
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from matplotlib.ticker import MaxNLocator

from veil.learners.run import Ready, Result, Settings
from veil.learners.run_plots import draw_training
from veil.plots import INK
from veil.registry import POLICIES
from veil.reports.blocks import (
    ACCENT,
    Block,
    Column,
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
from veil.results import text as words
from veil.results.fit import Fit, draw_rivals
from veil.sharing.account import Account
from veil.version import __version__

MEANING = {
    "released": "as the policy intends",
    "blurred": "with noise added, so that it fits the budget",
    "blind": "what the public expects anyway",
    "withheld": "nothing went out",
    "fault": "no usable input, nothing went out",
    "gap": "no input at all, nothing went out",
}

LEDGER_HEADS = ("decision", "what went out", "steps", "nats")

MOST_FITS = 8  # individuals in the table of a fit

POINTS = 1500  # of the drawn line at most, so that a long stream stays a small picture


def ledger_section(material: Material) -> Section:
    """What the live stream was charged, step by step."""
    lead = "The sharer charges every release before it is drawn. The sum never exceeds the budget."
    return Section("ledger", "The ledger of the live stream", lead, (), material.own_columns(_ledger))


def _ledger(source: Source) -> tuple[Block, ...]:
    account = source.account
    if account is None:
        said = (
            "Nothing has been shared live from this folder. With the steps of your sensor (--resolution), "
            "the file of the secret and a file of states:"
        )
        return (Missing(said, _share_command(source)),)
    chain = f"The chain of hashes holds over all {len(account)} entries."
    drawn = (_stairs(account),) if len(account) else ()
    return (*drawn, charges_table(account), Text(f"{chain} {_spent(account)} {account.note}".strip()))


def charges_table(account: Account) -> Table:
    """What each kind of decision was charged, and what the alarm was."""
    rows = tuple(
        (name, MEANING[name], str(count), words.charged(nats).removesuffix(" nats"))
        for name, (count, nats) in account.counts().items()
    )
    if account.start > 0.0:
        rows = (("alarm", "that the plant is not the model", "", words.at_most(account.start)), *rows)
    return Table("What was decided, how often, and what it was charged.", LEDGER_HEADS, rows)


def _share_command(source: Source) -> str:
    command = ["veil", "share", str(source.folder), *source.sensor_flags]
    if source.run is not None and ":" in source.run.settings.system:  # code, which the user must name
        command = ["veil", "share", source.run.settings.system, *source.policy_flags]
    if source.run is None:
        command = ["veil", "share", source.place, *source.policy_flags]
    if "truth" in command:  # is charged as it is read
        command = [word for word in command if word not in source.sensor_flags]
    elif not source.sensor_flags:
        command += ["--resolution", "0.01"]
    return f"{shlex.join(command)} --secret-file secret.json --budget 0.1 < sensor.jsonl"


def _spent(account: Account) -> str:
    total = words.charged(account.total).capitalize()
    if math.isfinite(account.budget):
        return f"{total} were charged of a budget of {account.budget:g}."
    return f"{total} were charged; there is no budget."


def _stairs(account: Account) -> Picture:
    """The sum as a stair under the budget."""
    every = max(1, len(account) // POINTS)
    places = np.unique([*range(0, len(account), every), len(account) - 1])
    figure = canvas(2.9)
    panel = figure.subplots()
    steps, totals = [0, *(places + 1)], [0.0, *account.totals[places]]
    panel.step(steps, totals, where="post", color=ACCENT, linewidth=2.4, label="charged so far")
    top = account.total
    if math.isfinite(account.budget):
        panel.axhline(account.budget, color=INK, linestyle="--", linewidth=1.4, label="budget")
        top = max(top, account.budget)
    panel.set(
        xlabel="step", ylabel="nats", xlim=(0, 1.03 * len(account)), ylim=(0.0, 1.25 * top if top else 1.0)
    )
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.legend(loc="upper left", ncols=2)
    quiet(panel)
    step, charge = account.largest()
    most = f" The dearest step was {step}, at {words.amount(charge)} nats." if charge > 0 else ""
    caption = f"The sum of the charges never crosses the budget; what would is not released.{most}"
    return Picture(svg(figure), f"Nats charged over {len(account)} steps. {_spent(account)}", caption)


def model_section(material: Material) -> Section | None:
    """How well the model explains the recordings that it was fitted to; None where no fit was used."""
    one_each = {source.place: source for source in material.sources}
    fits = [source.fit for source in one_each.values()]
    blocks = tuple(block for fit in fits if fit is not None for block in _model(fit))
    lead = "All figures of this report hold for a system that moves like this model."
    return Section("model", "How well the model explains the recording", lead, blocks) if blocks else None


def _model(fit: Fit) -> tuple[Block, ...]:
    one = fit.individuals[0]
    heads, rows = fit.table()
    more = f", first {MOST_FITS} of {len(rows)}" if len(rows) > MOST_FITS else ""
    figure = canvas(3.2)
    draw_rivals(figure.subplots(), one, fit.horizon)
    caption = (
        f"What other models gain over this one on held-out steps of {one.name} (bars: two standard errors). "
        "A better prediction of you is what a reader could use."
    )
    says = f"Gains of {len(one.rivals)} rivals in {fit.horizon} steps."
    wrong = () if all(each.explained for each in fit.individuals) else (Text(fit.advice()),)
    return (
        Text(fit.summary()),
        Table(f"Estimates with standard errors{more}.", heads, tuple(rows[:MOST_FITS])),
        Picture(svg(figure), says, caption),
        *wrong,
    )


def training_section(material: Material) -> Section:
    """How each policy was learned."""
    lead = "Leakage, cost and distortion of the policy during training, update by update."
    return Section("training", "How it was learned", lead, (), material.own_columns(_training))


def _training(source: Source) -> tuple[Block, ...]:
    run = source.run
    if run is None or run.result is None or not isinstance(run.settings, Settings):
        said = "Nothing was learned here: this way of sharing is ready at once. To learn one:"
        return (Missing(said, shlex.join(["veil", "train", source.place, *source.sensor_flags])),)
    figure = canvas(4.4)
    limit = run.settings.objective.distortion_limit
    said = Text(_training_text(run.settings, run.result))
    if not draw_training(figure, run.history, run.result.best, limit):
        return (said,)
    caption = (
        "Above, what an episode leaks (close to zero the scale is linear); below, how far releases are from "
        "the truth. Pale lines are the episodes that were learned from, dark marks fresh ones that choose "
        "the policy."
    )
    says = f"Leakage and distortion over {run.result.updates} updates."
    return Picture(svg(figure), says, caption), said


def _training_text(settings: Settings, result: Result) -> str:
    fresh = settings.training.evaluation_episodes
    return (
        f"{result.updates} updates took {words.clock(result.seconds)} and ended because: {result.reason}. "
        f"The policy that was kept is the one after update {result.best}; on {fresh} "
        f"fresh episodes it leaked {words.signed(result.lower, 3)} to {words.at_most(result.upper)} nats "
        f"at a distortion of {result.distortion:.3f} per step. It was chosen by these episodes, so the "
        "audit, on others, has the last word."
    )


LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "matplotlib")

HEADS = ("setting", "value")


def settings_section(material: Material) -> Section:
    """What was run, with which settings, seeds and versions: settings by run, versions once."""
    rows = (("Python", platform.python_version()), ("veil", __version__), *map(_installed, LIBRARIES))
    own = Column("this report", (Table("The program that wrote this page.", HEADS, rows),))
    lead = "What you need to repeat this."
    return Section("settings", "Settings and versions", lead, (), (*material.columns(_settings), own))


def _installed(name: str) -> tuple[str, str]:
    try:
        return name, version(name)
    except PackageNotFoundError:
        return name, "not installed"


def _settings(source: Source) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if source.run is not None:
        settings = source.run.settings
        policy = (
            POLICIES.name_of(settings.sharing) if isinstance(settings, Ready) else settings.training.learner
        )
        rows = (("policy", policy), *_flat(asdict(settings)))
        blocks.append(Table("Settings of the run.", HEADS, rows))
    if source.environment:
        rows = tuple(_flat(source.environment))
        blocks.append(Table("Where it was begun.", HEADS, rows))
    audit = source.audit
    if audit is not None:
        seconds = sum(audit.seconds.values())
        rows = (
            ("system", audit.system),
            ("policy", audit.policy),
            ("method", audit.method),
            ("episodes", str(audit.episodes)),
            ("releases per episode", str(audit.horizon)),
            ("particles per secret", str(audit.particles or "none needed")),
            *((name, str(seed)) for name, seed in audit.seeds.items()),
            ("time of the measurement", words.clock(seconds)),
            ("veil", audit.version),
        )
        blocks.append(Table("Settings of the audit.", HEADS, rows))
    if source.account is not None:
        about = {name: value for name, value in source.account.about.items() if name != "policy"}
        blocks.append(Table("What the ledger says of its stream.", HEADS, tuple(_flat(about))))
    return tuple(blocks)


def _flat(content: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Names and values, those of groups one after the other."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value)
        elif isinstance(value, list | tuple):
            yield name.replace("_", " "), ", ".join(map(str, value)) or "none"
        elif value is None or isinstance(value, bool):
            yield name.replace("_", " "), {True: "yes", False: "no", None: "none"}[value]
        else:
            yield name.replace("_", " "), str(value)


GLOSSARY = (
    (
        "nat, bit",
        "Units of information. One bit is the answer to a fair yes-or-no question, and 0.693 nats. Four "
        "equally likely secrets are worth 2 bits, or 1.386 nats, to whoever finds out which one is true.",
    ),
    (
        "leakage",
        "How many nats about the secret the releases of a whole run carry, on average over secrets and runs "
        "(mutual information). Zero: an adversary is as wise as before. All of H(q): it knows.",
    ),
    (
        "belief",
        "The probability that a rational reader gives to each secret after what it has read (posterior). It "
        "starts at the prior, the probabilities that everybody knows.",
    ),
    (
        "interval",
        "The leakage is bounded from below by attacks and from above by a proof; both are averages over "
        "simulated runs, widened so that each end is wrong in about one of a thousand such audits.",
    ),
    (
        "distortion",
        "How far what is shared is from what is true, in the system's own distance.",
    ),
)


def glossary_section(material: Material) -> Section:
    """The words that a newcomer stumbles over, the same for every report."""
    del material
    table = Table("", ("word", "meaning"), GLOSSARY)
    return Section("words", "Words used here", "Five words carry most of this page.", (table,))

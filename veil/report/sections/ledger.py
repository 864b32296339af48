"""What the live stream was charged, step by step."""

import math
import shlex

import numpy as np
from matplotlib.ticker import MaxNLocator

from veil.plots import INK
from veil.report import wording as words
from veil.report.blocks import ACCENT, Block, Missing, Picture, Section, Table, Text, canvas, quiet, svg
from veil.report.gather import Material, own_columns
from veil.report.source import Source
from veil.sharing.account import Account

LEAD = "A live stream is charged before each release, by what is public alone, and never exceeds its budget."

MEANING = {
    "released": "as the policy intends",
    "blurred": "with noise added, so that it fits the budget",
    "blind": "what the public expects anyway",
    "withheld": "nothing went out",
    "fault": "no usable input, nothing went out",
    "gap": "no input at all, nothing went out",
}

POINTS = 1500  # of the drawn line at most, so that a long stream stays a small picture


def section(material: Material) -> Section:
    """One column per run."""
    return Section("ledger", "The ledger of the live stream", LEAD, (), own_columns(material, _column))


def _column(source: Source) -> tuple[Block, ...]:
    account = source.account
    if account is None:
        return (Missing("Nothing has been shared live from this folder.", _command(source)),)
    chain = f"The chain of hashes holds over all {len(account)} entries."
    rows = tuple(
        (name, MEANING[name], str(count), words.charged(nats).removesuffix(" nats"))
        for name, (count, nats) in account.counts().items()
    )
    table = Table("What was decided, how often, and what it was charged.", HEADS, rows)
    drawn = (_picture(account),) if len(account) else ()
    return (*drawn, Text(f"{chain} {_spent(account)} {account.note}".strip()), table)


HEADS = ("decision", "what went out", "steps", "nats")


def _command(source: Source) -> str:
    words = ["veil", "share", str(source.folder)]
    if source.run is None:
        words = ["veil", "share", source.command_system, "--policy", source.policy]
    return f"{shlex.join(words)} --secret-file secret.json --budget 0.1 < sensor.jsonl"


def _spent(account: Account) -> str:
    total = words.charged(account.total).capitalize()
    if math.isfinite(account.budget):
        return f"{total} were charged of a budget of {account.budget:g}."
    return f"{total} were charged; there is no budget."


def _picture(account: Account) -> Picture:
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
    panel.set(xlabel="step", ylabel="nats", xlim=(0, len(account)), ylim=(0.0, 1.25 * top if top else 1.0))
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.legend(loc="upper left", ncols=2)
    quiet(panel)
    step, charge = account.largest()
    most = f" The dearest step was {step}, at {words.amount(charge)} nats." if charge > 0 else ""
    caption = f"The sum of the charges never crosses the budget; what would is not released.{most}"
    return Picture(svg(figure), f"Nats charged over {len(account)} steps. {_spent(account)}", caption)

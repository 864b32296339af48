"""What must hold of a stream that was killed many times: nothing that its readers have tells of it."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.sharing.streams import SECRET, noise_policy
from veil.sharing import Accountant, Sharer
from veil.sharing.account import read_account
from veil.sharing.ledger import opening


def check_answers(answers: dict[int, set[bytes]], rests: list[tuple[int, bytes]], steps: int) -> None:
    """One value for each step, over all processes; what was cut on its way out is the start of it."""
    assert sorted(answers) == [*range(1, steps + 1)], "a gap"
    assert all(len(lines) == 1 for lines in answers.values()), "two values for one step"
    for step, rest in rests:
        assert any(line.startswith(rest) for line in answers[step]), "a value that was begun and then changed"


def entries_of(path: Path) -> list[dict[str, Any]]:
    """The entries of a ledger whose chain holds, by SHA-256 and nothing of the program."""
    before, found = "0" * 64, []
    for line in path.read_bytes().rstrip(b"\0").decode().splitlines():  # an open one ends in zeros
        digest = json.loads(line)["chain"]
        body = line.partition(f',"chain":"{digest}"')[0] + "}"
        assert hashlib.sha256((before + body).encode()).hexdigest() == digest
        before = digest
        found.append(json.loads(line))
    return found[1:]


def check_ledger(path: Path, answers: dict[int, set[bytes]]) -> list[dict[str, Any]]:
    """Every step once, in order, with the value that went out; gives the entries."""
    entries = entries_of(path)
    assert [entry["step"] for entry in entries] == [*range(1, len(answers) + 1)]
    for entry in entries:
        shared = None if entry["shared"] is None else {"level": entry["shared"][0]}
        line = {"step": entry["step"], "shared": shared, "head": entry["chain"]}
        assert {json.dumps(line).encode()} == answers[entry["step"]]
    assert read_account(path).note == "" and b"\0" not in path.read_bytes()
    return entries


def check_spending(path: Path, entries: list[dict[str, Any]], budget: float, **options: Any) -> None:
    """Belief, decisions and totals are, to the last bit, those of one process that lived through it all."""
    account = path.with_name("secret.json.account")
    with (
        Sharer(
            noise_policy(), SECRET, budget=budget, ledger=path, account=account, **options, resolution=0.0
        ) as again,
        Sharer(
            noise_policy(), SECRET, budget=budget, seed=again.ledger.about["seed"], **options, resolution=0.0
        ) as whole,
    ):
        charges = [opening(again.ledger.about), *(entry["charge"] for entry in entries)]
        total = again.accountant.total()
        assert total == entries[-1]["total"] == Accountant(budget, spent=charges).total()
        assert math.isclose(total, math.fsum(charges), rel_tol=1e-13) and total <= budget
        account, engine = Accountant(budget, charges[:1]), whole._engine
        for entry in entries:
            assert entry["left"] == account.remaining()
            with jax.enable_x64(True):
                made = engine.again(entry)
            same = ("charge", "decision", "blur", "external", "log_density")
            found = made.entry()
            assert all(found[name] == entry[name] for name in same), f"step {entry['step']}"
            engine.keep(made)
            assert account.spend(entry["charge"]) == entry["total"]
        check_beliefs(again, whole)


def check_beliefs(one: Sharer, other: Sharer) -> None:
    """The same in every bit."""
    ours, theirs = one._engine, other._engine
    pairs = zip(jax.tree.leaves(ours._belief), jax.tree.leaves(theirs._belief), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def check_repairs(points: list[str], messages: list[str]) -> int:
    """Who removed a line that was cut short, and did not die at once, said so; gives how many did."""
    notes = ["was cut short by a crash" in text for text in messages]
    for before, point, note in zip(points, [*points[1:], "never"], notes[1:], strict=True):
        assert note == (before == "half a line") or "while starting" in (before, point)
    return sum(notes)

"""Reading ledgers beside their writer, and charging again. The truth is json, numpy and a Kalman filter."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import LineCollection

from tests.sharing.streams import NOISE, SECRET, Plant, kalman_charges, noise_policy, run
from veil.laws import Gaussian, grouped
from veil.policies import GaussianNoise, Truth
from veil.sharing import Ledger, LedgerError, Sharer
from veil.sharing import account as account_module
from veil.sharing import ledger_plot as ledger_chart
from veil.sharing.account import DECISIONS, read_account
from veil.sharing.alarm import alarm_charge
from veil.sharing.ledger import ROOM, VERSION, chained
from veil.sharing.recompute_charges import (
    RecomputedCharges,
    _charged,
    rebuilt,
    recompute_charges,
    stronger,
    totals,
)
from veil.systems import Gain
from veil.types import LOG_ZERO

BUDGET = 0.4
ABOUT = {"system": "Gain", "policy": "x", "seed": 1, "budget": None}


def shared(path, policy, length=24, **options):
    """A stream with a fault at step 5 and gaps at 8 and 9."""
    plant = Plant(3)
    with Sharer(policy, SECRET, seed=7, ledger=path, **options, resolution=0.0) as sharer:
        run(sharer, plant, 4)
        sharer.share([math.nan], [plant.external])
        run(sharer, plant, 2)
        sharer.share([plant.state], [plant.external], step=10)
        run(sharer, plant, length - 10)
    return path


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return shared(tmp_path_factory.mktemp("noisy") / "ledger.jsonl", noise_policy(), budget=BUDGET)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewritten(path, entries):
    """A file whose chain holds, whatever it says."""
    before, lines = "0" * 64, []
    for entry in entries:
        content = {key: entry[key] for key in entry if key not in ("chain", "mac", "sum")}
        before, line = chained(content, before)
        lines.append(line)
    path.write_bytes(b"".join(lines))
    return path


def made(path, charges, budget=None, decision="released"):
    """A small ledger of these charges."""
    total, entries = 0.0, [{"VEIL": VERSION, "about": {**ABOUT, "budget": budget}}]
    for step, charge in enumerate(charges, 1):
        total += charge
        entries.append({"step": step, "charge": charge, "total": total, "decision": decision})
    return rewritten(path, entries)


def test_sums_and_counts_are_those_of_the_lines(noisy):
    account, (first, *entries) = read_account(noisy), lines_of(noisy)
    assert account.about == first["about"] and account.budget == BUDGET and account.note == ""
    assert len(account) == len(entries) == 24
    charges = [alarm_charge(1e-4), *(entry["charge"] for entry in entries)]
    assert account.start == charges[0] and account.total == pytest.approx(math.fsum(charges), abs=1e-15)
    for name, (count, nats) in account.counts().items():
        those = [entry["charge"] for entry in entries if entry["decision"] == name]
        assert (count, nats) == (len(those), pytest.approx(sum(those), abs=1e-15))
    assert sum(count for count, _ in account.counts().values()) == 24
    assert account.counts()["fault"] == (1, 0.0) and account.counts()["gap"] == (2, 0.0)
    assert account.counts()["blind"][0] > 0
    assert account.largest() == max(((e["step"], e["charge"]) for e in entries), key=lambda pair: pair[1])
    assert list(account.entries()) == entries and list(account.entries(20)) == entries[19:]


@pytest.mark.parametrize("place", [1, 2, 9, 25])
def test_an_edit_is_reported_at_its_line(noisy, tmp_path, place):
    lines = noisy.read_bytes().splitlines(keepends=True)
    digit = lines[place - 1].rindex(b"0", 0, lines[place - 1].index(b'"chain"'))
    lines[place - 1] = lines[place - 1][:digit] + b"1" + lines[place - 1][digit + 1 :]
    (tmp_path / "ledger").write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match=f"broken at line {place},"):
        read_account(tmp_path / "ledger")


def test_a_tail_that_is_not_whole_is_left_out_with_a_note_and_not_repaired(noisy, tmp_path):
    path, whole = tmp_path / "ledger", noisy.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut, room in ((last + 1, 0), (len(whole) - 1, 0), (last + 9, 50), (last + 9, ROOM)):
        path.write_bytes(whole[:cut] + bytes(room))
        account = read_account(path)
        assert len(account) == 23 and "Line 25" in account.note
        assert path.read_bytes() == whole[:cut] + bytes(room)
        assert [entry["step"] for entry in account.entries(22)] == [22, 23]
    path.write_bytes(whole + bytes(ROOM))
    assert (len(read_account(path)), read_account(path).note) == (24, "")
    path.write_bytes(whole[: last + 9] + bytes(50) + whole[last + 59 :] + whole[last:])
    with pytest.raises(LedgerError, match="broken at line 25,"):
        read_account(path)
    for content in (b"", whole[:9], bytes(50)):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="no whole line"):
            read_account(path)


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (3, {"total": 0.5}, "line 3 .* sum of the charges"),
        (4, {"step": 4}, "line 4 .* step 3 should"),
        (5, {"charge": -0.1}, "line 5 .* 0 or more"),
        (6, {"decision": "given"}, "line 6 "),
        (4, {"charge": 3.0, "total": 3.2}, "line 4 .* more than the budget"),
        (1, {"VEIL": "ledger 1"}, "line 1 .* says ledger 1"),
    ],
)
def test_what_a_forger_chains_again_must_still_add_up(tmp_path, place, change, words):
    entries = lines_of(made(tmp_path / "ledger", [0.1] * 6, budget=1.0))
    entries[place - 1] |= change
    with pytest.raises(LedgerError, match=words):
        read_account(rewritten(tmp_path / "ledger", entries))
    del entries[place - 1]["total" if place > 1 else "about"]
    entries[place - 1]["charge"] = 0.0
    with pytest.raises(LedgerError, match=f"line {place} "):
        read_account(rewritten(tmp_path / "ledger", entries))


def test_a_ledger_is_read_while_its_writer_holds_it(tmp_path):
    """The lock is the writer's: a reader neither waits for it nor takes it."""
    path = tmp_path / "ledger"
    with Ledger(path, ABOUT) as ledger:
        for step in (1, 2):
            ledger.append({"step": step, "charge": 0.25, "total": 0.25 * step, "decision": "released"})
            account = read_account(path)
            assert (len(account), account.total) == (step, 0.25 * step)
        with pytest.raises(LedgerError, match="in use"):
            Ledger(path, ABOUT)


def test_a_line_that_was_half_written_when_it_was_looked_at_is_looked_at_again(noisy, tmp_path, monkeypatch):
    path, whole = tmp_path / "ledger", noisy.read_bytes()
    lines = whole.splitlines(keepends=True)
    half = sum(map(len, lines[:9])) + 30
    path.write_bytes(whole[:half] + bytes(ROOM))

    def went_on(file, offset):
        path.write_bytes(whole + bytes(ROOM))
        return False

    monkeypatch.setattr(account_module, "room_only", went_on)
    account = read_account(path)
    assert (len(account), account.note) == (24, "") and list(account.entries()) == lines_of(noisy)[1:]


def test_charged_again_are_the_integrals_of_a_kalman_filter(noisy):
    """Nearly exact charges: what they lie above the truth is below 1e-6 of a nat, and never below it."""
    account = read_account(noisy)
    entries = list(account.entries())
    opened = [entry["decision"] == "released" for entry in entries]
    rows = [(e["external"][0], 0.0 if e["shared"] is None else e["shared"][0]) for e in entries]
    truth = np.where(opened, kalman_charges(rows, opened), 0.0)
    again = recompute_charges(rebuilt(noise_policy(), account), account)
    assert [one.step for one in again] == list(range(1, 25))
    assert np.allclose([one.value for one in again], truth, rtol=0.0, atol=1e-9)
    assert all(one.value <= one.charged + 1e-6 and one.short <= 0.0 for one in again)
    assert [one.method for one in again] == ["quadrature" if one else "nothing" for one in opened]
    value, error = totals(again)
    assert value == pytest.approx(truth.sum(), abs=1e-8) and 0.0 < error < 1e-6


def _truth():
    with jax.enable_x64(True):
        return Truth(Gain())


@pytest.mark.parametrize(
    ("make", "options", "decisions"),
    [
        (_truth, {"budget": 0.3, "exhausted": "withhold"}, {"released", "withheld"}),
        pytest.param(
            *(noise_policy, {"budget": 0.05, "exhausted": "blur", "steps": 24}, {"released", "blurred"}),
            marks=pytest.mark.study,
        ),
        pytest.param(noise_policy, {"particles": 32}, {"released"}, marks=pytest.mark.study),  # compiles long
    ],
    ids=["truth, withheld", "blurred", "particles"],
)
def test_a_replay_needs_public_data_only_and_finds_every_charge(tmp_path, make, options, decisions):
    """Faults, gaps and every way to run out of budget; a replayed charge that differs would raise."""
    account = read_account(shared(tmp_path / "ledger", make(), **options))
    assert decisions | {"fault", "gap"} <= set(account.counts())
    named = {key: value for key, value in options.items() if key != "budget"}
    again = recompute_charges(rebuilt(make(), account, **named), account)
    assert all(one.short <= 0.0 for one in again)
    opened = [one for one in again if one.method != "nothing"]
    assert len(opened) == sum(account.counts().get(name, (0,))[0] for name in ("released", "blurred"))
    assert {one.method for one in opened} == {"estimate" if "particles" in options else "quadrature"}


def test_another_policy_and_other_charges_are_refused(noisy, tmp_path):
    account = read_account(noisy)
    with jax.enable_x64(True):
        other = GaussianNoise(Gain(), jnp.asarray([NOISE + 0.01]))
    with pytest.raises(LedgerError, match="another policy"):
        rebuilt(other, account)
    with pytest.raises(LedgerError, match="another policy"):
        rebuilt(noise_policy(), account, exhausted="withhold")
    entries = lines_of(noisy)
    for entry in entries[4:]:
        entry["total"] += 1e-8
    entries[4]["charge"] += 1e-8
    account = read_account(rewritten(tmp_path / "ledger", entries))
    with pytest.raises(LedgerError, match=r"Step 4 was charged .* history gives"):
        recompute_charges(rebuilt(noise_policy(), account), account)


def by_grid(weights, means, sds, points=40001):
    """I(Θ; Y) of scalar mixtures, one row per secret."""
    grid = np.linspace((means - 9 * sds).min(), (means + 9 * sds).max(), points)
    laws = np.array(
        [
            sum(
                w * np.exp(-0.5 * ((grid - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
                for w, m, s in zip(*row, strict=True)
            )
            for row in zip(weights, means, sds, strict=True)
        ]
    )
    masses, total = weights.sum(axis=1, keepdims=True), laws.sum(axis=0)
    ratio = np.where(
        laws > 1e-290, np.log(np.maximum(laws, 1e-290) / (masses * np.maximum(total, 1e-290))), 0
    )
    return float((laws * ratio).sum() * (grid[1] - grid[0]))


@pytest.mark.parametrize(("count", "method"), [(2, "quadrature"), (40, "estimate")])
def test_the_stronger_method_is_the_integral_for_few_and_for_many_components(float64, count, method):
    numbers = np.random.default_rng(0)
    weights = numbers.dirichlet(np.ones(3 * count)).reshape(3, count)
    means, sds = numbers.normal(size=(3, count)), numbers.uniform(0.3, 0.8, (3, count))
    parts = Gaussian(jnp.asarray(means)[..., None], jnp.asarray(sds)[..., None, None])
    found = stronger(grouped(jnp.log(jnp.asarray(weights)), parts))
    assert found is not None and found[2] == method
    slack = found[1] if method == "quadrature" else 5 * found[1]
    assert abs(found[0] - by_grid(weights, means, sds)) <= slack + 1e-9 and found[1] < 1e-3


def test_excluded_secrets_tell_nothing_and_releases_without_density_are_left_alone(float64):
    log_weights = jnp.log(jnp.asarray([[0.4], [0.6], [1.0]])).at[2].set(LOG_ZERO)
    parts = Gaussian(jnp.asarray([[[0.0]], [[1.0]], [[50.0]]]), jnp.full((3, 1, 1, 1), 0.7))
    found = stronger(grouped(log_weights, parts))
    ones = np.array([[0.4], [0.6]])
    truth = by_grid(ones, np.array([[0.0], [1.0]]), np.full((2, 1), 0.7))
    assert found is not None and found[0] == pytest.approx(truth, abs=1e-9)
    assert stronger(grouped(log_weights, Gaussian(parts.mean, 0.0 * parts.scale))) is None
    deep = Gaussian(jnp.zeros((3, 1, 3)).at[1, 0, 2].set(2.0), jnp.broadcast_to(jnp.eye(3), (3, 1, 3, 3)))
    found = stronger(grouped(log_weights, deep))  # three axes, of which one tells
    truth = by_grid(ones, np.array([[0.0], [2.0]]), np.ones((2, 1)))
    assert found is not None and found[2] == "estimate" and abs(found[0] - truth) <= 5 * found[1]


def test_two_axes_are_one_where_only_one_tells(float64):
    """Means L(m, 0) and covariance LLᵀ: in the coordinates L⁻¹y the second axis is noise for every secret."""
    lower = jnp.asarray([[0.6, 0.0], [0.9, 0.2]])
    means = jnp.asarray([[-0.5, 0.0], [0.1, 0.0], [1.2, 0.0]])
    parts = Gaussian((means @ lower.T)[:, None], jnp.broadcast_to(lower, (3, 1, 2, 2)))
    masses = np.array([[0.2], [0.5], [0.3]])
    mixture = grouped(jnp.log(jnp.asarray(masses)), parts)
    found = stronger(mixture)
    truth = by_grid(masses, np.asarray(means)[:, :1], np.ones((3, 1)))
    assert found is not None and found[2] == "quadrature" and abs(found[0] - truth) <= found[1] + 1e-9
    for decision in ("released", "blurred"):
        one = _charged({"step": 3, "charge": 0.4, "decision": decision}, mixture)
        assert one == RecomputedCharges(3, 0.4, *found)
        assert _charged({"step": 3, "charge": 0.4, "decision": decision}, None).method == "live"
    assert _charged({"step": 3, "charge": 0.0, "decision": "blind"}, mixture).value == 0.0


def test_a_charge_is_short_only_beyond_the_error_of_the_value():
    assert RecomputedCharges(1, 0.2, 0.2 + 2e-6, 1e-6, "quadrature").short == pytest.approx(1e-6, rel=0.01)
    assert RecomputedCharges(1, 0.2, 0.2 + 0.5e-6, 1e-6, "quadrature").short < 0.0
    assert RecomputedCharges(1, 0.2, 0.204, 1e-3, "estimate").short == pytest.approx(-1e-3, rel=0.01)
    assert RecomputedCharges(1, 0.2, 0.206, 1e-3, "estimate").short == pytest.approx(1e-3, rel=0.01)
    rows = [RecomputedCharges(n, 0.2, 0.1 * n, 3e-3 + n * 1e-3, "estimate") for n in (0, 1)]
    rows.append(RecomputedCharges(3, 0.2, 0.5, 1e-4, "quadrature"))
    assert totals(rows) == (pytest.approx(0.6), pytest.approx(math.hypot(3e-3, 4e-3) + 1e-4))


def places(marks):
    """Where the marks of a row stand."""
    assert isinstance(marks, LineCollection)
    return [float(segment[0][0]) for segment in marks.get_segments()]


def test_the_picture_shows_the_sums_the_budget_and_every_decision(noisy, tmp_path):
    account = read_account(noisy)
    upper, lower = ledger_chart.picture(account, again=[0.5 * x for x in account.charges]).axes
    charged, again, budget = upper.lines
    start, sums = account.start, np.cumsum([0.0, *account.charges])
    assert np.allclose(charged.get_ydata(), start + sums)
    assert np.allclose(again.get_ydata(), start + 0.5 * sums)
    assert np.allclose(budget.get_ydata(), BUDGET)
    marks = {}
    for label, row in zip(lower.get_yticklabels(), lower.collections, strict=True):
        marks[label.get_text()] = places(row)
    wanted = {}
    for name, (count, _) in account.counts().items():
        wanted[f"{name} ({count})"] = 1 + np.flatnonzero(account.decisions == DECISIONS.index(name))
    assert marks.keys() == wanted.keys()
    assert all(np.allclose(marks[name], wanted[name]) for name in wanted)
    empty = ledger_chart.draw(read_account(made(tmp_path / "ledger", [])), tmp_path / "empty.png")
    assert empty.read_bytes().startswith(b"\x89PNG")


def test_a_long_stream_stays_a_small_picture_with_its_rare_marks(tmp_path):
    path = made(tmp_path / "ledger", [1e-5] * 4000)
    entries = lines_of(path)
    entries[2718]["decision"] = "fault"
    account = read_account(rewritten(path, entries))
    released, fault = ledger_chart.picture(account).axes[1].collections
    assert 1000 < len(places(released)) <= ledger_chart.COLUMNS
    assert [abs(place - 2718) < 3 for place in places(fault)] == [True]

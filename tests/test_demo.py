"""`veil demo` from end to end: its stages in turn, each done once, and a result of what was measured."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.command_lines import quick, veil
from tests.reports.made_folders import SCORE, Noisy, certified, leaking
from veil.cli import report
from veil.cli.demo_stream import Vehicle, row, table, view
from veil.evaluation import audit as engine
from veil.io import load_arrays
from veil.learners import run as runs
from veil.learners import training
from veil.learners.run import METRICS, Ready
from veil.learners.training import Trained
from veil.policies import Truth
from veil.sharing.account import read_account
from veil.sharing.ledger import Receipt, Release
from veil.systems import Gain, Platoon
from veil.types import as_float32

LOADED = runs.load_policy


def untrained(system):
    return Noisy(system, jnp.array([0.3, 0.5], jnp.float32))


def fit(settings, system, folder, report, loggers):
    """A training that changes nothing."""
    with jax.enable_x64(False):
        lines = [{"update": 0.0, "seconds": 1.0} | SCORE.metrics()]
        (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        report(lines[0])
        return Trained(untrained(as_float32(system)), SCORE, 2, 0, "all updates made")


def loaded(folder, system):
    """True data as they are; what was trained from its file."""
    if isinstance(runs.Run.load(folder).settings, Ready):
        return LOADED(folder, system)
    return load_arrays(folder / runs.POLICY, untrained(system))


def audited(system, policy, extent, **_):
    """Audits made by hand: a leak of true data, a bound for the other."""
    return leaking() if isinstance(policy, Truth) else certified()


def never(*_, **__):
    raise AssertionError("this was done before")


def stopped(system, policy, extent, **_):
    if isinstance(policy, Truth):
        return leaking()
    raise KeyboardInterrupt


@pytest.fixture(scope="module", autouse=True)
def stages():
    """Training and auditing are stood in for; the stream and the report are real."""
    with quick(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_run", fit)
        patch.setattr(runs, "load_policy", loaded)
        patch.setattr(engine, "audit", audited)
        patch.setattr(report, "built", lambda name: None)
        yield


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A demo that was interrupted in its second audit, and gone on with."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "audit", stopped)
        first = veil("demo", "--fast", "--out", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_run", never)
        second = veil("demo", "--fast", "--out", folder)
    return folder, first, second


def test_an_interrupted_demo_keeps_what_is_done_and_goes_on(shown):
    folder, (code, out, err), (again, _, _) = shown
    assert (code, out) == (130, "") and f"kept in {folder}; the same command goes on" in err
    assert again == 0


def test_five_lines_of_result_and_a_path(shown):
    folder, _, (_, out, _) = shown
    lines = [line for line in out.splitlines() if line]
    assert len(lines) == 6 and lines[-1].endswith(str(folder / "report.html"))
    least = leaking().interval[0]
    assert f"learns at least {np.floor(1e3 * least) / 1e3:.3f} of 1.386 nats" in lines[0]
    worst = certified().worst_scenario
    assert worst is not None
    floor = np.floor(1e3 * worst.low) / 1e3
    assert (
        f"as modelled, and at least {floor:.3f} in the worst of 2 other worlds (secrets between)" in lines[1]
    )
    low, high = certified().interval
    assert f"learns {np.floor(1e3 * low) / 1e3:.3f} to {np.ceil(1e3 * high) / 1e3:.3f} of 1.386" in lines[1]
    best = max(row.accuracy.value for row in certified().attacks if row.role == "attack")
    assert f"names the right driver {100 * best:.0f} % of the time (25 % by chance)" in lines[1]
    assert "0.21 m/s in speed and 0.34 m in spacing (mean distortion 0.61)" in lines[2]
    assert "+1.30 % ± 0.20" in lines[3]
    account = read_account(folder / "learned" / "share" / "ledger.jsonl")
    assert len(account) == 5 and 1e-3 < account.total <= 0.1
    spent = np.ceil(1e3 * account.total - 1e-7) / 1e3
    assert f"5 releases, {spent:.3f} nats charged of a budget of 0.1." in lines[4]


def test_the_report_has_both_side_by_side(shown):
    folder = shown[0]
    content = json.loads((folder / "report.json").read_text())
    assert [(run["name"], run["verdict"]) for run in content["runs"]] == [
        ("true data", "certified_leak"),
        ("learned", "certifiable"),
    ]
    assert "What shared platoon data tell about the driver" in (folder / "report.html").read_text()


def test_a_second_time_nothing_is_done_again(shown, monkeypatch):
    folder = shown[0]
    ledger = folder / "learned" / "share" / "ledger.jsonl"
    before = ledger.read_bytes()
    monkeypatch.setattr(training, "train_run", never)
    monkeypatch.setattr(engine, "audit", never)
    code, out, _ = veil("demo", "--fast", "--out", folder)
    assert code == 0 and ledger.read_bytes() == before and "True data" in out


def test_a_folder_of_something_else_is_left_alone(shown):
    folder = shown[0]
    before = (folder / "learned" / runs.RUN).read_bytes()
    code, _, err = veil("demo", "--out", folder)  # the full demo where the fast one was
    assert code == 2 and "holds something else than this demo. Give another --out." in err
    assert (folder / "learned" / runs.RUN).read_bytes() == before


def test_the_simulated_owner_follows_its_system():
    """Against the scalar loop x' = θ x + w + 0.3 ε, w' = −0.2 y + 0.5 ε, with the same random numbers."""
    with jax.enable_x64(True):
        vehicle, numbers = Vehicle(Gain(), 2, seed=4), np.random.default_rng(4)
    level, push = numbers.standard_normal(), 0.0
    for shared in (np.array([0.7]), None, np.array([-1.1])):
        assert vehicle.state == pytest.approx([level]) and vehicle.external == pytest.approx([push])
        vehicle.go_on(shared)
        own, others = numbers.standard_normal(2)
        answer = 0.0 if shared is None else -0.2 * shared[0]
        level, push = 0.9 * level + push + 0.3 * own, answer + 0.5 * others


def release(step, shared):
    return Release(shared, Receipt(step, "released", 0.001, 0.0123, 0.08, None, 1.0))


def test_the_stream_is_shown_beside_the_truth(capsys, monkeypatch):
    fields, true = Platoon().shared_fields, np.array([15.126, 20.0])
    with view(fields) as tell:
        for step in range(1, 21):
            tell(true, release(step, np.array([14.9, 20.5])))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 10", "step 20"]
    assert "speed 15.13 shared as 14.90 m/s, spacing 20.00 shared as 20.50 m" in lines[0]
    assert row(true, release(3, None)) == ("3", "15.13", "nan", "20.00", "nan", "released", "0.0123")
    rows = [row(true, release(step, true)) for step in range(1, 41)]
    assert table(fields, rows).row_count == 12
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with view(fields) as tell:
        tell(true, release(7, np.array([14.9, 20.5])))
    assert "14.90" in capsys.readouterr().err

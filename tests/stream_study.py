"""Long runs on the live stream: fuzzed lines, one account in many processes, the alarm.

`python -m tests.stream_study fuzz|account|streams|alarm|all --out FILE` adds its numbers to a JSON file;
`tests/stream_study.json` has those that the documentation cites.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from tests.sharing.charging import charge_until_empty
from tests.sharing.fuzz_lines import File, NoRanges, Source, fuzzed_lines
from tests.sharing.streams import Plant, noise_policy, run
from veil.policies import GaussianNoise
from veil.sharing import Sharer
from veil.sharing.account import Accountant
from veil.sharing.alarm import LEVEL, Bets, alarm_charge, no_bets, surprise
from veil.sharing.secret_account import SecretAccount
from veil.sharing.stream import serve
from veil.systems import Gain, Platoon, System
from veil.types import as_float64

BUDGET = 0.5


def fuzz(count: int = 20_000) -> dict[str, Any]:
    """Every line has one line out, nothing is raised, memory is flat: on three systems."""
    found = {}
    for name, system, sd in (
        ("gain", Gain(), (0.3,)),
        ("platoon", Platoon(), (0.25, 0.43)),
        ("no ranges", NoRanges(), (0.3, 0.3)),
    ):
        with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder:
            policy = GaussianNoise(as_float64(system), jnp.asarray(sd))
            files: dict[str, Any] = {"ledger": Path(folder) / "ledger", "account": Path(folder) / "account"}
            with Sharer(policy, 1, on_alarm="warn", **files, resolution=0.0) as sharer:
                lines = list(fuzzed_lines(system, count, lambda: sharer.next_step))
                began, before, answers = time.monotonic(), 0, 0
                for start in range(0, count, 500):
                    source, sink = Source(lines[start : start + 500]), File()
                    serve(sharer, source, sink, lambda text: None)
                    made = sink.getvalue().splitlines()
                    assert len(made) == len(lines[start : start + 500]), "a line without an answer"
                    assert all(set(json.loads(line)) >= {"step", "shared"} for line in made)
                    answers += len(made)
                    before = before or _resident() * (start >= 2000)
                grown, steps = _resident() - before, len(sharer.ledger)
            with Sharer(policy, 1, on_alarm="warn", **files, resolution=0.0) as again:
                assert again.next_step == steps + 1  # it goes on after all that
        found[name] = {
            "lines": count,
            "answers": answers,
            "steps": steps,
            "megabytes_grown": round(grown, 2),
            "seconds": round(time.monotonic() - began, 1),
        }
    return found


def _resident() -> float:
    """Megabytes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def account(runs: int = 10_000, folder: Path | None = None) -> dict[str, Any]:
    """The account alone: processes that charge at random and are killed at random, run after run."""
    chance, overspent, slowest, killed = np.random.default_rng(0), 0, 0.0, 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sharing.charging"])
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number in range(runs):
            path = Path(place) / f"{number % 8}.account"
            if number % 8 == 0:
                for old in Path(place).iterdir():
                    old.unlink()
            began = time.monotonic()
            workers = [context.Process(target=charge_until_empty, args=(path, number, k)) for k in range(2)]
            for one in workers:
                one.start()
            victim = workers[int(chance.integers(2))]
            time.sleep(float(chance.uniform(0.0, 0.04)))
            if victim.is_alive():
                victim.kill()
                killed += 1
            for one in workers:
                one.join(60)
                assert one.exitcode in (0, -signal.SIGKILL), f"run {number}: ended with {one.exitcode}"
            slowest = max(slowest, time.monotonic() - began)
            with_all = SecretAccount(path, np.array([0.6]))
            total = with_all.spent_elsewhere()
            with_all.close()
            overspent += total > 1.0 + 1e-9
    assert not overspent
    return {"runs": runs, "killed": killed, "overspent": overspent, "slowest_seconds": round(slowest, 2)}


def streams(runs: int = 200) -> dict[str, Any]:
    """Two processes with two streams each of one secret and one budget, killed at random, then looked at."""
    chance, killed, totals = np.random.default_rng(1), 0, []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sharing.streams", "veil.sharing.stream"])
    with tempfile.TemporaryDirectory() as place:
        for number in range(runs):
            folder = Path(place) / str(number)
            folder.mkdir()
            for _ in range(2):  # killed, and started again
                workers = [context.Process(target=share_two, args=(folder, number, k)) for k in range(2)]
                for one in workers:
                    one.start()
                time.sleep(float(chance.uniform(0.3, 3.0)))
                victim = workers[int(chance.integers(2))]
                if victim.is_alive():
                    victim.kill()
                    killed += 1
                for one in workers:
                    one.join(300)
                    assert one.exitcode in (0, -signal.SIGKILL), f"run {number}: ended with {one.exitcode}"
            totals.append(_total(folder))
            assert totals[-1] <= BUDGET * (1 + 1e-9), f"run {number} spent {totals[-1]}"
    return {
        "runs": runs,
        "killed": killed,
        "budget": BUDGET,
        "largest_total": float(np.max(totals)),
        "mean_total": float(np.mean(totals)),
    }


def share_two(folder: Path, number: int, worker: int) -> None:
    """Two streams in turn, at most 40 steps each."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.parent / "cache")
    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        policy = noise_policy()
        options: dict[str, Any] = {
            "budget": BUDGET,
            "account": folder / "account",
            "on_alarm": "warn",  # or a stream could not begin once the others have spent all
        }
        names = [folder / f"{worker}-{k}.jsonl" for k in range(2)]
        with (
            Sharer(policy, 1, ledger=names[0], **options, resolution=0.0) as one,
            Sharer(policy, 1, ledger=names[1], **options, resolution=0.0) as other,
        ):
            plants = [Plant(1000 * number + 2 * worker + k) for k in range(2)]
            while one.next_step <= 40:
                run(one, plants[0], 1)
                run(other, plants[1], 1)
    except BaseException:
        traceback.print_exc()
        os._exit(3)
    os._exit(0)


def _total(folder: Path) -> float:
    """Nats of all ledgers together, from their lines alone."""
    total = 0.0
    for path in folder.glob("*.jsonl"):
        first, *lines = path.read_bytes().rstrip(b"\0").split(b"\n")[:-1]
        charges = [json.loads(line)["charge"] for line in lines]
        total += Accountant(spent=[json.loads(first)["about"]["alarm"]["charge"], *charges]).total()
    return total


def alarm(count: int = 10_000, steps: int = 1_000) -> dict[str, Any]:
    """False alarms of many streams, and how long a change of the parameters goes unnoticed."""
    found: dict[str, Any] = {"level": LEVEL, "charge": alarm_charge(LEVEL), "streams": count, "steps": steps}
    for name, system, sd in (("gain", Gain(), (0.3,)), ("platoon", Platoon(), (0.25, 0.43))):
        with jax.enable_x64(True):
            system = as_float64(system)
            largest = _wealth(system, sd, count, steps, 1.0, 0).max(axis=0)
            false = {
                f"{level:g}": int(np.sum(largest >= -math.log(level))) for level in (0.1, 0.01, 1e-3, LEVEL)
            }
            delays = {}
            for factor in (0.5, 0.8, 1.2, 1.5):
                for change in (0, 300):
                    path = _wealth(system, sd, max(200, count // 10), steps, factor, change)
                    noticed = path >= -math.log(LEVEL)
                    first = np.where(noticed.any(axis=0), noticed.argmax(axis=0) - change + 1, steps)
                    delays[f"x{factor:g} from step {change + 1}"] = {
                        "median": float(np.median(first)),
                        "p90": float(np.quantile(first, 0.9)),
                        "noticed": float(np.mean(noticed.any(axis=0))),
                    }
        found[name] = {"false_alarms": false, "delays": delays}
    return found


def _wealth(
    system: System, sd: tuple[float, ...], count: int, steps: int, factor: float, change: int
) -> np.ndarray:
    """Log wealth (steps, count) of streams whose parameters are scaled after step `change`."""
    step = _mover(system, jnp.asarray(sd), factor)
    key = jr.key(int(1e3 * factor) + change)
    secrets = jnp.tile(system.prior.secrets, (count // len(system.prior.secrets) + 1, 1))[:count]
    laws = jax.vmap(system.initial)(secrets)
    states = laws.mean + jr.normal(key, laws.mean.shape, laws.mean.dtype) @ laws.scale[0].T
    external = jnp.tile(system.initial_external(), (count, 1))
    bets, found = no_bets(states.shape[1]), np.zeros((steps, count))
    bets = Bets(bets.log_stakes, np.full(states.shape, np.nan))
    for t in range(steps):
        changed = jnp.asarray(t >= change)
        states, external, rows = step(secrets, states, external, changed, jr.fold_in(key, t))
        bets = bets.after(np.asarray(rows))
        found[t] = bets.log_wealth
    return found


def _mover(system: System, sd: jax.Array, factor: float) -> Callable[..., Any]:
    def one(secret, state, external, changed, key):
        move, noise, reply = jr.split(key, 3)
        true = jnp.where(changed, factor, 1.0) * secret
        law = system.transition(true, state, external)
        after = law.sample(jr.normal(move, (law.noise_size,), state.dtype))
        shared = system.output(state) + sd * jr.normal(noise, sd.shape, state.dtype)
        drawn = jr.normal(reply, (system.reaction_noise_size,), state.dtype)
        found = surprise(system, secret, state, external, after, cell=jnp.zeros(0), key=reply)
        rows = found.rows
        return after, system.react(external, shared, drawn), rows

    def all_of_them(secrets, states, external, changed, key):
        keys = jr.split(key, states.shape[0])
        return jax.vmap(one, (0, 0, 0, None, 0))(secrets, states, external, changed, keys)

    return jax.jit(all_of_them)


STUDIES = {"fuzz": fuzz, "account": account, "streams": streams, "alarm": alarm}


def main() -> None:
    """Run some or all of them and add their numbers to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=[*STUDIES, "all"])
    parser.add_argument("--out", type=Path, default=Path("tests/stream_study.json"))
    parser.add_argument("--count", type=int, default=0, help="lines, runs or streams; 0 for the usual number")
    given = parser.parse_args()
    for name in STUDIES if given.study == "all" else [given.study]:
        began = time.monotonic()
        made = STUDIES[name](given.count) if given.count else STUDIES[name]()
        kept = json.loads(given.out.read_text()) if given.out.exists() else {}
        given.out.write_text(json.dumps(kept | {name: made}, indent=2, sort_keys=True) + "\n")
        print(f"{name}: {json.dumps(made)} {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

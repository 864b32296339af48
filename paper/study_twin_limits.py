"""What a twin leaks where its conditions are strained: many runs, wrong models, drift, manoeuvres, rounding.

Four drivers; 25 steps of pre-roll, then 50 releases unless said otherwise; leakage by the exact reader, who
knows the plant, every self-model and the noise. A *guard* bets on the noise and the inputs, a *novelty test*
reads the inputs alone; from the step at which one of them acts releases are blind, so that what leaks in all
is what leaked until then. Goes on where it was.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array, Float

from paper.study_twin import PREROLL, STEPS, fitted, history_of, worlds
from veil.attacks.twin_reader import TwinReader
from veil.beliefs.self_model import SelfModel
from veil.evaluation.episodes import play_episodes, private_key, select_episodes
from veil.evaluation.scoring import APART, TwoSidedBound, score
from veil.policies import Twin
from veil.policies.base import sensed
from veil.policies.novelty import standard_envelope
from veil.policies.twin import learning_model, read_coordinates
from veil.sharing.alarm import TWIN_LEVEL, no_bets, twin_surprise
from veil.stats import stratified_mean
from veil.step import Record, begin, proceed, share
from veil.systems import IdmPlatoon, Platoon, System, with_resolution
from veil.systems.base import Scenario
from veil.systems.scenarios import nominal
from veil.systems.variants import Variant
from veil.types import Answer, External, Noise, Secret, Shared, State, as_float64

BATCH = 256  # episodes at a time

RUNS = 20  # by one fit

WARM = 200  # steps of private warm-up of owners who learn along the stream

HALF = 20  # steps between the reversals of a manoeuvre: 4 s


class Strained(Variant):
    """A plant whose leader moves up and down, and whose secret drifts, both from a step on.

    Attributes:
        inner: the platoon.
        amplitude: of the leader's moves, m/s.
        drift: of the secret until the end of the run, relative.
        first: step at which both begin.
        last: step at which the drift is complete.
    """

    inner: System
    amplitude: Float[Array, ""]
    drift: Float[Array, ""]
    first: int = eqx.field(static=True)
    last: int = eqx.field(static=True)

    @property
    def timed(self) -> bool:
        """The plant needs the number of the step, and puts it into w."""
        return True

    def __init__(self, inner: System, amplitude: float, drift: float, first: int, last: int = 0):
        self.inner, self.first, self.last = inner, first, last or first + STEPS
        self.amplitude, self.drift = jnp.asarray(amplitude), jnp.asarray(drift)

    @property
    def prior(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret):
        """As in the inner system."""
        return self.inner.initial(secret)

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The inner answer; the leader's speed is moved."""
        answer = self.inner.react(external[:3], shared, noise)
        after = external[3] + 1.0 - self.first
        way = jnp.where(jnp.floor(after / HALF) % 2 == 0, 1.0, -1.0)
        return answer.at[0].add(jnp.where(after >= 0, self.amplitude * way, 0.0))

    def transition(self, secret: Secret, state: State, external: External):
        """The inner law at the secret as it is by now."""
        gone = jnp.clip((external[3] - self.first) / (self.last - self.first), 0.0, 1.0)
        return self.inner.transition(secret * (1.0 + self.drift * gone), state, external[:3])


@eqx.filter_jit
def read_batch(reader: TwinReader, records: Record, numbers: Array, lengths: Array, key: Array):
    """The exact reader on a batch of episodes, each up to its own length."""

    def one(both):
        record, number, length = both
        own = private_key(key, number)
        return reader(record, length, APART, play_key=own, key=jr.fold_in(jr.key(99), number))

    return jax.lax.map(one, (records, numbers, lengths), batch_size=8)


@eqx.filter_jit
def evidence_batch(reader: TwinReader, records: Record, numbers: Array, key: Array) -> Array:
    """What the guard reads at every step, by playing the episodes again."""
    twin, plant = reader.twin, reader.plant

    def one(both):
        record, number = both
        _, start_key, run_key = jr.split(private_key(key, number), 3)
        believed = reader.believed[record.index]
        first = begin(plant, reader.policy, record.secret, key=start_key, believed=believed)

        def step(carry, step_key):
            belief, situation = carry
            draw_key, world_key = jr.split(step_key)
            seed = record.public.public_seed
            after, stage = share(reader.policy, belief, situation, seed=seed, key=draw_key)
            following = proceed(plant, reader.policy, situation, stage, key=world_key)
            rows = twin_surprise(twin, situation.memory, following.memory, situation.external)
            return (after, following), rows

        start = reader.policy.start(key=jr.key(0)), first
        keys = jr.split(run_key, record.public.shared.shape[0])
        return jax.lax.scan(step, start, keys)[1]

    return jax.lax.map(one, (records, numbers), batch_size=8)


def parts_of(count: int) -> list[np.ndarray]:
    """Rows of episodes, a batch each."""
    return np.array_split(np.arange(count), max(1, count // BATCH))


def read_all(
    reader: TwinReader, records: Record, numbers: np.ndarray, lengths: np.ndarray, key: Array
) -> Any:
    """The exact reader on all episodes.

    Args:
        reader: knows the plant and the self-models.
        records: the episodes.
        numbers: of them.
        lengths: releases that count.
        key: they were played with.
    """
    found = [
        jax.tree.map(
            np.asarray,
            read_batch(
                reader,
                select_episodes(records, rows),
                jnp.asarray(numbers[rows], jnp.int32),
                jnp.asarray(lengths[rows], jnp.int32),
                key,
            ),
        )
        for rows in parts_of(len(numbers))
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


def guard_steps(reader: TwinReader, records: Record, numbers: np.ndarray, key: Array) -> np.ndarray:
    """The step at which the guard acts in each episode: so many releases follow the owner.

    Args:
        reader: knows plant and policy.
        records: the episodes.
        numbers: of them.
        key: they were played with.
    """
    steps = records.public.shared.shape[1]
    found = []
    for rows in parts_of(len(numbers)):
        own = select_episodes(records, rows), jnp.asarray(numbers[rows], jnp.int32)
        evidence = np.asarray(evidence_batch(reader, *own, key))
        bets, first = no_bets(evidence.shape[-1]), np.full(len(rows), steps)
        for step in range(PREROLL, steps - 1):  # evidence of step t is about the reading of step t + 1
            bets = bets.after(evidence[:, step])
            acted = (bets.log_wealth >= -np.log(TWIN_LEVEL)) & (first == steps)
            first[acted] = step + 2
        found.append(first)
    return np.concatenate(found)


def novel_steps(records: Record) -> np.ndarray:
    """The number of releases that follow the owner before the first quiet one, by the inputs alone."""
    twin = Twin(as_float64(Platoon()), envelope=standard_envelope(as_float64(Platoon())))
    quiet = np.array(eqx.filter_jit(jax.vmap(twin.quiet_steps))(records.public.external[..., :3]))
    quiet[:, :PREROLL] = False
    steps = quiet.shape[1]
    return np.where(quiet.any(axis=1), quiet.argmax(axis=1), steps)


def leakage_of(runs: np.ndarray, pinned: np.ndarray, index: np.ndarray) -> list[float]:
    """Both sides and the standard error of the upper one.

    Args:
        runs: [E, R, K] log-likelihoods.
        pinned: [E] those of the true owner along its true start.
        index: [E] the owner.
    """
    count, episodes = runs.shape[-1], len(index)
    rest = np.ones(episodes), np.full((episodes, 1), 0.5)
    sides = TwoSidedBound(*(jnp.asarray(one) for one in (runs, pinned, *rest)))
    found = score(sides, index, np.full(count, -np.log(count))).leakage
    return [found.lower.value, found.upper.value, found.upper.error]


def together(found: Any, index: np.ndarray, count: int, draws: int, fits: np.ndarray) -> list[float]:
    """Leakage of several runs of one owner: their log-likelihoods add up.

    Args:
        found: by the exact reader, one run per episode.
        index: owner of each episode.
        count: runs that belong together.
        draws: how often episodes are put together anew, for a smaller error.
        fits: [E] which fit each was made with; runs are taken in turn from these.
    """
    rng, runs, pinned, owner = np.random.default_rng(0), [], [], []
    for _ in range(draws):
        for k in range(found.runs.shape[-1]):
            pools = [rng.permutation(np.flatnonzero((index == k) & (fits == f))) for f in np.unique(fits)]
            each = count // len(pools)
            for group in range(min(len(pool) for pool in pools) // each):
                rows = np.concatenate([pool[group * each : (group + 1) * each] for pool in pools])
                runs.append(found.runs[rows].sum(axis=0))
                pinned.append(found.pinned[rows].sum())
                owner.append(k)
    order = np.argsort(np.asarray(owner), kind="stable")  # halves of a repair are rounds of owners
    order = order.reshape(found.runs.shape[-1], -1).T.ravel()
    lower, upper, error = leakage_of(
        np.asarray(runs)[order], np.asarray(pinned)[order], np.asarray(owner)[order]
    )
    return [lower, upper, error * np.sqrt(draws)]  # the same episodes again: no smaller error is claimed


def many_runs(world: str, history: int, episodes: int, *, refit: bool) -> dict[str, Any]:
    """Twenty runs by one fit, or by a new fit for each.

    Args:
        world: one of the five.
        history: private steps before each fit.
        episodes: that are read.
        refit: whether each run has a fit of its own, from a new history of the same length.
    """
    plant, model = as_float64(worlds()[world])
    owners, standard, key = plant.prior.secrets, as_float64(Platoon()), jr.key(0)
    count = RUNS if refit else 1
    found, indices, fits, excess, numbers_of = [], [], [], [], []
    for place in range(count):
        made = [fitted(plant, model, k, history, 10_000 * place + k) for k in range(len(owners))]
        numbers_of.append(max(number for _, number in made))
        twin = Twin(standard, [one for one, _ in made], owners, preroll=PREROLL)
        numbers = np.arange(episodes // count) + place * (episodes // count)
        records = play_episodes(Scenario(world, plant, owners), twin, PREROLL + STEPS, numbers, key=key)
        lengths = np.full(len(numbers), PREROLL + STEPS)
        found.append(read_all(TwinReader(plant, twin, owners), records, numbers, lengths, key))
        indices.append(np.asarray(records.index))
        fits.append(np.full(len(numbers), place))
        excess.append(found[-1].excess)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)
    index, fit, masses = np.concatenate(indices), np.concatenate(fits), np.full(len(owners), 0.25)
    mean = stratified_mean(np.concatenate(excess), index, masses)
    return {
        "numbers": max(numbers_of),
        "one": leakage_of(whole.runs, whole.pinned, index),
        "twenty": together(whole, index, RUNS, 8, fit),
        "bound": [RUNS * mean.value, RUNS * mean.error],
        "law": 0.5 * max(numbers_of) * RUNS * STEPS / history,
        "episodes": episodes,
    }


def stopped(
    plant: System, models: Sequence[SelfModel] | None, believed: Array, episodes: int, steps: int
) -> dict[str, Any]:
    """What leaks in all, until the guard acts, and until the novelty test acts.

    Args:
        plant: the true one.
        models: of the owners; None for the standard system at what they believe.
        believed: their secrets, in the terms of the standard system.
        episodes: that are read.
        steps: releases after the pre-roll.
    """
    standard, key, numbers = as_float64(Platoon()), jr.key(0), np.arange(episodes)
    twin = Twin(standard, models, None if models is None else believed, preroll=PREROLL, start="public")
    records = play_episodes(Scenario("strained", plant, believed), twin, PREROLL + steps, numbers, key=key)
    reader, index = TwinReader(plant, twin, believed), np.asarray(records.index)
    whole = np.full(episodes, PREROLL + steps)
    ends = {"never": whole, "guard": guard_steps(reader, records, numbers, key)}
    ends["novelty"] = novel_steps(records)
    found: dict[str, Any] = {"episodes": episodes, "steps": steps}
    known = dict[bytes, Any]()
    for name, end in ends.items():
        if end.tobytes() not in known:
            known[end.tobytes()] = read_all(reader, records, numbers, end, key)
        told = known[end.tobytes()]
        excess = stratified_mean(told.excess, index, np.full(len(believed), 1.0 / len(believed)))
        acted = end < PREROLL + steps
        found[name] = {
            "leaks": leakage_of(told.runs, told.pinned, index),
            "bound": [excess.value, excess.error],
            "acts": float(acted.mean()),
            "step": float(np.median(end[acted]) - PREROLL) if acted.any() else None,
        }
    return found


def wrong(factor: float, episodes: int, steps: int) -> dict[str, Any]:
    """Owners whose model of themselves has both gains wrong by a factor, the same for all."""
    plant = as_float64(Strained(Platoon(), 0.0, 0.0, PREROLL))
    return stopped(plant, None, factor * plant.prior.secrets, episodes, steps)


def drifting(drift: float, episodes: int) -> dict[str, Any]:
    """Owners who know themselves at the begin, and whose gains change during the run."""
    plant = as_float64(Strained(Platoon(), 0.0, drift, PREROLL))
    return stopped(plant, None, plant.prior.secrets, episodes, STEPS)


def manoeuvre(amplitude: float, known: bool, law: str, episodes: int, history: int) -> dict[str, Any]:
    """A leader that moves up and down in the run, and perhaps in the history as well; drivers are IDM.

    Args:
        amplitude: of the leader's moves, m/s.
        known: whether the history has them.
        law: "IDM", the right one, or "FVD", a wrong one.
        episodes: that are read.
        history: private steps of each driver.
    """
    right = as_float64(IdmPlatoon())
    model = right if law == "IDM" else as_float64(Platoon())
    past = as_float64(Strained(right, amplitude if known else 0.0, 0.0, 0))
    plant = as_float64(Strained(right, amplitude, 0.0, PREROLL))
    made = [fitted(past, model, k, history, k)[0] for k in range(len(right.prior.secrets))]
    return stopped(plant, made, right.prior.secrets, episodes, STEPS)


def learning(factor: float, drift: float, episodes: int) -> dict[str, Any]:
    """Owners who are wrong or drift, and who learn along the stream after a private warm-up.

    Args:
        factor: by which both gains are wrong at the begin.
        drift: of the gains during the releases, relative.
        episodes: that are read.
    """
    plant = as_float64(Strained(Platoon(), 0.0, drift, WARM))
    return told_in(plant, learners(factor * plant.prior.secrets), WARM, STEPS, episodes)


def learners(believed: Array) -> list[SelfModel]:
    """The platoon as self-models that learn, from what they take themselves for.

    Args:
        believed: gains of each.
    """
    system = as_float64(Platoon())
    return [learning_model(system, one, read_coordinates(system)) for one in believed]


def told_in(
    plant: System, models: Sequence[SelfModel], preroll: int, steps: int, episodes: int
) -> dict[str, Any]:
    """What a run tells, without guard.

    Args:
        plant: the true one.
        models: of the owners.
        preroll: steps before the first release.
        steps: releases.
        episodes: that are read.
    """
    owners, key, numbers = plant.prior.secrets, jr.key(0), np.arange(episodes)
    twin = Twin(as_float64(Platoon()), models, owners, preroll=preroll)
    records = play_episodes(Scenario("strained", plant, owners), twin, preroll + steps, numbers, key=key)
    index = np.asarray(records.index)
    told = read_all(
        TwinReader(plant, twin, owners), records, numbers, np.full(episodes, preroll + steps), key
    )
    excess = stratified_mean(told.excess, index, np.full(len(owners), 1.0 / len(owners)))
    return {
        "leaks": leakage_of(told.runs, told.pinned, index),
        "bound": [excess.value, excess.error],
        "steps": steps,
        "preroll": preroll,
        "episodes": episodes,
    }


def stream(how: str, history: int, steps: int, episodes: int) -> dict[str, Any]:
    """One long stream of the platoon after a private history, by one fit or by learning on.

    Args:
        how: "fit", which stays as it is; or "learns", from the mean of the prior on.
        history: private steps of each driver.
        steps: releases.
        episodes: that are read.
    """
    plant = as_float64(Platoon())
    owners = plant.prior.secrets
    if how == "fit":
        made = [fitted(plant, plant, k, history, k)[0] for k in range(len(owners))]
    else:
        middle = jnp.exp(plant.prior.log_masses) @ owners
        made = []
        for k, one in enumerate(learners(jnp.broadcast_to(middle, owners.shape))):
            states, external = history_of(plant, k, history, k)
            made.append(one.learn(states[:-1], external)[0])
    return told_in(plant, made, PREROLL, steps, episodes)


def rounding(step: float, episodes: int) -> dict[str, Any]:
    """Speed and spacing read in steps of so many m/s and m; the noise of a step is 0.02 m/s and 0.1 m."""
    system = as_float64(with_resolution(Platoon(), step))
    twin, key, numbers = Twin(system), jr.key(0), np.arange(episodes)
    policy = sensed(twin)
    records = play_episodes(nominal(system), policy, STEPS, numbers, key=key)
    reader = TwinReader(system, policy, system.prior.secrets)
    told = read_all(reader, records, numbers, np.full(episodes, STEPS), key)
    excess = stratified_mean(told.excess, np.asarray(records.index), np.full(4, 0.25))
    return {
        "leaks": leakage_of(told.runs, told.pinned, np.asarray(records.index)),
        "bound": [excess.value, excess.error],
        "refused live": bool(twin.too_coarse()),
        "episodes": episodes,
    }


def _nats(value: float, error: float) -> str:
    return f"{max(value, 0.0):.3f} ({error:.3f})"


def stops_table(results: dict[str, dict]) -> str:
    """The table of wrong self-models, drift and manoeuvres in docs/twin.md.

    Args:
        results: as in the file.
    """
    heads = ("what is wrong", "releases", "leaks", "excess", "guard acts", "until then")
    rows = [(*heads, "novelty test acts", "until then"), ("---",) * 8]

    def acts(one: dict) -> str:
        return "never" if not one["acts"] else f"{one['acts']:.0%}, step {one['step']:.0f}"

    for name, one in results.items():
        if "never" not in one:
            continue
        told = {end: _nats(*one[end]["leaks"][1:]) for end in ("never", "guard", "novelty")}
        first = name, str(one["steps"]), told["never"], f"{one['never']['bound'][0]:.2f}"
        rows.append((*first, acts(one["guard"]), told["guard"], acts(one["novelty"]), told["novelty"]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def runs_table(results: dict[str, dict]) -> str:
    """The table of twenty runs in docs/twin.md.

    Args:
        results: as in the file.
    """
    heads = "fits", "P", "one run leaks", "twenty runs leak", "excess of twenty", "20·(P/2)·T/n"
    rows = [heads, ("---",) * 6]
    for name, one in results.items():
        if "twenty" in one:
            told = (_nats(*one[key][1:]) for key in ("one", "twenty"))
            rows.append((name, str(one["numbers"]), *told, _nats(*one["bound"]), f"{one['law']:.3f}"))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def rounding_table(results: dict[str, dict]) -> str:
    """The table of rounded readings in docs/twin.md.

    Args:
        results: as in the file.
    """
    rows = [("read in steps of", "leaks", "excess", "live"), ("---",) * 4]
    for name, one in results.items():
        if name.startswith("rounding"):
            step = name.removeprefix("rounding ")
            live = "refused" if one["refused live"] else "shared"
            told = (f"{max(one[key][-2], 0.0):.4f} ({one[key][-1]:.4f})" for key in ("leaks", "bound"))
            rows.append((f"{step} m/s, {step} m", *told, live))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def learning_table(results: dict[str, dict]) -> str:
    """The table of owners who learn along the stream in docs/twin.md.

    Args:
        results: as in the file.
    """
    heads = "owner", "private steps", "releases", "leaks at least", "at most", "excess"
    rows = [heads, ("---",) * 6]
    for name, one in results.items():
        if "preroll" not in one:
            continue
        lower, upper, error = one["leaks"]
        first, _, last = name.rpartition(" ")
        streams = {"stream fit": "right, by one fit", "stream learns": "right, learns on"}
        who, private = (streams[first], last) if first in streams else (name, str(one["preroll"]))
        told = f"{max(lower, 0.0):.3f}", _nats(upper, error), _nats(*one["bound"])
        rows.append((who, private, str(one["steps"]), *told))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def cells() -> dict[str, Callable[[], dict[str, Any]]]:
    """All parts of the study by name, in the order in which they run."""
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for factor in (0.8, 1.2):
        found[f"wrong {factor}"] = lambda factor=factor: wrong(factor, 1024, STEPS)
    for drift in (-0.2, 0.2):
        found[f"drift {drift}"] = lambda drift=drift: drifting(drift, 1024)
    for law in ("IDM", "FVD"):
        for amplitude in (1.0, 2.0):
            for known in (False, True):
                name = f"manoeuvre {amplitude:g} {'known' if known else 'new'} {law}"
                given = amplitude, known, law, 512, 20_000
                found[name] = lambda given=given: manoeuvre(*given)
    for step in (0.005, 0.01, 0.02, 0.05):
        found[f"rounding {step}"] = lambda step=step: rounding(step, 256)
    for world, history in (
        ("FVD, white", 5000),
        ("FVD, white", 50_000),
        ("IDM, noise law by driver", 50_000),
    ):
        name = f"runs {world} {history}"
        found[name] = lambda world=world, history=history: many_runs(world, history, 2048, refit=False)
    found["refits FVD, white 5000"] = lambda: many_runs("FVD, white", 5000, 2080, refit=True)
    for factor, drift in ((0.8, 0.0), (1.2, 0.0), (1.0, -0.2), (1.0, 0.2)):
        name = f"learns, drift {drift}" if drift else f"learns, wrong {factor}"
        found[name] = lambda factor=factor, drift=drift: learning(factor, drift, 1024)
    for how in ("fit", "learns"):
        found[f"stream {how} 500"] = lambda how=how: stream(how, 500, 1000, 256)
    found["wrong 1.2 for 300 steps"] = lambda: wrong(1.2, 256, 300)
    return found


@dataclass(frozen=True)
class Study:
    """The twin where its conditions are strained."""

    out: Path = Path("build/studies")
    """Folder for twin_limits.json"""
    only: tuple[str, ...] = ()
    """Parts to run, by the begin of their names; all by default"""

    def run(self) -> None:
        """Run what is missing, print a line per part, write the file after each."""
        path = self.out / "twin_limits.json"
        self.out.mkdir(parents=True, exist_ok=True)
        for name, compute in cells().items():
            done = json.loads(path.read_text()) if path.exists() else {}
            if name in done or (self.only and not name.startswith(self.only)):
                continue
            began = time.process_time()
            with jax.enable_x64(True):
                found = compute()
            done = json.loads(path.read_text()) if path.exists() else {}
            done[name] = found | {"seconds": time.process_time() - began}
            path.write_text(json.dumps(done, indent=1) + "\n")
            print(name, json.dumps(done[name]), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

"""What a twin leaks in five worlds that its standard system does not describe.

Four drivers per world. Each fits a model of itself to n private steps, then shares by a twin in closed loop:
a pre-roll of 25 steps, then 50 releases. The exact reader knows the plant, all four self-models and the noise
(`veil.attacks.twin_reader`); its leakage, the theorem's bound (the excess log-loss of the self-models), the
law (P/2)·T/n, and the distortion beside that of the counterfactual policy are written down. Goes on where it
was.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array, Float

import veil
from veil.attacks.rounding import fit_regressions
from veil.attacks.twin_reader import TwinReader
from veil.beliefs.self_model import SelfModel
from veil.evaluation.episodes import play_episodes, private_key, select_episodes
from veil.evaluation.scoring import APART, Forecast, TwoSidedBound, lower_bound, score
from veil.fitting.estimate import Likelihood, climb, log_scores
from veil.fitting.predictor import rows_of
from veil.laws import Gaussian
from veil.policies import Counterfactual, Policy, Truth, Twin
from veil.policies.geometry import nearest
from veil.recordings.bound import bind
from veil.results.fit import Family
from veil.stats import stratified_mean
from veil.step import Record, Transcript
from veil.systems import IdmPlatoon, Platoon, System, WithColouredNoise
from veil.systems.base import Field, Prior, Scenario, finite_prior
from veil.systems.platoon import fit_gains
from veil.systems.probes import true_data_path
from veil.systems.variants import Variant, WithNoise, WithPrior
from veil.types import External, Secret, State, as_float64

STEPS, PREROLL = 50, 25

BY_DRIVER = "noise law by driver"

ORDERS = (0, 6)  # of the noise that an owner chooses from, by the information criterion

# By driver: factor on the noise of (speed, spacing), what it keeps per step, and the part that stays white.
SIZES = ((0.6, 0.8), (0.9, 1.1), (1.2, 0.9), (1.6, 1.2))
KEEPS = ((0.9, 0.0), (0.8, 0.2), (0.6, 0.3), (0.3, 0.5))
WHITES = ((0.2, 0.5), (0.3, 0.5), (0.4, 0.5), (0.5, 0.5))


class NoiseByDriver(Variant):
    """A system in which each secret has noise of its own size and colour.

    Attributes:
        inner: the system with white noise.
        size: factors on the noise, per secret of the prior and coordinate.
        keep: what the coloured part keeps per step.
        white: part of the variance that is white.
    """

    inner: System
    size: Float[Array, "K N"]
    keep: Float[Array, "K N"]
    white: Float[Array, "K N"]

    def __init__(self, inner: System, size: Sequence, keep: Sequence, white: Sequence):
        kind = inner.prior.secrets.dtype
        self.inner = inner
        self.size, self.keep, self.white = (jnp.asarray(one, kind) for one in (size, keep, white))

    @property
    def prior(self) -> Prior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in the inner system."""
        return self.inner.prior

    def of(self, secret: Secret) -> WithColouredNoise:
        """The system of one driver."""
        own = nearest(self.prior, secret)
        return WithColouredNoise(WithNoise(self.inner, self.size[own]), self.keep[own], self.white[own])

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """The inner fields and their errors."""
        return self.of(self.prior.secrets[0]).state_fields

    def initial(self, secret: Secret) -> Gaussian:
        """That of the driver."""
        return self.of(secret).initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """That of the driver."""
        return self.of(secret).transition(secret, state, external)

    def cost(self, secret, state, after, shared, external):
        """The inner cost."""
        return self.inner.cost(secret, state[:2], after[:2], shared, external)

    def distortion(self, state, shared):
        """The inner distortion."""
        return self.inner.distortion(state[:2], shared)

    def output(self, state):
        """The inner output."""
        return self.inner.output(state[:2])

    def quantities(self, states, external, shared):
        """The inner quantities."""
        return self.inner.quantities(states[:, :2], external, shared)


def worlds() -> dict[str, tuple[System, System]]:
    """The plant and the model that its owners fit to themselves, by name."""
    fvd, idm = Platoon(), IdmPlatoon()
    return {
        "FVD, white": (fvd, fvd),
        "IDM, white": (idm, idm),
        "IDM, coloured": (WithColouredNoise(idm, np.array([0.935, 0.0]), np.array([0.04, 1.0])), idm),
        f"IDM, {BY_DRIVER}": (NoiseByDriver(idm, SIZES, KEEPS, WHITES), idm),
        f"FVD, {BY_DRIVER}": (NoiseByDriver(fvd, SIZES, KEEPS, WHITES), fvd),
    }


def standards(world: str) -> dict[str, System]:
    """The public standard systems that are compared in a world, by what their noise is.

    The platoon with white noise; and, where every driver has noise of his own, the platoon whose copies have
    the noise laws of the population, one each. Neither is fitted to an owner.

    Args:
        world: its name.
    """
    fvd = Platoon()
    found: dict[str, System] = {"white": fvd}
    if world.endswith(BY_DRIVER):
        found["by driver"] = NoiseByDriver(fvd, SIZES, KEEPS, WHITES)
    return found


@eqx.filter_jit
def private_path(system: System, steps: int, key: Array) -> tuple[Array, Array]:
    """States and inputs of a history in which nobody but the owner reads.

    Args:
        system: with the owner alone in its prior.
        steps: how many.
        key: of the history.
    """
    return true_data_path(system, steps, number=jnp.asarray(0), key=key)


def history_of(plant: System, owner: int, steps: int, seed: int) -> tuple[Array, Array]:
    """States and inputs of a driver's private history, in which it shares nothing but the truth, with itself.

    Args:
        plant: the true system.
        owner: which secret of the plant.
        steps: of its history.
        seed: of the history.
    """
    alone = WithPrior(plant, finite_prior(np.asarray(plant.prior.secrets)[owner][None]))
    return private_path(as_float64(alone), steps + 1, jr.key(seed))


def fitted(plant: System, model: System, owner: int, steps: int, seed: int) -> tuple[SelfModel, int]:
    """What a driver takes itself for after so many private steps, and how many numbers it estimated.

    Args:
        plant: the true system.
        model: that is fitted, with white noise and noise that remembers six steps.
        owner: which secret of the plant.
        steps: of its private history, in which it shares nothing but the truth, with itself.
        seed: of the history.
    """
    alone = WithPrior(plant, finite_prior(np.asarray(plant.prior.secrets)[owner][None]))

    states, external = (np.asarray(one) for one in private_path(as_float64(alone), steps + 1, jr.key(seed)))
    table = {"speed": states[:-1, 0], "spacing": states[:-1, 1], "time": 0.2 * np.arange(steps + 1)}
    table |= {field.name: external[:, place] for place, field in enumerate(model.external_fields)}
    likelihood = Likelihood(model, rows_of(model, bind(model, veil.read_recording(table, model))))
    used = np.asarray(likelihood.data.used)
    weights = jnp.asarray(used, float)
    best, start = (np.inf, Family(), likelihood.start()), likelihood.start()
    for order in ORDERS:
        family = Family(order)
        start, _ = climb(likelihood, start, likelihood.free(family), weights)
        lines = np.asarray(log_scores(likelihood, start)[0])[used]
        criterion = float(likelihood.free(family).sum() * np.log(used.sum()) - 2.0 * lines.sum())
        best = min(best, (criterion, family, start), key=lambda one: one[0])
    _, family, found = best
    return (
        SelfModel(
            WithNoise(model, jnp.exp(found.log_noise)),
            likelihood.secret(found),
            likelihood.data.sensor,
            found.law,
            likelihood.mean,
            likelihood.sd,
            heavy=False,
        ),
        int(likelihood.free(family).sum()),
    )


@eqx.filter_jit
def read_batch(reader: TwinReader, records: Record, numbers: Array, key: Array):
    """The exact reader on a batch of episodes."""

    def one(both):
        record, number = both
        own = private_key(key, number)
        return reader(record, PREROLL + STEPS, APART, play_key=own, key=jr.fold_in(jr.key(99), number))

    return jax.lax.map(one, (records, numbers), batch_size=8)


def in_parts(reader: TwinReader, records: Record, numbers: np.ndarray, key: Array):
    """The exact reader on all episodes."""
    found = [
        jax.tree.map(
            np.asarray,
            read_batch(reader, select_episodes(records, rows), jnp.asarray(numbers[rows], jnp.int32), key),
        )
        for rows in np.array_split(np.arange(len(numbers)), max(1, len(numbers) // 256))
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


def regression_gain(scenario: Scenario, policy: Policy, numbers: np.ndarray, key: Array, skip: int) -> float:
    """What a bank of regressions, trained on as many transcripts, learns about the driver."""

    def later(records: Record) -> Transcript:
        public = records.public
        cut = (public.external[:, skip:], public.shared[:, skip:], public.features[:, skip:])
        return Transcript(*cut, public.public_seed)

    made = [
        play_episodes(scenario, policy, skip + STEPS, rows, key=key)
        for rows in (numbers, numbers + 10 * len(numbers))
    ]
    bank = fit_regressions(later(made[0]), np.asarray(made[0].index), len(scenario.believed))

    @eqx.filter_jit
    def run(public: Transcript) -> Array:
        return jax.vmap(lambda one: bank(one, key=jr.key(0)).log_likelihood)(public)

    log_prior = np.log(np.full(len(scenario.believed), 1.0 / len(scenario.believed)))
    forecast = Forecast(np.asarray(run(later(made[1]))), np.asarray(made[1].index), log_prior)
    return lower_bound(forecast).value


def distortions(plant: System, records: Record, begin: int) -> float:
    """Mean distortion from a step on."""

    @eqx.filter_jit
    def run(states: Array, shared: Array) -> Array:
        return jax.vmap(jax.vmap(plant.distortion))(states, shared)

    return float(np.mean(run(records.states[:, begin:-1], records.public.shared[:, begin:])))


@dataclass(frozen=True)
class Result:
    """One world and length of history; nats, over all 50 releases.

    Attributes:
        world: its name.
        standard: noise of the standard system.
        history: private steps of each driver.
        parameters: that each of them estimated.
        exact: leakage by the exact reader: at least, at most, standard error.
        bound: the theorem's, and its standard error.
        law: (P/2) T/n.
        regressions: what a bank of regressions learns from the twin.
        truth: the same from true data.
        counterfactual: the same from the counterfactual policy with the drivers' least-squares model.
        distortion: mean from the first release on, and over the last half of the run.
        counterfactual_distortion: the same of the counterfactual policy.
        episodes: that were read.
        seconds: processor time.
    """

    world: str
    standard: str
    history: int
    parameters: list[int]
    exact: list[float]
    bound: list[float]
    law: float
    regressions: float
    truth: float
    counterfactual: float
    distortion: list[float]
    counterfactual_distortion: list[float]
    episodes: int
    seconds: float


def run(world: str, noise: str, history: int, episodes: int, starts: int, seed: int = 0) -> Result:
    """One world.

    Args:
        world: its name.
        noise: of the standard system.
        history: private steps of each driver.
        episodes: to be read.
        starts: that the reader simulates.
        seed: of histories and episodes.
    """
    began = time.process_time()
    plain, public = as_float64((Platoon(), standards(world)[noise]))
    plant, model = as_float64(worlds()[world])
    owners = plant.prior.secrets
    made = [fitted(plant, model, place, history, 1000 * seed + place) for place in range(len(owners))]
    twin = Twin(public, [one for one, _ in made], owners, preroll=PREROLL)
    scenario = Scenario(world, plant, owners)
    key, numbers = jr.key(seed), np.arange(episodes)
    records = play_episodes(scenario, twin, PREROLL + STEPS, numbers, key=key)
    found = in_parts(TwinReader(plant, twin, owners, starts), records, numbers, key)
    index, log_prior = np.asarray(records.index), np.log(np.full(len(owners), 1.0 / len(owners)))
    sides = TwoSidedBound(found.runs, found.pinned, jnp.ones(episodes), jnp.full((episodes, 1), 0.5))
    leakage = score(sides, index, log_prior).leakage
    excess = stratified_mean(found.excess, index, np.exp(log_prior))
    gains = jnp.asarray(fit_gains(plain, plant, key=jr.key(0)).gains, owners.dtype)
    copies = Scenario(world, plant, gains)
    other = play_episodes(copies, Counterfactual(plain), STEPS, numbers[:1024], key=key)
    some = numbers[: min(len(numbers), 2048)]
    parameters = [count for _, count in made]
    return Result(
        world,
        noise,
        history,
        parameters,
        [leakage.lower.value, leakage.upper.value, leakage.upper.error],
        [excess.value, excess.error],
        0.5 * float(np.mean(parameters)) * STEPS / history,
        regression_gain(scenario, twin, some, key, PREROLL),
        regression_gain(scenario, Truth(plain), some, key, 0),
        regression_gain(copies, Counterfactual(plain), some, key, 0),
        [distortions(plant, records, place) for place in (PREROLL, PREROLL + STEPS // 2)],
        [distortions(plant, other, place) for place in (0, STEPS // 2)],
        episodes,
        time.process_time() - began,
    )


def table(results: list[dict]) -> str:
    """The table of docs/twin.md.

    Args:
        results: as in the file.
    """
    heads = (
        *(
            "world",
            "noise of the standard",
            "n",
            "P",
            "leaks, exact reader",
            "bound",
            "(P/2)·T/n",
            "regressions",
        ),
        *("regressions on true data", "and on counterfactual"),
        *("distortion, last 25 releases", "counterfactual's"),
    )
    rows = [heads, ("---",) * len(heads)]
    for one in results:
        (_, upper, error), (bound, bound_error) = one["exact"], one["bound"]
        rows.append(
            (
                *(one["world"], one["standard"], f"{one['history']:,}", f"{max(one['parameters'])}"),
                *(f"{upper:.4f} ({error:.4f})", f"{bound:.4f} ({bound_error:.4f})", f"{one['law']:.4f}"),
                *(f"{max(one['regressions'], 0.0):.3f}", f"{one['truth']:.2f}"),
                f"{one['counterfactual']:.2f}",
                *(f"{one['distortion'][1]:.2f}", f"{one['counterfactual_distortion'][1]:.2f}"),
            )
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


@dataclass(frozen=True)
class Study:
    """The twin in five worlds."""

    out: Path = Path("build/studies")
    """Folder for twin.json"""
    episodes: int = 4096
    """Episodes per world and history"""
    histories: tuple[int, ...] = (5000, 50000)
    """Private steps of each driver"""
    starts: int = 8
    """Private starts that the reader simulates"""
    only: tuple[str, ...] = ()
    """Worlds to run; all by default"""

    def run(self) -> None:
        """Run what is missing, print a line per world, write the file after each."""
        path = self.out / "twin.json"
        self.out.mkdir(parents=True, exist_ok=True)
        done = json.loads(path.read_text()) if path.exists() else []
        have = {(one["world"], one["standard"], one["history"]) for one in done}
        asked = [(world, noise) for world in worlds() for noise in standards(world)]
        for history in self.histories:
            for world, noise in asked:
                if (self.only and world not in self.only) or (world, noise, history) in have:
                    continue
                with jax.enable_x64(True):
                    found = run(world, noise, history, self.episodes, self.starts)
                done.append(asdict(found))
                path.write_text(json.dumps(done, indent=1) + "\n")
                print(json.dumps(asdict(found)), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

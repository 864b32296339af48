"""Whose recording is this? Streams of many drivers, matched with recordings whose owners are known.

Every driver has a private history. It fits a model of itself to it, and the attacker has the same history
as a reference, by name. Then every driver shares a stream without a name: true data, noise, or a twin.

Simulated drivers (the default) are drawn from the law of 1,927 published fits and drive in closed loop. With
`--data` a folder, the study also reads `ngsim_i80_pairs_0p2s.csv`, 120 pairs of cars on a motorway: the first
half of each recording is the private history, the second half is shared, with the leader as it was. Fits are
kept under `build/`, finished parts are not computed again. docs/linkage.md shows linkage.json.
"""

import csv
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array, Float, Int

import veil
from veil.attacks.linkage import (
    Linkage,
    link,
    match,
    match_others,
    nearest_matcher,
    normalised,
    regression_features,
    trained_matcher,
)
from veil.beliefs.self_model import ResidualLaw, SelfModel
from veil.evaluation.episodes import play_episodes
from veil.fitting import self_model
from veil.fitting.estimate import Likelihood, Parameters, climb, uncertainty
from veil.fitting.fitted import fitted_system
from veil.fitting.predictor import Rows, rows_of
from veil.io import Store
from veil.policies import GaussianNoise, Policy, Truth, Twin
from veil.policies.twin import stacked_models
from veil.recordings.bound import bind
from veil.recordings.recording import Recording
from veil.results.fit import Family, Fit, Individual
from veil.systems import Driver, System, with_resolution
from veil.systems.base import Scenario, finite_prior
from veil.systems.driver import stop_and_go
from veil.systems.scenarios import true_data_path
from veil.systems.variants import WithNoise
from veil.types import as_float64

ROOT = Path(__file__).parents[1]

PAGE, PICTURE = ROOT / "paper" / "linkage.json", ROOT / "paper" / "pictures" / "linkage.png"

PREROLL, RELEASES = 25, 300  # steps of 0.2 s: a minute is shared

HEADWAY = ("stopping_spacing", "free_spacing")

COPIES = 16  # drivers of the public standard

SETS = ("gains", "headway", "noise")  # of features

DIGITS = {"speed": 0.001, "spacing": 0.01, "acceleration_error": 0.0}  # of the recorded cars

SIMULATIONS = 12  # of drivers who are exactly as their models of themselves say


class Streams(NamedTuple):
    """Recordings of many individuals, padded to one length.

    Attributes:
        shared: speed and spacing.
        external: public inputs.
        lengths: of each.
    """

    shared: Float[np.ndarray, "I T 2"]
    external: Float[np.ndarray, "I T E"]
    lengths: Int[np.ndarray, " I"]

    def one(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """What one individual shared, and the speed ahead of it."""
        length = self.lengths[place]
        return self.shared[place, :length], self.external[place, :length, :1]


def features(streams: Streams) -> dict[str, np.ndarray]:
    """Features of all streams, by set, a row per stream.

    Gains, size and colour of the noise are those of a linear one-step prediction; headway is the mean
    spacing, the mean spacing by the mean speed, and how the spacing goes with the speed.
    """
    found = defaultdict(list)
    for place in range(len(streams.lengths)):
        shared, ahead = streams.one(place)
        speed, gap = shared.T
        slope = np.cov(speed, gap)[0, 1] / max(float(np.var(speed)), 1e-6)
        rows = regression_features(shared, ahead)
        rows["headway"] = np.array([gap.mean(), gap.mean() / max(speed.mean(), 0.5), slope])
        for name in SETS:
            found[name].append(rows[name])
    return {name: np.array(rows) for name, rows in found.items()}


def inputs_features(streams: Streams) -> np.ndarray:
    """The same for what is public anyway: level, spread and changes of the speed ahead."""
    rows = []
    for place in range(len(streams.lengths)):
        ahead = streams.one(place)[1][:, 0]
        change = np.diff(ahead)
        lag = np.corrcoef(change[1:], change[:-1])[0, 1] if change.std() > 0 else 0.0
        rows.append([ahead.mean(), np.log(ahead.std() + 1e-3), np.log(change.std() + 1e-3), lag])
    return np.array(rows)


@eqx.filter_jit
def _log_likelihoods(models: SelfModel, shared: Array, external: Array, lengths: Array) -> Array:
    def of_stream(stream: tuple[Array, Array, Array]) -> Array:
        readings, inputs, length = stream

        def of_model(model: SelfModel) -> Array:
            half = jnp.full(len(model.sensor.axes), 0.5)

            def step(now, t):
                memory, total = now
                found = model.whiten(memory, inputs[t], _reading(model, readings[t + 1]), half)
                return (found.memory, total + jnp.where(t + 1 < length, found.log_density, 0.0)), None

            start = model.begin(_reading(model, readings[0])), jnp.zeros(())
            (_, total), _ = jax.lax.scan(step, start, jnp.arange(readings.shape[0] - 1))
            return total / length

        return jax.vmap(of_model)(models)

    return jax.lax.map(of_stream, (shared, external, lengths))


def _reading(model: SelfModel, shared: Array) -> Array:
    return jnp.zeros(len(model.sensor.seen)).at[jnp.asarray(model.sensor.axes)].set(shared)


def likelihoods(models: Sequence[SelfModel], streams: Streams) -> np.ndarray:
    """Mean log likelihood of a step of every stream under every individual's model of itself."""
    return np.asarray(_log_likelihoods(stacked_models(models), *(jnp.asarray(one) for one in streams)))


@eqx.filter_jit
def _open_loop(
    twin: Twin, secrets: Array, shared: Array, external: Array, key: Array, simulated: Array
) -> Array:
    size = len(twin.seen)

    def owner(given: tuple[Array, Array, Array, Array]) -> Array:
        secret, readings, inputs, own_key = given
        model = twin.self_model(secret)

        def state(reading: Array) -> Array:
            return jnp.zeros(size).at[jnp.asarray(twin.axes)].set(reading)

        def step(now, t):
            memory, last = now
            noise_key, uniform_key = jr.split(jr.fold_in(own_key, t))
            noise = jr.normal(noise_key, (len(twin.axes),))
            drawn = model.invert(twin.unpack(memory).own, inputs[t], noise)[1]
            after = jnp.where(simulated, twin.common_reading(model, drawn), state(readings[t + 1]))
            memory = twin.update_memory(memory, secret, last, inputs[t], after, key=uniform_key)
            return (memory, after), twin.release_centre(twin.unpack(memory))

        start = state(readings[0])
        first = twin.init_memory(secret, start, key=own_key), start
        return jax.lax.scan(step, first, jnp.arange(readings.shape[0] - 1))[1]

    keys = jax.vmap(lambda place: jr.fold_in(key, place))(jnp.arange(len(secrets)))
    return jax.lax.map(owner, (secrets, shared, external, keys), batch_size=20)


def open_loop(
    twin: Twin, secrets: np.ndarray, streams: Streams, seed: int = 0, *, simulated: bool = False
) -> Streams:
    """What a twin makes of recordings, from the end of its pre-roll on.

    Args:
        twin: with a self-model per individual.
        secrets: that each individual takes for its own.
        streams: true recordings.
        seed: of the private randomness.
        simulated: instead of the recorded readings, take such as the model of the individual draws. Then the
            noise is standard normal, and what is released is a function of it and of the public inputs.
    """
    made = _open_loop(
        twin,
        *(jnp.asarray(one) for one in (secrets, streams.shared, streams.external)),
        jr.key(seed),
        jnp.asarray(simulated),
    )
    return Streams(
        np.asarray(made)[:, PREROLL:], streams.external[:, 1 + PREROLL :], streams.lengths - 1 - PREROLL
    )


class World(NamedTuple):
    """What attackers know of a set of individuals, and who they are.

    Attributes:
        references: the true recordings of their histories.
        models: that they fitted to them; the attacker can do the same.
        owned: rows of the individuals that are matched; the others are for training.
        groups: of those that are matched; None for one group.
    """

    references: Streams
    models: Sequence[SelfModel]
    owned: np.ndarray
    groups: np.ndarray | None = None


def attack(world: World, streams: Streams, released: Streams) -> list[Linkage]:
    """All attackers on the streams of all individuals, in the order of the world.

    Args:
        world: what is known.
        streams: of all individuals; only those that are matched have no name.
        released: what the mechanism makes of the references.
    """
    known, made, told = (features(one) for one in (world.references, released, streams))
    own, groups = world.owned, world.groups
    owners = np.arange(len(own))
    found = []
    for title, given in (("", known), (", as released", made)):
        for names in (*((one,) for one in SETS), SETS):
            label = ("all features" if len(names) > 1 else names[0]) + title
            pair = [np.concatenate([rows[one] for one in names], axis=1)[own] for rows in (given, told)]
            found.append(match(label, nearest_matcher, *pair, owners, groups))
    scores = likelihoods([world.models[place] for place in own], _rows(streams, own))
    found.append(link("likelihood", scores, owners, groups))
    found.append(link("likelihood, normalised", normalised(scores), owners, groups))
    learned = np.concatenate([rows[one] for rows in (known, made) for one in SETS], axis=1)
    answers = np.concatenate([told[one] for one in SETS], axis=1)
    rest = np.setdiff1d(np.arange(len(learned)), own)
    if len(rest):
        matcher = trained_matcher(learned[rest], answers[rest])
        found.append(match("learned", matcher, learned[own], answers[own], owners, groups))
    else:
        found.append(match_others("learned", trained_matcher, learned, answers, owners, groups=groups))
    return found


def _rows(streams: Streams, rows: np.ndarray) -> Streams:
    return Streams(*(one[rows] for one in streams))


def by_inputs(world: World, streams: Streams) -> list[Linkage]:
    """What the public inputs alone tell."""
    own = world.owned
    pair = inputs_features(world.references)[own], inputs_features(streams)[own]
    return [match("inputs alone", nearest_matcher, *pair, np.arange(len(own)), world.groups)]


def as_dict(found: Linkage) -> dict[str, Any]:
    """One attacker in the file."""
    return {
        "attacker": found.name,
        "streams": found.streams,
        "candidates": found.candidates,
        "first": [found.first.value, found.first.error, found.chance[0]],
        "named": [found.named.value, found.named.error, found.chance[1]],
        "place": [found.place.value, found.place.error, found.chance[2]],
        "median_rank": found.median_rank,
        "information": [found.information.value, found.information.error],
        "p": list(found.p),
        "errors": found.errors,
        "places": np.round(found.places, 4).tolist(),
    }


def distances(system: System, states: np.ndarray, shared: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """Mean distortion, and mean errors of speed in m/s and of spacing in m, with errors over individuals."""

    @eqx.filter_jit
    def run(states: Array, shared: Array) -> Array:
        return jax.vmap(jax.vmap(system.distortion))(states, shared)

    both = run(jnp.asarray(states), jnp.asarray(shared))
    axes = np.abs(shared - states[..., :2])
    rows = np.concatenate([np.asarray(both)[..., None], axes], axis=2)
    each = np.array([row[:length].mean(axis=0) for row, length in zip(rows, lengths, strict=True)])
    error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
    return {
        name: [float(each[:, place].mean()), float(error[place])]
        for place, name in enumerate(("distortion", "speed", "spacing"))
    }


def noise_sd(distortion: float) -> np.ndarray:
    """Standard deviations of noise in speed and spacing with this mean distortion, equal parts of each.

    With d² = 3 Δv² + Δs² and sd (a, √3 a), d is √3 a times a Rayleigh number of mean √(π/2).
    """
    size = distortion / (np.sqrt(3.0) * np.sqrt(np.pi / 2.0))
    return np.array([size, np.sqrt(3.0) * size])


# Simulated drivers ---------------------------------------------------------------------------------------


def published() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the parameters of the published drivers, as docs/fit.md prints them."""
    law = json.loads((ROOT / "paper" / "recordings.json").read_text(encoding="utf-8"))["drivers"]
    sd = np.array(law["sd"])
    return np.array(law["mean"]), np.array(law["correlation"]) * np.outer(sd, sd)


def drawn(count: int, seed: int) -> np.ndarray:
    """Drivers from the published law, cut at the limits and where they would stop further away than go.

    Args:
        count: of drivers.
        seed: of the draws.
    """
    mean, covariance = published()
    fields, rng = Driver().secret_fields, np.random.default_rng(seed)
    low, high = np.array([one.low for one in fields]), np.array([one.high for one in fields])
    rows = rng.multivariate_normal(mean, covariance, size=8 * count)
    kept = np.all((rows > low) & (rows < high), axis=1) & (rows[:, 3] > rows[:, 2] + 1.0)
    return rows[kept][:count]


def same_headway(count: int, seed: int, each: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Drivers of whom several have one headway, and their groups.

    Args:
        count: of drivers.
        seed: of the draws.
        each: drivers with one headway.
    """
    found, groups = drawn(count, seed), np.arange(count) // each
    found[:, 2:] = drawn(-(-count // each), seed + 1)[groups][:, 2:]
    return found, groups


def self_fit(likelihood: Likelihood, mean: np.ndarray, covariance: np.ndarray) -> tuple[SelfModel, int]:
    """A driver's model of itself: most likely parameters, drawn to a law, then the size of the noise again.

    Args:
        likelihood: of its history.
        mean: of the law.
        covariance: of the law.
    """
    weights, free = jnp.asarray(likelihood.data.used, float), likelihood.free(Family())
    found, _ = climb(likelihood, likelihood.start(), free, weights)
    errors = uncertainty(likelihood, found, free, weights, profiles=False).covariance
    gain = covariance @ np.linalg.inv(covariance + errors)
    shrunk = mean + gain @ (np.asarray(likelihood.secret(found)) - mean)
    return at_secret(likelihood, found, shrunk, Family()), int(free.sum())


def at_secret(likelihood: Likelihood, found: Parameters, secret: np.ndarray, family: Family) -> SelfModel:
    """The self-model with these parameters of the system, and the most likely law of the noise.

    Args:
        likelihood: of the history.
        found: an estimate.
        secret: parameters of the system, within their limits from here on.
        family: of the law of the noise.
    """
    low, high = (
        np.array([getattr(one, end) for one in likelihood.system.secret_fields]) for end in ("low", "high")
    )
    own = (np.clip(secret, low, high) - np.asarray(likelihood.centre)) / np.asarray(likelihood.spread)
    start = eqx.tree_at(lambda one: one.secret, found, jnp.asarray(own))
    free = likelihood.free(family)
    free[: len(own)] = False
    best, _ = climb(likelihood, start, free, jnp.asarray(likelihood.data.used, float))
    system = WithNoise(likelihood.system, jnp.exp(best.log_noise))
    law, sensor = best.law, likelihood.data.sensor
    return SelfModel(
        system, likelihood.secret(best), sensor, law, likelihood.mean, likelihood.sd, heavy=family.heavy
    )


@eqx.filter_jit
def _histories(system: System, steps: int, key: Array) -> tuple[Array, Array]:
    numbers = jnp.arange(len(system.prior.secrets))
    return jax.vmap(lambda number: true_data_path(system, steps, number=number, key=key))(numbers)


class Simulated(NamedTuple):
    """Simulated drivers with their histories and self-models."""

    drivers: np.ndarray
    references: Streams
    models: Sequence[SelfModel]
    parameters: int
    standard: System
    plant: System


def simulated(drivers: np.ndarray, history: int, seed: int = 0) -> Simulated:
    """Let drivers drive for so many steps, sharing the truth with themselves, and fit their self-models.

    Args:
        drivers: their secrets.
        history: steps.
        seed: of the histories.
    """
    before, run = stop_and_go(history + 1, seed=1), stop_and_go(PREROLL + RELEASES + 1, seed=2)
    past = as_float64(Driver(prior=finite_prior(drivers), series=before))
    states, external = (np.asarray(one) for one in _histories(past, history, jr.key(seed)))
    states = states[:, :-1]
    law, models, count = published(), [], 0
    model = as_float64(Driver(prior=finite_prior(drawn(COPIES, 77)), series=before))
    for place in range(len(drivers)):
        table = {
            "speed": states[place, :, 0],
            "spacing": states[place, :, 1],
            "time": 0.2 * np.arange(history),
        }
        table["automated_speed"] = external[place, :, 0]
        likelihood = Likelihood(model, rows_of(model, bind(model, veil.read_recording(table, model))))
        own, count = self_fit(likelihood, *law)
        models.append(own)
    standard = as_float64(Driver(prior=finite_prior(drawn(COPIES, 77)), series=run))
    plant = as_float64(Driver(prior=finite_prior(drivers), series=run))
    lengths = np.full(len(drivers), history)
    return Simulated(drivers, Streams(states[..., :2], external, lengths), models, count, standard, plant)


def shared(made: Simulated, policy: Policy) -> tuple[Streams, dict[str, Any]]:
    """A minute of every driver in closed loop, and how far from the truth it is."""
    scenario = Scenario("linkage", made.plant, jnp.asarray(made.drivers))
    numbers = np.arange(len(made.drivers))
    records = play_episodes(scenario, policy, PREROLL + RELEASES, numbers, key=jr.key(5))
    assert np.array_equal(np.asarray(records.index), numbers)
    released = np.asarray(records.public.shared)[:, PREROLL:]
    inputs = np.asarray(records.public.external)[:, PREROLL:]
    lengths = np.full(len(numbers), RELEASES)
    far = distances(made.standard, np.asarray(records.states)[:, PREROLL:-1], released, lengths)
    return Streams(released, inputs, lengths), far


def simulated_cells(count: int, others: int, history: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """All parts with simulated drivers, by name.

    Args:
        count: of drivers that are matched.
        others: drivers for training.
        history: private steps.
    """
    kept = dict[str, Any]()

    def world(kind: str) -> tuple[Simulated, World]:
        if kind not in kept:
            if kind == "any":
                drivers, groups = drawn(count + others, 0), None
            else:
                drivers, groups = same_headway(count + others, 100)
                groups = groups[:count]
            made = simulated(drivers, history)
            kept[kind] = made, World(made.references, made.models, np.arange(count), groups)
        return kept[kind]

    def twin_of(made: Simulated, public: Sequence[str]) -> Twin:
        return Twin(made.standard, made.models, made.drivers, preroll=PREROLL, public=public)

    def true(kind: str) -> dict[str, Any]:
        made, known = world(kind)
        streams, far = shared(made, Truth(made.standard))
        return {**far, "attackers": attack(known, streams, known.references)}

    def noisy() -> dict[str, Any]:
        made, known = world("any")
        sd = noise_sd(shared(made, twin_of(made, ()))[1]["distortion"][0])
        streams, far = shared(made, GaussianNoise(made.standard, jnp.asarray(sd)))
        rough = sd * np.random.default_rng(3).standard_normal(known.references.shared.shape)
        released = known.references._replace(shared=known.references.shared + rough)
        return {**far, "sd": sd.tolist(), "attackers": attack(known, streams, released)}

    def twin(kind: str, public: Sequence[str] = ()) -> dict[str, Any]:
        made, known = world(kind)
        policy = twin_of(made, public)
        streams, far = shared(made, policy)
        found = attack(known, streams, open_loop(policy, made.drivers, known.references))
        if public:
            axes = [place for place, one in enumerate(made.standard.secret_fields) if one.name in public]
            fits = np.array([np.asarray(one.secret)[axes] for one in made.models])[:count]
            pair = fits, made.drivers[:count, axes]
            found.append(
                match("declared numbers alone", nearest_matcher, *pair, np.arange(count), known.groups)
            )
        about = {"parameters": made.parameters, "history": history}
        about["law"] = 0.5 * made.parameters * RELEASES / history
        return {**far, **about, "attackers": found}

    def price(public: Sequence[str]) -> dict[str, Any]:
        made, _ = world("any")
        return shared(made, twin_of(made, public))[1]

    gains = ("speed_gain", "difference_gain")
    return {
        "true data": lambda: true("any"),
        "noise": noisy,
        "twin": lambda: twin("any"),
        "twin, headway public": lambda: twin("any", HEADWAY),
        "one headway: true data": lambda: true("same"),
        "one headway: twin, headway public": lambda: twin("same", HEADWAY),
        "price: stopping spacing public": lambda: price(HEADWAY[:1]),
        "price: free spacing public": lambda: price(HEADWAY[1:]),
        "price: gains public": lambda: price(gains),
        "price: all public": lambda: price((*gains, *HEADWAY)),
    }


# Recorded cars -------------------------------------------------------------------------------------------


def read_pairs(path: Path, count: int) -> tuple[list[Recording], list[np.ndarray]]:
    """The first halves as recordings, and the rows of the second halves: speed ahead, speed, spacing.

    Args:
        path: table of all pairs.
        count: of pairs that are read.
    """
    rows = defaultdict(list)
    with path.open() as file:
        for line in csv.DictReader(file):
            rows[line["pair"]].append([float(line[key]) for key in ("t", "v_lead", "v_fol", "gap")])
    histories, rest = [], []
    for name, lines in list(rows.items())[:count]:
        table = np.array(lines)
        half = len(table) // 2
        columns = zip(("time", "automated_speed", "speed", "spacing"), table[:half].T, strict=True)
        histories.append(replace(veil.read_recording(dict(columns), Driver()), name=name))
        rest.append(table[half:, 1:])
    return histories, rest


def padded(rows: Sequence[np.ndarray]) -> Streams:
    """Rows of speed ahead, speed and spacing as streams of one length; the last row is repeated."""
    lengths = np.array([len(one) for one in rows])
    index = np.minimum(np.arange(lengths.max())[None, :], lengths[:, None] - 1)
    table = np.stack([one[places] for one, places in zip(rows, index, strict=True)])
    external = np.zeros((*table.shape[:2], len(Driver().first_external())))
    external[..., 0] = table[..., 0]
    return Streams(table[..., 1:], external, lengths)


def own_models(fit: Fit, histories: Sequence[Recording], *, shrunk: bool) -> list[SelfModel]:
    """Self-models of all drivers, drawn to the population or as they were fitted."""
    assert fit.population is not None
    driver = as_float64(Driver())
    if not shrunk:
        return [self_model(driver, fit, one.name) for one in fit.individuals]
    rows: list[Rows] = [rows_of(driver, bind(driver, one)) for one in histories]
    found = []
    for one, data, secret in zip(fit.individuals, rows, fit.population.shrunk, strict=True):
        likelihood = Likelihood(driver, data)
        model = at_secret(likelihood, _parameters(likelihood, one), secret, one.family)
        step = jnp.asarray(list(DIGITS.values()))
        found.append(
            eqx.tree_at(lambda one: one.sensor, model, replace(model.sensor, step=step, rounded=True))
        )
    return found


def _parameters(likelihood: Likelihood, one: Individual) -> Parameters:
    law = ResidualLaw(*(jnp.asarray(one.law[name]) for name in ("memory", "level", "mixing", "tail")))
    secret = (jnp.asarray(one.values) - likelihood.centre) / likelihood.spread
    return Parameters(secret, jnp.log(jnp.asarray(one.noise_factor)), law)


def recorded_cells(data: Path, cache: Path, count: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """All parts with recorded cars, by name.

    Args:
        data: folder with the recordings.
        cache: folder where fits are kept.
        count: of pairs.
    """
    kept = dict[str, Any]()

    def world() -> tuple[World, Streams, System, Fit, list[Recording]]:
        if not kept:
            histories, rest = read_pairs(data / "ngsim_i80_pairs_0p2s.csv", count)
            fit = veil.fit(Driver(), histories, store=Store(cache, "first halves"), progress=_told)
            models = own_models(fit, histories, shrunk=True)
            names = "automated_speed", "speed", "spacing"
            first = [np.stack([one.signals[key].values for key in names], axis=1) for one in histories]
            usual = np.median(np.concatenate([one[:, 1:] for one in first]), axis=0)
            standard = with_resolution(
                fitted_system(as_float64(Driver(equilibrium=tuple(usual))), fit), DIGITS
            )
            known = World(padded(first), models, np.arange(len(first)))
            kept["all"] = known, padded(rest), as_float64(standard), fit, histories
        return kept["all"]

    def secrets(models: Sequence[SelfModel]) -> np.ndarray:
        return np.array([np.asarray(one.secret) for one in models])

    def twin_with(models: Sequence[SelfModel], public: Sequence[str] = ()) -> Twin:
        standard = world()[2]
        return Twin(standard, models, secrets(models), preroll=PREROLL, public=public)

    def late(streams: Streams) -> Streams:
        cut = slice(1 + PREROLL, None)
        return Streams(streams.shared[:, cut], streams.external[:, cut], streams.lengths - 1 - PREROLL)

    def far(streams: Streams) -> dict[str, Any]:
        truth = late(world()[1])
        return distances(as_float64(Driver()), truth.shared, streams.shared, truth.lengths)

    def true() -> dict[str, Any]:
        known, rest, *_ = world()
        found = [*attack(known, late(rest), known.references), *by_inputs(known, late(rest))]
        return {**far(late(rest)), "attackers": found}

    def noisy() -> dict[str, Any]:
        known, rest, *_ = world()
        twin = twin_with(known.models)
        sd = noise_sd(far(open_loop(twin, secrets(known.models), rest))["distortion"][0])
        rng = np.random.default_rng(3)

        def rough(one: Streams) -> Streams:
            return one._replace(shared=one.shared + sd * rng.standard_normal(one.shared.shape))

        streams, released = rough(late(rest)), rough(known.references)
        return {**far(streams), "sd": sd.tolist(), "attackers": attack(known, streams, released)}

    def twin(*, shrunk: bool = True, public: Sequence[str] = ()) -> dict[str, Any]:
        known, rest, _, fit, histories = world()
        if not shrunk:
            known = known._replace(models=own_models(fit, histories, shrunk=False))
        policy, own = twin_with(known.models, public), secrets(known.models)
        released = open_loop(policy, own, known.references, 1)
        streams = open_loop(policy, own, rest)
        found = attack(known, streams, released)
        about = {
            "parameters": float(np.mean([one.estimated for one in fit.individuals])),
            "history": float(np.median(known.references.lengths)),
            "releases": float(np.median(streams.lengths)),
        }
        return {**far(streams), **about, "attackers": found}

    def as_modelled(public: Sequence[str] = ()) -> dict[str, Any]:
        known, rest, *_ = world()
        policy, own = twin_with(known.models, public), secrets(known.models)
        released = open_loop(policy, own, known.references, 1)
        runs = [
            attack(known, open_loop(policy, own, rest, 100 + seed, simulated=True), released)
            for seed in range(SIMULATIONS)
        ]
        means = {
            one.name: [[run[place].place.value, run[place].first.value] for run in runs]
            for place, one in enumerate(runs[0])
        }
        return {"attackers": runs[0], "simulations": means}

    return {
        "recorded: true data": true,
        "recorded: noise": noisy,
        "recorded: twin": twin,
        "recorded: twin, headway public": lambda: twin(public=HEADWAY),
        "recorded: twin, fit not shrunk": lambda: twin(shrunk=False),
        "recorded: twin, drivers as modelled": as_modelled,
        "recorded: twin, headway public, drivers as modelled": lambda: as_modelled(HEADWAY),
    }


def _told(stage: str, done: int, total: int) -> None:
    print(stage, done, "of", total, flush=True)


# Tables and picture --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Linkage of many drivers."""

    out: Path = Path("build/studies")
    """Folder for linkage.json and linkage.png"""
    data: Path | None = None
    """Folder with the recorded cars; without it only simulated drivers"""
    drivers: int = 100
    """Simulated drivers that are matched"""
    others: int = 200
    """More simulated drivers, on whom a matcher is trained"""
    history: int = 3000
    """Private steps of each of them"""
    pairs: int = 120
    """Recorded pairs of cars"""
    cache: Path = Path("build/linkage")
    """Folder where fits of recorded cars are kept"""
    only: tuple[str, ...] = ()
    """Parts to run, by the begin of their names; all by default"""

    def run(self) -> None:
        """Run what is missing, print a line per attacker, write the file after each part."""
        path = self.out / "linkage.json"
        self.out.mkdir(parents=True, exist_ok=True)
        cells = {} if self.data is None else recorded_cells(self.data, self.cache, self.pairs)
        cells = {**simulated_cells(self.drivers, self.others, self.history), **cells}
        for name, compute in cells.items():
            done = json.loads(path.read_text()) if path.exists() else {}
            if name in done or (self.only and not name.startswith(self.only)):
                continue
            began = time.process_time()
            with jax.enable_x64(True):
                found = compute()
            found["attackers"] = [as_dict(one) for one in found.get("attackers", ())]
            done[name] = {**found, "seconds": time.process_time() - began}
            path.write_text(json.dumps(done, indent=None) + "\n")
            print(name, {key: one for key, one in found.items() if key != "attackers"}, flush=True)
            for one in found["attackers"]:
                print(f"  {one['attacker']:32s}", " ".join(f"{key} {np.round(one[key], 4)}" for key in SHOWN))


SHOWN = ("first", "named", "place", "median_rank", "information", "p")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

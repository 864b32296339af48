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
from collections.abc import Callable, Mapping, Sequence
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
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from veil.fitting.predictor import Rows, forecasts, rows_of
from veil.fitting.residual_law import log_density
from veil.io import Store
from veil.plots import GREEN, INK, ORANGE, PALE
from veil.policies import GaussianNoise, Policy, Truth, Twin
from veil.policies.twin import stacked_models
from veil.recordings.bound import bind
from veil.recordings.recording import Recording
from veil.results.fit import Family, Fit, Individual
from veil.systems import Driver, System, with_resolution
from veil.systems.base import Scenario, finite_prior
from veil.systems.driver import stop_and_go
from veil.systems.probes import true_data_path
from veil.systems.variants import WithNoise
from veil.types import as_float64

ROOT = Path(__file__).parents[1]

PAGE, PICTURE = ROOT / "paper" / "linkage.json", ROOT / "paper" / "pictures" / "linkage.png"

PREROLL, RELEASES = 25, 300  # steps of 0.2 s: a minute is shared

HEADWAY = ("stopping_spacing", "free_spacing")

COPIES = 16  # drivers of the public standard

RELEASED = 1000  # last steps of a reference that an attacker releases by the twin

SETS = ("gains", "headway", "noise")  # of features

DIGITS = {"speed": 0.001, "spacing": 0.01, "acceleration_error": 0.0}  # of the recorded cars

SIMULATIONS = 8  # of drivers who are exactly as their models of themselves say


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


def last(streams: Streams, steps: int) -> Streams:
    """The last steps of streams of one length."""
    return Streams(
        streams.shared[:, -steps:], streams.external[:, -steps:], np.minimum(streams.lengths, steps)
    )


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
    rows = jnp.arange(shared.shape[1] - 1)

    def of_stream(stream: tuple[Array, Array, Array]) -> Array:
        readings, inputs, length = stream

        def of_model(model: SelfModel) -> Array:
            sensor = replace(model.sensor, step=jnp.zeros_like(model.sensor.step), rounded=False)
            states = (
                jnp.zeros((len(readings), len(sensor.seen))).at[:, jnp.asarray(sensor.axes)].set(readings)
            )
            data = Rows(states, inputs, rows, rows + 1 < length, length - 1, sensor, fine=False)
            found = forecasts(model.system, model.secret, data)
            units = (readings[:-1] - model.centre) / model.spread
            lines = log_density(model.law, found, units, rows)[0]
            return jnp.sum(jnp.where(data.used, lines, 0.0)) / (length - 1)

        return jax.vmap(of_model)(models)

    return jax.lax.map(of_stream, (shared, external, lengths))


def likelihoods(models: Sequence[SelfModel], streams: Streams) -> np.ndarray:
    """Mean log likelihood of a step of every stream under every individual's model of itself."""
    return np.asarray(_log_likelihoods(stacked_models(models), *(jnp.asarray(one) for one in streams)))


@eqx.filter_jit
def _open_loop(
    twin: Twin, secrets: Array, shared: Array, external: Array, key: Array, simulated: bool
) -> Array:
    def owner(given: tuple[Array, Array, Array, Array]) -> Array:
        secret, readings, inputs, own_key = given

        def state(reading: Array) -> Array:
            return jnp.zeros(len(twin.seen)).at[jnp.asarray(twin.axes)].set(reading)

        def by_noise(memory: Array, external: Array, noise: Array) -> Array:
            now = twin.unpack(memory)
            used = jnp.where(now.age > twin.preroll, noise, 0.0)
            standards = twin.standards(secret)
            copies = jax.vmap(lambda one, its: one.invert(its, external, used)[0])(standards, now.copies)
            return twin.pack(replace(now, age=now.age + 1.0, copies=copies))

        def step(memory: Array, t: Array) -> tuple[Array, Array]:
            draw = jr.fold_in(own_key, t)
            if simulated:
                memory = by_noise(memory, inputs[t], jr.normal(draw, (len(twin.axes),)))
            else:
                before, after = state(readings[t]), state(readings[t + 1])
                memory = twin.update_memory(memory, secret, before, inputs[t], after, key=draw)
            return memory, twin.release_centre(twin.unpack(memory))

        first = twin.init_memory(secret, state(readings[0]), key=own_key)
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
        simulated: whether drivers are exactly as their models of themselves say: the noise is drawn, and what
            is released is a function of it and of the public inputs.
    """
    own, true, inputs = (jnp.asarray(one) for one in (secrets, streams.shared, streams.external))
    made = _open_loop(twin, own, true, inputs, jr.key(seed), simulated)
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


def attack(world: World, streams: Streams, released: Streams, *, by_likelihood: bool = True) -> list[Linkage]:
    """All attackers on the streams of all individuals, in the order of the world.

    Args:
        world: what is known.
        streams: of all individuals; only those that are matched have no name.
        released: what the mechanism makes of the references.
        by_likelihood: whether the likelihood is computed as well.
    """
    known, made, told = (features(one) for one in (world.references, released, streams))
    own, groups = world.owned, world.groups
    owners = np.arange(len(own))
    found = []
    for title, given in (("", known), (", as released", made)):
        for names in (*((one,) for one in SETS), SETS):
            label = ("all features" if len(names) > 1 else names[0]) + title
            left, right = (
                np.concatenate([rows[one] for one in names], axis=1)[own] for rows in (given, told)
            )
            found.append(match(label, nearest_matcher, left, right, owners, groups))
    if by_likelihood:
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
                drivers, groups = same_headway(count, 100)
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
        released = open_loop(policy, made.drivers, last(known.references, RELEASED))
        found = attack(known, streams, released)
        if public:
            axes = [place for place, one in enumerate(made.standard.secret_fields) if one.name in public]
            fits = np.array([np.asarray(one.secret)[axes] for one in made.models])[:count]
            pair = fits, made.drivers[:count, axes]
            found.append(
                match("declared numbers alone", nearest_matcher, *pair, np.arange(count), known.groups)
            )
        law = 0.5 * made.parameters * RELEASES / history
        about = {"parameters": made.parameters, "history": history, "law": law}
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
    longest, found = max(len(one.age) for one in rows), []
    for one, data, secret in zip(fit.individuals, rows, fit.population.shrunk, strict=True):
        likelihood = Likelihood(driver, _lengthened(data, longest))
        model = at_secret(likelihood, _parameters(likelihood, one), secret, one.family)
        step = jnp.asarray(list(DIGITS.values()))
        found.append(
            eqx.tree_at(lambda one: one.sensor, model, replace(model.sensor, step=step, rounded=True))
        )
    return found


def _lengthened(data: Rows, length: int) -> Rows:
    """More rows that are not used, so that all recordings share a program."""
    more = length - len(data.age)

    def filled(values: Array) -> Array:
        return jnp.concatenate([values, jnp.repeat(values[-1:], more, axis=0)])

    used = jnp.concatenate([data.used, jnp.zeros(more, bool)])
    rows = {name: filled(getattr(data, name)) for name in ("states", "external", "age")}
    return replace(data, used=used, **rows)


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
            standard = fitted_system(as_float64(Driver(equilibrium=tuple(usual))), fit)
            digits = {field.name: DIGITS.get(field.name, 0.0) for field in standard.state_fields}
            standard = with_resolution(standard, digits)
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

    def as_modelled() -> dict[str, Any]:
        known, rest, *_ = world()
        policy, own = twin_with(known.models), secrets(known.models)
        released = open_loop(policy, own, known.references, 1)
        runs = [
            attack(
                known, open_loop(policy, own, rest, 100 + seed, simulated=True), released, by_likelihood=False
            )
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
        "recorded: twin, drivers as modelled": as_modelled,
        "recorded: twin, fit not shrunk": lambda: twin(shrunk=False),
    }


def _told(stage: str, done: int, total: int) -> None:
    print(stage, done, "of", total, flush=True)


# Tables and picture --------------------------------------------------------------------------------------

SIMULATED = ("true data", "noise", "twin", "twin, headway public")

ONE_HEADWAY = ("one headway: true data", "one headway: twin, headway public")

RECORDED = ("recorded: true data", "recorded: noise", "recorded: twin", "recorded: twin, headway public")

PRICES = {
    "nothing": "twin",
    "stopping spacing": "price: stopping spacing public",
    "free spacing": "price: free spacing public",
    "both spacings (the headway)": "twin, headway public",
    "both gains": "price: gains public",
    "all four": "price: all public",
}

LEVEL = 0.0027  # of a false alarm over all attackers: that of three standard errors


def read(path: Path = PAGE) -> dict[str, Any]:
    """The content of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def level_of(row: Mapping[str, Any]) -> float:
    """The smaller p-value of an attacker's two tests: of its first places and of its mean place."""
    return min(row["p"][0], row["p"][2])


def linking(cell: Mapping[str, Any]) -> list[str]:
    """Names of the attackers that are further from chance than three standard errors after Bonferroni."""
    rows = cell["attackers"]
    return [row["attacker"] for row in rows if level_of(row) < LEVEL / (2 * len(rows))]


def furthest(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attacker furthest from chance: by its mean place among those whose p is the least."""
    return min(cell["attackers"], key=lambda row: (level_of(row), -abs(row["errors"])))


def _cells(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def summary_table(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """What each way of sharing costs, how many attackers link it, and the one furthest from chance.

    Args:
        found: content of the file.
        names: of the ways of sharing.
    """
    heads = (
        "shared",
        "distortion",
        "speed, m/s",
        "spacing, m",
        "attackers that link",
        "furthest from chance",
    )
    rows: list[Sequence[str]] = [(*heads, "p", "owner first", "among five", "median rank", "nats")]
    for name in names:
        if name not in found:
            continue
        cell = found[name]
        best = furthest(cell)
        far = (f"{cell[key][0]:.2f}" for key in ("distortion", "speed", "spacing"))
        links = f"{len(linking(cell))} of {len(cell['attackers'])}"
        nats = f"{best['information'][0]:.2f} ({best['information'][1]:.2f})"
        shares = (f"{100 * best[key][0]:.1f} % ({100 * best[key][2]:.1f})" for key in ("first", "named"))
        rank = f"{best['median_rank']:g} of {best['candidates']:g}"
        rows.append(
            (
                name.partition(": ")[2] or name,
                *far,
                links,
                best["attacker"],
                _p(level_of(best)),
                *shares,
                rank,
                nats,
            )
        )
    return _cells(rows)


def attackers_table(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """Every attacker on every way of sharing: owners that come first, median rank, errors from chance.

    Args:
        found: content of the file.
        names: of the ways of sharing.
    """
    names = [name for name in names if name in found]
    rows: list[Sequence[str]] = [("attacker", *(name.partition(": ")[2] or name for name in names))]
    for attacker in dict.fromkeys(row["attacker"] for name in names for row in found[name]["attackers"]):
        line = [attacker]
        for name in names:
            row = next((one for one in found[name]["attackers"] if one["attacker"] == attacker), None)
            line.append(
                ""
                if row is None
                else f"{100 * row['first'][0]:.0f} %, {row['median_rank']:g}, {row['errors']:+.1f}"
            )
        rows.append(tuple(line))
    return _cells(rows)


def price_table(found: Mapping[str, Any]) -> str:
    """Distortion of the twin by what is declared public.

    Args:
        found: content of the file.
    """
    rows: list[Sequence[str]] = [("declared public", "distortion", "speed, m/s", "spacing, m")]
    for said, name in PRICES.items():
        if name in found:
            told = (
                f"{found[name][key][0]:.2f} ({found[name][key][1]:.2f})"
                for key in ("distortion", "speed", "spacing")
            )
            rows.append((said, *told))
    return _cells(rows)


def modelled_table(found: Mapping[str, Any]) -> str:
    """Each attacker on the recorded twin beside the same for drivers who are as their models say.

    Args:
        found: content of the file.
    """
    rows: list[Sequence[str]] = [
        ("attacker", "mean place, twin", "drivers as modelled", "difference in its sd")
    ]
    cell = found["recorded: twin, drivers as modelled"]
    for row in found["recorded: twin"]["attackers"]:
        if row["attacker"] not in cell["simulations"]:
            continue
        runs = np.array(cell["simulations"][row["attacker"]])[:, 0]
        sd = float(runs.std(ddof=1))
        away = (row["place"][0] - float(runs.mean())) / (sd * np.sqrt(1.0 + 1.0 / len(runs)))
        rows.append(
            (row["attacker"], f"{row['place'][0]:.3f}", f"{runs.mean():.3f} ({sd:.3f})", f"{away:+.1f}")
        )
    return _cells(rows)


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.095 else f"{value:.2f}"


def draw(found: Mapping[str, Any]) -> Figure:
    """Where owners are among the candidates, as cumulative curves against chance."""
    panels = {"simulated drivers": SIMULATED[:3], "recorded cars": RECORDED[:3]}
    panels = {title: names for title, names in panels.items() if all(name in found for name in names)}
    figure = Figure(figsize=(5.0 * len(panels), 4.4), layout="constrained")
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(panels), sharey=True)))
    for panel, (title, names) in zip(axes, panels.items(), strict=True):
        _curves(panel, found, title, names)
    axes[0].set_ylabel("owners found among these")
    return figure


def _curves(panel: Axes, found: Mapping[str, Any], title: str, names: Sequence[str]) -> None:
    shares = np.linspace(0.0, 1.0, 201)
    panel.plot([0.0, 1.0], [0.0, 1.0], color=PALE, lw=1.2, ls="--", label="chance")
    for name, colour in zip(names, (INK, ORANGE, GREEN), strict=True):
        best = furthest(found[name])
        count = len(best["places"])
        if colour == GREEN:
            error = 2.0 * np.sqrt(shares * (1.0 - shares) / count)
            panel.fill_between(shares, shares - error, shares + error, color=PALE, alpha=0.2, lw=0)
        curve = np.mean(np.asarray(best["places"])[None, :] <= shares[:, None], axis=1)
        said = name.partition(": ")[2] or name
        panel.plot(shares, curve, color=colour, lw=2.0, label=f"{said}: {best['attacker']}")
        for row in found[name]["attackers"]:
            if row is not best and row["attacker"] != "inputs alone":
                curve = np.mean(np.asarray(row["places"])[None, :] <= shares[:, None], axis=1)
                panel.plot(shares, curve, color=colour, lw=0.6, alpha=0.35)
    panel.set(
        title=title, xlabel="share of the individuals that the attacker names", xlim=(0, 1), ylim=(0, 1)
    )
    panel.grid(alpha=0.2)
    panel.legend(loc="lower right", fontsize=8, frameon=False)


@dataclass(frozen=True)
class Study:
    """Linkage of many drivers."""

    out: Path = Path("build/studies")
    """Folder for linkage.json and linkage.png"""
    data: Path | None = None
    """Folder with the recorded cars; without it only simulated drivers"""
    drivers: int = 100
    """Simulated drivers that are matched"""
    others: int = 0
    """More simulated drivers, on whom a matcher is trained; with none, on drivers of other folds"""
    history: int = 3000
    """Private steps of each of them"""
    pairs: int = 120
    """Recorded pairs of cars"""
    cache: Path = Path("build/linkage/fits")
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
            path.write_text(json.dumps(done) + "\n")
            print(name, {key: one for key, one in found.items() if key != "attackers"}, flush=True)
            for one in found["attackers"]:
                print(f"  {one['attacker']:32s}", " ".join(f"{key} {np.round(one[key], 4)}" for key in SHOWN))
        done = read(path) if path.exists() else {}
        if any(all(name in done for name in names) for names in (SIMULATED[:3], RECORDED[:3])):
            draw(done).savefig(self.out / "linkage.png", dpi=120)


SHOWN = ("first", "named", "place", "median_rank", "information", "p")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

"""Which way of sharing to take: nominal leakage, the worst other world and distortion, side by side.

The platoon, the building and the battery under noise, transport, the counterfactual policy and the twin, the
platoon also under a learned policy. What they leak as modelled is in `audits.json` and `systems.json`. What
the twin leaks, and what attackers gain in other worlds, is measured here. The owners of a *fitted* twin have
fitted their self-models to private steps of the world that they live in, whatever it is. `worlds.json` has
the numbers, `pictures/which_policy.png` shows them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import veil
from paper import study_audits, study_systems
from paper.study_twin import ORDERS
from veil.beliefs.self_model import SelfModel
from veil.evaluation.audit import try_scenarios
from veil.evaluation.evaluate import Evaluation, evaluate
from veil.fitting.estimate import Likelihood, Parameters, climb, log_scores
from veil.fitting.predictor import rows_of
from veil.plots import BLUE, GREEN, INK, ORANGE, PALE, RED
from veil.policies import Policy, Twin
from veil.policies.twin import PREROLL, read_coordinates
from veil.recordings import Recording
from veil.recordings.bound import bind
from veil.results.fit import Family
from veil.results.parts import BELIEVED, ScenarioResult, worst_of
from veil.results.text import at_least, at_most
from veil.settings import AuditSettings
from veil.stats import ERRORS, stratified_mean
from veil.step import Record
from veil.systems import Battery, Building, Platoon, Series, System
from veil.systems.base import Prior, Scenario
from veil.systems.battery import drive_cycle
from veil.systems.building import winter_month
from veil.systems.probes import true_data_path
from veil.systems.scenarios import brief_scenarios, noise_by_secret, nominal
from veil.systems.variants import WithNoise, WithPrior
from veil.types import Key, as_float64

PAGE, PICTURE = Path("paper/worlds.json"), Path("paper/pictures/which_policy.png")

MAKE = {"platoon": Platoon, "building": Building, "battery": Battery}

STEPS = {"building": 24, "battery": 30}

RUN = 50  # steps of the platoon

HISTORY = 5000  # private steps that each owner of a fitted twin has fitted its self-model to

FITTED = "twin, fitted"

DISTORTION = {"platoon": "√(3 (m/s)² + m²)", "building": "K", "battery": "mV and ‰ of charge"}


@dataclass(frozen=True)
class World:
    """What an attacker gains in one world.

    Attributes:
        name: of the world.
        mean: mean score of the best attacker there, nats.
        error: its standard error.
        high: nats that leak at most there, by the exact reader; None where that was not asked.
        distortion: mean per step there; None likewise.
    """

    name: str
    mean: float
    error: float
    high: float | None = None
    distortion: float | None = None


@dataclass(frozen=True)
class Cell:
    """One policy on one system.

    Attributes:
        system: its name.
        policy: its name in the table.
        entropy: H(q), nats.
        low: nats that are proven to leak as modelled.
        high: nats that leak at most as modelled; None where that is not certified.
        distortion: mean per step as modelled, in the unit of the system.
        worst: name of the worst world.
        worst_low: nats that are proven to leak there, corrected for all attackers.
        worlds: every world that was tried here; none for the platoon.
        episodes: of the nominal audit.
    """

    system: str
    policy: str
    entropy: float
    low: float
    high: float | None
    distortion: float
    worst: str
    worst_low: float
    worlds: tuple[World, ...]
    episodes: int


@dataclass(frozen=True)
class Study:
    """Compare ways of sharing in the model and in other worlds."""

    out: Path = PAGE
    """file to write; cells that it has are kept"""
    picture: Path = PICTURE
    """file of the picture"""
    audits: Path = study_audits.PAGE
    """file of the audits of the platoon"""
    episodes: int = 256
    """episodes of the nominal audit of a twin"""
    fitted_episodes: int = 512
    """episodes that the exact reader of a fitted twin reads in each world"""

    def main(self) -> None:
        """Measure what is missing, write, draw."""
        done = {(cell.system, cell.policy): cell for cell in read(self.out)} if self.out.exists() else {}
        done |= {("platoon", cell.policy): cell for cell in platoon_cells(self.audits)}
        for name in STEPS:
            with jax.enable_x64(True):
                system = as_float64(MAKE[name]())
            for title, policy in policies(name, system).items():
                if (name, title) not in done:
                    done[name, title] = measured(name, title, policy, self.episodes)
                    print(line(done[name, title]), flush=True)
                    write(self.out, list(done.values()))
        for name in MAKE:
            if (name, FITTED) not in done:
                done[name, FITTED] = measured_fitted(name, self.fitted_episodes)
                print(line(done[name, FITTED]), flush=True)
                write(self.out, list(done.values()))
        cells = list(done.values())
        write(self.out, cells)
        draw(cells).savefig(self.picture, dpi=130)
        print(table(cells))


PLATOON = ("truth", "noise", "transport", "counterfactual", "twin", "learned")


def platoon_cells(path: Path) -> list[Cell]:
    """The cells of the platoon, from the study of its audits."""
    known = {"truth": "true data"}
    rows = study_audits.read(path)
    return [_platoon_cell(known.get(name, name), rows[name]) for name in PLATOON if name in rows]


def _platoon_cell(title: str, row: study_audits.Row) -> Cell:
    error = row.error or 0.0
    high = row.limit if row.upper is None or row.limit is not None else row.upper + ERRORS * error
    return Cell(
        system="platoon",
        policy=title,
        entropy=float(np.log(4.0)),
        low=max(row.lower - ERRORS * error, 0.0),
        high=high,
        distortion=row.distortion,
        worst=row.worst,
        worst_low=row.worst_lower,
        worlds=(),
        episodes=row.episodes,
    )


def policies(name: str, system: System) -> dict[str, Policy]:
    """The ways of sharing in the picture."""
    with jax.enable_x64(True):
        return {**study_systems.policies(name, system), "twin": Twin(system)}


def measured(name: str, title: str, policy: Policy, episodes: int) -> Cell:
    """One cell: bounds in the model, attacks in the other worlds."""
    system = policy.system
    settings = AuditSettings(steps=STEPS[name], episodes=episodes, seed=11)
    scenarios = try_scenarios(system, policy, settings)
    worst = worst_of(scenarios)
    assert worst is not None  # every system has other worlds
    best = [max(one.attacks, key=lambda row: row.lower.value) for one in scenarios]
    cells = study_systems.read(Path("paper/systems.json"))
    known = next((one for one in cells if (one.system, one.policy) == (name, title)), None)
    if known is not None:
        sides = known.entropy, known.low, known.high, known.distortion, known.episodes
    else:
        found = evaluate(system, policy, settings=settings, candidates=2)
        distortion = stratified_mean(np.asarray(found.use.distortion), found.index, found.forecast.prior)
        sides = found.leakage.entropy, found.leakage.low, most(found), distortion.value, len(found.index)
    entropy, low, high, distortion, count = sides
    jax.clear_caches()
    return Cell(
        system=name,
        policy=title,
        entropy=entropy,
        low=low,
        high=high,
        distortion=distortion,
        worst=worst.scenario.name,
        worst_low=worst.low,
        worlds=tuple(
            World(one.name, row.lower.value, row.lower.error)
            for one, row in zip(scenarios, best, strict=True)
        ),
        episodes=count,
    )


AS_MODELLED = "as modelled"


def fitted_settings(name: str, episodes: int) -> AuditSettings:
    """Of the audit of a fitted twin: as many releases as in the other rows follow the pre-roll."""
    return AuditSettings(steps=PREROLL + STEPS.get(name, RUN), episodes=episodes, seed=11)


def living(name: str) -> list[tuple[Scenario, tuple[System, System]]]:
    """Worlds with a law of motion of their own: the law that owners fit there, and the plant of histories.

    In other worlds of a brief look the law is that of the model: they have another belief about the secret,
    another start, which 5,000 steps forget, or an adversary, whom no history contains.

    Args:
        name: of the system. For its history a building has other months than those of the run; a battery is
            drained and charged in turn, twenty minutes each.
    """
    rows, system = HISTORY + 1, MAKE[name]()
    if name == "building":
        system = Building(series=winter_month(rows, seed=1))
    if name == "battery":
        once = np.asarray(drive_cycle(241, seed=1).values, float)[:, 0]
        way = np.where(np.arange(rows) // 241 % 2 == 0, 1.0, -0.8)
        system = Battery(series=Series({"demand": way * np.resize(once, rows)}))
    model = as_float64(system)
    own, *_ = brief_scenarios(model, RUN)
    there, noisy = as_float64(own.plant), noise_by_secret(model)
    return [(nominal(model), (model, model)), (own, (there, there)), (noisy, (model, noisy.plant))]


@eqx.filter_jit
def private_history(plant: System, secret: Array, key: Key) -> tuple[Array, Array]:
    """What an owner reads of itself while it shares nothing but the truth, with itself; and its inputs.

    Args:
        plant: the world.
        secret: of the owner.
        key: of the noise.
    """
    alone = WithPrior(plant, Prior(secret[None], jnp.zeros(1, secret.dtype)))
    return true_data_path(alone, HISTORY, number=jnp.asarray(0), key=key)


def recording(model: System, plant: System, owner: int) -> Recording:
    """The private history of one owner as a recording that `veil fit` reads.

    Args:
        model: the system as modelled; it says what is read.
        plant: the world, with inputs for the history.
        owner: which secret.
    """
    states, external = private_history(plant, plant.prior.secrets[owner], jr.key(1000 + owner))
    seen = read_coordinates(model)
    fields = [one.name for one, there in zip(model.state_fields, seen, strict=True) if there]
    columns = {one: np.asarray(states)[:-1, place] for place, one in enumerate(fields)}
    names = [one.name for one in (*model.external_fields, *model.exogenous_fields)]
    columns |= {one: np.asarray(external)[:, place] for place, one in enumerate(names)}
    columns["time"] = np.arange(HISTORY) * float(model.step_seconds or 1.0)
    return veil.read_recording(columns, model)


def fitted_models(model: System, plant: System) -> list[SelfModel]:
    """What the owners of a world take themselves for after their histories, one per secret.

    They know the form of their law of motion. Its parameters, the size of the noise, and whether it is white
    or remembers six steps (by the information criterion) they estimate.

    Args:
        model: the law of motion.
        plant: the world, with inputs for the histories.
    """
    found = list[SelfModel]()
    for owner in range(len(plant.prior.secrets)):
        likelihood = Likelihood(model, rows_of(model, bind(model, recording(model, plant, owner))))
        used = np.asarray(likelihood.data.used)
        best, start = (np.inf, likelihood.start()), likelihood.start()
        for order in ORDERS:
            free = likelihood.free(Family(order))
            start, _ = climb(likelihood, start, free, jnp.asarray(used, float))
            lines = np.asarray(log_scores(likelihood, start)[0])[used]
            criterion = float(free.sum() * np.log(used.sum()) - 2.0 * lines.sum())
            best = min(best, (criterion, start), key=lambda one: one[0])
        found.append(self_model_of(likelihood, best[1]))
        print(
            owner,
            np.round(np.asarray(found[-1].secret), 3),
            np.round(np.exp(best[1].log_noise), 3),
            flush=True,
        )
    return found


def self_model_of(likelihood: Likelihood, found: Parameters) -> SelfModel:
    """The law of what an owner reads next, by estimates.

    Args:
        likelihood: that was climbed.
        found: where that led.
    """
    return SelfModel(
        WithNoise(likelihood.system, jnp.exp(found.log_noise)),
        likelihood.secret(found),
        likelihood.data.sensor,
        found.law,
        likelihood.mean,
        likelihood.sd,
        heavy=False,
    )


def measured_fitted(name: str, episodes: int) -> Cell:
    """The cell of the fitted twin: the exact reader and the attackers of the other rows, in every world."""
    with jax.enable_x64(True):
        system, settings = as_float64(MAKE[name]()), fitted_settings(name, episodes)
        known = {one.name: fitted_models(*pair) for one, pair in living(name)}

        def twin(world: Scenario) -> Twin:
            return Twin(system, known.get(world.name, known[AS_MODELLED]), world.believed)

        worlds = brief_scenarios(system, settings.steps)
        # The model itself in the form of the other worlds, so that it is the same program.
        same = next(one for one in worlds if one.name == "overrated secret")
        here = Scenario(AS_MODELLED, same.plant, system.prior.secrets, push=same.push)
        sides = {one.name: read_twin(system, twin(one), one, settings) for one in (here, *worlds)}
        scenarios = try_scenarios(system, twin, settings)
    worst, (found, distortion) = worst_of(scenarios), sides[AS_MODELLED]
    assert worst is not None  # every system has other worlds
    jax.clear_caches()
    return Cell(
        system=name,
        policy=FITTED,
        entropy=found.leakage.entropy,
        low=found.leakage.low,
        high=most(found),
        distortion=distortion,
        worst=worst.scenario.name,
        worst_low=worst.low,
        worlds=tuple(_world(one, *sides[one.name]) for one in scenarios),
        episodes=len(found.index),
    )


def _world(one: ScenarioResult, found: Evaluation, distortion: float) -> World:
    best = max(one.attacks, key=lambda row: row.lower.value).lower
    return World(one.name, best.value, best.error, most(found), distortion)


def most(found: Evaluation) -> float | None:
    """Nats that leak at most; None where that is not certified."""
    return found.leakage.high if found.verdict().name in BELIEVED else None


def read_twin(
    system: System, twin: Twin, world: Scenario, settings: AuditSettings
) -> tuple[Evaluation, float]:
    """The exact reader of a twin in one world, and the mean distortion of what is released there.

    Args:
        system: the model.
        twin: what the owners of this world share by.
        world: where to play.
        settings: steps with those of the pre-roll, and episodes.
    """
    found = evaluate(system, twin, world, settings, candidates=1)
    each = np.asarray(released(world.plant, found.records))
    print(f"{world.name}: {found.method}, {found.verdict().name}, {found.leakage}", flush=True)
    return found, stratified_mean(each, found.index, found.forecast.prior).value


@eqx.filter_jit
def released(plant: System, records: Record) -> Array:
    """Mean distortion of each episode after the pre-roll."""
    shared = records.public.shared[:, PREROLL:]
    return jax.vmap(jax.vmap(plant.distortion))(records.states[:, PREROLL:-1], shared).mean(axis=1)


def read(path: Path = PAGE) -> list[Cell]:
    """The cells of a file."""
    rows = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [Cell(**row | {"worlds": tuple(World(**one) for one in row["worlds"])}) for row in rows]


def write(path: Path, cells: Sequence[Cell]) -> None:
    """Keep the cells in a file."""
    content = {"unit": "nats", "steps": {"platoon": 50} | STEPS, "cells": [asdict(cell) for cell in cells]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def highest(cell: Cell) -> float | None:
    """Nats that leak at most in the worst of the other worlds; None unless that is known for all of them."""
    highs = [world.high for world in cell.worlds if world.high is not None]
    return max(highs) if highs and len(highs) == len(cell.worlds) else None


def line(cell: Cell) -> str:
    """One row of the table."""
    high, there = "not certified" if cell.high is None else at_most(cell.high), highest(cell)
    worst = at_least(cell.worst_low) + (f" ({cell.worst})" if cell.worst_low > 0.0 else "")
    worst += "" if there is None else f", at most {at_most(there)}"
    shown = [cell.policy, at_least(cell.low), high, worst, f"{cell.distortion:.3g}"]
    return f"| {' | '.join(shown)} |"


def table(cells: Sequence[Cell]) -> str:
    """The table of the page: one block of rows per system."""
    lines = ["| sharing | at least, nats | at most, nats | worst world, at least | distortion |"]
    lines += ["|---|---|---|---|---|"]
    for name in MAKE:
        own = [cell for cell in cells if cell.system == name]
        if own:
            lines.append(f"| *{name}, {own[0].entropy:.3f} nats in all* | | | | |")
            lines += map(line, own)
    return "\n".join(lines) + "\n"


COLOURS = {
    **{"true data": INK, "noise": ORANGE, "transport": BLUE, "counterfactual": RED, "twin": "#CC79A7"},
    FITTED: GREEN,
    "learned": "#56B4E9",
}


def draw(cells: Sequence[Cell]) -> Figure:
    """One panel per system, one row per policy: what leaks at most as modelled, and in the worst world.

    The file is narrow, with large letters, so that it can be read on a telephone.
    """
    own = {name: [cell for cell in cells if cell.system == name] for name in MAKE}
    figure = Figure(figsize=(5.4, 7.6), layout="constrained")
    rows = [max(len(some), 1) + 1.2 for some in own.values()]
    panels = figure.subplots(len(MAKE), 1, sharex=True, height_ratios=rows)
    for panel, (name, some) in zip(panels, own.items(), strict=True):
        _panel(panel, name, some)
    panels[-1].set_xlabel("leakage, % of all there is to know")
    handles = [panels[-1].plot([], [], "o", color=PALE, label="as modelled, at most")[0]]
    handles += [panels[-1].plot([], [], ">", color=PALE, label="worst other world, at least")[0]]
    handles += [panels[-1].plot([], [], "|", color=PALE, ms=11, mew=2, label="and at most, if known")[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=1, frameon=False, fontsize=10)
    return figure


def _panel(panel: Axes, name: str, cells: Sequence[Cell]) -> None:
    """Policies of one system, the least distortion on top; a line joins the marks of a policy."""
    cells = sorted(cells, key=lambda cell: -cell.distortion)
    for place, cell in enumerate(cells):
        colour = COLOURS[cell.policy]
        high = 100.0 * (cell.entropy if cell.high is None else cell.high) / cell.entropy
        worst = 100.0 * cell.worst_low / cell.entropy
        ends, most_there = [high, worst], highest(cell)
        if most_there is not None:
            ends.append(100.0 * most_there / cell.entropy)
            panel.plot(ends[-1], place, "|", color=colour, ms=11, mew=2)
        panel.plot([min(ends), max(ends)], [place, place], color=colour, lw=1.6, alpha=0.7)
        panel.plot(high, place, "o", color=colour, ms=7)
        panel.plot(worst, place, ">", color=colour, ms=8, mec="white", mew=0.8)
        panel.text(104.0, place, f"{cell.distortion:.2g}", va="center", fontsize=10, clip_on=False)
    panel.set_yticks(range(len(cells)), [cell.policy for cell in cells], fontsize=10)
    panel.set(xlim=(-3.0, 103.0), ylim=(-0.7, len(cells) - 0.3))
    panel.set_title(name, loc="left", fontsize=12)
    panel.set_title(f"distortion, {DISTORTION[name]}", loc="right", fontsize=9)
    panel.grid(alpha=0.2, axis="x")


if __name__ == "__main__":
    tyro.cli(Study).main()

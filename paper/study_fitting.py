"""Does `veil fit` find what it should? Fits of simulated recordings whose parameters and noise are known.

Per system and cell: how often 95 % intervals contain the parameters, how often white noise is taken for white
and coloured for coloured, how far the chosen law of the noise is behind the true one on held-out steps, how
often a right model is rejected, and how often a wrong one is found. docs/fit.md shows fitting.json. Goes on
where it was.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro

if TYPE_CHECKING:
    from veil.recordings import Recording
    from veil.systems import System


@dataclass(frozen=True)
class Cell:
    """One kind of recording and the model that is fitted to it.

    Attributes:
        system: that is fitted.
        world: what the recordings are made by.
        steps: of a recording.
        fits: how many recordings.
        right: whether the model can explain the recordings.
        coloured: whether the noise has a memory that the model does not know.
    """

    system: str
    world: str
    steps: int
    fits: int
    right: bool = True
    coloured: bool = False


def cells(fits: int) -> list[Cell]:
    """All cells; `fits` recordings in each of the main ones.

    Args:
        fits: per cell of 1,000 steps; other cells have fewer.
    """
    found = []
    for system in ("driver", "building", "battery"):
        found += [
            Cell(system, "white", 1000, fits * (1 + (system == "battery"))),
            Cell(system, "coloured", 1000, fits, coloured=True),
            Cell(system, "white", 200, {"driver": fits, "battery": 2 * fits}.get(system, fits // 2)),
            Cell(system, "white", 5000, fits // 4),
            Cell(system, "gaps", 1000, fits // 2),
            Cell(system, "rounded", 1000, fits // 2),
        ]
    return [
        *found,
        Cell("building", "one mass, white", 1000, fits),
        Cell("building", "one mass, coloured", 1000, fits, coloured=True),
        Cell("driver", "IDM", 1000, fits, right=False),
        Cell("driver", "steady IDM", 1000, fits, right=False),
        Cell("building", "missing mass", 1000, fits, right=False),
    ]


@dataclass(frozen=True)
class Result:
    """What came of the fits of one cell.

    Attributes:
        cell: which.
        covered: fraction of 95 % intervals that contain their parameter, per parameter.
        memory: fraction of fits with an order of at least one.
        heavy: fraction with heavy tails.
        level: fraction with a size of the noise that depends on the state.
        behind: fraction whose law of the noise is within two standard errors of the true order's on held-out
            steps; None where the true order is not among the candidates.
        lost: nats in 50 held-out steps that the true order predicts better, mean over the fits of coloured
            noise that were taken for white; None where there are none.
        lost_error: its standard error.
        rejected: fraction of fits that the examination rejects.
        reasons: how often each test rejected.
        rival: median gain of the best rival, nats in 50 steps.
        seconds: processor time per fit after the first, median.
    """

    cell: Cell
    covered: dict[str, float]
    memory: float
    heavy: float
    level: float
    behind: float | None
    lost: float | None
    lost_error: float | None
    rejected: float
    reasons: dict[str, int]
    rival: float
    seconds: float


FEWEST = 15  # fits of a cell that are published

ROUND = {
    "driver": {"speed": 0.01, "spacing": 0.1},
    "building": {"indoor": 0.1},
    "battery": {"voltage": 5.0, "charge": 0.0005},
}

HIDDEN = {"acceleration_error", "envelope", "polarisation"}


def recordings(cell: Cell) -> "tuple[System, Iterator[tuple[np.ndarray, Recording]]]":
    """The model of a cell, and its simulated recordings with the parameters that made them.

    Args:
        cell: which.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import veil
    from veil.recordings import Recording
    from veil.systems import Battery, Building, Driver, IdmDriver, Series, System, WithColouredNoise
    from veil.systems.base import finite_prior
    from veil.systems.battery import drive_cycle
    from veil.systems.building import winter_month
    from veil.systems.driver import stop_and_go
    from veil.systems.probes import true_data_path
    from veil.systems.variants import WithPrior
    from veil.types import as_float64

    rows = cell.steps + 1

    def driver() -> Driver:
        return Driver(series=stop_and_go(rows), coloured_sd=0.03 if "steady" in cell.world else 0.15)

    def model() -> System:
        if cell.system == "driver":
            return driver()
        if cell.system == "building":
            return Building(series=winter_month(rows), envelope="mass" not in cell.world)
        # Drained for 1,000 steps, then charged: the current is limited only when it drains.
        once = np.asarray(drive_cycle(1001).values, float)[:, 0]
        back = np.where(np.arange(rows) // 1001 % 2 == 0, 1.0, -0.75)
        return Battery(series=Series({"demand": back * np.resize(once, rows)}))

    def plant(secret: np.ndarray) -> System:
        found = model()
        if "IDM" in cell.world:
            found = IdmDriver(driver())
        if cell.world == "missing mass":
            found = Building(series=winter_month(rows))
        if cell.coloured:
            found = WithColouredNoise(found, 0.7, 0.02)
        return as_float64(WithPrior(found, finite_prior(secret[None])))

    @eqx.filter_jit
    def simulate(system: System, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return true_data_path(system, cell.steps, number=jnp.asarray(0), key=key)

    fitted = model()
    rng = np.random.default_rng(sum(map(ord, cell.system + cell.world)) + cell.steps)

    def secret() -> np.ndarray:
        """Between the secrets of the prior of what is simulated."""
        prior = np.asarray((IdmDriver() if "IDM" in cell.world else model()).prior.secrets, float)
        if cell.system == "battery":  # wears on a curve
            place = rng.uniform(0, len(prior) - 1)
            return np.array([np.interp(place, range(len(prior)), column) for column in prior.T])
        return rng.uniform(prior.min(0), prior.max(0))

    def recording(true: np.ndarray, seed: int) -> Recording:
        with jax.enable_x64(True):
            states, external = (np.asarray(one) for one in simulate(plant(true), jr.key(seed)))
        table = {"time": np.arange(cell.steps) * float(fitted.step_seconds or 1.0)}
        for place, one in enumerate(fitted.state_fields):
            if one.name not in HIDDEN:
                table[one.name] = states[:-1, place]
        names = [one.name for one in (*fitted.external_fields, *fitted.exogenous_fields)]
        table |= {name: external[:, place] for place, name in enumerate(names)}
        if cell.world == "rounded":
            for name, step in ROUND[cell.system].items():
                table[name] = np.round(np.round(table[name] / step) * step, 6)
        if cell.world == "gaps":
            keep = np.ones(cell.steps, bool)
            for begin in rng.integers(100, cell.steps - 100, 3):
                keep[begin : begin + 17] = False
            table = {name: column[keep] for name, column in table.items()}
        return veil.read_recording(table, fitted)

    def each() -> "Iterator[tuple[np.ndarray, Recording]]":
        for number in range(cell.fits):
            true = secret()
            yield true, recording(true, number)

    return fitted, each()


def run(cell: Cell, folder: Path) -> Result:
    """Simulate and fit all recordings of a cell; fits that are in its file are not made again.

    Args:
        cell: which.
        folder: for a file with a line per fit.
    """
    import veil

    path = folder / "fits" / f"{name_of(cell)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    fitted, simulated = recordings(cell)
    for number, (true, log) in enumerate(simulated):
        if number < len(done):
            continue
        begin = time.process_time()
        one = veil.fit(fitted, log).individuals[0]
        seconds = time.process_time() - begin
        done.append({"true": true.tolist(), "seconds": seconds, "loss": one.rival_loss(50), **one.to_dict()})
        with path.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return summary(cell, done[: cell.fits])


def summary(cell: Cell, fits: Sequence[dict]) -> Result:
    """What the fits of a cell say together.

    Args:
        cell: which.
        fits: lines of fit.json, with the true parameters, the seconds and the loss to the best rival.
    """
    reasons: dict[str, int] = {}
    for one in fits:
        for test in one["examination"]:
            if test["p"] * len(one["examination"]) < 0.01:
                reasons[test["test"]] = reasons.get(test["test"], 0) + 1
    covered: dict[str, float] = {}
    gaps, lost = [], []
    if cell.right:
        for place, name in enumerate(fits[0]["parameters"]):
            ends = [one["parameters"][name]["interval"] for one in fits]
            true = [one["true"][place] for one in fits]
            inside = [low <= value <= high for value, (low, high) in zip(true, ends, strict=True)]
            covered[name] = float(np.mean(inside))
        for one in fits:
            laws = {(each["order"], each["heavy"], each["level"]): each for each in one["candidates"]}
            right = laws[(1 if cell.coloured else 0, False, False)]
            kept = laws[(one["order"], one["heavy_tails"], one["size_by_state"])]
            error = float(np.hypot(right["error"], kept["error"]))
            gaps.append(right["score"] - kept["score"] <= 2.0 * error + 1e-12)
            if cell.coloured and not one["order"]:
                lost.append(50.0 * (right["score"] - kept["score"]))
    return Result(
        cell,
        covered,
        float(np.mean([one["order"] > 0 for one in fits])),
        float(np.mean([one["heavy_tails"] for one in fits])),
        float(np.mean([one["size_by_state"] for one in fits])),
        float(np.mean(gaps)) if gaps else None,
        float(np.mean(lost)) if lost else None,
        float(np.std(lost, ddof=1) / np.sqrt(len(lost))) if len(lost) > 1 else None,
        float(np.mean([not one["explained"] for one in fits])),
        reasons,
        float(np.median([one["loss"] for one in fits])),
        float(np.median([one["seconds"] for one in fits[1:] or fits])),
    )


@dataclass(frozen=True)
class Study:
    """Fits of simulated recordings."""

    out: Path = Path("build/studies")
    """Folder for fitting.json"""
    fits: int = 100
    """Recordings per main cell"""
    workers: int = 2
    """Processes"""
    only: tuple[str, ...] = ()
    """Systems or worlds to run; all by default"""

    def run(self) -> None:
        """Run what is missing, print a line per cell, write the file after each."""
        path = self.out / "fitting.json"
        self.out.mkdir(parents=True, exist_ok=True)
        done = json.loads(path.read_text()) if path.exists() else []
        chosen = [
            cell
            for cell in cells(self.fits)
            if (not self.only or {cell.system, cell.world} & set(self.only))
            and asdict(cell) not in [one["cell"] for one in done]
        ]
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            for one in pool.map(partial(run, folder=self.out), chosen):
                done.append(asdict(one))
                path.write_text(json.dumps(done, indent=1) + "\n")
                print(line_of(done[-1]), flush=True)


def published(folder: Path, before: Sequence[dict]) -> list[dict]:
    """The rows of fitting.json: of all fits that there are, and for other cells those of an earlier version.

    Args:
        folder: of a study, finished or not.
        before: rows that were published; those that are not made anew are marked.
    """
    found = [{**one, "earlier": True} for one in before]
    places = [(one["cell"]["system"], one["cell"]["world"], one["cell"]["steps"]) for one in found]
    for cell in cells(60):
        path = folder / "fits" / f"{name_of(cell)}.jsonl"
        if not path.exists():
            continue
        fits = [json.loads(line) for line in path.read_text().splitlines()]
        if len(fits) < FEWEST:
            continue
        done = replace(cell, fits=min(len(fits), cell.fits))
        row = asdict(summary(done, fits[: done.fits]))
        place = places.index((cell.system, cell.world, cell.steps))
        found[place] = row
    return found


def name_of(cell: Cell) -> str:
    """Of the file of a cell."""
    return f"{cell.system}-{cell.world}-{cell.steps}".replace(" ", "-").replace(",", "")


def line_of(one: dict) -> str:
    """A cell and its result in one line."""
    cell = one["cell"]
    cover = " ".join(f"{name} {100 * part:.0f}" for name, part in one["covered"].items())
    return (
        f"{cell['system']:9s}{cell['world']:9s}{cell['steps']:5d} x{cell['fits']:4d}  cover % {cover}; "
        f"memory {one['memory']:.2f} heavy {one['heavy']:.2f} level {one['level']:.2f} "
        f"behind ok {one['behind']}; rejected {one['rejected']:.2f} {one['reasons']}; "
        f"rival {one['rival']:.2g}; {one['seconds']:.2f} s"
    )


def table(results: Sequence[dict]) -> str:
    """The table of docs/fit.md.

    Args:
        results: of all cells, as fitting.json has them.
    """
    lines = [
        "| system, recordings | steps | fits | 95 % intervals cover | noise taken as coloured "
        "| score as of the true order | rejected |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        cell, cover = one["cell"], [round(100 * part) for part in one["covered"].values()]
        ends = dict.fromkeys([min(cover), max(cover)]) if cover else {}
        covered = f"{' to '.join(map(str, ends))} %" if ends else "the model is wrong"
        score = "" if one["behind"] is None else f"{100 * one['behind']:.0f} %"
        lines.append(
            f"| {cell['system']}, {cell['world']}{' *' * one.get('earlier', False)} | {cell['steps']:,} | "
            f"{cell['fits']} | {covered} | {100 * one['memory']:.0f} % | {score} | "
            f"{100 * one['rejected']:.0f} % |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

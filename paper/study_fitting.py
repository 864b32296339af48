"""Does `veil fit` find what it should? Fits of simulated recordings whose parameters and noise are known.

Per system and cell: how often 95 % intervals contain the parameters, how often white noise is taken for white
and coloured for coloured, how far the chosen law of the noise is behind the true one on held-out steps, how
often a right model is rejected, and how often a wrong one is found. docs/fit.md shows fitting.json. Goes on
where it was.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import tyro

SHOWN = 1.96  # standard errors of a 95 % interval


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
            Cell(system, "white", 1000, fits),
            Cell(system, "coloured", 1000, fits, coloured=True),
            Cell(system, "white", 200, fits // 2),
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
    rejected: float
    reasons: dict[str, int]
    rival: float
    seconds: float


ROUND = {
    "driver": {"speed": 0.01, "spacing": 0.1},
    "building": {"indoor": 0.1},
    "battery": {"voltage": 5.0, "charge": 0.0005},
}

HIDDEN = {"acceleration_error", "envelope", "polarisation"}


def run(cell: Cell) -> Result:
    """Simulate and fit all recordings of a cell.

    Args:
        cell: which.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import veil
    from veil.recordings import Recording
    from veil.results.fit import Family, Individual
    from veil.systems import Battery, Building, Driver, IdmDriver, Series, System, WithColouredNoise
    from veil.systems.base import finite_prior
    from veil.systems.battery import drive_cycle
    from veil.systems.building import winter_month
    from veil.systems.driver import stop_and_go
    from veil.systems.scenarios import true_data_path
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

    found: list[tuple[np.ndarray, Individual]] = []
    times = []
    for number in range(cell.fits):
        true = secret()
        log = recording(true, number)
        begin = time.process_time()
        found.append((true, veil.fit(fitted, log).individuals[0]))
        times.append(time.process_time() - begin)
    reasons: dict[str, int] = {}
    for _, one in found:
        for test in one.examination.tests:
            if test.p * len(one.examination.tests) < 0.01:
                reasons[test.test] = reasons.get(test.test, 0) + 1
    covered: dict[str, float] = {}
    if cell.right:
        for place, each in enumerate(fitted.secret_fields):
            inside = [
                abs(one.parameters[place].value - true[place]) <= SHOWN * one.parameters[place].standard_error
                for true, one in found
            ]
            covered[each.name] = float(np.mean(inside))
    behind = None
    if cell.right:
        true_order = Family(1 if cell.coloured else 0)
        gaps = []
        for _, one in found:
            scores = {each.family: each for each in one.candidates}
            true_law, kept = scores[true_order], scores[one.family]
            error = float(np.hypot(true_law.standard_error, kept.standard_error))
            gaps.append(true_law.score - kept.score <= 2.0 * error + 1e-12)
        behind = float(np.mean(gaps))
    fits = [one for _, one in found]
    return Result(
        cell,
        covered,
        float(np.mean([one.family.order > 0 for one in fits])),
        float(np.mean([one.family.heavy for one in fits])),
        float(np.mean([one.family.level for one in fits])),
        behind,
        float(np.mean([not one.explained for one in fits])),
        reasons,
        float(np.median([one.rival_loss(50) for one in fits])),
        float(np.median(times[1:] or times)),
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
            for one in pool.map(run, chosen):
                done.append(asdict(one))
                path.write_text(json.dumps(done, indent=1) + "\n")
                print(line_of(done[-1]), flush=True)


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
        "| system, recordings | steps | fits | 95 % intervals cover | noise taken as coloured | rejected |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        cell, cover = one["cell"], [round(100 * part) for part in one["covered"].values()]
        ends = dict.fromkeys([min(cover), max(cover)]) if cover else {}
        covered = f"{' to '.join(map(str, ends))} %" if ends else "the model is wrong"
        lines.append(
            f"| {cell['system']}, {cell['world']} | {cell['steps']:,} | {cell['fits']} | {covered} | "
            f"{100 * one['memory']:.0f} % | {100 * one['rejected']:.0f} % |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

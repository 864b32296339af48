"""What `veil fit` and `veil measure` say about real recordings, from file to verdict.

The recordings do not come with Veil. `--data` names a folder with `dwelling_hourly_heating.csv` (an hourly
recording of a heated dwelling), `citylearn_2023p1_building1_hourly.csv` and its weather (a cooled building of
the CityLearn challenge), `ngsim_i80_pairs_0p2s.csv` (pairs of cars on a motorway) and
`ngsim_ovm_fits_tr_c_2024.csv` (published parameters of drivers). Half of every recording is held out.
docs/fit.md shows recordings.json. Goes on where it was.
"""

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from veil.beliefs.self_model import LONGEST
from veil.fitting.population import population
from veil.results.fit import Fit
from veil.results.measurement import load_measurements
from veil.results.parts import LEVEL
from veil.systems import Driver

CITY = {
    "indoor": "Indoor Temperature (C)",
    "outdoor": "Outdoor Drybulb Temperature (C)",
    "heat": "Heating Load (kWh)",
    "cooling": "Cooling Load (kWh)",
    "sun": "Direct Solar Radiation (W/m2)",
    "people": "Occupant Count (people)",
}

NO_WEATHER = ("cooling=0", "sun=0", "people=0")


@dataclass(frozen=True)
class Case:
    """A recording and the words of a command that say how to read it.

    Attributes:
        name: of the row.
        log: the file.
        system: that is fitted.
        words: flags of `veil fit` and `veil measure`.
    """

    name: str
    log: Path
    system: str
    words: tuple[str, ...]


def cases(data: Path, out: Path) -> list[Case]:
    """All recordings; the CityLearn building and its weather are put into one file first.

    Args:
        data: folder with the recordings.
        out: folder for what is written.
    """
    dwelling, pairs = data / "dwelling_hourly_heating.csv", data / "ngsim_i80_pairs_0p2s.csv"
    city = out / "citylearn.csv"
    building, weather = (
        list(csv.reader((data / f"citylearn_2023p1_{name}_hourly.csv").open()))
        for name in ("building1", "weather")
    )
    with city.open("w", newline="") as file:
        csv.writer(file).writerows(a + b for a, b in zip(building, weather, strict=False))
    named = tuple(f"{name}={column}" for name, column in CITY.items())
    units = ("--units", "indoor=degC", "outdoor=degC", "heat=kW", "cooling=kW")
    curve = ("indoor=Ti", "outdoor=Ta", "shift=0", "tariff=0.3", "people=0")
    cars = ("speed=v_fol", "spacing=gap", "automated_speed=v_lead")
    return [
        Case("dwelling, heating unknown", dwelling, "building", ("--columns", *curve)),
        Case(
            "dwelling, heating metered",
            dwelling,
            "metered_building",
            ("--columns", "indoor=Ti", "outdoor=Ta", "heat=Ph", *NO_WEATHER),
        ),
        Case("CityLearn building", city, "metered_building", ("--columns", *named, *units, "--time", "none")),
        Case("NGSIM pairs", pairs, "driver", ("--columns", *cars, "--each", "pair", "--time", "t")),
    ]


def run(case: Case, out: Path) -> dict:
    """Fit, then measure with the fit; what they found, in numbers.

    Args:
        case: the recording.
        out: folder for the files of both commands.
    """
    name = case.name.replace(",", "").replace(" ", "-")
    fit, measured = out / "fits" / name, out / "measure" / name
    _veil("fit", str(case.log), "--system", case.system, "--held-out", "0.5", *case.words, "--out", str(fit))
    _veil("measure", str(case.log), "--system", str(fit), *case.words, "--out", str(measured))
    return row(case, fit, measured)


def row(case: Case, fit: Path, measured: Path) -> dict:
    """What both commands wrote, in numbers.

    Args:
        case: the recording.
        fit: folder of the fit.
        measured: folder of the measurement.
    """
    found = Fit.load(fit).individuals
    told = load_measurements(measured)
    failing = [
        [test.test for test in one.examination.tests if test.p * len(one.examination.tests) < LEVEL]
        for one in found
    ]
    failed = Counter(
        kind
        for each in failing
        for kind in {test.removeprefix("rival: ").partition(" of ")[0] for test in each}
    )
    best = [max(one.rivals, key=lambda rival: rival.gain) for one in found]
    return {
        "name": case.name,
        "system": case.system,
        "individuals": len(found),
        "steps": float(np.median([one.steps for one in found])),
        "explained": sum(one.explained for one in found),
        "rival_in_50_steps": float(np.median([50.0 * rival.gain for rival in best])),
        "best_rival": Counter(rival.name for rival in best).most_common(1)[0][0],
        "held_out_log_score": float(np.median([one.score for one in found])),
        "failed_tests": dict(failed.most_common()),
        "longest_order": sum(one.family.order == LONGEST for one in found),
        "memory_alone": sum(bool(each) and all(_is_memory(test) for test in each) for each in failing),
        "verdicts": dict(Counter(one.verdict.title for one in told)),
        "information": float(np.median([one.information.value for one in told])),
        "discounted_information": float(np.median([one.discounted_information.value for one in told])),
        "largest_information": float(np.median([np.log(len(one.secrets)) for one in told])),
    }


def _is_memory(test: str) -> bool:
    """Whether a test looks at nothing but how long errors last, which a law of higher order might mend."""
    return test == "rival: a longer memory" or test.startswith("short memory")


def _veil(*words: str) -> None:
    """Run a command; 3 means that no recording is explained or decided, which is an answer."""
    code = subprocess.run([sys.executable, "-m", "veil", *words, "--again"], check=False).returncode
    if code not in (0, 3):
        raise SystemExit(f"veil {words[0]} ended with {code}")


def published_drivers(path: Path) -> dict:
    """The law of a population of drivers from published estimates.

    Args:
        path: table of parameters, one row per driver.
    """
    with path.open() as file:
        rows = np.array([[float(x) for x in line.values()] for line in csv.DictReader(file)])
    fields, size = Driver().secret_fields, rows.shape[1]
    low, high = np.array([one.low for one in fields]), np.array([one.high for one in fields])
    inside = np.all((rows >= low) & (rows <= high), axis=1)
    law = population(rows[inside], np.zeros((int(inside.sum()), size, size)), fields, 64)
    return {
        "drivers": len(rows),
        "inside_the_limits": int(inside.sum()),
        "names": [one.name for one in fields],
        "mean": np.asarray(law.mean).tolist(),
        "sd": np.sqrt(np.diag(np.asarray(law.covariance))).tolist(),
        "correlation": np.corrcoef(rows[inside].T).round(3).tolist(),
        "secrets": np.asarray(law.secrets).round(4).tolist(),
    }


@dataclass(frozen=True)
class Study:
    """Fits and measurements of real recordings."""

    data: Path
    """Folder with the recordings"""
    out: Path = Path("build/studies")
    """Folder for recordings.json and for the files of the commands"""
    only: tuple[str, ...] = ()
    """Rows to run; all by default"""

    def run(self) -> None:
        """Run what is missing and write the file after each row."""
        path = self.out / "recordings.json"
        self.out.mkdir(parents=True, exist_ok=True)
        done: dict = json.loads(path.read_text()) if path.exists() else {"rows": []}
        done["drivers"] = published_drivers(self.data / "ngsim_ovm_fits_tr_c_2024.csv")
        for case in cases(self.data, self.out):
            known = case.name in [row["name"] for row in done["rows"]]
            if not known and (not self.only or case.name in self.only):
                done["rows"].append(run(case, self.out))
                print(json.dumps(done["rows"][-1], indent=1), flush=True)
            path.write_text(json.dumps(done, indent=1) + "\n")


def table(rows: Sequence[dict]) -> str:
    """The table of docs/fit.md.

    Args:
        rows: of recordings.json.
    """
    lines = [
        "| recordings | system | steps | explained | best rival, nats in 50 steps | nats, if the model were "
        "right | verdict of `measure` |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        said = ", ".join(f"{name} ({count})" for name, count in row["verdicts"].items())
        lines.append(
            f"| {row['name']} | `{row['system']}` | {row['steps']:.0f} | {row['explained']} of "
            f"{row['individuals']} | {row['rival_in_50_steps']:.1f} ({row['best_rival']}) | "
            f"{row['information']:.2f} of {row['largest_information']:.2f} | {said} |"
        )
    return "\n".join(lines)


def reasons(rows: Sequence[dict]) -> str:
    """What docs/fit.md says about why the drivers are not explained.

    Args:
        rows: of recordings.json.
    """
    (found,) = (row for row in rows if row["name"] == "NGSIM pairs")
    tests, left = found["failed_tests"], found["individuals"] - found["explained"]
    return (
        f"Of the {left} drivers that are not explained, {tests['a longer memory']} fail against a longer "
        f"memory, {tests['short memory']} have correlated errors and {tests['size']} errors of another size. "
        f"Only {found['memory_alone']} fail in nothing but memory, and {found['longest_order']} have the "
        "longest colour that is tried: a higher order alone would explain few more."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    tyro.cli(Study, args=arguments).run()


if __name__ == "__main__":
    main()

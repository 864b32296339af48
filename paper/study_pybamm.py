"""What does the circuit of `veil.systems.Battery` say about a cell that it does not describe exactly?

PyBaMM simulates an LG M50 cell of 5 Ah (the parameters of Chen et al. 2020) by the single-particle model with
electrolyte, new and worn: with 20 mΩ more contact resistance and four fifths of the electrode. The drive
cycle has six tenths of the current of the battery system; a volt meter with an error of 3 mV and a current
sensor with a small error read the cell. `veil.measure` and `veil.fit` then see the two recordings, once with
the open-circuit voltage of the system and once with that of the simulated cell. docs/battery.md shows
pybamm.json.

Needs PyBaMM, which Veil does not: `make study-pybamm` installs both into an environment of its own.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import veil
from veil.recordings import Recording, read_recording
from veil.systems import Battery
from veil.systems.battery import drive_cycle

STEPS, SECONDS, START = 480, 5.0, 0.7

SHARE = 0.6  # of the current of the drive cycle; the worn cell cannot give all of it

FULL = 0.999  # state of charge where the slow discharge begins; a full cell stands at a limit of its voltage

VOLTAGE_SD, CHARGE_SD = 3.0, 2e-4  # mV; per step

CELLS = {"new": (0.0, 1.0), "worn": (0.02, 0.8)}
"""More contact resistance in Ω, and share of the electrode that is left."""


@dataclass(frozen=True)
class Row:
    """What Veil says about one simulated cell.

    Attributes:
        cell: "new" or "worn".
        capacity: of the simulated cell, Ah.
        resistance: by which its voltage falls in the first 5 s of a current, mΩ; R0 and a part of R1.
        open_circuit: whose open-circuit voltage the circuit has.
        verdict: of `veil.measure`.
        times_the_noise: size of the residuals of the voltage in units of the model's noise.
        likeliest: secret of the prior that the recording speaks for.
        estimates: by `veil.fit`, with their standard errors; empty where it was not asked.
        findings: what `veil.fit` holds against the model.
    """

    cell: str
    capacity: float
    resistance: float
    open_circuit: str
    verdict: str
    times_the_noise: float
    likeliest: tuple[float, ...]
    estimates: dict[str, tuple[float, float]]
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """Simulate two cells with PyBaMM, and measure and fit them with the circuit of the battery system."""

    out: Path = Path("build/studies")
    """folder for pybamm.json"""

    def main(self) -> None:
        """Simulate, measure, fit, print, write."""
        rows = list[Row]()
        for number, (name, (contact, electrode)) in enumerate(CELLS.items()):
            found = simulated(contact, electrode, seed=number)
            for whose in ("of the system", "of the cell"):
                rows.append(judged(name, found, whose))
                print(line(rows[-1]), flush=True)
        self.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(row) for row in rows], indent=1) + "\n"
        (self.out / "pybamm.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Cell:
    """A simulated cell.

    Attributes:
        recording: its drive, as sensors saw it.
        capacity: Ah.
        resistance: mΩ in the first 5 s.
        charges: states of charge at which the open-circuit voltage is known, rising.
        voltages: there, V.
    """

    recording: Recording
    capacity: float
    resistance: float
    charges: np.ndarray
    voltages: np.ndarray


def simulated(contact: float, electrode: float, *, seed: int) -> Cell:
    """A cell of PyBaMM on the drive cycle.

    Args:
        contact: more contact resistance, Ω.
        electrode: share of the electrode that is left.
        seed: of the errors of the sensors.
    """
    os.environ.setdefault("PYBAMM_DISABLE_TELEMETRY", "true")
    import pybamm  # pyright: ignore[reportMissingImports]

    values = pybamm.ParameterValues("Chen2020")
    values["Electrode height [m]"] = electrode * values["Electrode height [m]"]
    values["Contact resistance [Ohm]"] = contact

    demand = np.round(SHARE * np.asarray(drive_cycle(STEPS).values)[:, 0].astype(float), 2)
    edges = SECONDS * np.arange(1, STEPS)  # where the current changes, within a millisecond
    times = np.sort(np.concatenate([[0.0], edges - 1e-3, edges]))
    flowing = pybamm.Interpolant(times, np.repeat(demand, 2)[: len(times)], pybamm.t)

    def played(model: Any, current: object, charge: float, ends: np.ndarray, read: np.ndarray) -> Any:
        given = values.copy()
        given["Current function [A]"] = current
        made = pybamm.Simulation(model, parameter_values=given)
        return made.solve(ends, initial_soc=charge, t_interp=read)

    with_contact = {"contact resistance": "true"}
    hours = np.linspace(0.0, 60 * 3600.0, 1000)  # it ends where the cell is empty
    slow = played(pybamm.lithium_ion.SPM(with_contact), 0.1, FULL, hours[[0, -1]], hours)
    drawn, voltages = slow["Discharge capacity [A.h]"].entries, slow["Voltage [V]"].entries[::-1]
    capacity = float(drawn[-1]) / FULL
    charges = FULL - drawn[::-1] / capacity
    driven = played(pybamm.lithium_ion.SPMe(with_contact), flowing, START, times, edges - 2e-3)
    if driven.t[-1] < edges[-1] - 1.0:
        raise ValueError(
            f"The cell reached a limit of its voltage after {driven.t[-1]:.0f} s: start elsewhere."
        )
    volts = np.interp(edges - 2e-3, driven.t, driven["Voltage [V]"].entries)
    volts = np.concatenate([[np.interp(START, charges, voltages)], volts])
    passed = np.concatenate([[0.0], np.cumsum(demand[:-1])]) * SECONDS / 3600.0
    left = START - passed / capacity
    noise = np.random.default_rng(seed)
    jumps = np.diff(demand[:-1])
    falls = -1e3 * np.diff(volts)[1:]
    resistance = float(np.median((falls / np.where(jumps == 0.0, np.nan, jumps))[np.abs(jumps) > 1.0]))
    columns = {
        "time [s]": SECONDS * np.arange(STEPS),
        "voltage [mV]": np.round(1e3 * volts + VOLTAGE_SD * noise.normal(size=STEPS), 1),
        "charge": left + np.cumsum(CHARGE_SD * noise.normal(size=STEPS)),
        "limit": np.ones(STEPS),
        "demand [A]": demand,
    }
    recording = read_recording(columns, Battery())
    return Cell(recording, capacity, resistance, charges, voltages)


def judged(name: str, cell: Cell, whose: str) -> Row:
    """What Veil says about a cell.

    Args:
        name: of the cell.
        cell: the simulated one.
        whose: "of the system" or "of the cell": the open-circuit voltage that the circuit has.
    """
    with jax.enable_x64(True):
        charges, voltages = jnp.asarray(cell.charges), jnp.asarray(cell.voltages)
        system = Battery(initial_charge=(START, 0.05))
        if whose == "of the cell":
            # Smooth, so that its slope is one: a polynomial through the slow discharge.
            law = jnp.asarray(np.polyfit(cell.charges, cell.voltages, 9))
            error = float(jnp.max(jnp.abs(jnp.polyval(law, charges) - voltages)[charges > 0.1]))
            assert error < 0.02, error
            system = Battery(initial_charge=(START, 0.05), open_circuit=lambda z: jnp.polyval(law, z))
        found = veil.measure(system, cell.recording)
        best = int(np.argmax(found.masses))
        estimates, findings = dict[str, tuple[float, float]](), tuple[str, ...]()
        if whose == "of the cell":
            content = veil.fit(system, cell.recording).to_dict()
            one = content["individuals"][0]
            estimates = {
                key: (float(value["value"]), float(value["standard_error"]))
                for key, value in one["parameters"].items()
            }
            tests = content.get("examination") or one.get("examination") or []
            findings = tuple(str(test["test"]) for test in tests if float(test["p"]) < 0.01 / len(tests))
    return Row(
        cell=name,
        capacity=round(cell.capacity, 3),
        resistance=round(cell.resistance, 1),
        open_circuit=whose,
        verdict=found.verdict.name,
        times_the_noise=round(float(found.fit.axes[0].std_ratio), 2),
        likeliest=tuple(float(x) for x in np.asarray(system.prior.secrets)[best]),
        estimates=estimates,
        findings=findings,
    )


def line(row: Row) -> str:
    """One row of a table."""
    secret = f"{row.likeliest[0]:g}, {row.likeliest[1]:g}, {row.likeliest[2]:g}, {row.likeliest[3]:g}"
    fitted = ", ".join(f"{value:.3g} ± {error:.1g}" for value, error in row.estimates.values()) or "not asked"
    verdict = row.verdict.replace("_", " ")
    cells = (row.cell, row.open_circuit, verdict, f"{row.times_the_noise:.1f}", secret, fitted)
    return f"| {' | '.join(cells)} |"


def table(rows: list[Row]) -> str:
    """The table of the page."""
    heads = (
        "cell",
        "open-circuit voltage",
        "`measure` says",
        "times the noise",
        "likeliest of four",
        "`fit` says",
    )
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *map(line, rows)])


def read(file: Path) -> list[Row]:
    """The rows of a file."""
    found = json.loads(file.read_text(encoding="utf-8"))
    pairs = [{name: tuple(both) for name, both in row["estimates"].items()} for row in found]
    return [
        Row(
            **{
                **row,
                "likeliest": tuple(row["likeliest"]),
                "estimates": own,
                "findings": tuple(row["findings"]),
            }
        )
        for row, own in zip(found, pairs, strict=True)
    ]


if __name__ == "__main__":
    tyro.cli(Study).main()

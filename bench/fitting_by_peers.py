"""Peers for system identification, in an environment of their own: `python fitting_by_peers.py FOLDER`.

Reads the recordings that `bench.fitting` wrote into the folder, and writes one-step predictions of every row.
Nothing of Veil is imported here. A peer sees the held-in rows only, except for the readings and inputs before
the row that it predicts.
"""

import contextlib
import io
import itertools
import json
import logging
import sys
import time
from pathlib import Path

import flax.linen as nn  # pyright: ignore[reportMissingImports]
import jax
import numpy as np
from darkgreybox.models import Ti, TiTe  # pyright: ignore[reportMissingImports]
from jax_sysid.models import RNN, LinearModel  # pyright: ignore[reportMissingImports]

jax.config.update("jax_enable_x64", True)
logging.disable(logging.INFO)

VALIDATION = 0.2  # share of the held-in steps, the last ones, by which models are chosen
STARTS = (0, 1)
PENALTIES = (1e-4, 1e-2)  # on squared parameters
ORDERS = (1, 2, 4)
UNITS, STATES = 8, 3  # of the recurrent net


class Hidden(nn.Module):
    """One layer, then as many numbers as asked for."""

    out: int

    @nn.compact
    def __call__(self, x):
        """The net."""
        return nn.Dense(self.out)(nn.tanh(nn.Dense(UNITS)(x)))


def linear(order: int, start: int, penalty: float, outputs: int, inputs: int) -> LinearModel:
    """A stable state-space model; fed with the last readings it is a predictor in innovations form."""
    model = LinearModel(order, outputs, inputs, feedthrough=True, seed=start, stability=True)
    model.loss(rho_x0=1e-4, rho_th=penalty)
    model.optimization(adam_epochs=0, lbfgs_epochs=1000, iprint=-1)
    return model


def recurrent(order: int, start: int, penalty: float, outputs: int, inputs: int) -> RNN:
    """A small recurrent net, fed in the same way."""
    nets = {"FX": lambda: Hidden(order), "FY": lambda: Hidden(outputs)}
    model = RNN(order, outputs, inputs, **nets, x_scaling=0.5, seed=start)
    model.loss(rho_x0=1e-4, rho_th=penalty)
    model.optimization(adam_eta=0.01, adam_epochs=1000, lbfgs_epochs=1000, iprint=-1)
    return model


KINDS = {"jax-sysid, linear": (linear, ORDERS), "jax-sysid, recurrent net": (recurrent, (STATES,))}


def by_jax_sysid(kind: str, readings: np.ndarray, inputs: np.ndarray, held_in: int) -> np.ndarray:
    """Predictions of rows 1.. from the rows before, by the model that is best in validation.

    Args:
        kind: one of `KINDS`.
        readings: (T, y).
        inputs: (T, u).
        held_in: number of steps to learn from.
    """
    make, orders = KINDS[kind]
    change, before = np.diff(readings, axis=0), np.concatenate([readings, inputs], axis=1)[:-1]
    target, scale = _scaled(change, held_in)
    given, _ = _scaled(before, held_in)
    fitted = round((1.0 - VALIDATION) * held_in)

    def fitted_to(steps: int, choice, begin=None):
        model = make(*choice, target.shape[1], given.shape[1])
        if begin is not None:
            model.params, model.x0 = begin.params, begin.x0
        model.fit(target[:steps], given[:steps])
        return model, np.asarray(model.predict(model.x0, given)[0])

    tried = []
    for choice in itertools.product(orders, STARTS, PENALTIES):
        model, predictions = fitted_to(fitted, choice)
        misses = predictions[fitted:held_in] - target[fitted:held_in]
        error = float(np.sum(np.log(np.mean(misses**2, axis=0))))
        tried.append((error if np.isfinite(error) else np.inf, choice, model))
    _, choice, model = min(tried, key=lambda one: one[0])
    _, predictions = fitted_to(held_in, choice, begin=model)
    mean, sd = scale
    return readings[:-1] + mean + sd * predictions


def _scaled(values: np.ndarray, held_in: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    mean, sd = values[:held_in].mean(axis=0), values[:held_in].std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    return (values - mean) / sd, (mean, sd)


def by_darkgreybox(readings: np.ndarray, outdoor: np.ndarray, heat: np.ndarray, held_in: int) -> np.ndarray:
    """The better of one and two capacities in validation, each fitted as it comes and to one-step errors.

    Args:
        readings: (T,) temperatures of the room.
        outdoor: (T,) temperatures outside.
        heat: (T,) all heat into the room, kW: more than Veil is told.
        held_in: number of steps to learn from.
    """
    known = {"Ta": outdoor, "Ph": heat}
    first = {"value": readings[0], "vary": False}
    positive = {"min": 0.5, "max": 1e3}  # below it the peer's steps of an hour are not stable
    one = {"Ti0": first, "Ria": {"value": 7.0, **positive}, "Ci": {"value": 8.0, **positive}}
    two = {
        "Ti0": first,
        "Te0": {"value": readings[0] - 5.0, "min": -30.0, "max": 40.0},
        "Rie": {"value": 2.0, **positive},
        "Rea": {"value": 5.0, **positive},
        "Ci": {"value": 2.0, **positive},
        "Ce": {"value": 6.0, **positive},
    }

    def one_step(model, params, rows: slice) -> np.ndarray:
        """Each row from the one before; what is not measured follows from its own prediction."""
        hidden, found = {"Te0": params["Te0"].value} if "Te0" in params else {}, []
        inputs = {name: values[rows] for name, values in known.items()}
        for place, reading in enumerate(readings[rows][:-1]):
            params["Ti0"].value = reading
            for name, value in hidden.items():
                params[name].value = value
            result = model(params=params, X={name: v[place : place + 2] for name, v in inputs.items()})
            hidden = {f"{name}0": result.var[name][1] for name in ("Te",) if name in result.var}
            found.append(result.Z[1])
        return np.array(found)

    def objective(params, *_, model, X, y):
        del X
        mine = params.copy()
        return one_step(model, mine, slice(len(y))) - y[1:]

    def fitted(kind, start, steps: int, errors) -> np.ndarray:
        rows = slice(steps + 1)
        model = kind(start, rec_duration=1.0)
        given = {name: values[rows] for name, values in known.items()}
        try:
            model.fit(given, readings[rows], method="leastsq", obj_func=errors)
        except ValueError:  # how the peer tells that it diverged
            return np.full(len(readings) - 1, np.inf)
        return one_step(model.model, model.params.copy(), slice(None))

    tries = [
        (kind, start, errors) for kind, start in ((Ti, one), (TiTe, two)) for errors in (None, objective)
    ]
    part = round((1.0 - VALIDATION) * held_in)
    misses = [fitted(kind, start, part, errors) - readings[1:] for kind, start, errors in tries]
    scores = [float(np.mean(miss[part:held_in] ** 2)) for miss in misses]
    kind, start, errors = tries[int(np.nanargmin(scores))]
    return fitted(kind, start, held_in, errors)


def predicted(peer: str, data: dict[str, np.ndarray]) -> np.ndarray:
    """One-step predictions of a recording by a peer."""
    held_in = int(data["held_in"])
    if peer in KINDS:
        return by_jax_sysid(peer, data["readings"], data["inputs"], held_in)
    return by_darkgreybox(data["readings"][:, 0], data["outdoor"], data["heat"], held_in)[:, None]


def main(folder: Path) -> None:
    """Predict every recording by every peer that it suits."""
    found = []
    for path in sorted(folder.glob("recording-*.npz")):
        data = dict(np.load(path, allow_pickle=False))
        for peer in (*KINDS, "darkgreybox") if "heat" in data else tuple(KINDS):
            began = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                predictions = predicted(peer, data)
            seconds = time.process_time() - began
            name = f"predictions-{len(found):02d}.npy"
            np.save(folder / name, predictions)
            found.append({"recording": path.stem, "peer": peer, "seconds": seconds, "predictions": name})
    (folder / "peers.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

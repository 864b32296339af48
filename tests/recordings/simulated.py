"""Recordings simulated with numpy alone, and the likelihoods that follow from how they were made."""

import csv

import numpy as np
from scipy import signal

from veil.recordings import read_recording

DRIVERS = np.array([(0.4, 0.5), (0.7, 0.8), (1.0, 1.1), (1.3, 1.4)])
GAINS = np.array([0.3, 0.6, 0.9])
DT, SPEED_SD, SPACING_SD = 0.2, 0.02, 0.1


def wanted(spacing):
    return 15.0 * (1.0 - np.cos(np.pi * np.clip((spacing - 5.0) / 30.0, 0.0, 1.0)))


def driver(secret, speed, spacing, ahead, error=0.0):
    """Mean of the next (speed, spacing)."""
    push = secret[0] * (wanted(spacing) - speed) + secret[1] * (ahead - speed) + error
    faster = np.clip(speed + DT * np.clip(push, -5.0, 5.0), 0.0, 30.0)
    return np.stack([faster, spacing + DT * (ahead - speed)], axis=-1)


def drive(secret, steps, rng, *, coloured=0.0, keep=0.0, speed_sd=SPEED_SD):
    """(T, 2) states and (T,) speeds ahead of a drive behind a car whose speed wanders around 15 m/s."""
    ahead = 15.0 + filtered(0.15 * rng.standard_normal(steps), 0.97)
    error = ar1(steps, keep, rng) * coloured
    states = [np.array([15.0, 20.0])]
    for t in range(steps - 1):
        noise = rng.standard_normal(2) * (speed_sd, SPACING_SD)
        states.append(driver(secret, states[-1][0], states[-1][1], ahead[t], error[t]) + noise)
    return np.array(states), ahead


def ar1(count, keep, rng):
    """Stationary with variance one; white for keep = 0."""
    noise = rng.standard_normal(count) * np.sqrt(1.0 - keep**2)
    noise[0] /= np.sqrt(1.0 - keep**2)
    return filtered(noise, keep)


def filtered(noise, keep):
    """x_t = keep x_{t−1} + noise_t."""
    return np.asarray(signal.lfilter([1.0], [1.0, -keep], noise))


def drive_log_likelihoods(states, ahead):
    """(T - 1, K) exact log transition densities per step and driver."""
    found = []
    for secret in DRIVERS:
        z = (states[1:] - driver(secret, states[:-1, 0], states[:-1, 1], ahead[:-1])) / (SPEED_SD, SPACING_SD)
        found.append(np.sum(-0.5 * z**2 - np.log(2 * np.pi) / 2 - np.log([SPEED_SD, SPACING_SD]), axis=1))
    return np.stack(found, axis=1)


def loop(gain, steps, rng, sd=0.3):
    """(T, 1) levels and (T, 1) pushes of the scalar loop x' = gain x + w + noise; w is white here."""
    level, push = [1.0], 0.5 * rng.standard_normal(steps)
    for t in range(steps - 1):
        level.append(gain * level[-1] + push[t] + sd * rng.standard_normal())
    return np.array(level)[:, None], push[:, None]


def softmax(log_likelihood):
    weights = np.exp(log_likelihood - log_likelihood.max())
    return weights / weights.sum()


def write(path, columns):
    """A CSV file of these columns."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def write_drive(path, states, ahead, dt=DT, **more):
    """A drive under the column names of the follow-the-leader recordings."""
    times = np.round(dt * np.arange(len(ahead)), 6)
    return write(path, {"t": times, "v_lead": ahead, "v_fol": states[:, 0], "gap": states[:, 1], **more})


def recorded(system, states, external, seen=None):
    """A recording of these rows, read from arrays by the names of the fields of a system."""
    there = zip(system.state_fields, states.T, seen or (True,) * states.shape[1], strict=True)
    inputs = zip(system.external_fields, external.T, strict=True)
    columns = {field.name: column for field, column, flag in there if flag}
    return read_recording(columns | {field.name: column for field, column in inputs})


COLUMNS = {"speed": "v_fol", "spacing": "gap", "automated_speed": "v_lead"}

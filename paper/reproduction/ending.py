"""When a training of the printed learner ends: settled, diverged, or at its last update.

The rule looks after every `WINDOW` updates at the means over whole windows.

- *settled*: from window to window the mean Q changed by less than `SETTLED`, and the mean distortion by less
  than `MOVED`, twice in a row. Once would also hold where Q turns; and Q alone stands still for some hundred
  updates while the releases wander off (`paper/study_long_training.py`).
- *diverged*: in two windows in a row the releases were, in the mean, further from the data than any two
  states of the platoon lie apart (`FARTHEST`), so that they are no longer releases of a platoon at all.
"""

import numpy as np

WINDOW = 100  # updates

SETTLED = 0.02  # relative change of the mean Q from one window to the next

MOVED = 0.1  # of the mean distortion, likewise

FARTHEST = 60.0  # √(3 · 30² + 30²): between speeds of 0 and 30 m/s and spacings of 5 and 35 m

SETTLED_WORD, DIVERGED_WORD, OVER = "settled", "diverged", "all updates made"


def ending(lines: list[dict[str, float]]) -> str:
    """Why a training with these metrics ends now; empty while it goes on."""
    if not lines or lines[-1]["update"] % WINDOW:
        return ""
    far = windows(series(lines, "distortion"))
    if len(far) >= 2 and not np.any(far[-2:] <= FARTHEST):  # not a number counts as far
        return DIVERGED_WORD
    still = steady(windows(mean_values(lines)), SETTLED) and steady(far, MOVED)
    return SETTLED_WORD if still else ""


def steady(values: np.ndarray, share: float) -> bool:
    """Whether the last three numbers differ by less than this share, each from the one before it."""
    last = values[-3:]
    return len(last) == 3 and bool(np.all(np.abs(np.diff(last)) < share * np.abs(last[:-1])))


def mean_values(lines: list[dict[str, float]]) -> np.ndarray:
    """Mean Q of every update: as printed, the actor's loss is nothing else."""
    return series(lines, "actor_loss")


def series(lines: list[dict[str, float]], name: str) -> np.ndarray:
    """A metric of every update that has it."""
    return np.array([line[name] for line in lines if name in line])


def windows(values: np.ndarray) -> np.ndarray:
    """Means over whole windows, from the first update on; a rest that is shorter is left out."""
    return blocks(values, WINDOW)


def blocks(values: np.ndarray, size: int) -> np.ndarray:
    """Means over so many each."""
    return values[: len(values) // size * size].reshape(-1, size).mean(axis=1)


def change(values: np.ndarray) -> float | None:
    """How much the mean over the last window differs from the one before, relative to the latter."""
    if len(values) < 2 * WINDOW:
        return None
    before, last = values[-2 * WINDOW : -WINDOW].mean(), values[-WINDOW:].mean()
    return float(abs(last - before) / abs(before))

"""The numbers that the paper prints, per true secret in its order."""

from typing import Literal

Who = Literal["true", "discrete", "continuous"]

What = Literal["fuel", "squared", "change"]

FUEL: dict[Who, tuple[float, ...]] = {
    "true": (1.24, 1.24, 1.25, 1.26),
    "discrete": (1.29, 1.30, 1.34, 1.35),
    "continuous": (1.25, 1.25, 1.26, 1.27),
}
"""Table 1: expected fuel consumption, mL/s."""

SQUARED: dict[Who, tuple[float, ...]] = {
    "true": (0.04, 0.05, 0.06, 0.08),
    "discrete": (0.11, 0.13, 0.16, 0.19),
    "continuous": (0.10, 0.11, 0.12, 0.12),
}
"""Table 2: E[a²], m²/s⁴."""

CHANGE: dict[Who, tuple[float, ...]] = {
    "true": (0.03, 0.04, 0.06, 0.09),
    "discrete": (0.04, 0.06, 0.09, 0.15),
    "continuous": (0.03, 0.05, 0.07, 0.10),
}
"""Table 2: E[(Δa)²], m²/s⁴."""

PRINTED: dict[What, dict[Who, tuple[float, ...]]] = {"fuel": FUEL, "squared": SQUARED, "change": CHANGE}

DISTORTION = 4.0  # per step: the printed limit of 200 over 50 steps

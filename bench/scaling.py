"""Cost against the number of components, for every leakage method, and what each of them says."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from bench import report
from bench.timing import Job, race
from veil import leakage
from veil.laws import Components, gaussian, grouped

SECRETS, DIMENSIONS = 4, 2
LONGEST = 20.0  # seconds: a size that is expected to take longer is skipped
FITTED = 3  # sizes, the largest ones, that the exponent is fitted to

Labelled = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# Jitted, float32, on the [secrets, particles] layout of a belief.
COMPILED: dict[str, Callable[[Components], jax.Array]] = {
    "kl_entropy": lambda c: leakage.kl_entropy(c.log_weights, c.parts),
    "chernoff_entropy": lambda c: leakage.chernoff_entropy(c.log_weights, c.parts),
    "likelihood_entropy": lambda c: leakage.likelihood_entropy(c.log_weights, c.parts),
    "tilt_entropy": lambda c: leakage.tilt_entropy(c.log_weights, c.parts),
    "reference_entropy": lambda c: leakage.reference_entropy(c.log_weights, c.parts),
    "regime_adaptive": leakage.regime_adaptive,
    "reference": leakage.reference,
    "matched": leakage.matched,
    "coupled": leakage.coupled,
    "closed_form": leakage.closed_form,
    "estimate": lambda c: leakage.estimate(c, key=jr.key(0)),
    "estimate_per_component": lambda c: leakage.estimate_per_component(c, key=jr.key(0)),
}
# numpy in, float64.
DOORS = ("estimate", "confidence_bound", "quadrature", "closed_form")


def policy_like(count: int, shift: float, seed: int = 0) -> Labelled:
    """Releases x + noise of sd 0.5, where x has sd 2 and moves by `shift` from one secret to the next."""
    generator = np.random.default_rng(seed)
    each = count // SECRETS
    mean = 2.0 * generator.standard_normal((SECRETS, each, DIMENSIONS))
    mean[..., 0] += shift * np.arange(SECRETS)[:, None]
    covariance = np.broadcast_to(0.25 * np.eye(DIMENSIONS), (count, DIMENSIONS, DIMENSIONS))
    return (
        np.repeat(np.arange(SECRETS), each),
        np.full(count, 1.0 / count),
        mean.reshape(count, -1),
        covariance,
    )


def on_layout(mixture: Labelled) -> Components:
    """The same mixture in float32 as a belief would hand it over."""
    _, weight, mean, covariance = (np.asarray(array, np.float32) for array in mixture)
    shape = (SECRETS, len(weight) // SECRETS)
    law = gaussian(jnp.asarray(mean.reshape(*shape, -1)), jnp.asarray(covariance.reshape(*shape, 2, 2)))
    return grouped(jnp.log(jnp.asarray(weight).reshape(shape)), law)


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Time every method at every size, print, and return what to record."""
    del folder
    sizes = (64,) if fast else (64, 256, 1024, 4096)
    mixtures = {count: policy_like(count, 0.5) for count in sizes}
    programs = {name: _compiled(function) for name, function in COMPILED.items()}
    programs |= {f'door "{name}"': _door(name) for name in DOORS}
    seconds = {name: _against_size(program, mixtures, fast) for name, program in programs.items()}
    exponents = {name: _exponent(times) for name, times in seconds.items()}
    _print_costs(sizes, seconds, exponents)
    values = _values(64 if fast else 1024, (0.5,) if fast else (0.0, 0.1, 0.5, 1.0))
    return {"seconds": seconds, "exponents": exponents, "values": values}


Program = Callable[[Labelled], Job]


def _compiled(function: Callable[[Components], jax.Array]) -> Program:
    jitted = jax.jit(function)

    def program(mixture: Labelled) -> Job:
        components = on_layout(mixture)
        return lambda: jitted(components)

    return program


def _door(name: str) -> Program:
    return lambda mixture: lambda: leakage.mutual_information(*mixture, method=name)


def _against_size(program: Program, mixtures: dict[int, Labelled], fast: bool) -> dict[int, float]:
    """Least seconds by size, up to the size that would take too long."""
    seconds: dict[int, float] = {}
    for count, mixture in mixtures.items():
        if seconds and seconds[last := max(seconds)] * (count / last) ** 2 > LONGEST:
            break
        timed = race({"": program(mixture)}, rounds=2 if fast else 4, patience=0.5 if fast else 2.0)
        seconds[count] = timed[""].seconds
    return seconds


def _exponent(seconds: dict[int, float]) -> float:
    """Slope of log time against log size over the larger sizes; nan if there is one size only."""
    if len(seconds) < 2:
        return float("nan")
    counts, times = zip(*list(seconds.items())[-FITTED:], strict=True)
    return float(np.polyfit(np.log(counts), np.log(times), 1)[0])


def _values(count: int, shifts: tuple[float, ...]) -> dict[str, dict[str, float]]:
    """What the paper's bound says, and what a live charge would use, next to the truth."""
    methods = ("quadrature", "estimate", "confidence_bound", "closed_form", "regime_adaptive", "kl_chernoff")
    values = {
        f"{shift}": {
            name: float(leakage.mutual_information(*policy_like(count, shift), method=name))
            for name in methods
        }
        for shift in shifts
    }
    rows = []
    for shift, said in values.items():
        ratios = [f"{said['regime_adaptive'] / said[name]:.1f}" for name in ("closed_form", "estimate")]
        rows.append([shift, *(f"{said[name]:.4f}" for name in methods), *ratios])
    named = [name.replace("_", " ") for name in methods]
    columns = ["shift", *named, "paper / closed form", "paper / estimate"]
    note = (
        "y = x + noise, x of sd 2, noise of sd 0.5, the secrets `shift` apart; nats, at most log 4 = 1.386."
    )
    report.table(f"What the methods say, {count} components", columns, rows, note)
    return values


def _print_costs(sizes, seconds: dict[str, dict[int, float]], exponents: dict[str, float]) -> None:
    rows = [
        [
            name,
            *(report.duration(times[count]) if count in times else "–" for count in sizes),
            f"{exponents[name]:.2f}".replace("nan", "–"),
        ]
        for name, times in seconds.items()
    ]
    note = (
        f"{SECRETS} secrets, d = {DIMENSIONS}. Names: compiled, float32, grouped by secret. Doors: "
        f"mutual_information, float64, numpy in. Exponent: fitted over the {FITTED} largest sizes; "
        f"–: one size only, or over {LONGEST:.0f} s."
    )
    columns = ["N =", *map(str, sizes), "exponent"]
    report.table("Cost of every leakage method against the number of components", columns, rows, note)

"""What a user calls against the kernel inside: `veil.mutual_information` beside compiled float32 programs."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bench import report
from bench.mixture_inputs import inputs
from bench.timing import Job, race
from veil import leakage
from veil.laws import Components, gaussian, grouped
from veil.leakage.pair_sums import WIDE

SECRETS = 4
ASKED = {"equal groups": 5.0, "ragged groups": 10.0}  # times the kernel
RAGGED = (0.1, 0.2, 0.3, 0.4)  # shares of the groups
SIZES = {"regime_adaptive": 5184, "closed_form": 4096}


def kernel(method: str, components: Components) -> Job:
    """The program that the method is about, on the layout of a belief, compiled as the door compiles."""
    if method == "regime_adaptive":
        entropy = jax.jit(leakage.kl_entropy, compiler_options=WIDE)
        return lambda: entropy(components.log_weights, components.parts)
    bound = jax.jit(leakage.closed_form, compiler_options=WIDE)
    return lambda: bound(components)


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Race kernels and doors, print, and return what to record."""
    del folder
    rows, ratios, noise = [], {}, {}
    for method, count in SIZES.items():
        count = 256 if fast else count
        given = inputs(count)
        shape = (SECRETS, count // SECRETS)
        law = gaussian(
            *(jnp.asarray(a.reshape(*shape, *a.shape[1:])) for a in (given.mean, given.covariance))
        )
        components = grouped(jnp.log(jnp.asarray(given.weight).reshape(shape)), law)
        edges = np.round(np.cumsum(RAGGED)[:-1] * count).astype(int)
        labels = {
            "equal groups": np.repeat(np.arange(SECRETS), count // SECRETS),
            "ragged groups": np.searchsorted(edges, np.arange(count), side="right"),
        }
        weight = np.asarray(given.weight, float) / np.sum(given.weight, dtype=float)

        def door(secret, method=method, weight=weight, given=given) -> Job:
            mixture = (secret, weight, given.mean, given.covariance)
            return lambda: np.asarray(float(leakage.mutual_information(*mixture, method=method)))

        jobs = {"kernel": kernel(method, components), **{name: door(own) for name, own in labels.items()}}
        # Many rounds, because a door takes four times as long as its kernel: of few calls the least would be
        # undisturbed for the kernel more often than for the door.
        timed = race(jobs, rounds=2 if fast else 40, patience=3.0)
        base = timed["kernel"]
        rows.append([f"{method}, {count}", "kernel", report.duration(base.seconds), "", ""])
        for name in labels:
            ratio = timed[name].seconds / base.seconds
            # Another name than before the kernel was compiled so: those ratios were to a slower one.
            kept = f"{method}, {name}, wide kernel"
            ratios[kept], noise[kept] = ratio, timed[name].noise + base.noise
            passed = report.verdict(ratio, at_most=ASKED[name])
            row = ["", name, report.duration(timed[name].seconds), f"{ratio:.1f}"]
            rows.append([*row, f"≤ {ASKED[name]:.0f} {passed}"])
    note = (
        "Kernels: kl_entropy for regime_adaptive, closed_form for closed_form; float32, compiled for wide "
        "registers as the door. Doors: "
        f"numpy in, a bound in nats out. Ragged: shares of {', '.join(map(str, RAGGED))}."
    )
    columns = ["method, components", "", "time", "times the kernel", "asked"]
    report.table("The public door against its kernel", columns, rows, note)
    return {"ratios": ratios, "noise": noise}

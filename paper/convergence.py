"""What the convergence studies share: quadrature, fitted rates, a table, a file and a picture."""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from veil.laws import Components
from veil.types import Scalar


@dataclass(frozen=True)
class Rate:
    """error ≈ constant · N^exponent, fitted on logarithms, with the standard error of the exponent."""

    exponent: float
    standard_error: float


def line(reach: float, step: float) -> Float[Array, " G"]:
    """Nodes of the trapezoid rule, which converges geometrically for smooth functions that die out."""
    return jnp.arange(-reach, reach + step / 2, step)


def log_densities(components: Components, nodes: Float[Array, " G"]) -> Float[Array, "K G"]:
    """Densities log p_k(y) at the nodes for scalar releases stored in blocks of equal size."""
    mean, sd = components.parts.mean[:, 0], components.parts.scale[:, 0, 0]
    apart = (nodes[None, :] - mean[:, None]) / sd[:, None]
    terms = components.log_conditional[:, None] - 0.5 * apart**2 - jnp.log(sd * jnp.sqrt(2 * jnp.pi))[:, None]
    return logsumexp(terms.reshape(components.secrets, -1, nodes.shape[0]), axis=1)


def information(components: Components, nodes: Float[Array, " G"]) -> Scalar:
    """I(Θ; Y) in nats for scalar releases, by the trapezoid rule."""
    masses = jnp.exp(components.log_masses)
    density = jnp.exp(log_densities(components, nodes))
    whole = masses @ density
    gain = masses @ xlogy(density, density) - xlogy(whole, whole)
    return jnp.sum(gain) * (nodes[1] - nodes[0])


def fit(counts: list[int], errors: list[float]) -> Rate:
    """Least squares on logarithms."""
    x, y = np.log(counts), np.log(errors)
    design = np.stack([np.ones_like(x), x], axis=1)
    solution, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = float(residual[0]) / max(len(x) - 2, 1)
    return Rate(float(solution[1]), float(np.sqrt(variance * np.linalg.inv(design.T @ design)[1, 1])))


def arguments(text: str) -> argparse.Namespace:
    """`--out` and `--fast`, for every study."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--out", type=Path, default=Path("build/studies"), help="folder for JSON and PNG")
    parser.add_argument("--fast", action="store_true", help="a version of a few seconds")
    return parser.parse_args()


def publish(
    name: str, counts: list[int], curves: dict[str, list[float]], extra: dict, out: Path
) -> dict[str, Rate]:
    """Print the table, write `<name>.json` and `<name>.png`, and return the fitted rates."""
    rates = {label: fit(counts, errors) for label, errors in curves.items()}
    width = max(len(label) for label in curves) + 2
    print(f"{'particles per secret':<{width}}" + "".join(f"{count:>10d}" for count in counts) + "      rate")
    for label, errors in curves.items():
        cells = "".join(f"{error:>10.2e}" for error in errors)
        print(f"{label:<{width}}{cells}  {rates[label].exponent:+.3f} ± {rates[label].standard_error:.3f}")
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "particles_per_secret": counts,
        "root_mean_square_error": curves,
        "rates": {label: asdict(rate) for label, rate in rates.items()},
        **extra,
    }
    (out / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    draw(counts, curves, rates, out / f"{name}.png")
    return rates


def draw(counts: list[int], curves: dict[str, list[float]], rates: dict[str, Rate], path: Path) -> None:
    """Errors against particles, both logarithmic, with a line of slope −1/2 to compare."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for marker, (label, errors) in zip("osD^vP", curves.items(), strict=False):
        rate = rates[label]
        axes.loglog(
            counts, errors, marker=marker, label=f"{label}: {rate.exponent:+.2f} ± {rate.standard_error:.2f}"
        )
    top = 1.3 * max(errors[0] for errors in curves.values())
    axes.loglog(counts, top * np.sqrt(counts[0] / np.asarray(counts)), "k--", lw=1, label="slope −1/2")
    axes.set_xlabel("particles per secret")
    axes.set_ylabel("root mean square error")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)

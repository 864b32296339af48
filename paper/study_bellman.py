"""Convergence of the Bellman value of the particle belief, on two steps with a menu of three kernels.

The scalar gain loop, T = 2, kernels x + sd·ε with sd from a menu, stage cost ρ I(Θ; Y_t | h_t) +
λ E|Y_t − X_t|. The exact value nests a Kalman update inside a quadrature over y_1; the particle value does
the same with `ParticleBelief` in place of the Kalman bank and the particle mixture in place of the law of
y_1. The reaction w_2 moves x_3 only, so it does not enter the value of two steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from convergence import arguments, information, line, log_densities, publish
from jaxtyping import Array, Float

from veil.beliefs import Belief, KalmanBelief, ParticleBelief, Scheme
from veil.policies.plain import NoiseKernel
from veil.systems.gain import Gain
from veil.types import Scalar

MENU = (0.3, 0.6, 1.2)
PRIVACY = 5.0  # ρ, cost per nat
PRICE = 0.1  # λ, cost per unit of distortion
REACH = 7.0


def stage_cost(system: Gain, belief: Belief, sd: float, nodes: Float[Array, " G"]) -> Scalar:
    """ρ I(Θ; Y_t | h_t) + λ E|Y_t − X_t|, the latter in closed form."""
    charge = information(belief.components(NoiseKernel(system, jnp.asarray([sd]))), nodes)
    return PRIVACY * charge + PRICE * sd * jnp.sqrt(2.0 / jnp.pi)


def last_value(system: Gain, belief: Belief, nodes: Float[Array, " G"]) -> Scalar:
    """V_2(β) = min over the menu of the stage cost."""
    return jnp.min(jnp.stack([stage_cost(system, belief, sd, nodes) for sd in MENU]))


def first_values(
    system: Gain, belief: Belief, nodes: Float[Array, " G"], *, key: Array
) -> Float[Array, " U"]:
    """Q_1(β, sd) for each sd of the menu: stage cost plus E[V_2(β_2)] over y_1."""
    values = []
    for sd in MENU:
        kernel = NoiseKernel(system, jnp.asarray([sd]))
        mixture = belief.components(kernel)
        density = jnp.exp(mixture.log_masses) @ jnp.exp(log_densities(mixture, nodes))

        def after(shared, kernel=kernel):
            moved, _ = belief.update(system, kernel, system.first_external(), shared[None], key=key)
            return last_value(system, moved, nodes)

        future = jnp.sum(density * jax.lax.map(after, nodes)) * (nodes[1] - nodes[0])
        values.append(stage_cost(system, belief, sd, nodes) + future)
    return jnp.stack(values)


def particle_values(
    system: Gain, count: int, repeats: int, scheme: Scheme, step: float
) -> Float[Array, "R U"]:
    """Q_1 of independent particle beliefs, one row per repeat."""

    def one(key):
        start_key, run_key = jr.split(key)
        belief = ParticleBelief.start(system, count, key=start_key, scheme=scheme)
        return first_values(system, belief, line(REACH, step), key=run_key)

    return eqx.filter_jit(lambda keys: jax.lax.map(one, keys))(jr.split(jr.key(count), repeats))


def main() -> None:
    """Run the study."""
    options = arguments("Convergence of the Bellman value in the number of particles.")
    counts = [16, 32, 64] if options.fast else [16, 32, 64, 128, 256, 512, 1024]
    repeats, step = (4, 0.25) if options.fast else (24, 0.2)
    system = Gain()
    exact = first_values(system, KalmanBelief.start(system), line(9.0, 0.05), key=jr.key(0))
    value = jnp.min(exact)
    curves: dict[str, list[float]] = {}
    chosen: dict[str, list[float]] = {}
    schemes = (
        {"coupled": Scheme()} if options.fast else {"coupled": Scheme(), "independent": Scheme(coupled=False)}
    )
    for label, scheme in schemes.items():
        for count in counts:
            rows = particle_values(system, count, repeats, scheme, step)
            error = jnp.min(rows, axis=1) - value
            curves.setdefault(f"value, {label}", []).append(float(jnp.sqrt(jnp.mean(error**2))))
            worst = jnp.max(jnp.abs(rows - exact[None, :]), axis=1)
            curves.setdefault(f"worst of the menu, {label}", []).append(float(jnp.sqrt(jnp.mean(worst**2))))
            same = jnp.argmin(rows, axis=1) == jnp.argmin(exact)
            chosen.setdefault(label, []).append(float(jnp.mean(same)))
    extra = {"exact_value": float(value), "exact_menu": exact.tolist(), "menu": MENU, "repeats": repeats}
    extra["share_of_right_choices"] = chosen
    publish("bellman", counts, curves, extra, options.out)
    print(
        f"exact V_1 = {float(value):.6f}; menu {[round(float(q), 4) for q in exact]}; right choices {chosen}"
    )


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()

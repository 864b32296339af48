"""How far leakage can move when the kernel moves: the modulus behind "any continuous policy"."""

import math


def information_modulus(total_variation: float, secrets: int) -> float:
    """Largest change of I(Θ; Y), in nats, when every law of the release moves by at most this much.

    If sup over (secret, state) of the total variation distance between two kernels is ε ≤ 1 − 1/K, then
    |I − I'| ≤ ε log(K − 1) + h₂(ε), and log K beyond (Alhejji and Smith's continuity of equivocation). No
    continuity of entropies is needed, since the secret is finite.

    Args:
        total_variation: ε, half the L1 distance of the densities, between 0 and 1.
        secrets: K, at least two.
    """
    if not 0.0 <= total_variation <= 1.0:
        raise ValueError(f"total_variation must lie in [0, 1], got {total_variation}: half the L1 distance.")
    if secrets < 2:
        raise ValueError(f"secrets must be at least 2, got {secrets}: one secret cannot leak.")
    if total_variation >= 1.0 - 1.0 / secrets:
        return math.log(secrets)
    return total_variation * math.log(secrets - 1) + _binary_entropy(total_variation)


def _binary_entropy(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    return -share * math.log(share) - (1.0 - share) * math.log1p(-share)

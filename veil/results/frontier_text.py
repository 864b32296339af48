"""A frontier in plain words."""

from veil.results.frontier import Frontier, Needed, above_displacement, comparable, needed
from veil.settings import FAMILY_WORDS, FamilyName

NATS = 0.05  # the leakage that families are compared at


def summary(found: Frontier, nats: float = NATS) -> str:
    """What each family needs, what nothing at all costs, and whether learning beats displacement."""
    lines = [needs(found, nats), floor(found), displacement(found), doubts(found)]
    return " ".join(line for line in lines if line)


def needs(found: Frontier, nats: float = NATS) -> str:
    """The distortion per family for this leakage."""
    wanted = {kind: needed(found.family(kind), nats) for kind in found.kinds}
    noise = wanted.get("noise", Needed(None))
    base = {kind: None if kind == "noise" else noise for kind in found.kinds}
    parts = [f"{FAMILY_WORDS[kind]} {_one(wanted[kind], base[kind])}" for kind in found.kinds]
    return (
        f"For a leakage of {nats:g} nats of {found.entropy:.3f}, by the upper side and interpolated between "
        f"the points measured, the mean distortion per step is: {'; '.join(parts)}."
    )


def floor(found: Frontier) -> str:
    """What perfect privacy costs."""
    return f"Without any leakage and any noise, transport costs {found.floor.value:.3g} per step."


def displacement(found: Frontier) -> str:
    """Whether any learned point on transport is worse than displacement; nothing where there are none."""
    learned, seen = found.family("transport"), comparable(found)
    if not learned or not found.family("displacement"):
        return ""
    if not seen:
        return "No learned point can be compared with displacement interpolation: it was not measured there."
    above = above_displacement(found)
    if not above:
        rest = f", {len(learned) - len(seen)} could not be compared" if len(seen) < len(learned) else ""
        return f"Of {len(seen)} learned on transport none lies above displacement interpolation{rest}."
    each = ", ".join(
        f"weight {point.goal.value:g} (at least {point.leakage.low:.3f} nats, displacement {other:.3f})"
        for point, other in above
    )
    return (
        f"Some learned points on transport lie above displacement interpolation: {each}. They are worse than "
        "what needs no learning; train them longer (--updates)."
    )


def doubts(found: Frontier) -> str:
    """Points that may not be believed; nothing where all may."""
    names = []
    for kind in found.kinds:
        values = [f"{one.goal.value:g}" for one in found.family(kind) if not one.trusted]
        names += [f"{FAMILY_WORDS[kind]} {', '.join(values)}"] if values else []
    if not names:
        return ""
    return (
        f"Everything may leak where no bound is to be believed: {'; '.join(names)}. These points are hollow "
        "in the picture and in no curve; frontier.json says why."
    )


def strength(kind: FamilyName, value: float) -> str:
    """What the number of a point means."""
    texts = {"noise": f"sd {value:g} × spread", "quantised": f"step {value:g} × spread"}
    return texts.get(kind, f"share {value:g}" if kind == "displacement" else f"weight {value:g}")


def _one(wanted: Needed, noise: Needed | None) -> str:
    if wanted.distortion is None:
        return "not reached" if wanted.believed else "not known, no point of it is to be believed"
    text = f"{'at most ' if wanted.bound else ''}{wanted.distortion:.3g}"
    if noise is None or noise.distortion is None or noise.bound:
        return text
    ratio = noise.distortion / wanted.distortion
    times = f"{ratio:.3g} times less" if ratio >= 1.0 else f"{1 / ratio:.3g} times more"
    return f"{text} ({times} than noise)"

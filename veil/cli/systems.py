"""`veil systems`: which systems there are, and what the library says about one of them."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from veil.systems import Field, System

NAMES = {
    "platoon": "a leader, an automated vehicle, and a human driver whose style is the secret",
    "coloured_platoon": "the same with a driver who errs for seconds, not for one step",
    "idm_platoon": "the same with a driver who follows the Intelligent Driver Model",
    "gain": "a scalar linear loop with a secret gain, where every answer is known exactly",
}


@dataclass(frozen=True)
class Systems:
    """List the systems with a secret, or examine one of them."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """System to examine: platoon, coloured_platoon, idm_platoon or gain; all are listed if left out"""

    def run(self) -> None:
        """Print the list or the examination."""
        if not self.name:
            print("\n\n".join(describe(name, build(name)) for name in NAMES))
            print("\nExamine one of them with `veil systems NAME`.")
            return
        if self.name not in NAMES:
            print(f"veil systems: no system '{self.name}'. Choose {', '.join(NAMES)}.", file=sys.stderr)
            sys.exit(2)
        from veil.systems import check_system

        system = build(self.name)
        print(describe(self.name, system))
        print()
        print(check_system(system))


def build(name: str) -> "System":
    """A system with its defaults."""
    from veil.systems import ColouredPlatoon, Gain, IdmPlatoon, Platoon

    platoons = {"platoon": Platoon, "coloured_platoon": ColouredPlatoon, "idm_platoon": IdmPlatoon}
    return {**platoons, "gain": Gain}[name]()


def describe(name: str, system: "System") -> str:
    """What is secret, what is private, what is public, what is shared; and the secrets of the prior."""
    kinds = (
        ("secret", system.secret_fields),
        ("state", system.state_fields),
        ("external", system.external_fields),
        ("shared", system.shared_fields),
    )
    lines = [f"  {kind:<9} {', '.join(map(label, fields))}" for kind, fields in kinds]
    values = (", ".join(f"{float(number):g}" for number in secret) for secret in system.prior.secrets)
    count, entropy = len(system.prior.secrets), float(system.prior.entropy)
    lines.append(f"  prior     {count} secrets ({'), ('.join(values)}); H(q) = {entropy:.3f} nats")
    return "\n".join([f"{name}: {NAMES[name]}", *lines])


def label(field: "Field") -> str:
    """Name and unit."""
    return f"{field.name} [{field.unit}]" if field.unit else field.name

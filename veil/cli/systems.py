"""`veil systems`: which systems there are, and what the library says about one of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from veil.cli import own_system
from veil.cli.mistakes import Mistake, complain, known

if TYPE_CHECKING:
    from veil.systems.base import Field, System


NAMES = {
    "platoon": "a leader, an automated vehicle, and a human driver whose style is the secret",
    "coloured_platoon": "the same with a driver who errs for seconds, not for one step",
    "idm_platoon": "the same with a driver who follows the Intelligent Driver Model",
    "gain": "a scalar linear loop with a secret gain, where every answer is known exactly",
}


@dataclass(frozen=True)
class Systems:
    """List the systems with a secret, or examine one of them.

    Example: `veil systems platoon`
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SYSTEM]")] = ""
    """platoon, coloured_platoon, idm_platoon, gain, or your own as FILE.py:NAME; by default all of ours"""

    def run(self) -> None:
        """Print the list or the examination."""
        if not self.name:
            print("\n\n".join(describe(name, build(name)) for name in NAMES))
            print("\nExamine one of them with `veil systems NAME`.")
            return
        from veil.checks.system import check_system

        try:
            check(self.name)
            system = build(self.name)
        except Mistake as mistake:
            complain("systems", mistake)
        print(describe(self.name, system))
        print()
        print(check_system(system))


def check(name: str, also: str = own_system.FORM) -> None:
    """Refuse what is none of ours and does not say where it is; `build` finds out whether it is there."""
    if not own_system.is_own(name):
        known("system", name, NAMES, also)


def build(name: str) -> "System":
    """A system with its defaults, or one of the user's."""
    if own_system.is_own(name):
        return own_system.load(name)
    from veil.systems.gain import Gain
    from veil.systems.platoon import ColouredPlatoon, IdmPlatoon, Platoon

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
    doc = (type(system).__doc__ or "a system of your own").strip().splitlines()[0]
    return "\n".join([f"{own_system.short(name)}: {NAMES.get(name, doc)}", *lines])


def label(field: "Field") -> str:
    """Name and unit."""
    return f"{field.name} [{field.unit}]" if field.unit else field.name

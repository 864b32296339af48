"""Write docs/reference.md: every public name with the first line of its docstring.

Run `python docs/make_reference.py` after a name was added, removed or described anew.
"""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import veil

PAGE = Path(__file__).with_name("reference.md")
TOP = """# Reference

Every public name, with the first line of its docstring; `help(veil.audit)` shows the rest. A name of the
first list is imported as `veil.name`, the others from their module. `veil.environment.Sharing` is the
Gymnasium form (extra `gym`). This page is written by `docs/make_reference.py`.
"""
# What is neither a class nor a function has no docstring of its own.
VALUES = {
    "veil.learners.Family": "The problems that one policy must do well on: one, or one per plant.",
    "veil.learners.Metrics": "What an update has to say: numbers by name.",
    "veil.rollout.Seed": "An integer that all public randomness of an episode follows from.",
    "veil.sharing.Entry": "One line of a ledger: numbers and words by name.",
    "veil.step.Seed": "An integer that all public randomness of an episode follows from.",
}


def modules() -> list[str]:
    """The public modules of the package, in alphabetical order."""
    return sorted(f"veil.{name}" for name in veil._MODULES)


def names(module: ModuleType) -> list[str]:
    """What a module offers: what it lists, or else what it defines and does not mark as its own."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not name.startswith("__")]
    defined = vars(module).items()
    return sorted(
        name
        for name, value in defined
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    )


def summary(module: ModuleType, name: str) -> str:
    """The first line of the docstring; empty where there is none."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        text = (value.__doc__ or "").strip()
        own = text.splitlines()[0].strip() if text else ""
        return "" if own.startswith(f"{name}(") else own  # which a dataclass writes by itself
    return VALUES.get(f"{module.__name__}.{name}", "")


def entry(module: ModuleType, name: str) -> str:
    """One line of the page."""
    value, shown = getattr(module, name), name
    if inspect.isfunction(value):
        shown = f"{name}({', '.join(inspect.signature(value).parameters)})"
    return f"- `{shown}`: {summary(module, name)}"


def section(title: str) -> str:
    """All names of a module."""
    module = importlib.import_module(title)
    about = (module.__doc__ or "").strip().splitlines()[0]
    lines = [entry(module, name) for name in sorted(names(module), key=str.lower)]
    return "\n".join([f"## {title}", "", about, "", *lines])


def page() -> str:
    """The whole page."""
    return "\n\n".join([TOP.rstrip(), *(section(title) for title in ["veil", *modules()])]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""A system of the user's on the command line: FILE.py:NAME, or MODULE:NAME."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from veil.cli.mistakes import Mistake, known

if TYPE_CHECKING:
    from veil.systems.base import System


FORM = " Or give one of your own, as FILE.py:NAME."


def is_own(name: str) -> bool:
    """Whether this names a system by where it is."""
    return ":" in name


def short(name: str) -> str:
    """For folders and tables: the name without the place."""
    return name.rpartition(":")[2].lower()


def load(name: str) -> "System":
    """The system, or what a class or function of that name makes without arguments."""
    from veil.systems.base import System

    place, _, attribute = name.rpartition(":")
    module = _module(place)
    own = [one for one, value in vars(module).items() if _made_here(value, module)]
    known(f"system in {place}:", attribute, own)
    found = getattr(module, attribute)
    try:
        made = found if isinstance(found, System) or not callable(found) else found()
    except TypeError as error:
        raise Mistake(f"{name} needs arguments ({error}). Name an instance, or what makes one.") from None
    if not isinstance(made, System):
        raise Mistake(f"{name} is no veil.systems.System. docs/own-system.md has the contract.")
    return made


def _made_here(value: object, module: ModuleType) -> bool:
    """Whether this may be meant: a system, or something that makes one and was not imported."""
    from veil.systems.base import System

    return isinstance(value, System) or (callable(value) and value.__module__ == module.__name__)


def _module(place: str) -> ModuleType:
    """The file or module, run once; what goes wrong inside is told with its line."""
    path = Path(place)
    try:
        if path.suffix != ".py":
            sys.path[:0] = [] if "" in sys.path else [""]
            return importlib.import_module(place)
        if not path.is_file():
            raise Mistake(f"there is no file {place} here. Give the path as seen from this folder.")
        name = f"veil_own_{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None  # the file is there
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[name]
    except Mistake:
        raise
    except Exception as error:  # whatever the user's file does
        sys.modules.pop(f"veil_own_{path.stem}", None)
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(line.filename).name}, line {line.lineno}"
        raise Mistake(f"{place} cannot be loaded: {type(error).__name__}: {error} ({where}).") from error

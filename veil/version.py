"""The version of the installed package.

It is not kept in `veil/__init__.py`, so that a module that needs it does not import that.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("veil")
except PackageNotFoundError:  # run from the sources
    __version__ = "0+unknown"

"""Strict numerics for every test: shapes and types are checked, nothing is promoted silently."""

from jaxtyping import install_import_hook

install_import_hook("veil", "beartype.beartype")

import jax  # noqa: E402  (the hook must come before the package)
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def float64():
    """Truth tests run in double precision."""
    with jax.enable_x64(True):
        yield

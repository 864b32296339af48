"""What the folder of a run says about the machine, and about the arrays of its policy."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from veil.beliefs.particles import ParticleSpec, Scheme
from veil.beliefs.pooled import PooledSpec
from veil.io import StoreError
from veil.policies.base import Policy
from veil.policies.scaling import Limits

SCHEMA = 1  # of policy.json and of the order of the arrays in policy.safetensors

ADVICE = "Restore the file, or begin anew with `veil train --again`."

PACKAGES = ("veil", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "safetensors")


def environment() -> dict[str, object]:
    """Versions and the kind of machine; nothing that names the machine or its owner."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "device": jax.default_backend(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def manifest(policy: Policy, system: str, digest: str) -> dict[str, object]:
    """What the arrays of a policy are, and what it does that is not in them.

    Args:
        policy: as it was saved.
        system: its name.
        digest: SHA-256 of the file.
    """
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(policy, eqx.is_array))[0]
    arrays = [
        {
            "name": f"{i:04d}",
            "path": jax.tree_util.keystr(path),
            "shape": leaf.shape,
            "dtype": str(leaf.dtype),
        }
        for i, (path, leaf) in enumerate(leaves)
    ]
    kinds = {str(leaf.dtype) for _, leaf in leaves if np.issubdtype(leaf.dtype, np.floating)}
    trackers = [*_parts(policy, ParticleSpec), *_parts(policy, PooledSpec)]
    return {
        "schema": SCHEMA,
        "veil": _version("veil"),
        "system": system,
        "policy": type(policy).__name__,
        "dtype": ", ".join(sorted(kinds)),
        "particles_per_secret": max([one.count for one in trackers], default=0),
        "thresholds": thresholds(policy),
        "public_seed": "one per episode; it is in every transcript and every ledger",
        "sha256": digest,
        "arrays": arrays,
    }


def thresholds(policy: Policy) -> dict[str, float]:
    """Below which share of effective particles a belief resamples, and the limits of a learned kernel."""
    found = dict[str, float]()
    for scheme in _parts(policy, Scheme):
        found["effective_share"] = float(scheme.threshold)
    for limits in _parts(policy, Limits):
        found |= {f"{name}_limit": float(value) for name, value in vars(limits).items()}
    return found


def _parts(policy: Policy, kind: type) -> list:
    """All parts of this kind."""
    parts = jax.tree.leaves(policy, is_leaf=lambda part: isinstance(part, kind))
    return [part for part in parts if isinstance(part, kind)]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from the sources
        return "unknown"


def check_manifest(path: Path) -> None:
    """Refuse arrays in an order that this version does not know."""
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
    except FileNotFoundError:  # for readers outside; the arrays are checked by their sum and shapes
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not the manifest of a policy. {ADVICE}") from error
    if schema != SCHEMA:
        raise StoreError(f"{path} has schema {schema}; this version reads {SCHEMA}. {ADVICE}")

"""A process that charges one account from two streams until nothing fits, or until it is killed."""

import os
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.sharing.secret_account import SecretAccount


def charge_until_empty(path: Path, number: int, worker: int) -> None:
    """Two streams of one process, charges of random size until nothing fits."""
    chance, secret = np.random.default_rng([number, worker]), np.array([0.6])
    mine = [SecretAccount(path, secret) for _ in range(2)]
    spent = [0.0, 0.0]
    try:
        for k, one in enumerate(mine):
            one.claim(path.with_name(f"{path.name}-{worker}-{k}"), None)
        for _ in range(40):
            k = int(chance.integers(2))
            charge = float(chance.uniform(0.0, 0.2))
            left = 1.0 - spent[k] - mine[k].spent_elsewhere()
            if charge <= left and mine[k].reserve(spent[k] + charge, 1.0):
                spent[k] += charge
                mark = mine[k].mark
                mine[k].commit(replace(mark, step=mark.step + 1, spent=spent[k]))
    except BaseException:
        traceback.print_exc()
        os._exit(3)
    os._exit(0)

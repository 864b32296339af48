"""One page for all tests that look at it: drawing takes longer than looking."""

import numpy as np
import pytest

from tests.reports.made_folders import audit_folder, frontier_folder, run_folder
from veil.reports.page import html
from veil.reports.sources import Episode, gather


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """True data and a learned policy side by side, with everything that there can be."""
    folder = tmp_path_factory.mktemp("folders")
    folders = audit_folder(folder / "true"), run_folder(folder / "learned")
    found = gather(folders, names=["true data", "learned"], frontier=frontier_folder(folder / "frontier"))
    true = np.linspace([15.0, 20.0], [16.0, 19.0], 50)
    found.episodes["learned"] = Episode(("speed", "spacing"), ("m/s", "m"), true, true + 0.25, true + 0.1)
    return found


@pytest.fixture(scope="session")
def source(material):
    """The page about it."""
    return html(material)

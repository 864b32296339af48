"""Figure 1: the posterior on the true secret over time, and where its likeliest value is wrong."""

from veil.cli.main import prepare
from veil.cli.reproduce import script

if __name__ == "__main__":
    prepare()
    script("figure_1")

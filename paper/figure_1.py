"""Figure 1: the posterior on the true secret over time, and where its likeliest value is wrong."""

from paper.reproduction.command import script
from veil.cli.main import prepare

if __name__ == "__main__":
    prepare()
    script("figure_1")

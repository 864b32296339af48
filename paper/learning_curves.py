"""Learning curves: leakage and distortion of all trainings against the time they took."""

from paper.reproduction.command import script
from veil.cli.main import prepare

if __name__ == "__main__":
    prepare()
    script("learning_curves")

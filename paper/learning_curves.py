"""Learning curves: leakage and distortion of all trainings against the time they took."""

from veil.cli.main import prepare
from veil.cli.reproduce import script

if __name__ == "__main__":
    prepare()
    script("learning_curves")

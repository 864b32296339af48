"""The evaluation of policies: simulate, bound the leakage from both sides, attack, give a verdict."""

from veil.evaluation.episodes import simulate
from veil.evaluation.transcript_file import TranscriptError, load, save

__all__ = ["TranscriptError", "load", "save", "simulate"]

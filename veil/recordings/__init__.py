"""Recorded trajectories: read them from files, and measure what they tell about the secret."""

from veil.recordings.reader import Log, LogError, read_recordings

__all__ = ["Log", "LogError", "read_recordings"]

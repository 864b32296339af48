"""Recorded trajectories: read them from files, and measure what they tell about the secret."""

from veil.recordings.reader import read_recording, read_recordings
from veil.recordings.recording import Recording, Signal
from veil.recordings.tables import RecordingError

__all__ = ["Recording", "RecordingError", "Signal", "read_recording", "read_recordings"]

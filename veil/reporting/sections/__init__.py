"""The sections of a report, one question each."""

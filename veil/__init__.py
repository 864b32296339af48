"""Veil: share your data, keep your parameters."""

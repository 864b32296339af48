"""Comparisons with peers, and cost against size. Speed is printed and recorded; it is not a test."""

"""Comparisons with real data."""

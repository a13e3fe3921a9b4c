"""Sinks on real file systems."""

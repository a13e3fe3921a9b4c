"""Stores of progress: one behaviour for all."""

"""Sinks: the places where windows are published, each with its marker, atomically.

`factory` knows them all by name, one module each; modules with `_` in front are what several share.
Sinks decide nothing about windows: they stage, verify, publish atomically, and answer which windows
they have.
"""

"""Sinks: the places where windows are published, each with its marker, atomically.

`factory` knows them all by name. A destination is a module or, where it needs more, a folder with
`sink.py` in it; modules with `_` in front are what several destinations share.
Sinks decide nothing about windows: they stage, verify, publish atomically, and answer which windows
they have.
"""
